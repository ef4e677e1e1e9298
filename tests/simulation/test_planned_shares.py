"""Shares of queues whose jobs are planned, or are one list of the whole cell: what others have to do, or how their jobs
are ranked, takes nothing from a queue."""

import pytest

from tests.simulation.runs import job, simulated, stage

PLANNED = ("carbyne", "carbyne-dag")
LISTS = ("fifo", "sjf", "srtf", "tetris", "tetris-fair")
ALONE_MS, TASK_MS = 600_000, 30_000


def cell(cores, **weights):
    return {
        "nodes": [{"name": "n", "count": 1, "capacity": {"cpu": str(cores)}}],
        "queues": {"name": "root", "children": [{"name": name, "weight": weight} for name, weight in weights.items()]},
    }


def stream(name, queue, jobs, every_ms=0, **settings):
    """Jobs of one task each."""
    work = stage(duration_ms=TASK_MS, demand={"cpu": "1"})
    return [job(f"{name}{i}", work, queue=queue, submit_ms=i * every_ms, **settings) for i in range(jobs)]


def cores_of(run, queue, from_ms, to_ms):
    """How many cores the jobs whose names begin so have in the mean."""
    spans = [
        min(line["end_ms"], to_ms) - max(line["start_ms"], from_ms)
        for line in run.lines
        if line.get("job", "").startswith(queue)
    ]
    return sum(span for span in spans if span > 0) / (to_ms - from_ms)


@pytest.mark.parametrize("preset", [*PLANNED, "hdrf"])
def test_a_planned_queue_with_one_job_has_its_share_beside_one_with_more_jobs_than_tasks_run(tmp_path, preset):
    """Each of the small jobs is entitled to a part of a task, and yet needs one."""
    wide = job("wide", stage(tasks=400, duration_ms=TASK_MS, demand={"cpu": "1"}), queue="few", submit_ms=1_000)
    run = simulated(tmp_path, [*stream("many", "many", 400), wide], cell(10, few=4, many=1), preset=preset)
    assert min(line["start_ms"] for line in run.of("wide")) == TASK_MS
    assert cores_of(run, "wide", 60_000, 360_000) == 8


@pytest.mark.parametrize("preset", PLANNED)
def test_room_is_gathered_for_what_planned_jobs_of_a_queue_below_its_share_need(tmp_path, preset):
    lasts = [15_000, 30_000, 45_000, *[60_000] * 60]
    fills = job("fills", stage(durations_ms=lasts * 2, demand={"cpu": "1"}), queue="small")
    gang = stage(tasks=2, duration_ms=60_000, demand={"cpu": "2"}, gang=True)
    run = simulated(
        tmp_path, [fills, job("gang", gang, queue="wide", submit_ms=1_000)], cell(8, small=1, wide=1), preset=preset
    )
    assert {line["start_ms"] for line in run.of("gang")} <= set(range(1_000, 121_000))


@pytest.mark.parametrize("preset", PLANNED)
def test_a_gang_of_planned_jobs_starts_though_jobs_with_less_work_keep_coming(tmp_path, preset):
    """They do not end the gathering for it that has begun."""
    nodes = [{"name": "n", "count": 4, "capacity": {"gpu": 8}}]
    work = stage(tasks=2, duration_ms=9_000, demand={"gpu": 1})
    small = [job(f"s{i}", work, submit_ms=1_000 * i) for i in range(300)]
    gang = job("gang", stage(tasks=4, duration_ms=60_000, demand={"gpu": 8}, gang=True), submit_ms=5_000)
    run = simulated(tmp_path, [*small, gang], {"nodes": nodes}, preset=preset)
    assert run.of("gang")[0]["start_ms"] < 30_000


@pytest.mark.parametrize("preset", [*PLANNED, *LISTS])
def test_a_priority_takes_nothing_from_another_queue(tmp_path, preset):
    def shares(priority):
        jobs = [*stream("a", "a", 60, priority=priority), *stream("b", "b", 60)]
        run = simulated(tmp_path, jobs, cell(8, a=1, b=1), preset=preset)
        return cores_of(run, "a", 0, 180_000), cores_of(run, "b", 0, 180_000)

    plain = shares(0)
    assert sum(plain) == 8
    assert shares(7) == plain


@pytest.mark.parametrize("preset", [*PLANNED, *LISTS])
def test_a_priority_goes_before_others_of_its_queue_beside_another_one(tmp_path, preset):
    work = stage(duration_ms=10_000, demand={"cpu": "1"})
    jobs = [job("first", work, queue="a"), job("low", work, queue="a", submit_ms=1_000)]
    jobs += [job("high", work, queue="a", submit_ms=2_000, priority=9), job("other", work, queue="b", submit_ms=3_000)]
    run = simulated(tmp_path, jobs, cell(1, a=1, b=1), preset=preset)
    starts = {name: run.of(name)[0]["start_ms"] for name in ("high", "low")}
    assert starts["high"] < starts["low"]
