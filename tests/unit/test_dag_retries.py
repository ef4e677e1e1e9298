"""A job's graph and how it fares: what may run, what failed for good, what waits."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from largesse.lifecycle.dag import critical_path_ms, end_tasks, graph_of, lean, own, progress_of
from largesse.lifecycle.job_life import (
    DOUBLINGS_MAX,
    LOST_ATTEMPTS_MAX,
    backoff_ms,
    fail,
    failures_of,
    gang_backoff_ms,
    is_broken,
    next_gang_attempt,
    succeed,
)
from largesse.lifecycle.state import JobLife, Span
from schemas import Policy
from schemas.edge.cycles import find_cycle
from schemas.estimates import DEFAULT_MS
from services.altruism.core.waits import take
from tests.builders import job, stage
from tests.strategies import for_all

DIAMOND = job(
    "d",
    stage("end", 1, after=["left", "right"]),
    stage("left", 2, after=["start"]),
    stage("right", 1, after=["start"]),
    stage("start", 3),
)
END, LEFT, RIGHT, START = range(4)


# ---------------------------------------------------------------- graphs
def test_a_stage_may_run_when_its_last_parent_has_ended():
    graph = graph_of(DIAMOND)
    progress = own(graph, progress_of(graph))

    assert graph.roots == [START]
    assert end_tasks(graph, progress, START, 2) == []
    assert end_tasks(graph, progress, START, 1) == [LEFT, RIGHT]
    assert end_tasks(graph, progress, RIGHT, 1) == []
    assert end_tasks(graph, progress, LEFT, 2) == [END]
    assert end_tasks(graph, progress, END, 1) == []
    assert progress.left == [0, 0, 0, 0]


def test_more_ends_than_tasks_are_a_bug():
    graph = graph_of(DIAMOND)
    with pytest.raises(AssertionError, match="more tasks ended"):
        end_tasks(graph, own(graph, progress_of(graph)), START, 4)


def test_the_critical_path_is_the_longest_way_through_the_graph_by_what_a_task_of_each_stage_takes():
    lasting = {"start": 3_000, "left": 10_000, "right": 2_000, "end": 500}
    known = job("d", *[replace(each, estimate_ms=lasting[each.stage]) for each in DIAMOND.stages])
    unestimated = job("d", *[replace(each, estimate_ms=0) for each in DIAMOND.stages])

    assert critical_path_ms(graph_of(known)) == 13_500
    assert critical_path_ms(graph_of(unestimated)) == 3 * DEFAULT_MS
    assert critical_path_ms(graph_of(job("flat", replace(stage("a", 9), estimate_ms=4), stage("b")))) == 1_000


def test_jobs_alike_share_one_graph():
    other = job("d", *DIAMOND.stages)
    assert graph_of(other) is graph_of(DIAMOND)
    run_otherwise = replace(DIAMOND.stages[0], command=["/bin/true"], env={"A": "b"}, durations_ms=[7], cwd="/")
    assert graph_of(job("d", run_otherwise, *DIAMOND.stages[1:])) is graph_of(DIAMOND)
    for change in ({"tasks": 9}, {"estimate_ms": 4}, {"labels": {"a": "b"}}, {"demand": {"cpu": 1}}, {"retries": 5}):
        assert graph_of(job("d", replace(DIAMOND.stages[0], **change), *DIAMOND.stages[1:])) != graph_of(DIAMOND)


def test_what_ends_of_one_job_does_not_end_of_another_like_it():
    graph = graph_of(DIAMOND)
    first, second = own(graph, progress_of(graph)), progress_of(graph)
    for at in (START, START, START, LEFT):
        end_tasks(graph, first, at, 1)
    assert second == progress_of(graph)
    assert graph == graph_of(job("d", *DIAMOND.stages))


def test_a_lean_spec_is_an_equal_one_that_shares_its_stages():
    full = replace(DIAMOND.stages[0], command=["/bin/true"], env={"A": "b"}, durations_ms=[7], cwd="/", true_demand={})
    spec = replace(job("d", full, *DIAMOND.stages[1:]), priority=3, user="u")
    assert lean(spec, graph_of(spec)) == spec
    stages = [replace(each, durations_ms=[], demand=dict(each.demand)) for each in DIAMOND.stages]
    plain = replace(DIAMOND, stages=stages)
    assert lean(plain, graph_of(plain)) == plain
    assert lean(plain, graph_of(plain)).stages is graph_of(DIAMOND).stages


@pytest.mark.parametrize(
    ("after", "cycle"),
    [
        pytest.param({"a": [], "b": ["a"]}, [], id="none"),
        pytest.param({"a": ["a"]}, ["a", "a"], id="itself"),
        pytest.param({"a": ["b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"], id="a circle"),
        pytest.param({"a": [], "b": ["a", "d"], "c": ["b"], "d": ["c"]}, ["b", "d", "c", "b"], id="behind a start"),
        pytest.param({"a": ["x"]}, [], id="a parent that does not exist"),
    ],
)
def test_cycles(after, cycle):
    assert find_cycle(after) == cycle


def test_a_long_chain_is_no_deep_recursion():
    chain = {str(i): [str(i + 1)] for i in range(50_000)} | {"50000": []}
    assert find_cycle(chain) == []


# ---------------------------------------------------------------- failures
class Fate:
    """Failures of one stage of 3 tasks, one by one."""

    def __init__(self, **given):
        graph = graph_of(job("j", stage(tasks=3, **given)))
        self.job = JobLife(graph, progress_of(graph))

    def fails(self, reason, index=0, attempt=1):
        return fail(self.job, 0, index, attempt, reason, 1)


@pytest.mark.parametrize("reason", ["exit_code", "timeout", "cannot_start", "memory"])
def test_so_many_retries_and_no_more(reason):
    fate = Fate(retries=2)
    assert [fate.fails(reason, attempt=n) for n in (1, 2, 3)] == ["again", "again", "over"]
    assert failures_of(fate.job, 0, 0) == 3


@pytest.mark.parametrize("reason", ["killed", "revoked", "gang"])
def test_what_others_did_to_a_task_counts_against_nothing(reason):
    fate = Fate()
    assert {fate.fails(reason, attempt=n) for n in range(1, 50)} == {"again"}
    assert failures_of(fate.job, 0, 0) == 0


def test_each_task_has_its_own_tries():
    fate = Fate(retries=1)
    assert [fate.fails("timeout", index) for index in (0, 1, 2)] == ["again"] * 3
    assert fate.fails("timeout", 1, 2) == "over"


def test_a_task_that_is_lost_again_and_again_is_given_up():
    fate = Fate(retries=5)
    verdicts = [fate.fails("lost", attempt=n) for n in range(1, LOST_ATTEMPTS_MAX + 1)]
    assert verdicts == ["again"] * (LOST_ATTEMPTS_MAX - 1) + ["over"]


def test_only_losses_in_a_row_add_up():
    fate = Fate(retries=5)
    for n in range(1, LOST_ATTEMPTS_MAX):
        assert fate.fails("lost", attempt=n) == "again"
    assert fate.fails("exit_code") == "again"
    for n in range(1, LOST_ATTEMPTS_MAX):
        assert fate.fails("lost", attempt=n) == "again"


def test_a_gangs_attempt_ends_once_for_all_of_it():
    fate = Fate(gang=True, retries=1)
    assert succeed(fate.job, 0, 2, 1) == []
    assert fate.job.progress.left == [1]

    assert fate.fails("exit_code", 2) == "again"
    assert fate.job.progress.left == [3]
    assert [fate.fails("exit_code", 0), fate.fails("gang", 1)] == ["again", "again"]
    assert failures_of(fate.job, 0, 1) == 1
    assert is_broken(fate.job.tries, 0, 1)
    assert not is_broken(fate.job.tries, 0, 2)
    assert next_gang_attempt(fate.job, 0) == 2
    assert fate.fails("timeout", 1, 2) == "over"


def test_a_node_that_takes_a_whole_gang_with_it_counts_once():
    fate = Fate(gang=True)
    for attempt in range(1, LOST_ATTEMPTS_MAX):
        assert {fate.fails("lost", index, attempt) for index in range(3)} == {"again"}
    assert fate.fails("lost", 1, LOST_ATTEMPTS_MAX) == "over"


def test_without_a_failure_nothing_is_kept():
    life = Fate().job
    assert life.tries is None
    assert not is_broken(life.tries, 0, 1)
    assert failures_of(life, 0, 0) == 0


def test_what_succeeds_in_a_broken_attempt_of_a_gang_counts_for_nothing():
    fate = Fate(gang=True, retries=1)
    fate.fails("exit_code", 2)
    assert succeed(fate.job, 0, 2, attempt=1) is None
    assert fate.job.progress.left == [3]
    assert succeed(fate.job, 0, 3, attempt=2) == []
    assert fate.job.progress.left == [0]


def test_jobs_of_which_nothing_has_succeeded_share_their_progress():
    one, other = Fate(retries=1).job, Fate(retries=1).job
    fail(one, 0, 0, 1, "exit_code", 1)
    assert one.progress is other.progress
    succeed(one, 0, 1, 1)
    assert (one.progress.left, other.progress.left) == ([2], [3])


# ---------------------------------------------------------------- back-off
POLICY = Policy(retry_backoff_ms=100, retry_backoff_ms_max=1_000)


def test_a_back_off_doubles_with_each_failure_of_the_task_up_to_its_limit():
    fate, waits = Fate(retries=9), []
    for attempt in range(1, 7):
        fate.fails("exit_code", 1, attempt)
        waits.append(backoff_ms(POLICY, fate.job, 0, 1, "exit_code"))
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    assert backoff_ms(POLICY, fate.job, 0, 0, "exit_code") == 0  # Another task, which has never failed.


def test_a_back_off_without_a_limit_that_matters_is_doubled_so_often_and_no_more():
    fate, policy = Fate(retries=100), Policy(retry_backoff_ms=1, retry_backoff_ms_max=2**62)
    for attempt in range(1, DOUBLINGS_MAX + 3):
        fate.fails("timeout", 0, attempt)
    assert backoff_ms(policy, fate.job, 0, 0, "timeout") == 2**DOUBLINGS_MAX


@pytest.mark.parametrize("reason", ["killed", "revoked", "lost"])
def test_what_others_did_to_a_task_costs_it_no_wait(reason):
    fate = Fate(retries=3)
    fate.fails("exit_code")
    fate.fails(reason, attempt=2)
    assert backoff_ms(POLICY, fate.job, 0, 0, reason) == 0


def test_a_gang_waits_by_what_broke_its_attempt_whatever_became_of_its_other_tasks():
    lost, failed = Fate(gang=True, retries=3), Fate(gang=True, retries=3)
    lost.fails("lost", 0)
    lost.fails("exit_code", 1)
    failed.fails("exit_code", 0)
    failed.fails("lost", 1)
    assert gang_backoff_ms(POLICY, lost.job, 0) == 0
    assert gang_backoff_ms(POLICY, failed.job, 0) == 100
    failed.fails("memory", 2, attempt=2)
    assert gang_backoff_ms(POLICY, failed.job, 0) == 200


# ---------------------------------------------------------------- spans that wait
@pytest.mark.parametrize(
    ("first", "count", "left"),
    [
        pytest.param(0, 10, [], id="all of it"),
        pytest.param(0, 3, [(3, 7)], id="the front"),
        pytest.param(7, 3, [(0, 7)], id="the back"),
        pytest.param(4, 2, [(0, 4), (6, 4)], id="the middle"),
    ],
)
def test_taking(first, count, left):
    spans = [Span(20, 1, 2, 5), Span(0, 10, 1, 0), Span(30, 1, 1, 0)]
    take(spans, first, count)
    assert [(span.first, span.count) for span in spans] == [(20, 1), *left, (30, 1)]


@pytest.mark.parametrize(("first", "count"), [(9, 2), (10, 1), (25, 1)])
def test_taking_what_does_not_wait_is_a_bug(first, count):
    with pytest.raises(AssertionError, match=r"do not wait|one span"):
        take([Span(0, 10, 1, 0)], first, count)


@for_all(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 20)), max_size=12))
def test_what_is_left_is_what_was_not_taken(takes):
    spans, left = [Span(0, 20, 1, 0)], set(range(20))
    for first, count in takes:
        wanted = set(range(first, first + count))
        inside = [span for span in spans if span.first <= first and first + count <= span.first + span.count]
        if inside:
            take(spans, first, count)
            left -= wanted
    assert sorted(i for span in spans for i in range(span.first, span.first + span.count)) == sorted(left)
