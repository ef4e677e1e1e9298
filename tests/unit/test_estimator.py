"""The estimator in stories: curves by class and kind, two forecasters, their scores, when a forecast is a record."""

import pytest
from hypothesis import given as for_every
from hypothesis import strategies as st

from schemas import JobJudged, KnownAttempt, NodeRegistered, ReleaseCurve
from services.estimator import core as estimator
from services.estimator.core.decide import MOVED_PERMILLE, _at, _has_moved
from services.estimator.core.fold import follow
from services.estimator.core.forecasts import refresh
from services.estimator.core.state import FORECASTERS
from services.estimator.forecast_by_durations import end_second
from services.estimator.scores import HORIZONS_S, SAMPLES_MAX, Score, best, error_ppm, mean_errors
from tests.builders import (
    Fact,
    admitted,
    configured,
    ended,
    failed,
    finished,
    job,
    node_lost,
    registered,
    stage,
    started,
    tasks,
)
from tests.cells import SlowCell
from tests.harness import given
from tests.properties.histories import Play, histories, replay
from tests.strategies import for_all

POOLS = configured(classes="on", theta_permille=500)


def cell(*facts, **capacity):
    """A cell with pools and a node of a hundred cores."""
    return given(estimator, POOLS, registered("n1", **(capacity or {"cpu": 100_000})), *facts)


def curves(story, at):
    """Kind and points of the forecast that a round brings; None: none."""
    said = story.round(at=at)
    return {curve.kind: curve.points for curve in said[0].curves} if said else None


def four(lasts=10_000, **demand):
    return admitted(job("j", stage("s", 4, duration_ms=lasts, **demand)))


def test_running_tasks_give_back_by_the_second_in_which_they_are_expected_to_end():
    story = cell(four(), started("j/s", count=2, at=0), started("j/s", 2, 1, at=3_500))

    assert curves(story, 4_000) == {"cpu": [[6_000, 2_000], [10_000, 3_000]]}


def test_every_kind_has_a_curve_of_its_own():
    story = cell(four(cpu=1_000, gpu=500), started("j/s", count=2, at=0), cpu=100_000, gpu=8_000)

    assert curves(story, 4_000) == {"cpu": [[6_000, 2_000]], "gpu": [[6_000, 1_000]]}


def test_what_is_overdue_is_expected_to_take_twice_as_long():
    story = cell(four(), started("j/s", at=0))
    story.round(at=1_000)

    assert curves(story, 11_000) == {"cpu": [[9_000, 1_000]]}


def test_a_task_behind_the_horizon_is_in_no_curve():
    story = cell(four(lasts=60_000), started("j/s", at=0))

    assert curves(story, 1_000) is None
    assert curves(story, 29_000) is None
    assert curves(story, 30_000) == {"cpu": [[30_000, 1_000]]}


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(finished("j/s", count=2, at=5_000), id="succeeded"),
        pytest.param(failed("j/s", count=2, at=5_000), id="failed"),
        pytest.param(node_lost("n1", tasks("j/s", count=2), at=5_000), id="its node was lost"),
        pytest.param(ended("j", at=5_000), id="its job has ended"),
    ],
)
def test_what_runs_no_longer_gives_nothing_back(gone):
    story = cell(registered("n2", cpu=100_000), four(), started("j/s", count=2, at=0))
    (forecast,) = story.round(at=1_000)
    story.then(Fact(forecast), gone)

    assert curves(story, 6_000) == {}


def test_without_an_estimate_what_has_ended_says_how_long_the_others_take():
    story = cell(four(lasts=0), started("j/s", count=4, at=0))
    story.then(finished("j/s", at=3_000, run_ms=3_000))

    assert curves(story, 2_999 + 1) == {"cpu": [[1_000, 3_000]]}


def test_what_a_registration_brings_says_how_long_the_others_take_like_a_report():
    ended_meanwhile = KnownAttempt("j", "s", 0, 1, 1, "succeeded", [3_000])
    running = KnownAttempt("j", "s", 1, 3, 1, "running")
    back = NodeRegistered("n1", "e2", {"cpu": 100_000}, attempts=[ended_meanwhile, running])
    story = cell(four(lasts=0), started("j/s", count=4, at=0))
    story.then(Fact(back, 3_000))

    assert curves(story, 3_000) == {"cpu": [[1_000, 3_000]]}


def test_a_class_has_a_curve_of_its_own_and_another_one_once_it_is_judged_again():
    story = cell(four(), started("j/s", count=2, at=0))
    story.round(at=1_000)
    assert story.state.sums.seconds[1][0] == {"cpu": {10: 2_000}}
    story.opening.body.judged.append(JobJudged("j", 1))
    story.core.fold(story.state, story.opening)

    assert refresh(story.state, 1_000, phases=True).seconds[1] == [{}, {"cpu": {10: 2_000}}]


def test_without_pools_no_task_is_followed_and_with_them_again_forecasts_are_of_tasks_that_start_from_then_on():
    story = cell(four(), started("j/s", count=2, at=0))
    (forecast,) = story.round(at=1_000)
    story.then(Fact(forecast), configured(classes="off"), started("j/s", 2, 1, at=2_000))

    assert story.state.jobs["j"].active is None
    assert (story.state.sums, story.state.samples) == (None, [])
    assert story.round(at=3_000) == []

    story.then(finished("j/s", at=3_500), POOLS, started("j/s", 3, 1, at=4_000))

    assert curves(story, 5_000) == {"cpu": [[9_000, 1_000]]}


def test_without_pools_what_happens_to_tasks_costs_the_estimator_no_state():
    off = configured(classes="off")
    facts = (registered("n2", cpu=100_000), four(), started("j/s", count=3, at=0), finished("j/s", at=3_000))
    busy = given(estimator, off, registered("n1", cpu=100_000), *facts, node_lost("n1", tasks("j/s", 1, 1), at=5_000))
    idle = given(estimator, off, registered("n2", cpu=100_000), four())

    busy.round(at=6_000)
    assert busy.state.jobs == idle.state.jobs
    assert (busy.state.history, busy.state.scores, busy.state.sampled_ms) == (
        idle.state.history,
        idle.state.scores,
        idle.state.sampled_ms,
    )


def test_a_forecast_that_has_not_moved_is_not_said_again():
    story = cell(four(), started("j/s", count=2, at=0))
    (forecast,) = story.round(at=1_000)
    story.then(Fact(forecast))

    assert story.round(at=5_000) == []
    story.then(started("j/s", 2, 1, at=5_500))
    assert len(story.round(at=6_000)) == 1


def test_two_forecasts_are_a_second_apart():
    story = cell(four(), started("j/s", count=2, at=0))
    (forecast,) = story.round(at=1_000)
    story.then(Fact(forecast), started("j/s", 2, 1, at=1_100))

    assert story.round(at=1_999) == []
    assert len(story.round(at=2_000)) == 1


def test_without_pools_nothing_is_said():
    story = given(estimator, configured(classes="off"), registered("n1"), four(), started("j/s", count=2, at=0))

    assert story.round(at=1_000) == []
    assert curves(story.then(POOLS, started("j/s", 2, 1, at=2_000)), 3_000) == {"cpu": [[9_000, 1_000]]}


def test_forecasts_are_compared_with_what_came():
    """With an estimate of 10 s, the tasks take 4 s, so that the forecast was off by 2 % of the cell from the 5 s
    horizon on, and right again at 10 s. The ramp says nothing of tasks of which none has ended."""
    story = cell(four(), started("j/s", count=2, at=0))
    story.round(at=0)
    story.then(finished("j/s", count=2, at=4_000, run_ms=4_000))
    story.round(at=30_001)
    ramp, durations = (dict(zip(HORIZONS_S, mean_errors(score), strict=True)) for score in story.state.scores)

    # Two classes, of which one has nothing: the mean halves it.
    assert durations == {1: 0, 5: 10_000, 10: 0, 30: 0}
    assert ramp == {1: 0, 5: 10_000, 10: 10_000, 30: 10_000}


def test_the_better_forecaster_is_used():
    story = cell(four(), started("j/s", count=2, at=0))
    story.state.scores[1].sums[0], story.state.scores[1].samples[0] = 900, 3
    (forecast,) = story.round(at=1_000)

    assert forecast.forecaster == "ramp"
    assert [(score.forecaster, score.errors_ppm[0], score.samples[0]) for score in forecast.scores] == [
        ("ramp", 0, 0),
        ("durations", 300, 3),
    ]


def test_a_tie_changes_no_forecaster():
    assert best([Score(), Score()], 1) == 1
    assert best([Score(), Score()], 0) == 0
    assert best([Score([4], [2]), Score([3], [1])], 1) == 0


def test_older_errors_count_less():
    story = Score([SAMPLES_MAX * 10] * 4, [SAMPLES_MAX] * 4)

    assert mean_errors(story) == [10] * 4


@pytest.mark.parametrize(
    ("forecast", "came", "error"),
    [
        ([{"cpu": 5}], [{"cpu": 3}], 200_000),
        ([{}], [{"cpu": 3}], 300_000),
        ([{"cpu": 1, "gpu": 1}], [{"cpu": 2}], 1_000_000),
        ([{"cpu": 5}, {}], [{"cpu": 3}, {}], 100_000),
    ],
)
def test_an_error_is_the_largest_difference_of_a_class_in_any_kind(forecast, came, error):
    assert error_ppm(forecast, came, {"cpu": 10, "gpu": 1, "disk": 0}) == error


@for_every(st.integers(0, 10**6), st.integers(0, 10**5), st.lists(st.integers(0, 10**7), max_size=5))
def test_an_expected_end_does_not_depend_on_when_it_was_looked_at_before(start_ms, lasts_ms, moments):
    """So a cache that followed it step by step is what is built anew."""
    for now_ms in sorted(moments):
        second = end_second(start_ms, lasts_ms, now_ms)
        assert second * 1_000 >= now_ms
        assert end_second(start_ms, lasts_ms, second * 1_000) == second


@pytest.mark.slow
@for_all(histories(70))
def test_a_forecast_follows_from_the_log_alone(history):
    play = Play(SlowCell(4), classes="on", theta_permille=250, phase_window_ms=2_000, forecast_horizon_ms=5_000)
    for step in history:
        play.step(*step)
    play.wind_up()
    twin = replay(play.calls, SlowCell(4, forgetful=True))

    assert twin.digest == play.cell.digest
    assert twin.decisions == play.cell.decisions


@for_all(histories(70))
def test_no_class_is_forecast_to_give_back_more_than_it_holds(history):
    play = Play(SlowCell(4), classes="on", theta_permille=250, phase_window_ms=2_000)
    for step in history:
        play.step(*step)
        state = play.cell.states["estimator"]
        if state.sums is not None:
            refresh(state, play.cell.time, phases=True)
            held = play.cell.admission.used
            for forecaster in range(len(FORECASTERS)):
                for kind, amount in held.items():
                    classes = state.sums.seconds[forecaster]
                    assert sum(sum(kinds.get(kind, {}).values()) for kinds in classes) <= amount


@for_all(histories(70))
@pytest.mark.slow
def test_a_job_of_one_task_is_forecast_as_if_it_were_followed_like_any_other(history):
    lean, full = (
        Play(SlowCell(4), classes="on", theta_permille=250, phase_window_ms=2_000, forecast_horizon_ms=5_000)
        for _ in range(2)
    )
    for step in history:
        lean.step(*step)
        full.step(*step)
        state = full.cell.states["estimator"]
        for followed in state.jobs.values():
            if followed.alone_ms >= 0:
                follow(state, followed)

    assert lean.cell.decisions == full.cell.decisions
    assert lean.cell.digest == full.cell.digest


def test_a_job_of_one_task_is_followed_by_its_start_alone_until_an_attempt_fails():
    story = cell(admitted(job("j", stage("s", 1, duration_ms=10_000))), started("j/s", at=2_000))
    one = story.state.jobs["j"]
    assert (one.active, one.alone_ms) == (None, 2_000)
    assert curves(story, 4_000) == {"cpu": [[8_000, 1_000]]}

    story.then(failed("j/s", at=5_000))
    assert (one.alone_ms, one.active.begun, one.active.running) == (-1, [1], {})


@st.composite
def drawn_curves(draw):
    """Of one class by up to two kinds, points [ms, amount in all] in order; what comes only grows."""
    found = []
    for kind in draw(st.lists(st.sampled_from(["cpu", "memory"]), unique=True)):
        seconds = sorted(draw(st.sets(st.integers(0, 70), min_size=1, max_size=5)))
        steps = draw(st.lists(st.sampled_from([1, 200, 1_000, 5_000]), min_size=5, max_size=5))
        points = [[second * 1_000 + 500, sum(steps[: i + 1])] for i, second in enumerate(seconds)]
        found.append(ReleaseCurve(0, kind, points))
    return found


@for_every(drawn_curves(), drawn_curves(), st.integers(0, 40_000))
def test_a_forecast_has_moved_if_any_horizon_says_so(said, now, passed_ms):
    state = estimator.State(capacity={"cpu": 100_000, "memory": 0}, forecast=said, forecast_ms=10_000)
    now_ms, moved = 10_000 + passed_ms, False
    for kind, amount in state.capacity.items():
        before = next((curve.points for curve in said if curve.kind == kind), [])
        after = next((curve.points for curve in now if curve.kind == kind), [])
        for horizon_s in HORIZONS_S:
            ahead_ms = (now_ms // 1_000 + horizon_s) * 1_000 - now_ms
            was = _at(before, passed_ms + ahead_ms) - _at(before, passed_ms)
            moved |= abs(was - _at(after, ahead_ms)) * 1_000 >= max(1, amount * MOVED_PERMILLE)

    assert _has_moved(state, now, now_ms) == moved


def test_where_nothing_was_expected_and_nothing_came_no_forecast_was_off():
    assert error_ppm([{}, {"cpu": 10}], [{}, {}], {"cpu": 1_000}) == 5_000
    assert error_ppm([{}, {}], [{}, {"cpu": 10}], {"cpu": 1_000}) == 5_000
    assert error_ppm([{}, {}], [{}, {}], {"cpu": 1_000}) == 0
