"""How long tasks are expected to run: by the estimate of the spec, by earlier runs, by what was seen in this one."""

from dataclasses import replace

import pytest

from largesse.lifecycle import run_times
from largesse.lifecycle.run_times import (
    HISTORY_STAGES_MAX,
    HISTORY_TASKS_MAX,
    SEEN_TASKS_MIN,
    History,
    Seen,
    expected_ms,
    informed,
    learn,
    observe,
    recurring_name,
    rule_of,
    source_of,
)
from schemas import Policy
from schemas.edge.read import read_cluster
from schemas.estimates import DEFAULT_MS
from services.simulator.run import Options, simulate
from tests.builders import config, job, stage
from tests.unit.test_altruism_plans import cell, plans

UNESTIMATED = replace(stage("s", 4), estimate_ms=0)
ESTIMATED = replace(stage("s", 4), estimate_ms=5_000)
SPEC = Policy(estimates="spec")


@pytest.mark.parametrize(
    ("name", "recurring"),
    [
        pytest.param("report-7", "report", id="a run number is left out"),
        pytest.param("report-2026-05-01", "report", id="so is a date"),
        pytest.param("q21-7", "q21", id="a number that belongs to the name stays"),
        pytest.param("run_3.10", "run", id="any separator counts"),
        pytest.param("report", "report", id="a name without numbers is its own"),
        pytest.param("17", "17", id="a name that is a number stays"),
        pytest.param("-17", "-17", id="a name has to be left"),
        pytest.param("report-", "report-", id="a separator without a number stays"),
        pytest.param("", "", id="no name"),
    ],
)
def test_jobs_recur_under_the_name_without_the_numbers_at_its_end(name, recurring):
    assert recurring_name(name) == recurring


def seen_of(spec_stage, estimates, *runs):
    seen = {}
    for count, run_ms in runs:
        seen = observe(seen, spec_stage, count, run_ms, estimates)
    return seen


def test_the_estimate_of_the_spec_goes_first_and_is_all_that_counts():
    seen = seen_of(ESTIMATED, "spec", (2, [100, 300]))

    assert seen == {}
    assert expected_ms(ESTIMATED, seen) == 5_000
    assert source_of(ESTIMATED, 0, [], seen) == "spec"


def test_else_tasks_of_the_stage_that_have_succeeded_are_the_estimate():
    seen = seen_of(UNESTIMATED, "spec", (2, [100, 300]), (1, [500]))

    assert expected_ms(UNESTIMATED, seen) == 300
    assert source_of(UNESTIMATED, 0, [], seen) == "finished"


def test_else_there_is_a_default():
    assert expected_ms(UNESTIMATED, {}) == DEFAULT_MS
    assert source_of(UNESTIMATED, 0, [], {}) == "default"


def test_earlier_runs_give_the_estimate_that_a_spec_lacks():
    history = History()
    learn(history, "r-1", "", {"s": Seen(2, 400)})
    learn(history, "r-2", "", {"s": Seen(1, 500)})
    spec, positions = informed(history, job("r-3", UNESTIMATED, replace(UNESTIMATED, stage="t")), SPEC)
    assert [each.estimate_ms for each in spec.stages] == [300, 0]
    assert source_of(spec.stages[0], 0, positions, {}) == "history"
    assert informed(history, job("other-3", UNESTIMATED), SPEC)[1] == []


def test_jobs_of_another_user_are_no_earlier_runs():
    history = History()
    learn(history, "r-1", "ann", {"s": Seen(2, 400)})
    for user, estimate_ms in (("ann", 200), ("bob", 0), ("", 0)):
        submitted = replace(job("r-2", UNESTIMATED), user=user)
        assert [each.estimate_ms for each in informed(history, submitted, SPEC)[0].stages] == [estimate_ms]


def test_by_the_knob_earlier_runs_go_before_the_estimate_of_the_spec():
    history = History()
    learn(history, "r-1", "", seen_of(ESTIMATED, "history", (2, [100, 300])))
    submitted = job("r-2", ESTIMATED)

    assert informed(history, submitted, SPEC) == (submitted, [])
    spec, positions = informed(history, submitted, Policy(estimates="history"))
    assert spec.stages[0].estimate_ms == 200
    assert positions == [0]


def test_by_the_knob_a_few_finished_tasks_go_before_the_estimate_of_the_spec():
    few = seen_of(ESTIMATED, "finished", (SEEN_TASKS_MIN - 1, [100]))
    assert expected_ms(ESTIMATED, few) == 5_000
    assert source_of(ESTIMATED, 0, [], few) == "spec"

    enough = seen_of(ESTIMATED, "finished", (SEEN_TASKS_MIN - 1, [100]), (1, [600]))
    assert expected_ms(ESTIMATED, enough) == 200
    assert source_of(ESTIMATED, 0, [], enough) == "finished"


@pytest.mark.parametrize(
    ("run_ms", "expected"),
    [
        pytest.param(3_749, 3_749, id="too long by more than a quarter"),
        pytest.param(3_750, 5_000, id="too long by a quarter"),
        pytest.param(6_250, 5_000, id="too short by a quarter"),
        pytest.param(6_251, 6_251, id="too short by more than a quarter"),
    ],
)
def test_an_estimate_stays_unless_finished_tasks_show_that_it_is_wrong(run_ms, expected):
    seen = seen_of(ESTIMATED, "finished", (SEEN_TASKS_MIN, [run_ms]))
    assert expected_ms(ESTIMATED, seen) == expected
    assert source_of(ESTIMATED, 0, [], seen) == ("spec" if expected == ESTIMATED.estimate_ms else "finished")


@pytest.mark.parametrize("now", ["spec", "history"])
def test_the_estimate_of_the_spec_goes_first_again_once_the_knob_says_so(now):
    seen = seen_of(ESTIMATED, "finished", (SEEN_TASKS_MIN, [100]))
    observe(seen, ESTIMATED, 1, [100], now)

    assert expected_ms(ESTIMATED, seen) == 5_000


def test_without_an_estimate_one_finished_task_is_enough():
    assert expected_ms(UNESTIMATED, seen_of(UNESTIMATED, "finished", (1, [100]))) == 100


def test_cores_of_one_process_share_what_earlier_runs_make_of_a_spec():
    one, other = History(), History()
    for history in (one, other):
        learn(history, "r-1", "", {"s": Seen(1, 100)})
    spec = job("r-2", UNESTIMATED)

    assert informed(one, spec, SPEC)[0] is informed(other, spec, SPEC)[0]


def test_the_latest_runs_count_for_more_than_all_those_before():
    history = History()
    for _ in range(50):
        learn(history, "r-1", "", {"s": Seen(HISTORY_TASKS_MAX, 10 * HISTORY_TASKS_MAX)})
    learn(history, "r-2", "", {"s": Seen(HISTORY_TASKS_MAX, 30 * HISTORY_TASKS_MAX)})

    assert history.stages == {"r/s/": Seen(HISTORY_TASKS_MAX, 20 * HISTORY_TASKS_MAX)}


def test_stages_that_no_run_has_ended_of_for_longest_are_forgotten(monkeypatch):
    monkeypatch.setattr(run_times, "HISTORY_STAGES_MAX", 2)
    history = History()
    for name in ("a", "b", "a", "c"):
        learn(history, name, "", {"s": Seen(1, 1)})

    assert list(history.stages) == ["a/s/", "c/s/"]
    assert HISTORY_STAGES_MAX > 2


# ---------------------------------------------------------------- in a cell
def run_whole(story, run_ms):
    """Runs all that is granted until nothing is left to do."""
    while granted := story.settle():
        story.start(*granted)
        story.finish(*granted, run_ms=run_ms)


def test_the_next_run_of_a_job_is_planned_by_the_last_and_the_plan_says_so():
    story = cell(job("r-1", UNESTIMATED))
    story.open()
    assert [(each.run_ms, each.source) for each in plans(story)["r-1"].estimates] == [(DEFAULT_MS, "default")]
    story.start(*story.close().grants)
    story.finish(*story.granted, run_ms=7_000)
    run_whole(story, 7_000)
    story.take(job("r-2", UNESTIMATED))
    story.open()

    plan = plans(story)["r-2"]
    assert plan.deadline_ms == 7_000
    assert [(each.stage, each.run_ms, each.source) for each in plan.estimates] == [("s", 7_000, "history")]


@pytest.mark.parametrize(
    ("knobs", "found"),
    [
        ({"estimates": "finished"}, [("s", 7_000, "finished")]),
        ({"estimates": "preset"}, [("s", 7_000, "finished")]),
        ({}, [("s", 7_000, "finished")]),
        ({"estimates": "spec"}, []),
    ],
)
def test_a_job_is_planned_by_its_tasks_that_have_succeeded_unless_the_knob_says_otherwise(knobs, found):
    cores = SEEN_TASKS_MIN * 1_000
    story = cell(job("r-1", replace(ESTIMATED, tasks=3 * SEEN_TASKS_MIN, retries=1)), cpu=cores, **knobs)
    first = story.settle()
    story.start(*first)
    story.finish(*first, run_ms=7_000)
    second = story.settle()
    story.start(*second)
    story.fail(*second)  # So it is planned again.
    story.restore()
    story.open()

    plan = plans(story)["r-1"]
    assert [(each.stage, each.run_ms, each.source) for each in plan.estimates] == found


@pytest.mark.parametrize(
    ("preset", "estimates", "found"),
    [
        ("carbyne", "preset", "finished"),
        ("carbyne-dag", "preset", "finished"),
        ("largesse", "preset", "spec"),
        ("drf", "preset", "spec"),
        ("carbyne", "spec", "spec"),
        ("largesse", "history", "history"),
    ],
)
def test_presets_that_plan_jobs_let_finished_tasks_correct_estimates(preset, estimates, found):
    assert rule_of(Policy(preset=preset, estimates=estimates)) == found


def test_a_run_with_another_estimate_teaches_only_where_history_counts():
    story = cell(job("r-1", ESTIMATED), estimates="history")
    run_whole(story, 7_000)
    story.take(job("r-2", ESTIMATED))
    story.restore()
    story.open()
    assert plans(story)["r-2"].deadline_ms == 7_000

    story.close()
    story.take(config(estimates="spec"), job("r-3", ESTIMATED))
    story.open()
    plan = plans(story)["r-3"]
    assert max(late.at_ms + (late.waves - 1) * late.every_ms for late in plan.late) == plan.deadline_ms - 5_000
    assert plans(story)["r-3"].estimates == []


def test_every_core_remembers_whose_run_it_was():
    found = {}

    def look(cell):
        states = (cell.fairness, cell.altruism[0], cell.leftover, cell.estimator)
        found.update({type(state).__module__: list(state.history.stages) for state in states})

    runs = replace(UNESTIMATED, durations_ms=[1_000] * UNESTIMATED.tasks)
    jobs = [
        (at_ms, replace(job(name, runs), user=user)) for at_ms, name, user in ((0, "r-1", "ann"), (9_000, "x", "bob"))
    ]
    cluster = read_cluster({"nodes": [{"name": "n", "capacity": {"cpu": "8"}}]})
    simulate(jobs, cluster, Options({"preset": "largesse"}, before_round=look))

    assert list(found.values()) == [["r/s/ann", "x/s/bob"]] * 4
