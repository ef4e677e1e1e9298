"""Metrics of a run: hand-made rows, and random histories against the contract's definition written out plainly."""

import json
import sys
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from services.simulator.metrics import WINDOW_MS, Metrics

CAPACITY = {"cpu": 8_000, "memory": 10_000}
WINDOW = WINDOW_MS


@dataclass
class Attempt:
    job: str
    stage: str
    index: int
    ready_ms: int
    start_ms: int
    end_ms: int


@dataclass
class History:
    """Jobs by name: when submitted, and for each stage in a chain its demand and attempts."""

    submits: dict
    demands: dict
    attempts: list

    def ends(self):
        return {job: max(a.end_ms for a in self.attempts if a.job == job) for job in self.submits}

    def metrics(self, capacity):
        """The metrics of this history, which hear of every change in time order."""
        metrics = Metrics(capacity)
        events = [(t, 2, ("submitted", job)) for job, t in self.submits.items()]
        events += [(t, 1, ("job_ended", job)) for job, t in self.ends().items()]
        for a in self.attempts:
            events += (a.ready_ms, 3, ("runnable", a)), (a.start_ms, 4, ("started", a)), (a.end_ms, 0, ("ended", a))
        for t, _, (what, of) in sorted(events, key=lambda event: event[:2]):
            if what == "submitted":
                metrics.submitted(of, "default", "small", sum(a.job == of for a in self.attempts), t)
            elif what == "job_ended":
                metrics.job_ended(of, t)
            elif what == "runnable":
                metrics.runnable(of.job, of.stage, self.demands[of.job, of.stage], 1, t)
            else:
                getattr(metrics, what)(of.job, of.stage, 1, t)
        return metrics.result()


@st.composite
def histories(draw):
    """A few jobs of one or two stages in a chain; waits and durations from moments to several windows."""
    spans = st.one_of(st.integers(1, 5_000), st.integers(1, 200_000), st.sampled_from([30_000, 60_000, 120_000]))
    submits, demands, attempts = {}, {}, []
    for number in range(draw(st.integers(1, 5))):
        job, at = f"j{number}", draw(spans)
        submits[job] = at
        for stage in ("a", "b")[: draw(st.integers(1, 2))]:
            demands[job, stage] = {"cpu": draw(st.integers(0, 4_000)), "memory": draw(st.integers(1, 9_000))}
            mine = []
            for index in range(draw(st.integers(1, 3))):
                start = at + draw(st.one_of(st.just(0), spans))
                mine.append(Attempt(job, stage, index, at, start, start + draw(spans)))
            attempts += mine
            at = max(a.end_ms for a in mine)
    return History(submits, demands, attempts)


def plain_indices(history, capacity):
    """The contract's definition of Jain's index, a window at a time, with no thought of cost."""
    ends = history.ends()
    cuts = sorted({*history.submits.values(), *ends.values(), *range(0, max(ends.values()) + WINDOW + 1, WINDOW)})
    for low in range(0, max(ends.values()) + 1, WINDOW):
        high, shares = low + WINDOW, []
        for job, end in ends.items():
            a, b = max(low, history.submits[job]), min(high, end)
            if 2 * (b - a) < WINDOW:
                continue
            equal = Fraction(0)
            for x, y in pairwise(cuts):
                if a <= x and y <= b:
                    equal += Fraction(y - x, sum(s <= x and y <= ends[j] for j, s in history.submits.items()))
            got, could = (
                max(
                    Fraction(
                        sum(
                            max(0, min(high, t.end_ms) - max(low, getattr(t, since)))
                            * history.demands[job, t.stage][name]
                            for t in history.attempts
                            if t.job == job
                        ),
                        amount,
                    )
                    for name, amount in capacity.items()
                )
                for since in ("start_ms", "ready_ms")
            )
            entitled = min(equal, could)
            shares.append(min(Fraction(1), got / entitled) if entitled else Fraction(0))
        if len(shares) >= 2:
            squares = sum(x * x for x in shares)
            yield sum(shares) ** 2 / (len(shares) * squares) if squares else Fraction(1)


@for_all(histories())
def test_jains_index_is_the_contracts_definition(history):
    indices = list(plain_indices(history, CAPACITY)) or [Fraction(1)]

    said = history.metrics(CAPACITY)["jain"]

    assert said["mean"] == pytest.approx(float(sum(indices) / len(indices)), abs=1e-5)
    assert said["min"] == pytest.approx(float(min(indices)), abs=1e-5)
    assert said["max"] == pytest.approx(float(max(indices)), abs=1e-5)


@for_all(histories())
def test_a_judge_that_shares_no_code_finds_the_same_metrics(shared, history):
    judge, spec = judge_of(shared)
    jobs = {
        job: spec.Job(job, None, at, {
            stage: spec.Stage(stage, ["a"] if stage == "b" else [], [
                a.end_ms - a.start_ms for a in history.attempts if (a.job, a.stage) == (job, stage)
            ], demand)
            for (owner, stage), demand in history.demands.items() if owner == job
        })
        for job, at in history.submits.items()
    }  # fmt: skip
    cluster = spec.Cluster([spec.Group("n", 1, CAPACITY, {})], None)
    lines = [
        {
            "job": a.job,
            "stage": a.stage,
            "start_ms": a.start_ms,
            "end_ms": a.end_ms,
            "outcome": "succeeded",
            "node": "n",
        }
        for a in history.attempts
    ]
    said, found = history.metrics(CAPACITY), judge.Findings()

    judge.check_metrics(jobs, cluster, lines, said, found)

    assert found.lines() == []
    assert said["jain"]["mean"] == pytest.approx(judge.jain(jobs, cluster, lines), abs=1e-5)


def judge_of(shared):
    folder = str(shared / "checks")
    if folder not in sys.path:
        sys.path.append(folder)
    judge = pytest.importorskip("schedule_check", reason=f"no schedule_check.py in {folder}")
    return judge, judge.spec


def equals():
    """Two jobs with endless tasks over one window, the first holding everything that the second could."""
    metrics = Metrics(CAPACITY)
    for job in ("a", "b"):
        metrics.submitted(job, "q", "large", 8, 0)
        metrics.runnable(job, "s", {"cpu": 1_000}, 8, 0)
    return metrics


@pytest.mark.parametrize(("held", "index"), [
    pytest.param((4, 4), 1.0, id="equal shares are fair"),
    pytest.param((8, 0), 0.5, id="all to one of two halves the index"),
    pytest.param((6, 2), 0.9, id="more than the equal share counts as the equal share"),
])  # fmt: skip
def test_index_of_one_window(held, index):
    metrics = equals()
    for job, count in zip("ab", held, strict=True):
        metrics.started(job, "s", count, 0)
    for job, count in zip("ab", held, strict=True):
        metrics.ended(job, "s", count, 60_000)
        metrics.job_ended(job, 60_000)

    assert metrics.result()["jain"] == {"mean": index, "min": index, "max": index, "window_ms": 60_000}


def test_a_job_that_has_no_use_for_more_is_not_unfairly_treated():
    metrics = Metrics(CAPACITY)
    for job, could in (("wide", 7), ("narrow", 1)):
        metrics.submitted(job, "q", "large", could, 0)
        metrics.runnable(job, "s", {"cpu": 1_000}, could, 0)
        metrics.started(job, "s", could, 0)
    for job, could in (("wide", 7), ("narrow", 1)):
        metrics.ended(job, "s", could, 60_000)
        metrics.job_ended(job, 60_000)

    assert metrics.result()["jain"]["mean"] == 1.0


def test_a_lone_job_and_an_empty_cell_have_no_window_to_judge():
    metrics = Metrics(CAPACITY)
    metrics.submitted("late", "q", "small", 1, 10**12)
    metrics.runnable("late", "s", {"cpu": 1}, 1, 10**12)
    metrics.started("late", "s", 1, 10**12)
    metrics.ended("late", "s", 1, 10**12 + 300_000)
    metrics.job_ended("late", 10**12 + 300_000)

    assert metrics.result()["jain"] == {"mean": 1.0, "min": 1.0, "max": 1.0, "window_ms": 60_000}
    assert metrics.result()["makespan_ms"] == 300_000


def test_times_are_counted_from_submission_and_ranked_to_the_nearest():
    metrics = Metrics(CAPACITY)
    for number in range(1, 101):
        job = f"j{number}"
        metrics.submitted(job, "ads/prod", "small", 1, 1_000)
        metrics.runnable(job, "s", {"cpu": 1}, 1, 1_000)
    for number in range(1, 101):
        metrics.started(f"j{number}", "s", 1, 1_000 + number)
    for number in range(1, 101):
        metrics.ended(f"j{number}", "s", 1, 2_000 + number)
        metrics.job_ended(f"j{number}", 2_000 + number)
    result = metrics.result()

    assert result["jct_ms"] == {"mean": 1_050.5, "p50": 1_050, "p95": 1_095, "p99": 1_099}
    assert result["waiting_ms"] == {"mean": 50.5, "p50": 50, "p95": 95, "p99": 99}
    assert result["makespan_ms"] == 1_100
    assert result["per_job"][0] == {
        "job": "j1", "queue": "ads/prod", "class": "small", "submit_ms": 1_000, "start_ms": 1_001, "end_ms": 2_001,
        "tasks": 1, "outcome": "succeeded",
    }  # fmt: skip


def test_a_task_tried_again_is_a_second_placement_and_uses_the_cell_twice():
    metrics = Metrics(CAPACITY)
    metrics.submitted("j", "q", "small", 1, 0)
    metrics.runnable("j", "s", {"cpu": 4_000}, 1, 0)
    metrics.started("j", "s", 1, 0)
    metrics.ended("j", "s", 1, 10_000)
    metrics.runnable("j", "s", {"cpu": 4_000}, 1, 20_000)
    metrics.started("j", "s", 1, 20_000)
    metrics.ended("j", "s", 1, 40_000)
    metrics.job_ended("j", 40_000)
    result = metrics.result()

    assert (result["placements"], result["tasks"]) == (2, 1)
    assert result["utilisation"] == {"cpu": 0.375, "memory": 0.0}


def test_a_rejected_job_is_listed_and_measured_nowhere_else():
    metrics = Metrics(CAPACITY)
    metrics.rejected("huge", "exceeds_capacity", 5, 0)
    result = metrics.result()

    assert result["rejected"] == [{"job": "huge", "reason": "exceeds_capacity"}]
    assert (result["jobs"], result["tasks"], result["per_job"]) == (1, 5, [])
    assert result["jct_ms"] == {"mean": 0.0, "p50": 0, "p95": 0, "p99": 0}


def test_a_job_cancelled_before_it_started_has_no_waiting_time():
    metrics = equals()
    metrics.job_ended("a", 5_000, "cancelled")
    result = metrics.result()

    assert result["per_job"][0] | {"start_ms": None, "end_ms": 5_000, "outcome": "cancelled"} == result["per_job"][0]
    assert result["waiting_ms"]["mean"] == 0.0
    assert result["jct_ms"]["mean"] == 5_000


def test_asking_early_changes_nothing_of_what_is_said_later():
    asked, unasked = equals(), equals()
    for metrics in (asked, unasked):
        for job in ("a", "b"):
            metrics.started(job, "s", 4, 90_000)
        if metrics is asked:
            metrics.result()
        for job in ("a", "b"):
            metrics.ended(job, "s", 4, 200_000)
            metrics.job_ended(job, 200_000)

    assert json.dumps(asked.result()) == json.dumps(unasked.result())


def test_memory_follows_what_lives_and_not_what_has_been():
    metrics = Metrics(CAPACITY)
    metrics.submitted("j", "q", "large", 1_000, 0)
    for number in range(1_000):
        at = number * 1_000
        metrics.runnable("j", f"s{number}", {"cpu": 1}, 1, at)
        metrics.started("j", f"s{number}", 1, at)
        metrics.ended("j", f"s{number}", 1, at + 1_000)

    assert len(metrics._jobs["j"].uses) <= 61


def test_time_never_goes_back():
    metrics = equals()
    metrics.started("a", "s", 1, 10)
    with pytest.raises(AssertionError, match="goes back"):
        metrics.job_ended("b", 9)
