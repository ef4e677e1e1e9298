"""What tasks of recurring jobs count for: by the peaks of CPU of earlier runs, between half of what they ask for and
all of it.
"""

from dataclasses import replace

import pytest

from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of
from schemas import (
    JobAdmitted,
    JobCancelled,
    JobRerun,
    NodeRegistered,
    ReservationRequested,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
)
from schemas.jobs import Counted
from services.admission.core import peaks
from services.admission.core.keys import digest_of
from services.admission.core.peaks import RUNS_MAX, RUNS_MIN, counted_cpu
from tests.builders import config, job, known, node, stage
from tests.cells import SlowCell, place

WIDE = stage("s", 4, cpu=4_000, memory=1_024)


@pytest.mark.parametrize(
    ("asked", "peak", "counted"),
    [
        pytest.param(4_000, 2_400, 3_000, id="the peak and a quarter more"),
        pytest.param(4_000, 2_401, 3_002, id="rounded up"),
        pytest.param(4_000, 1, 2_000, id="at least half of what is asked for"),
        pytest.param(3, 1, 2, id="half of it rounded up"),
        pytest.param(4_000, 3_199, 3_999, id="less than what is asked for"),
        pytest.param(4_000, 3_200, 4_000, id="what is asked for"),
        pytest.param(4_000, 9_000, 4_000, id="never more than what is asked for"),
    ],
)
def test_tasks_count_for_their_peak_and_a_quarter_within_bounds(asked, peak, counted):
    assert counted_cpu(asked, peak) == counted


def cell(*given, cpu=16_000, memory=1 << 20, demands="history", **knobs):
    """A cell with one node."""
    story = SlowCell()
    story.take(config(demands=demands, **knobs), node("n1", cpu=cpu, memory=memory), *given)
    return story


def run(story, spec, *used, peak=None):
    """A job from its submission to its end; its attempts have these peaks of CPU, in order, the last one all others.
    Returns what its admission says that its tasks count for."""
    admitted = story.take(spec)
    left = list(used)
    while granted := story.settle():
        story.start(*granted)
        for grant in granted:
            for index in range(grant.first, grant.first + grant.count):
                cpu = left.pop(0) if len(left) > 1 else left[0]
                one = replace(grant, first=index, count=1)
                measured = {} if cpu is None else {"cpu": cpu}
                story.take(TaskFinished([TaskEnd(*place(one), [1_000], {"memory": 64, **measured})]))
    assert story.ended()[spec.job] == "succeeded"
    return admitted.counted


def taught(*used, spec=WIDE, runs=RUNS_MIN, **knobs):
    """A cell in which so many runs of `r` have ended, each task with this peak."""
    story = cell(**knobs)
    for number in range(runs):
        run(story, job(f"r-{number}", spec), *used)
    return story


def counted(story, spec):
    """What tasks of a job that comes now count for, by its admission."""
    return story.take(spec).counted


# ---------------------------------------------------------------- what runs teach
def test_from_the_fourth_run_on_tasks_count_for_what_the_runs_before_used():
    story = cell()

    assert [run(story, job(f"r-{number}", WIDE), 900, 2_400, 1_000) for number in range(3)] == [[], [], []]
    assert counted(story, job("r-3", WIDE)) == [Counted("s", {"cpu": 3_000}, 3, {"cpu": 2_400})]
    assert counted(story, job("other-3", WIDE)) == []


def test_more_tasks_of_a_stage_that_counts_for_less_share_a_node():
    story = taught(1_000)
    story.take(job("r-9", replace(WIDE, tasks=20)))
    story.settle()

    held = story.admission.nodes["n1"]
    assert [hold.demand["cpu"] for hold in held.holds.values()] == [2_000] * 8
    assert (held.free["cpu"], held.free["memory"]) == (0, (1 << 20) - 8 * 1_024)


def test_memory_counts_as_it_is_asked_for():
    story = taught(1_000, memory=4 * 1_024)
    story.take(job("r-9", replace(WIDE, tasks=20)))
    story.settle()

    assert len(story.admission.nodes["n1"].holds) == 4


@pytest.mark.parametrize(
    ("peaks_of_runs", "peak"),
    [
        pytest.param([2_400, 500, 500], 2_400, id="the largest of all"),
        pytest.param([2_400, *[500] * RUNS_MAX], 500, id="of the latest"),
        pytest.param([3_000, 2_400, *[500] * (RUNS_MAX - 1)], 2_400, id="so many of them"),
    ],
)
def test_the_largest_peak_of_the_latest_runs_counts(peaks_of_runs, peak):
    story = cell()
    for number, used in enumerate(peaks_of_runs):
        run(story, job(f"r-{number}", WIDE), used)
    story.restore()

    (said,) = counted(story, job("r-99", WIDE))
    assert (said.runs, said.peak) == (min(len(peaks_of_runs), RUNS_MAX), {"cpu": peak})


def test_stages_teach_each_for_itself():
    stages = stage("a", 2, cpu=2_000), stage("b", 1, cpu=2_000, after=["a"])
    story = cell()
    for number in range(RUNS_MIN):
        run(story, job(f"r-{number}", *stages), 2_000, 2_000, 800)

    assert counted(story, job("r-9", *stages)) == [Counted("b", {"cpu": 1_000}, 3, {"cpu": 800})]


def test_a_run_with_a_task_that_was_not_measured_teaches_nothing():
    story = taught(500, runs=2)
    run(story, job("r-2", WIDE), 500, None, 500)
    assert counted(story, job("r-3", WIDE)) == []

    story.cancel("r-3")
    run(story, job("r-4", WIDE), 500)
    assert [each.runs for each in counted(story, job("r-5", WIDE))] == [3]


def test_a_run_that_failed_or_was_cancelled_teaches_nothing():
    story = taught(500, runs=2)
    story.take(job("r-2", stage("s", 2, cpu=4_000)))
    first, *_ = story.settle()
    story.start(first)
    ends = [TaskEnd(*place(replace(first, count=1)), [5], {"cpu": 500})]
    story.take(TaskFinished(ends), TaskFailed([TaskFailure(*place(replace(first, first=1, count=1)), "exit_code")]))
    story.settle()
    story.take(job("r-3", WIDE), JobCancelled("r-3", "ann"))
    story.settle()

    assert story.ended()["r-2"] == "failed"
    assert story.ended()["r-3"] == "cancelled"
    assert counted(story, job("r-4", WIDE)) == []


def test_a_stage_of_which_a_task_failed_for_good_teaches_nothing():
    story = taught(500, runs=2)
    story.take(job("r-2", replace(WIDE, max_failed=1)))
    granted = story.settle()
    story.start(*granted)
    (grant,) = granted
    story.take(TaskFailed([TaskFailure(*place(replace(grant, count=1)), "exit_code")]))
    story.take(TaskFinished([TaskEnd(*place(replace(grant, first=1, count=3)), [5], {"cpu": 500})]))
    story.settle()

    assert story.ended()["r-2"] == "succeeded"
    assert counted(story, job("r-3", WIDE)) == []


def test_runs_that_asked_for_something_else_teach_nothing():
    """They may have been held to what they asked for."""
    story = taught(900, spec=stage("s", 1, cpu=1_000), runs=5)
    assert counted(story, job("r-8", stage("s", 1, cpu=4_000))) == []

    story.cancel("r-8")
    run(story, job("r-9", stage("s", 1, cpu=4_000)), 3_000)
    (known,) = story.admission.run_peaks.values()
    assert (known.asked, known.peaks) == (4_000, [3_000])


def test_runs_of_another_user_teach_nothing():
    story = taught(500)
    assert counted(story, replace(job("r-8", WIDE), user="ann")) == []
    assert counted(story, job("r-9", WIDE)) != []


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        pytest.param(["report.py", "--day", "2026-06-12"], True, id="the same but for numbers"),
        pytest.param(["report.py", "--day", "2026-06-12", "--all"], False, id="another argument"),
        pytest.param(["report.py", "--da", "y"], False, id="words that are cut elsewhere"),
        pytest.param(["train.py", "--day", "2026-06-11"], False, id="another program"),
    ],
)
def test_runs_of_another_command_teach_nothing(command, counts):
    """Jobs that nobody has named are `jobs-0-1`, `jobs-0-2` and so on."""
    before = replace(WIDE, command=["report.py", "--day", "2026-06-11"], durations_ms=[])
    story = cell()
    for number in range(RUNS_MIN):
        run(story, job(f"jobs-0-{number}", before), 500)
        run(story, job(f"jobs-0-{number + 50}", replace(before, command=["other"])), 4_000)

    assert bool(counted(story, job("jobs-0-99", replace(before, command=command)))) == counts


def test_a_job_with_a_reservation_counts_for_what_it_asks_for():
    story = taught(500)
    story.put(ReservationRequested("r", "", "{}", "tester", "default"))

    assert counted(story, replace(job("r-8", WIDE), reservation="r")) == []
    assert counted(story, job("r-9", WIDE)) != []


def test_what_an_agent_tells_of_when_it_registers_again_teaches_too():
    story = taught(500, runs=2)
    story.take(job("r-2", WIDE))
    (grant,) = story.settle()
    attempts = [known(grant, "succeeded", peak={"cpu": 500})]
    story.take(NodeRegistered("n1", "e2", {"cpu": 16_000, "memory": 1 << 20}, attempts=attempts))
    story.settle()

    assert [each.runs for each in counted(story, job("r-3", WIDE))] == [3]


def test_a_further_run_of_a_stage_teaches_and_what_stays_as_it_was_does_not():
    stages = stage("a", 1, cpu=2_000), stage("b", 1, cpu=2_000, after=["a"])
    story, spec = cell(), job("r", *stages)
    run(story, spec, 500)
    for _ in range(2):
        story.take(JobRerun(spec, "b"))
        for _ in range(2):
            granted = story.settle()
            story.start(*granted)
            story.take(TaskFinished([TaskEnd(*place(each), [5], {"cpu": 500}) for each in granted]))

    assert [len(known.peaks) for known in story.admission.run_peaks.values()] == [1, 3]
    assert [each.stage for each in story.take(JobRerun(spec, "")).counted] == ["b"]


def test_stages_of_which_no_run_has_ended_for_longest_are_forgotten(monkeypatch):
    monkeypatch.setattr(peaks, "HISTORY_STAGES_MAX", 2)
    story = cell()
    for name in ("a-1", "b-1", "a-2", "c-1"):
        run(story, job(name, WIDE), 500)

    assert [key.partition("/")[0] for key in story.admission.run_peaks] == ["a", "c"]


# ---------------------------------------------------------------- the knob
def test_by_default_tasks_count_for_what_they_ask_for_and_nothing_is_kept():
    story = taught(500, demands="spec")

    assert counted(story, job("r-9", WIDE)) == []
    assert (story.admission.peaks, story.admission.run_peaks) == ({}, {})


def test_what_is_known_is_forgotten_with_the_knob_and_a_run_counts_only_as_a_whole():
    story = taught(500)
    story.take(config(demands="spec"))
    assert counted(story, job("r-4", WIDE)) == []
    assert (story.admission.peaks, story.admission.run_peaks) == ({}, {})

    story.take(config(demands="history"))
    granted = story.settle()
    story.start(*granted)
    story.take(TaskFinished([TaskEnd(*place(each), [5], {"cpu": 500}) for each in granted]))
    story.settle()
    assert story.ended()["r-4"] == "succeeded"
    assert story.admission.run_peaks == {}


def test_live_jobs_count_for_what_they_did_when_the_knob_changes():
    story = taught(1_000)
    story.take(job("r-9", replace(WIDE, tasks=8)), config(demands="spec"))
    story.settle()

    assert len(story.admission.nodes["n1"].holds) == 8


# ---------------------------------------------------------------- what stays as asked for
def test_a_job_is_known_and_judged_by_what_it_asks_for():
    story = taught(1_000, theta_permille=800)
    spec = job("r-9", WIDE)
    admitted = story.take(spec)
    live = story.admission.jobs["r-9"]

    assert admitted.job_class == 1  # 16 of 16 cores, not 8.
    assert (live.spec, live.graph.stages[0].demand["cpu"]) == (spec, 2_000)
    assert digest_of(live.spec) == digest_of(spec)
    assert type(story.take(spec)).__name__ == "InputRepeated"
    assert story.take(job("r-10", replace(WIDE, demand={"cpu": 17_000}))).reason == "exceeds_capacity"


def test_every_core_goes_by_what_tasks_count_for():
    story = taught(1_000)
    story.take(job("r-9", WIDE))
    live = {name: state.jobs["r-9"].graph for name, state in story.states.items() if name != "planner"}

    assert sorted(live) == ["admission", "altruism/0", "estimator", "fairness", "leftover"]
    assert [graph.stages[0].demand["cpu"] for graph in live.values()] == [2_000] * 5
    assert story.states["planner"].jobs == {}  # It follows jobs with reservations alone, which count in full.


def test_cores_of_one_process_share_what_an_admission_makes_of_a_spec():
    spec = job("r", WIDE, stage("t", 1))
    body = JobAdmitted(spec, 0, counted=[Counted("s", {"cpu": 2_000}, 3, {"cpu": 1_000})])

    assert counted_spec(body) is counted_spec(body)
    assert [each.demand for each in counted_spec(body).stages] == [{"cpu": 2_000, "memory": 1_024}, {"cpu": 1_000}]
    assert spec.stages[0].demand["cpu"] == 4_000
    assert graph_of(counted_spec(body)) is not graph_of(spec)
    assert counted_spec(JobAdmitted(spec, 0)) is spec
