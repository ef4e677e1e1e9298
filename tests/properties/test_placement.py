"""Placement against itself written out plainly: every claim looked at anew for every task, no heap and no memory.

A board lives through many rounds, with room given back, jobs that come, go and ask anew, levels that move, and
placements that do not bind; each round it has to hand out exactly what the plain rules hand out.
"""

from random import Random

import pytest
from hypothesis import strategies as st

from schemas.quantities import SHARE_UNITS
from services.leftover.placement.board import Board, LeafLevel
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.packing import Alignment
from services.leftover.placement.pending_reasons import reasons
from services.leftover.placement.task_span import TaskSpan
from tests.properties.placement_plain import (
    AGEING_MS,
    DEMANDS,
    LABELS,
    NODES,
    PREFERS,
    UNFAIR_PERMILLE,
    Plain,
    PlainJob,
    Span,
    could_run,
)
from tests.strategies import for_all


class Both:
    """A board and the plain rules, given the same."""

    def __init__(self, discipline, orders, maxima, plain=Plain, pools_ppm=None, placing="packed", listed=None, **pools):
        table = NodeTable([capacity for capacity, _, _ in NODES], placing=placing)
        for i, (capacity, labels, devices) in enumerate(NODES):
            table.add(f"n{i}", "e", capacity, labels, list(enumerate(devices)), open_=True)
        self.board = Board(table, discipline, orders, maxima, pools_ppm, Alignment(UNFAIR_PERMILLE), listed, **pools)
        self.plain = plain(discipline, orders, maxima, placing, listed)
        self.listed = listed
        self.discipline, self.orders, self.maxima = discipline, orders, maxima
        self.leaf_of = {}
        self.now_ms = 0
        self.running = []  # (job, demand, node, devices), one a task
        self.said = {}  # What was said of each class that waits.
        self.count = 0
        self.last = []

    # ------------------------------------------------------------ what happens
    def job(self, leaf, priority, spans):
        self.count += 1
        name = f"j{self.count}"
        leaf = "" if self.discipline != "fair" and not self.listed else ("a", "b", "c")[leaf % 3]
        work = (self.count * 7919) % 50
        self.board.add_job(name, self.count, leaf, priority, leaf, work, self.count % 3)
        self.plain.jobs[name] = PlainJob(name, self.count, leaf, priority, work=work)
        self.leaf_of[name] = leaf
        self._ask(name, spans)

    def ask(self, which, spans):
        """A job asks anew, for other tasks than before."""
        if self.plain.jobs:
            self._ask(self._name(which), spans)

    def _ask(self, name, spans):
        """No task is optional under an order by alignment or in pools: the plain rules know those apart alone."""
        self.count += 1
        packs, asked = self.orders.get(self.leaf_of[name], "").startswith("tetris"), []
        gives = type(self.plain) is Plain and not packs
        for i, (demand, labels, prefer, gang, tasks, since_ms, optional) in enumerate(spans):
            stage = self.count * 100 + i
            width = tasks if gang else 0
            asked.append(Span(stage, demand, labels, prefer, width, 0, tasks, since_ms, optional=optional and gives))
        self.plain.jobs[name].spans = asked
        self._wait(name)

    def _wait(self, name):
        waits = []
        for span in self.plain.jobs[name].spans:
            task = self.board.classes.class_for(span.demand, span.labels, span.prefer, span.gang)
            waits.append(TaskSpan(str(span.stage), span.stage, task, span.first, span.count, 1, span.since_ms))
            waits[-1].optional = span.optional
        self.board.wait(name, waits)

    def over(self, which):
        """A job is over; what it holds stays taken until its tasks end."""
        if self.plain.jobs:
            name = self._name(which)
            self.board.remove_job(name)
            del self.plain.jobs[name]

    def end(self, which, count):
        self.last = []  # What ends was bound.
        for _ in range(min(count, len(self.running))):
            name, demand, node, devices = self.running.pop(which % len(self.running))
            self.plain.give(node, demand, devices)
            self.plain.use(self.leaf_of[name], demand, -1)
            if name in self.plain.jobs:
                self.plain.jobs[name].tasks -= 1
                held = self.plain.jobs[name].held
                for kind, amount in demand.items():
                    held[kind] -= amount
            pairs = self.board.node_table.pairs(demand)
            self.board.node_table.give(node, pairs, devices)
            self.board.hold(name, pairs, -1, self.leaf_of[name])

    def work(self, which):
        """Less is left of a job than before."""
        if self.plain.jobs:
            name = self._name(which)
            self.plain.jobs[name].work //= 2
            self.board.jobs.set_sort_value(name, self.plain.jobs[name].work)

    def level(self, leaf, target):
        leaf = ("a", "b", "c")[leaf % 3]
        self.board.set_levels([LeafLevel(leaf, target, guaranteed=self.board.leaf(leaf).guaranteed)])
        self.plain.targets[leaf] = target

    def serve(self, which):
        """A leaf has been served, some of them in the same round."""
        leaf, seq = ("a", "b", "c")[which % 3], which % 4
        self.board.serve(leaf, seq)
        self.plain.served[leaf] = seq

    def round(self):
        self.now_ms += 1
        placements = self.board.place(self.now_ms, AGEING_MS)
        demands = {p.stage: p.task.demand for p in placements}
        placed = [(p.job, int(p.stage), p.first, p.count, p.node, p.beyond, p.devices) for p in placements]
        assert placed == self.plain.place(self.now_ms - AGEING_MS)
        for name, stage, _, count, node, _, devices in placed:
            for k in range(count):
                self.running.append((name, demands[str(stage)], node, devices[k] if devices else []))
        self._check_reasons()
        for leaf in self.board.buckets.leaves.values():
            waiting = [
                span.task.size for job in self.board.jobs.by_name.values() if job.leaf is leaf for span in job.spans
            ]
            assert leaf.size_least == min(waiting, default=None)
        self.last = placements

    def strike(self, which):
        """One placement of the last round does not bind: its tasks wait again, as a span before all others."""
        if not self.last:
            return
        struck = self.last.pop(which % len(self.last))
        tasks = [
            (struck.job, struck.task.demand, struck.node, devices) for devices in struck.devices or [[]] * struck.count
        ]
        if struck.task.gang or struck.job not in self.plain.jobs:
            return
        self.board.unplace(struck)
        job = self.plain.jobs[struck.job]
        for task in tasks:
            self.running.remove(task)
            self.plain.give(struck.node, struck.task.demand, task[3])
            self.plain.use(job.leaf, struck.task.demand, -1)
            job.tasks -= 1
            for kind, amount in struck.task.demand.items():
                job.held[kind] -= amount
        task = struck.task
        again = Span(self.count * 100 + 99, task.demand, task.labels, task.prefer, 0, struck.first, struck.count, 0)
        self.count += 1
        job.spans.insert(0, again)
        self._wait(struck.job)

    def _name(self, which):
        return list(self.plain.jobs)[which % len(self.plain.jobs)]

    def _check_reasons(self):
        """What the board says when asked for changes adds up to what is so."""
        for task, reason in reasons(self.board):
            key = str((task.demand, task.labels, task.prefer, task.gang))
            self.said[key] = reason
        waiting = {span.kind(): span for job in self.plain.jobs.values() for span in job.spans}
        said = {key: reason for key, reason in self.said.items() if reason != "none"}
        if self.discipline == "fair" and not self.orders and not self.maxima:
            assert said == {key: self._reason(span) for key, span in waiting.items()}
        else:
            assert sorted(said) == sorted(waiting)

    def _reason(self, span):
        if not could_run(span):
            return "no_node"
        return "gang_no_room" if span.gang else "no_room"


# ---------------------------------------------------------------- drawn histories
TARGETS = (0, 1, SHARE_UNITS // 10, SHARE_UNITS // 3, SHARE_UNITS // 2, SHARE_UNITS)
STEPS = (
    "job",
    "job",
    "job",
    "end",
    "end",
    "end",
    "round",
    "round",
    "round",
    "level",
    "level",
    "ask",
    "over",
    "strike",
    "work",
    "serve",
)


def drawn_demand(chance):
    """One of a few that tasks share, or one of the job's own."""
    if chance.random() < 0.3:
        return {"cpu": chance.randint(200, 3_000), "memory": chance.randint(200, 5_000)}
    return chance.choice([*DEMANDS[:2] * 3, *DEMANDS])


def drawn_spans(chance):
    """Required spans first, as a job asks for them."""
    most = chance.choice((3, 3, 12))
    spans = [
        (
            drawn_demand(chance),
            chance.choice([{}, {}, {}, *LABELS]),
            chance.choice([{}, {}, *PREFERS]),
            chance.random() < 0.15,
            chance.randint(1, 8),
            chance.randint(0, 3),
            chance.random() < 0.3,
        )
        for _ in range(chance.randint(1, most))
    ]
    return sorted(spans, key=lambda span: span[-1])


def step(both, chance):
    what, which = chance.choice(STEPS), chance.randint(0, 100)
    if what == "job":
        both.job(which, chance.randint(-1, 1), drawn_spans(chance))
    elif what == "ask":
        both.ask(which, drawn_spans(chance))
    elif what == "end":
        both.end(which, chance.randint(1, 12))
    elif what == "level":
        both.level(which, chance.choice(TARGETS))
    elif what == "round":
        both.round()
    else:
        getattr(both, what)(which)


RULES = {
    "fair": ("fair", {}, {}),
    "fifo by job": ("fifo_job", {}, {}),
    "fifo by stage": ("fifo_stage", {}, {}),
    "many orders": ("fair", {"a": "fifo", "b": "srtf", "c": "fair"}, {}),
    "by alignment": ("fair", {"a": "tetris", "b": "tetris", "c": "drf"}, {"b": {"cpu": 6_000}}),
    "by alignment, the poorest": ("fair", {"a": "tetris-fair", "b": "tetris-fair"}, {"b": {"cpu": 6_000}}),
    "by work": ("fair", {"a": "sjf", "b": "srtf"}, {}),
    "maxima": ("fair", {}, {"a": {"cpu": 6_000}, "b": {"gpu": 800, "memory": 20_000}, "": {"cpu": 30_000}}),
    "both": ("fair", {"a": "fifo", "b": "priority"}, {"a": {"cpu": 6_000}, "b": {"memory": 20_000}}),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("rules", RULES)
@for_all(st.integers(0, 2**64 - 1))
def test_a_board_that_remembers_places_as_the_plain_rules_do(rules, seed):
    """Histories are drawn from the seed alone: Hypothesis would ready too few unlike steps in a row."""
    chance = Random(seed)
    both = Both(*RULES[rules], placing=chance.choice(("packed", "packed", "packed", "spread", "aligned")))
    for _ in range(60):
        step(both, chance)
    both.round()


LISTS = {
    "fifo by job": ("fifo_job", "fifo"),
    "fifo by stage": ("fifo_stage", "fifo"),
    "fifo in a tree": ("fair", "fifo"),
    "sjf": ("fair", "sjf"),
    "srtf": ("fair", "srtf"),
    "fair": ("fair", "fair"),
    "tetris": ("fair", "tetris"),
    "tetris-fair": ("fair", "tetris-fair"),
    "giving": ("fair", "giving"),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("rules", LISTS)
@for_all(st.integers(0, 2**64 - 1))
def test_the_queues_of_a_list_are_served_as_the_plain_rules_do(rules, seed):
    """Priority counts within a queue; what planned jobs require within levels comes first."""
    chance = Random(seed)
    discipline, order = LISTS[rules]
    maxima = {"b": {"cpu": 6_000}} if order not in ("fifo", "tetris-fair") and chance.random() < 0.5 else {}
    both = Both(discipline, dict.fromkeys(("a", "b", "c"), order), maxima, listed=order)
    for _ in range(60):
        step(both, chance)
    both.round()


def test_who_comes_before_the_head_of_a_full_queue_is_tried_before_it():
    """A stage that becomes ready is older than the head, and small enough for what the maximum leaves."""
    both = Both("fair", {"a": "fifo"}, {"a": {"cpu": 4_000}})
    for tasks in (3, 1, 2):
        both.job(0, 0, [({"cpu": 1_000, "memory": 1_024}, {}, {}, False, tasks, 0, False)])
    both.round()
    both.end(0, 1)
    both.ask(2, [({"cpu": 3_000, "memory": 1_024}, {}, {}, False, 1, 0, False)])
    both.round()
    both.ask(0, [({"cpu": 500, "memory": 256}, {}, {}, False, 1, 0, False)])
    both.round()

    assert [placement.task.demand["cpu"] for placement in both.last] == [500]
