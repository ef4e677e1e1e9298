"""What a cell holds follows what lives in it: of jobs that have passed, only what is stated, within its bounds."""

from importlib import import_module

import orjson
import pytest

from largesse.lifecycle import node_work as agent
from largesse.log.codec import decode
from largesse.log.snapshots import dump, load
from schemas import JobCancelled
from services.gateway.documents.job_lists import job_documents
from services.gateway.documents.jobs import job_document
from services.gateway.view.state import State
from tests.gateway_watch import Watched, stage

FOLDING = import_module("services.gateway.view.fold")  # The module: the package has a function of that name.

STATED = {
    "admission": {"ended"},
    "gateway": {
        *("ended", "ended_kept", "ledger", "places", "places_kept", "specs", "specs_kept", "used_by"),
    },
}
"""Fields of a state that keep something of each job that has ended, by service: names, and what `get job` shows."""


BOUNDED = {"curves", "forecast", "forecast_seq", "samples", "history"}
"""Fields that hold the last forecast of releases, how good the last 64 were, and the cell at 720 times at most."""


class Everything(Watched):
    """With the core of an agent, too."""

    def __init__(self, **more):
        self.agent = agent.start("n0", "e1")
        super().__init__(**more)

    def _hear(self, topic, header, content):
        super()._hear(topic, header, content)
        if topic == "cluster.log":
            agent.fold(self.agent, decode(content))
            agent.take(self.agent, "n0")

    def entries(self):
        """By service and field of its state, how many values it holds."""
        cell = self.cell
        states = {"admission": cell.admission, "gateway": self.view, "agent": self.agent, "fairness": cell.fairness}
        states |= {"leftover": cell.leftover, "estimator": cell.estimator, "planner": cell.planner}
        states |= {f"altruism/{at}": state for at, state in enumerate(cell.altruism)}
        return {
            f"{name}.{field}": count(value)
            for name, state in states.items()
            for field, value in orjson.loads(dump(state)).items()
            if field not in STATED.get(name, ()) and field not in BOUNDED
        }


def count(value):
    if isinstance(value, dict):
        return len(value) + sum(map(count, value.values()))
    return len(value) + sum(map(count, value)) if isinstance(value, list) else 0


def pass_through(cell, first, jobs):
    """Jobs that succeed, of which every third fails an attempt before, and jobs that wait and are cancelled."""
    cell.submit(f"long-{first}", stage(tasks=4), queue="default")
    cell.start(f"long-{first}", "s", count=4)
    for at in range(first, first + jobs):
        cell.submit(f"waits-{at}", stage(tasks=2)).take(JobCancelled(f"waits-{at}", "ann")).settle()
    cell.finish(f"long-{first}", "s", count=4)
    for at in range(first, first + jobs):
        cell.submit(f"runs-{at}", stage(retries=1)).start(f"runs-{at}", "s")
        attempt = 1 if at % 3 else 2
        if attempt == 2:
            cell.fail(f"runs-{at}", "s").settle(5_000).start(f"runs-{at}", "s", attempt=2)
        cell.finish(f"runs-{at}", "s", attempt=attempt)
    cell.settle(3_600_000)


@pytest.mark.parametrize("preset", ["largesse", "carbyne", "dress", "hdrf", "fifo"])
def test_states_hold_no_more_after_many_jobs_than_after_few(preset):
    cell = Everything(preset=preset)
    pass_through(cell, 0, 9)
    before = cell.entries()
    pass_through(cell, 9, 9)
    after = cell.entries()

    assert {name: (before[name], held) for name, held in after.items() if held > before[name]} == {}
    assert len(cell.cell.admission.ended) == len(cell.view.ended) == 38


def test_ended_jobs_go_where_they_come_to_too_many_characters(monkeypatch):
    monkeypatch.setattr(FOLDING, "ENDED_CHARACTERS_MAX", 1_300)
    cell = Watched()
    for name in "abcd":
        cell.submit(name, stage(retries=1)).start(name, "s").fail(name, "s", detail="x" * 400).settle(5_000)
        cell.start(name, "s", attempt=2).finish(name, "s", attempt=2)

    assert [job["job"] for job in job_documents(cell.view, limit=10)] == ["d", "c"]
    assert list(cell.view.places) == list(cell.view.used_by) == list(cell.view.specs) == ["c", "d"]
    assert cell.view.ended_kept == sum(job.size for job in cell.view.ended.values()) <= 1_300


def test_an_ended_job_is_shown_the_same_after_a_restart():
    cell = Watched().submit("a", stage(retries=1), stage("t", after=["s"])).start("a", "s").fail("a", "s", detail="ä\n")
    cell.settle(5_000).start("a", "s", attempt=2).finish("a", "s", attempt=2).start("a", "t").finish("a", "t")
    restored = load(State, dump(cell.view))

    document = job_document(restored, "a")
    assert document == cell.job("a")
    assert [stage["after"] for stage in document["stages"]] == [[], ["s"]]
    assert [failure["detail"] for failure in document["failures"]] == ["ä\n"]
