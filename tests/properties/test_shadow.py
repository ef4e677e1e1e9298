"""The shadow cluster of `largesse` against a plain one, and what has to hold in it whatever happens."""

import pytest
from hypothesis import strategies as st

from services.leftover import core
from services.leftover.core.shadow import cluster as moving
from services.leftover.core.shadow.keys import RESTS
from tests.builders import admitted, cancelled, configured, ended, job, registered, reported, stage
from tests.harness import given
from tests.properties.shadow_oracle import ends
from tests.strategies import for_all

CAPACITY = {"cpu": 8_000, "memory": 8_000}
ALL_STEPS = 1_000_000


@st.composite
def arrivals(draw):
    """Up to six jobs of up to four stages, as (when, spec) in order."""
    found, when = [], 0
    for number in range(draw(st.integers(1, 6))):
        when += draw(st.sampled_from([0, 0, 500, 1_000, 3_000]))
        stages = []
        for at in range(draw(st.integers(1, 4))):
            demand = {"cpu": 1_000 * draw(st.integers(0, 3)), "memory": 1_000 * draw(st.integers(0, 3))}
            demand = demand if any(demand.values()) else {"cpu": 1_000}
            after = tuple(sorted(draw(st.sets(st.integers(0, at - 1), max_size=2)))) if at else ()
            lasts = 500 * draw(st.integers(1, 6))
            names = tuple(f"s{up}" for up in after)
            most = draw(st.sampled_from([None, None, 1, 2]))
            tasks = draw(st.integers(1, 6))
            stages.append(stage(f"s{at}", tasks, after=names, duration_ms=lasts, demand=demand, running_max=most))
        found.append((when, job(f"j{number}", *stages)))
    return found


@st.composite
def lone_arrivals(draw):
    """Up to 24 jobs, most of them of one task, as (when, spec) in order."""
    found, when = [], 0
    for number in range(draw(st.integers(6, 24))):
        when += draw(st.sampled_from([0, 0, 0, 500, 1_000]))
        demand = {"cpu": 1_000 * draw(st.integers(1, 4))}
        if memory := draw(st.sampled_from([0, 0, 0, 1, 5])):
            demand["memory"] = 1_000 * memory
        lasts, tasks = 500 * draw(st.integers(1, 6)), draw(st.sampled_from([1, 1, 1, 1, 1, 1, 3]))
        found.append((when, job(f"j{number}", stage("s0", tasks, duration_ms=lasts, demand=demand))))
    return found


class Shadowed:
    """A cell of one node in which jobs arrive, and start where there is room; none of their tasks ends."""

    def __init__(self, jobs, steps=ALL_STEPS, *, restarts=False):
        self.story = given(core, configured(preset="largesse", shadow_steps=steps), registered("n1", **CAPACITY))
        self.numbers, self.restarts = {}, restarts
        for number, (when, spec) in enumerate(jobs):
            self.story.then(admitted(spec, when))
            self.numbers[self.story.seq] = number
            if number + 1 == len(jobs) or jobs[number + 1][0] > when:
                self.round(when)

    @property
    def shadow(self):
        return self.story.state.shadow

    def round(self, at=None):
        self.story.round(at=at)
        self.story.close()
        if self.restarts:
            self.story.restarted()

    def seen(self):
        """By number, the moments at which jobs have been seen to end."""
        return {self.numbers[seq]: self.shadow.ends[seq] for seq in self.shadow.ranked}


@for_all(arrivals())
def test_jobs_end_in_the_shadow_when_a_plain_replay_says(jobs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "CHUNKS", 1 << 60)
        cell = Shadowed(jobs)
        assert cell.seen() == ends(jobs, CAPACITY)


@for_all(arrivals(), st.integers(1, 40))
def test_few_steps_a_round_see_the_same_ends_later(jobs, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "CHUNKS", 1 << 60)
        cell, plain = Shadowed(jobs, steps), ends(jobs, CAPACITY)
        for _ in range(2_000):
            seen = cell.seen()
            if len(seen) == len(plain):
                break
            assert seen == {number: plain[number] for number in seen}
            cell.round()
        assert cell.seen() == plain


@for_all(lone_arrivals(), st.integers(5, 200))
def test_looking_along_one_line_is_looking_step_by_step(jobs, steps):
    along = Shadowed(jobs, steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "_blocked_alone", lambda *_: moving.NOWHERE)
        by_step = Shadowed(jobs, steps)
        for _ in range(5):
            assert along.story.snapshot == by_step.story.snapshot
            by_step.round(by_step.story.time + 700)
            patch.undo()
            along.round(along.story.time + 700)
            patch.setattr(moving, "_blocked_alone", lambda *_: moving.NOWHERE)


@pytest.mark.skipif(moving.__file__.endswith(".so"), reason="compiled, a module calls its own functions")
def test_jobs_of_one_task_are_looked_along_one_line(monkeypatch):
    drained, drain = [], moving._drain

    def drains(shadow, cluster, line, p, steps, seen):
        before = len(seen)
        left = drain(shadow, cluster, line, p, steps, seen)
        drained.append(len(seen) - before)
        return left

    monkeypatch.setattr(moving, "_drain", drains)
    lone = [job(f"j{i}", stage("s0", 1, duration_ms=1_000 + i, demand={"cpu": 3_000})) for i in range(30)]
    cell = Shadowed([(0, spec) for spec in lone])

    assert drained == [28]  # All but those two that start at once.
    assert cell.seen() == ends([(0, spec) for spec in lone], CAPACITY)


@for_all(arrivals(), st.integers(1, 200))
def test_a_restart_after_every_round_changes_nothing_in_the_shadow(jobs, steps):
    assert Shadowed(jobs, steps, restarts=True).story.snapshot == Shadowed(jobs, steps).story.snapshot


@for_all(arrivals(), st.randoms(use_true_random=False), st.integers(20, 200))
def test_the_shadow_holds_no_more_than_the_cell_has_and_forgets_whom_it_need_not_know(jobs, chance, steps):
    cell = Shadowed(jobs, steps)
    alive = [spec.job for _, spec in jobs]
    while alive:  # Jobs end in the cell whatever they have done there: the shadow goes its own way.
        name = alive.pop(chance.randrange(len(alive)))
        at = cell.story.time + chance.choice([0, 700, 5_000])
        how = chance.randrange(3)
        if how == 0:
            cell.story.then(reported("n1", at=at, cpu=chance.choice([2_000, 8_000]), memory=8_000))
        cell.story.then(cancelled(name, at=at) if how == 1 else ended(name, at=at))
        cell.round()
        check(cell.shadow)
    for _ in range(100):
        if not cell.shadow.works:
            break
        cell.round(cell.story.time + 100_000)
    assert not cell.shadow.works
    assert not cell.shadow.ends
    assert not cell.shadow.ranked
    assert not cell.shadow.claims
    assert not cell.shadow.base.runs
    assert cell.shadow.base.free == cell.shadow.total


def check(shadow):
    """What is free and what jobs hold is what there is, in both clusters, and by leaf too."""
    for cluster in (shadow.base, shadow.ahead):
        if cluster is None:
            continue
        runs = {**shadow.base.runs, **cluster.runs} if cluster is shadow.ahead else cluster.runs
        held = [sum(run.held[p] for run in runs.values() if run.left) for p in range(len(shadow.kinds))]
        assert [free + used for free, used in zip(cluster.free, held, strict=True)] == shadow.total
        lines = [sum(line.held[p] for line in cluster.lines.values()) for p in range(len(shadow.kinds))]
        assert lines == held
        assert all(line.live >= 0 for line in cluster.lines.values())
    for seq in shadow.base.runs:
        assert seq in shadow.works
    assert shadow.claims.keys() == shadow.ends.keys()
    listed = {(at_ms, seq) for at_ms, jobs in shadow.renewals.jobs.items() for seq in jobs}
    assert sorted(shadow.renewals.moments) == sorted(shadow.renewals.jobs)
    assert shadow.renewals.listed == sum(map(len, shadow.renewals.jobs.values()))
    assert all((claim.renew_ms, seq) in listed for seq, claim in shadow.claims.items() if claim.renew_ms != RESTS)
