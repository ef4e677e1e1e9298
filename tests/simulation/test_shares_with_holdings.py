"""Queues that hold one resource for long and ask for another, with maxima: who waits gets its share within the longest
task among those that come and go. Cases in which nothing, or too little, was given.
"""

from random import Random

import pytest

from tests.simulation.runs import job, simulated, stage

LONG_MS, UNTIL_MS = 600_000, 120_000
PRESETS = ("hdrf", "largesse", "rayon")
EVERY_SHARING = (*PRESETS, "capacity", "dress", "carbyne", "carbyne-dag")


def one_node(*queues, **capacity):
    return {
        "nodes": [{"name": "n", "count": 1, "capacity": capacity}],
        "queues": {"name": "root", "children": list(queues)},
    }


def holding(name, queue, tasks, **demand):
    return job(name, stage(tasks=tasks, duration_ms=LONG_MS, demand=demand), queue=queue)


def coming_and_going(name, queue, submit_ms, **demand):
    """More tasks of 6 to 9 s than ever come to run."""
    random = Random(name)
    lasts = [random.randint(6_000, 9_000) for _ in range(2_000)]
    return job(name, stage(durations_ms=lasts, demand=demand), queue=queue, submit_ms=submit_ms)


def runs_at(run, name, at_ms):
    """How many tasks of a job run then."""
    return len([line for line in run.of(name) if line["start_ms"] <= at_ms < line["end_ms"]])


@pytest.mark.parametrize("preset", PRESETS)
def test_a_maximum_on_cpu_keeps_no_queue_with_gpus_from_its_cores(tmp_path, preset):
    dev = {"name": "dev", "max": {"gpu": 2, "cpu": "4"}}
    workload = [
        holding("trains", "dev", 2, cpu="1", gpu=1),
        coming_and_going("theirs", "data", 1_000, cpu="500m"),
        coming_and_going("waits", "dev", 2_000, cpu="500m"),
    ]
    run = simulated(tmp_path, workload, one_node(dev, {"name": "data"}, cpu="32", gpu=12), preset=preset)
    assert min(line["start_ms"] for line in run.of("waits")) < 1_000 + 6_000 + 4_000
    assert all(runs_at(run, "waits", at_ms) == 4 for at_ms in range(20_000, UNTIL_MS, 10_000))


@pytest.mark.parametrize("preset", PRESETS)
def test_who_holds_more_of_one_kind_than_its_level_still_gets_what_is_due_of_another(tmp_path, preset):
    workload = [
        holding("trains", "a", 3, cpu="500m", gpu=1),
        coming_and_going("theirs", "b", 2_000, cpu="500m", memory="512Mi"),
        coming_and_going("waits", "a", 15_000, cpu="100m", memory="1Gi"),
    ]
    queues = {"name": "a", "max": {"memory": "8Gi"}}, {"name": "b"}
    run = simulated(tmp_path, workload, one_node(*queues, cpu="40", memory="80Gi", gpu=12), preset=preset)
    for at_ms in range(30_000, UNTIL_MS, 10_000):
        assert runs_at(run, "waits", at_ms) >= 7, at_ms


@pytest.mark.parametrize("preset", PRESETS)
def test_long_tasks_with_much_memory_do_not_use_up_a_maximum_of_cpu(tmp_path, preset):
    workload = [
        holding("keeps", "a", 3, cpu="100m", memory="4Gi"),
        coming_and_going("theirs", "b", 15_000, cpu="100m"),
        coming_and_going("waits", "a", 15_000, cpu="500m", memory="512Mi"),
    ]
    queues = {"name": "a", "weight": 3, "max": {"cpu": "4"}}, {"name": "b", "weight": 6}
    run = simulated(tmp_path, workload, one_node(*queues, cpu="40", memory="80Gi", gpu=12), preset=preset)
    for at_ms in range(30_000, UNTIL_MS, 10_000):
        assert runs_at(run, "waits", at_ms) >= 6, at_ms


@pytest.mark.parametrize("preset", EVERY_SHARING)
def test_a_wide_task_within_a_guarantee_does_not_wait_behind_a_stream_of_small_ones(tmp_path, preset):
    lasts = [15_000, 30_000, 45_000, *[60_000] * 60]
    workload = [
        job("stream", stage(durations_ms=lasts), queue="small"),
        job("wide", stage(duration_ms=60_000, demand={"cpu": 2}), queue="big", submit_ms=1_000),
    ]
    queues = {"name": "big", "guaranteed": {"cpu": "2"}}, {"name": "small"}
    run = simulated(tmp_path, workload, one_node(*queues, cpu="4"), preset=preset)
    assert run.of("wide")[0]["start_ms"] <= 90_000


@pytest.mark.parametrize("preset", [*PRESETS, "capacity", "dress"])
def test_guaranteed_gpus_come_before_what_others_would_have_by_weight(tmp_path, preset):
    def stream(name, queue, submit_ms):
        random = Random(name)
        lasts = [random.randint(5_000, 15_000) for _ in range(200)]
        return job(name, stage(durations_ms=lasts, demand={"gpu": 1}), queue=queue, submit_ms=submit_ms)

    inner = {"name": "ours", "guaranteed": {"cpu": "4", "gpu": 4}}
    inner["children"] = [{"name": "x"}, {"name": "y", "guaranteed": {"gpu": 4}}]
    workload = [stream("a", "theirs", 0), stream("b", "ours/x", 0), stream("c", "ours/y", 20_000)]
    run = simulated(tmp_path, workload, one_node({"name": "theirs"}, inner, cpu="8", gpu=8), preset=preset)
    assert all(runs_at(run, "c", at_ms) >= 3 for at_ms in range(36_000, 100_000, 8_000))


@pytest.mark.parametrize("preset", PRESETS)
def test_who_holds_much_of_a_kind_comes_to_all_that_its_maximum_in_another_allows(tmp_path, preset):
    """Two tasks of 4 GiB stay; with 38 of 1 GiB and 100m each `a` has its 4 cores. Of 80 GiB it is due two thirds."""
    a = {"name": "a", "weight": 4, "max": {"cpu": "4"}}
    b = {"name": "b", "weight": 2, "children": [{"name": "x", "weight": 3}, {"name": "y", "weight": 2}]}
    workload = [
        holding("stays", "a", 2, cpu="100m", memory="4Gi"),
        holding("stays-too", "b/y", 2, cpu="100m", memory="4Gi"),
        coming_and_going("theirs", "b/x", 1_000, cpu="100m", memory="1Gi"),
        coming_and_going("waits", "a", 15_000, cpu="100m", memory="1Gi"),
        coming_and_going("others", "b/y", 15_000, cpu="100m"),
    ]
    run = simulated(tmp_path, workload, one_node(a, b, cpu="40", memory="80Gi"), preset=preset)
    assert all(runs_at(run, "waits", at_ms) >= 37 for at_ms in range(25_000, UNTIL_MS, 1_000))
    assert any(runs_at(run, "waits", at_ms) == 38 for at_ms in range(25_000, 36_000, 500))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_queue_at_its_maximum_is_not_kept_from_it_by_one_whose_tasks_ask_for_other_proportions(tmp_path, preset):
    a = {"name": "a", "max": {"memory": "16Gi"}}
    workload = [
        coming_and_going("waits", "a", 15_000, cpu="100m", memory="1Gi"),
        coming_and_going("theirs", "b", 2_000, cpu="100m", memory="1Gi"),
        holding("stays", "c", 1, cpu="100m", memory="4Gi"),
        coming_and_going("others", "c", 2_000, cpu="500m", memory="512Mi"),
    ]
    cell = one_node(a, {"name": "b"}, {"name": "c"}, cpu="40", memory="80Gi")
    run = simulated(tmp_path, workload, cell, preset=preset)
    below = [at_ms for at_ms in range(26_000, UNTIL_MS, 500) if runs_at(run, "waits", at_ms) < 15]
    spans = [at_ms for at_ms in below if all(at_ms + more in below for more in range(0, 10_000, 500))]
    assert not spans


@pytest.mark.parametrize("preset", PRESETS)
def test_a_maximum_on_gpus_raises_no_level_of_a_queue_whose_other_tasks_ask_for_none(tmp_path, preset):
    """One of its two tasks with a GPU waits for its maximum. Of the CPU it is due a twentieth."""
    workload = [
        holding("trains", "few", 2, cpu="100m", gpu=1),
        coming_and_going("small", "few", 1_000, cpu="500m"),
        coming_and_going("theirs", "many", 1_000, cpu="500m"),
    ]
    queues = {"name": "few", "max": {"gpu": "1500m"}}, {"name": "many", "weight": 19}
    run = simulated(tmp_path, workload, one_node(*queues, cpu="40", gpu=40), preset=preset)
    assert all(runs_at(run, "theirs", at_ms) >= 75 for at_ms in range(25_000, UNTIL_MS, 1_000))
    assert all(runs_at(run, "small", at_ms) >= 3 for at_ms in range(25_000, UNTIL_MS, 1_000))


@pytest.mark.parametrize("preset", PRESETS)
def test_what_comes_free_beside_room_that_is_held_goes_to_no_queue_beyond_its_level_while_another_lacks_it(
    tmp_path, preset
):
    """Two queues wait for larger tasks than those of a third, which holds the cell: room is held for one of them."""
    workload = [
        coming_and_going("small", "a", 1_000, cpu="100m"),
        coming_and_going("wide", "b", 2_000, cpu="500m"),
        coming_and_going("mid", "c", 2_000, cpu="250m"),
    ]
    run = simulated(tmp_path, workload, one_node(*[{"name": name} for name in "abc"], cpu="40"), preset=preset)
    assert runs_at(run, "wide", 11_000) >= 25
    assert runs_at(run, "mid", 11_000) >= 52


@pytest.mark.parametrize("preset", ["capacity", "dress"])
def test_a_task_beyond_the_maximum_of_its_queue_holds_back_only_what_it_lacks(tmp_path, preset):
    """Where jobs are served in order: of two tasks with a GPU one waits for the maximum, small ones need none."""
    queues = {"name": "few", "max": {"gpu": "1500m"}}, {"name": "many"}
    workload = [
        holding("trains", "few", 2, cpu="500m", gpu=1),
        job("next", stage(demand={"cpu": "1", "gpu": 1}), queue="few", submit_ms=1_000),
        coming_and_going("small", "few", 2_000, cpu="500m"),
        coming_and_going("theirs", "many", 1_000, cpu="500m"),
    ]
    run = simulated(tmp_path, workload, one_node(*queues, cpu="40", gpu=12), preset=preset)
    assert all(runs_at(run, "small", at_ms) >= 38 for at_ms in range(20_000, UNTIL_MS, 10_000))
    assert [line["start_ms"] for line in run.of("trains")] == [0, LONG_MS]
    assert run.of("next")[0]["start_ms"] > LONG_MS


@pytest.mark.parametrize("preset", [*PRESETS, "drf", "dress"])
def test_room_that_is_late_keeps_nobody_from_what_it_does_not_lack(tmp_path, preset):
    """Tasks that fill the memory overrun, and a wide one waits for some of it. A third queue asks for cores alone, by
    more than there are: all but the one that the wide task needs are no delay to it.
    """
    half_gib = {"memory": "512Mi"}
    workload = [
        job("fills", stage(tasks=16, duration_ms=60_000, estimate_ms=5_000, demand=half_gib), queue="a"),
        job("more", stage(tasks=200, duration_ms=5_000, demand=half_gib), queue="a", submit_ms=500),
        job("wide", stage(duration_ms=20_000, demand={"memory": "2Gi", "cpu": "1"}), queue="b", submit_ms=1_000),
        job("cores", stage(tasks=800, duration_ms=20_000, demand={"cpu": "100m"}), queue="c", submit_ms=7_000),
    ]
    run = simulated(
        tmp_path, workload, one_node(*[{"name": name} for name in "abc"], cpu="16", memory="8Gi"), preset=preset
    )
    assert [line["to_ms"] for line in run.lines if "held" in line and line["from_ms"] < 7_000] == [60_000]
    assert runs_at(run, "cores", 7_500) == 150
    assert run.of("wide")[0]["start_ms"] == 60_000
