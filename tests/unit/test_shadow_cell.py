"""The shadow by itself: what the rest of a core tells it, and asks of it."""

import pytest

from largesse.lifecycle.dag import graph_of, resumed
from services.leftover.core.job import Job
from services.leftover.core.shadow import cell as shadow_cell
from services.leftover.core.shadow.cell import ShadowCell
from services.leftover.core.shadow.keys import LAST
from tests.builders import job, stage

SECOND = 1_000


class Cell:
    """A shadow of four cores, and the jobs that are in it."""

    def __init__(self):
        self.shadow, self.jobs, self.now_ms = ShadowCell(), {}, 0
        self.shadow.resize({}, {"cpu": 4_000})

    def join(self, name, tasks, seconds=10):
        graph = graph_of(job(name, stage("s", tasks, duration_ms=seconds * SECOND)))
        live = self.jobs[name] = Job("default", len(self.jobs) + 1, 0, graph, resumed(graph, []))
        live.fresh_ms = self.now_ms  # It asks for all that it has.
        self.shadow.join(name, live, {}, self.now_ms, None)

    def depart(self, name, **how):
        self.shadow.depart(self.jobs.pop(name), **how)

    def move(self, seconds=0):
        self.now_ms += seconds * SECOND
        self.shadow.move(self.jobs, {}, 1_000, self.now_ms, None)

    def order(self):
        return sorted(self.jobs, key=lambda name: self.shadow.key_of(self.jobs[name]))


def test_the_job_that_has_less_to_do_and_ends_sooner_goes_first():
    cell = Cell()
    cell.join("long", 40)
    cell.join("short", 8)
    cell.move()

    assert cell.order() == ["short", "long"]


def test_a_job_that_has_departed_is_known_no_longer_and_leaves_its_share_to_others():
    alone, beside = Cell(), Cell()
    alone.join("a", 40)
    beside.join("a", 40)
    beside.join("b", 40)
    beside.move()
    b = beside.jobs["b"]
    assert beside.shadow.knows(b)
    beside.depart("b")
    for cell in (alone, beside):
        cell.move()

    assert not beside.shadow.knows(b)
    assert beside.shadow.key_of(b) == LAST
    assert beside.shadow.key_of(beside.jobs["a"]) == alone.shadow.key_of(alone.jobs["a"])


def test_what_is_done_of_a_job_counts_once_the_next_round_opens():
    cell = Cell()
    cell.join("a", 40)
    cell.move()
    live = cell.jobs["a"]
    before = cell.shadow.key_of(live)
    live.progress.left[0] -= 20
    cell.shadow.note_work(live)
    assert cell.shadow.key_of(live) == before

    cell.move()
    assert cell.shadow.key_of(live) < before


@pytest.mark.skipif(shadow_cell.__file__.endswith(".so"), reason="compiled, the constants are part of the code")
def test_a_job_for_which_there_is_no_place_is_known_and_served_last_until_it_joins(monkeypatch):
    monkeypatch.setattr(shadow_cell, "SHADOW_JOBS_MAX", 1)
    cell = Cell()
    cell.join("first", 8)
    cell.join("short", 1)
    cell.move()
    short = cell.jobs["short"]
    assert cell.shadow.knows(short)
    assert cell.shadow.key_of(short) == LAST

    cell.depart("first")
    cell.move()
    assert cell.shadow.key_of(short) < LAST
