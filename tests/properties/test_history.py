"""The history of a cell is what its documents said: at each boundary that is kept, behind the last record up to it.
Histories as in test_cores.py, with the gateway's view beside the cores.
"""

import asyncio
from random import Random

import pytest

from largesse.log.snapshots import dump, load
from schemas.quantities import SHARE_UNITS, quantity_text
from schemas.rounds import SequencerAlive
from services.gateway import view
from services.gateway.documents.history import history_document
from services.gateway.documents.nodes import node_documents
from services.gateway.documents.summary import summary_document
from services.gateway.documents.tally import Tally
from services.gateway.view import history as kept
from tests.cells import SlowCell
from tests.properties.histories import Play, seeded_histories
from tests.strategies import for_all

TREES = ("wide", "none", "deep", "limited", "capped", "users")
FOREVER = 2**60
EVERY_MS = 500


class Watched(SlowCell):
    """Keeps what the documents said behind every record of the log, by time: behind the last one of each."""

    def __init__(self, *given, **options):
        self.view = view.start()
        self.view.history.every_ms = EVERY_MS
        self.said = {}
        super().__init__(*given, **options)

    def put(self, body, cause=""):
        record = super().put(body, cause)
        if type(record.body) in view.FOLDS:
            view.fold(self.view, record)
            self.said[record.time] = said_of(self.view)
        return record

    def close(self):
        for topic in view.READS:
            for record in self.answers[topic]:
                view.fold(self.view, record)
        return super().close()

    def restart(self):
        """The view goes on from a snapshot."""
        self.view = load(view.State, dump(self.view))


def said_of(state):
    """What documents say of a cell as it is."""
    summary = summary_document(state, asyncio.run(Tally().look(state)))
    state.touched = None
    tree = summary["queues"]
    told = {
        queue["queue"]: (round(queue["held"] * SHARE_UNITS), entitled(queue), guaranteed(queue))
        for queue in tree["children"]
    }
    return {
        "capacity": summary["capacity"],
        "held": {kind: text for kind, text in summary["used"].items() if text != quantity_text(kind, 0)},
        "promised": tree["promised"],
        "jobs": sum(summary["jobs"].get(each, 0) for each in ("waiting", "running")),
        "waiting": sum(each["tasks"] for each in summary["waiting"]),
        "running": sum(each["running"] for each in node_documents(state)),
        "queues": {path: each for path, each in told.items() if each[0] or each[1] is not None or each[2]},
    }


def entitled(queue):
    """What a queue is entitled to, or those below it together; None: none of them to anything."""
    own = [] if queue["target"] is None else [round(queue["target"] * SHARE_UNITS)]
    below = [each for child in queue["children"] if (each := entitled(child)) is not None]
    return sum(own + below) if own or below else None


def guaranteed(queue):
    """What a queue is guaranteed; None: it has no share of its own."""
    return None if queue["guaranteed"] is None else round(queue["guaranteed"] * SHARE_UNITS)


def at_each(document):
    """The same from a history, by time."""
    found = {}
    for at, ms in enumerate(document["times_ms"]):
        series = document["resources"].items()
        amounts = {
            name: {kind: quantity_text(kind, each[name][at]) for kind, each in series if each[name][at]}
            for name in ("capacity", "held", "promised")
        }
        queues = {
            path: (each["held"][at], each["entitled"][at], each["guaranteed"][at])
            for path, each in document["queues"].items()
        }
        found[ms] = {
            **amounts,
            **{name: document[name][at] for name in ("jobs", "waiting", "running")},
            "queues": {path: each for path, each in queues.items() if each[:2] != (0, None) or each[2]},
        }
    return found


def check(state, said):
    """The history has every boundary since the log began, is no coarser than it must be, and says what was said."""
    history, most = state.history, kept.SAMPLES_MAX
    first, last, every = min(said), max(said), history.every_ms
    document = history_document(state, 0, FOREVER, 1_000)
    times = document["times_ms"]
    assert times == [*range(-(-first // every) * every, last, every), last]
    assert len(history.samples) <= len(times) - 1 <= most
    assert every == EVERY_MS or len(range(-(-first // (every // 2)) * (every // 2), last, every // 2)) > most
    for ms, found in at_each(document).items():
        assert found == said[max(each for each in said if each <= ms)], ms
    assert {document["interval_ms"], document["kept_ms"]} == {every}


@pytest.mark.parametrize("most", [4, 37])
def test_a_history_is_what_the_documents_said(monkeypatch, most):
    monkeypatch.setattr(kept, "SAMPLES_MAX", most)
    doubled = 0

    @for_all(seeded_histories(50))
    def law(history):
        nonlocal doubled
        cell, chance = Watched(1), Random(history.seed)
        play = Play(cell, TREES[history.seed % len(TREES)])
        for step in history.steps:
            play.step(*step)
            if chance.random() < 0.1:
                play.call("put", SequencerAlive([]))
            if chance.random() < 0.1:
                cell.restart()
        check(cell.view, cell.said)
        doubled += cell.view.history.every_ms > EVERY_MS

    law()
    assert doubled
