"""Whoever is told of changes misses none: whatever document differs between two records, what is told of those between
them names it, or says that its kind has changed. Histories as in test_cores.py, with the gateway's view beside the
cores.
"""

from random import Random

from schemas.rounds import SequencerAlive
from services.gateway import changes, view
from services.gateway.changes import Changes
from services.gateway.documents.cell import config_document
from services.gateway.documents.jobs import job_document
from services.gateway.documents.ledger import ledger_document
from services.gateway.documents.nodes import node_document
from services.gateway.documents.queues import queue_document
from services.gateway.documents.reservations import reservation_document, series_document
from services.gateway.view.jobs import waiting_of
from services.gateway.view.state import NAMED
from tests.cells import SlowCell
from tests.properties.histories import Play, seeded_histories
from tests.strategies import for_all

SHARDS = 4
TREES = ("wide", "none", "deep", "limited", "capped", "users")
PAIRS = 120
"""Pairs of records that are compared of one history."""


class Polled(SlowCell):
    """Keeps, after every record, the view and what is told of changes."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.view = view.start()
        self.changes = Changes(self.view)
        self.polls = {0: poll(self.view)}

    def put(self, body, cause=""):
        record = super().put(body, cause)
        if type(record.body) in view.FOLDS:
            view.fold(self.view, record)
            self.changes.take(record)
            self.polls[record.seq] = poll(self.view)
        return record

    def close(self):
        for topic in view.READS:
            for record in self.answers[topic]:
                view.fold(self.view, record)
        return super().close()


def poll(state):
    """Every document, by kind and name, and which jobs have tasks that wait."""
    jobs = {name: job_document(state, name) for name in (*state.jobs, *state.ended)}
    waiting = {name for name, job in state.jobs.items() if any(waiting_of(job, at) for at in range(len(job.asked)))}
    return {
        "jobs": jobs,
        "nodes": {name: node_document(state, name) for name in state.nodes},
        "reservations": {name: reservation_document(row) for name, row in state.reservations.items()},
        "series": {name: series_document(row) for name, row in state.series.items()},
        "queues": queue_document(state),
        "config": config_document(state),
        "ledger": ledger_document(state),
        "rounds": (state.round, state.open),
        "waiting": waiting,
    }


def check(told, before, after):
    """What is told of the records between two polls."""
    for kind in ("queues", "config", "ledger", "rounds"):
        assert before[kind] == after[kind] or kind in told.kinds, kind
    for kind in NAMED:
        count, names = told.names.get(kind, (0, []))
        assert count >= len(names)
        if count > len(names):
            continue
        for name in {**before[kind], **after[kind]}:
            if before[kind].get(name) == after[kind].get(name) or name in names:
                continue
            assert kind == "jobs", f"{kind} {name}"
            assert told.reasons, name
            assert name in before["waiting"] & after["waiting"], name


def played(history, cell, **knobs):
    play, chance = Play(cell, TREES[history.seed % len(TREES)], **knobs), Random(history.seed)
    for step in history.steps:
        play.step(*step)
        if chance.random() < 0.2:
            play.step("change", chance.randint(0, 1_000), chance.randint(0, 1_000))
        if chance.random() < 0.2:
            play.call("put", SequencerAlive([]))
    return chance


@for_all(seeded_histories(60))
def test_whoever_is_told_of_changes_misses_none(history):
    cell = Polled(SHARDS)
    chance = played(history, cell, speculation_permille=1_000, speculation_finished_min=2)
    last = max(cell.polls)
    for _ in range(PAIRS):
        first = chance.choice(sorted(cell.polls))
        check(cell.changes.since(first), cell.polls[first], cell.polls[last])
    assert cell.changes.since(last) == changes.Changed(last)


@for_all(seeded_histories(60))
def test_what_is_told_in_pieces_leaves_out_nothing_of_the_whole(history):
    """As a stream tells it: each event what came since the one before."""

    class Streamed(Polled):
        def put(self, body, cause=""):
            record = super().put(body, cause)
            if chance.random() < 0.3 and self.view.seq > self.told:
                check(self.changes.since(self.told), self.polls[self.told], self.polls[self.view.seq])
                self.told, self.events = self.view.seq, self.events + 1
            return record

    chance = Random(history.seed)
    Streamed.told = Streamed.events = 0
    cell = Streamed(SHARDS)
    played(history, cell)
    assert cell.events or len(cell.records) < 20
