"""What the gateway shows of tasks that count for less than they ask for, and that it counts as the scheduler does."""

from dataclasses import replace

import pytest

from largesse.log.snapshots import dump, load
from schemas import JobRerun, Queue, TaskEnd, TaskFinished
from schemas.edge.read import ConfigPatch
from services.gateway import view
from services.gateway.documents.specs import kept_spec
from services.gateway.documents.tally import Tally
from services.gateway.http.dry_runs.config import tasks_of
from tests.builders import tree
from tests.gateway_watch import Watched, stage
from tests.unit.test_gateway_metrics import assert_as_documents_say

SAID = {"asked": {"cpu": "4"}, "counted": {"cpu": "2500m"}, "runs": 3, "peak": {"cpu": "2"}}
WIDE = stage(tasks=3, cpu=4)


def taught(**knobs):
    """A cell in which three runs of job r have used two of four cores a task."""
    cell = Watched(cpu=12, demands="history", **knobs)
    for number in range(3):
        cell.submit(f"r-{number}", WIDE).start(f"r-{number}", "s", count=3)
        finish(cell, f"r-{number}")
    return cell


def finish(cell, job, first=0, count=3):
    return cell.take(TaskFinished([TaskEnd(job, "s", first, count, 1, "n0", "e1", [5], {"cpu": 2_000})])).settle()


def test_a_stage_says_what_it_asks_for_what_it_counts_for_and_why():
    cell = taught()
    assert cell.job("r-2")["stages"][0]["counted"] is None

    cell.submit("r-9", WIDE, stage("t")).start("r-9", "s", count=3).start("r-9", "t")
    cell.view = load(view.State, dump(cell.view))

    assert [each["counted"] for each in cell.job("r-9")["stages"]] == [SAID, None]


def test_an_ended_job_says_so_too():
    cell = taught().submit("r-9", WIDE).start("r-9", "s", count=3)
    finish(cell, "r-9")
    cell.view = load(view.State, dump(cell.view))

    assert (cell.job("r-9")["state"], cell.job("r-9")["stages"][0]["counted"]) == ("succeeded", SAID)


def test_nodes_and_queues_hold_what_tasks_count_for():
    cell = taught().submit("r-9", replace(WIDE, tasks=9))

    assert cell.view.nodes["n0"].used == {"cpu": 4 * 2_500}
    assert cell.view.used["default"] == {"cpu": 4 * 2_500}
    assert tasks_of(cell.view, None)["default"] == [{"demand": {"cpu": 2_500}, "running": 4, "waiting": 5, "over": 0}]


@pytest.mark.parametrize("limit", [None, 6_000])
def test_reasons_to_wait_go_by_what_tasks_count_for(limit):
    cell = taught(preset="hdrf").take(ConfigPatch({}, tree(Queue("default", max={"cpu": limit} if limit else {}))))
    cell.submit("r-9", replace(WIDE, tasks=9))
    (why,) = cell.job("r-9")["stages"][0]["why"]

    if limit is None:
        assert (why["reason"], why["tasks"]) == ("no_room", 5)
        assert why["text"].startswith("no node has room for it now; n0 comes nearest, with cpu 2 of 2500m free")
    else:
        assert (why["reason"], why["tasks"]) == ("queue_max", 7)
        assert why["text"].endswith("queue default has a max of cpu 6 and holds 5; a task asks for 2500m")
    assert_as_documents_say(Tally(), cell.view)


def test_a_job_runs_again_as_it_was_submitted():
    cell = taught().submit("r-9", WIDE).start("r-9", "s", count=3)
    finish(cell, "r-9")
    spec = kept_spec(cell.view, "r-9")
    assert spec.stages[0].demand == {"cpu": 4_000}

    cell.take(JobRerun(spec)).settle()
    (said,) = [each["counted"] for each in cell.job("r-9")["stages"]]
    assert (cell.job("r-9")["run"], said) == (2, SAID | {"runs": 4})
