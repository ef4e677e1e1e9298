"""CARBYNE's theorem 3.1, for the core as it runs: alone in its own share and given nothing else, no job ends later than
by the plan that it was made at first, although it starts each task as late as it may and is planned again meanwhile."""

from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.lifecycle.remaining import direction_of, share_vector, work_of
from schemas import Entitlement, Shares
from schemas.quantities import SHARE_UNITS
from services.altruism import core
from tests.builders import admitted, configured, ended, finished, grant, job, registered, stage
from tests.harness import given

CAPACITY = {"cpu": 12_000, "memory": 24_000}
KINDS = [["cpu"], ["memory"], ["cpu", "memory"]]


@st.composite
def jobs(draw):
    """A job of up to six stages in a random graph, of one or two kinds of resource."""
    stages = []
    for number in range(draw(st.integers(1, 6))):
        demand = {"cpu": 1_000 * draw(st.integers(0, 4)), "memory": 1_000 * draw(st.integers(0, 6))}
        if not any(demand.values()):
            demand["cpu"] = 1_000
        after = tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=2)))) if number else ()
        names = tuple(f"s{at}" for at in after)
        tasks, lasts = draw(st.integers(1, 5)), draw(st.integers(1, 9))
        stages.append(stage(f"s{number}", tasks, after=names, duration_ms=lasts, demand=demand))
    return job("j", *stages)


class Alone:
    """One job in a share that never changes: what is required is granted at once, and estimates are exact."""

    def __init__(self, spec, share, order):
        knobs = configured(preset="carbyne", job_order=order)
        self.story = given(core, knobs, registered("n", **CAPACITY), admitted(spec, 0))
        self.spec, self.share, self.now_ms = spec, share, 0
        self.stages = {each.stage: each for each in spec.stages}
        self.left, self.ledger = sum(each.tasks for each in spec.stages), []
        self.running = []  # (end, stage, first, count, attempt)
        self.deadline_ms = self.ended_ms = None
        self.most, self.announced, self.starts = {}, {}, []

    def play(self):
        """From the admission to the last task's end."""
        wake_ms = self.round()
        while self.running or wake_ms is not None:
            moments = [end_ms for end_ms, *_ in self.running] + ([wake_ms] if wake_ms is not None else [])
            self.now_ms = min(moments)
            over = [each for each in self.running if each[0] == self.now_ms]
            self.running = [each for each in self.running if each[0] != self.now_ms]
            for _, name, first, count, attempt in over:
                self.story.then(finished(f"j/{name}", first=first, count=count, attempt=attempt, at=self.now_ms))
                self.ended_ms = self.now_ms
                self.left -= count
            if over and not self.left:
                self.story.then(ended("j", at=self.now_ms))
            wake_ms = self.round()

    def round(self):
        """One round; what is required starts, in the order of the asks. Returns when the next latest start comes."""
        (asks,) = self.story.round(self.now_ms, shares=[Shares([], entitlements=self.entitled())])
        self.ledger += asks.ledger
        grants = []
        for ask in asks.jobs:
            if ask.plan is not None:
                self.deadline_ms = self.deadline_ms or ask.plan.deadline_ms
                self.most = self.share_now()
            for each in ask.asks:
                if each.kind == "required":
                    of = self.stages[each.stage]
                    grants.append(grant(f"j/{each.stage}", first=each.first, count=each.count, attempt=each.attempt))
                    self.running.append(
                        (self.now_ms + of.estimate_ms, each.stage, each.first, each.count, each.attempt)
                    )
                    self.starts.append((each.stage, self.now_ms, each.count))
                    for kind in of.demand:
                        assert self.held(kind) <= self.most[kind], f"more {kind} has to start than the share has"
        self.story.close(*grants)
        return asks.wake_ms

    def share_now(self):
        """The job's share as a vector by the direction of the work that is left, and at least one of its tasks."""
        live = self.story.state.jobs["j"]
        direction = direction_of(work_of(live.graph, live.progress, live.seen), CAPACITY)
        vector = share_vector(direction, CAPACITY, self.share)
        wide = {kind: vector.get(kind, 0) for kind in CAPACITY}
        for each in self.spec.stages:
            for kind, amount in each.demand.items():
                wide[kind] = max(wide[kind], amount)
        return wide

    def held(self, kind):
        return sum(count * self.stages[name].demand.get(kind, 0) for _, name, _, count, _ in self.running)

    def entitled(self):
        """The share does not change, whatever kinds the job's work asks for by now: said where that is new."""
        left = self.story.state.jobs.get("j")
        if left is None:
            return []
        kinds = sorted(direction_of(work_of(left.graph, left.progress, left.seen), CAPACITY))
        if not kinds or self.announced.get(tuple(kinds)):
            return []
        self.announced[tuple(kinds)] = True
        return [Entitlement("default", kinds, self.share)]


@for_all(jobs(), st.integers(1, 10), st.sampled_from(["tetris", "critical_path", "breadth_first"]))
def test_a_job_alone_in_its_share_ends_by_its_first_plan(spec, tenths, order):
    alone = Alone(spec, SHARE_UNITS * tenths // 10, order)
    alone.play()

    assert sum(count for _, _, count in alone.starts) == sum(each.tasks for each in spec.stages)
    assert alone.ended_ms <= alone.deadline_ms
    assert [(entry.job, entry.lost_ms, entry.waited) for entry in alone.ledger if entry.over] == [("j", 0, {})]
