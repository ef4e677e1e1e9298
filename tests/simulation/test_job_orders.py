"""Presets that order the jobs of the whole cell: the shortest critical path, or the least work that is left, first."""

import pytest

from tests.simulation.runs import cluster, job, simulated, stage

TREE = {"name": "root", "children": [{"name": "a"}, {"name": "b", "weight": 9}]}
PLACES = [pytest.param({}, "default", id="no queues"), pytest.param({"queues": TREE}, None, id="queues")]


def ends(run):
    """Jobs in the order of their ends."""
    return [row["job"] for row in sorted(run.result["per_job"], key=lambda row: (row["end_ms"], row["job"]))]


def jobs(*given, queue):
    """Workload lines; in turn of either queue where none is named."""
    return [each | {"queue": queue or "ab"[i % 2]} for i, each in enumerate(given)]


@pytest.mark.parametrize(("queues", "queue"), PLACES)
def test_sjf_serves_the_shortest_critical_path_first_whatever_the_width(tmp_path, queues, queue):
    wide = job("wide", stage(tasks=20, duration_ms=1_000))
    long = job("long", stage("x", 1, 2_000), stage("y", 1, 2_000, after=["x"]))
    middle = job("middle", stage(tasks=4, duration_ms=3_000))
    workload = jobs(long, middle, wide, queue=queue)

    assert ends(simulated(tmp_path, workload, cluster(1, **queues), preset="sjf")) == ["wide", "middle", "long"]


@pytest.mark.parametrize(("queues", "queue"), PLACES)
def test_srtf_serves_the_least_work_that_is_left_first(tmp_path, queues, queue):
    long = job("long", stage(tasks=1, duration_ms=9_000))
    wide = job("wide", stage(tasks=20, duration_ms=1_000))
    middle = job("middle", stage(tasks=5, duration_ms=2_000))
    workload = jobs(wide, middle, long, queue=queue)

    assert ends(simulated(tmp_path, workload, cluster(1, **queues), preset="srtf")) == ["long", "middle", "wide"]


def test_srtf_lets_a_job_that_has_less_left_go_on_before_one_that_comes_with_less_than_it_had(tmp_path):
    first = job("first", stage(tasks=6, duration_ms=1_000))
    second = job("second", stage(tasks=4, duration_ms=1_000), submit_ms=3_500)

    assert ends(simulated(tmp_path, [first, second], cluster(1), preset="srtf")) == ["first", "second"]


def test_sjf_keeps_the_critical_path_that_a_job_came_with(tmp_path):
    """It has less left than the other by then, and waits nevertheless."""
    first = job("first", stage("x", 1, 4_000), stage("y", 1, 1_000, after=["x"]))
    second = job("second", stage(tasks=2, duration_ms=2_000), submit_ms=3_000)

    assert ends(simulated(tmp_path, [first, second], cluster(1), preset="sjf")) == ["second", "first"]


def test_no_queue_has_a_level_where_the_whole_cell_is_one_list(tmp_path):
    workload = jobs(*[job(f"j{number}", stage(tasks=3, duration_ms=1_000 + number)) for number in range(6)], queue=None)
    plain = simulated(tmp_path, workload, cluster(2, queues=TREE), preset="srtf")
    other = TREE | {"children": [{"name": "a", "weight": 50}, {"name": "b"}]}

    assert ends(simulated(tmp_path, workload, cluster(2, queues=other), preset="srtf")) == ends(plain)


def starts(run):
    """(job, stage) of each attempt, in order of their starts."""
    return [(line["job"], line["stage"]) for line in sorted(run.lines, key=lambda line: line["start_ms"])]


NARROW = {"cpu": "1"}
WIDE = {"cpu": "3"}
GIVERS = [
    job("small", stage("long", 1, 9_000, demand=NARROW), stage("spare", 4, 1_000, demand=NARROW)),
    job("large", stage("long", 1, 9_000, demand=NARROW), stage("spare", 4, 2_000, demand={"cpu": "2"})),
]


@pytest.mark.parametrize(("queues", "queue"), PLACES)
def test_tetris_starts_first_what_fits_best_into_what_is_free(tmp_path, queues, queue):
    first = job("first", stage(tasks=2, duration_ms=1_000, demand=NARROW))
    second = job("second", stage(tasks=2, duration_ms=1_000, demand=WIDE))
    workload = jobs(first, second, queue=queue)
    run = simulated(tmp_path, workload, cluster(4, **queues), preset="tetris")

    assert starts(run)[0] == ("second", "s")


def test_tetris_fair_lets_only_jobs_pack_that_are_furthest_below_their_share(tmp_path):
    """Where that is one job at a time, both get half; and room stays idle that the poorer has no task for."""
    first = job("first", stage(tasks=4, duration_ms=1_000, demand=NARROW))
    second = job("second", stage(tasks=4, duration_ms=1_000, demand={"cpu": "2"}))

    def at_once(preset):
        run = simulated(tmp_path, [first, second], cluster(6), preset=preset, tetris_fairness_permille=1_000)
        return [line["job"] for line in run.lines if line["start_ms"] == 0]

    assert sorted(at_once("tetris")) == ["second", "second", "second"]
    assert sorted(at_once("tetris-fair")) == ["first", "first", "first", "second"]


def test_what_is_left_over_may_go_to_what_fits_best_before_it_goes_to_whoever_has_least_left(tmp_path):
    """Both jobs need only one of their two roots at once; what is optional of the larger job fits better."""
    nodes = cluster(6)

    def first_spare(order):
        run = simulated(tmp_path, GIVERS, nodes, preset="carbyne", leftover_order=order)
        return next(each for each, of in starts(run) if of == "spare")

    assert first_spare("work_left") == "small"
    assert first_spare("packing") == "large"


def by_both_orders(tmp_path, workload, **knobs):
    """What runs when, by who first gets what is left over."""
    orders = ("work_left", "packing")
    return [simulated(tmp_path, workload, cluster(6), leftover_order=order, **knobs).lines for order in orders]


@pytest.mark.parametrize("knobs", [{}, {"altruism_permille": 0}], ids=["jobs give", "jobs give nothing"])
def test_who_gets_what_is_left_over_decides_nothing_where_the_required_tasks_take_all(tmp_path, knobs):
    """Two jobs whose required tasks fill their halves of the cell until both have ended."""
    narrow = job("narrow", stage(tasks=12, duration_ms=1_000, demand=NARROW))
    wide = job("wide", stage(tasks=4, duration_ms=1_000, demand=WIDE))
    by_work, by_fit = by_both_orders(tmp_path, [narrow, wide], preset="carbyne", **knobs)

    assert {line["why"] for line in by_work} == {"required"}
    assert by_work == by_fit


@pytest.mark.parametrize("preset", ["drf", "hdrf", "srtf", "tetris", "largesse", "carbyne", "carbyne-dag"])
def test_who_gets_what_is_left_over_counts_only_where_jobs_are_planned(tmp_path, preset):
    by_work, by_fit = by_both_orders(tmp_path, GIVERS, preset=preset)

    assert (by_work != by_fit) is preset.startswith("carbyne")
