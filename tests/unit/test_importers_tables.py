"""Imported traces against the tables that describe them: jobs, stages, tasks, task-seconds, rows."""

from collections import Counter
from fractions import Fraction

import pytest

from schemas.quantities import MIB, parse_quantity
from services.simulator.workloads import alibaba_dag, facebook, openb, swf, tpch, wfcommons
from services.simulator.workloads.facebook import CONVERTED, RAW, phases_of
from services.simulator.workloads.importers import encode_line
from services.simulator.workloads.source import json_rows, table_rows
from services.simulator.workloads.workload_file import read_cluster_file, read_workload

SIZES = ("2g", "5g", "10g", "20g", "50g")


def count_of(stage):
    return len(stage["durations_ms"]) if "durations_ms" in stage else stage["tasks"]


def work_ms(stage):
    return sum(stage["durations_ms"]) if "durations_ms" in stage else stage["tasks"] * stage["duration_ms"]


def tasks(line):
    return sum(count_of(stage) for stage in line["stages"])


def base(resource, quantity):
    """Base units."""
    return parse_quantity(resource, quantity, round_up=True)


def totals(lines):
    """Jobs, stages, edges, tasks, seconds of work."""
    lines = list(lines)
    stages = [stage for line in lines for stage in line["stages"]]
    edges = sum(len(stage["after"]) for stage in stages)
    return len(lines), len(stages), edges, sum(map(count_of, stages)), sum(map(work_ms, stages)) / 1000


def nearest_rank(values, percent):
    return sorted(values)[-(-percent * len(values) // 100) - 1]


def readable(lines, folder):
    """The lines as the workload file's reader takes them."""
    path = folder / "workload.jsonl"
    path.write_text("".join(encode_line(line) + "\n" for line in lines))
    return list(read_workload(str(path)))


def facebook_file(shared, year, kind="tsv"):
    return str(shared / "traces" / "facebook" / f"FB-{year}_samples_24_times_1hr_0.{kind}.gz")


# ---------------------------------------------------------------- facebook
def facebook_totals(path, split, divide, hours):
    """Jobs, tasks, exact seconds, by the rule itself."""
    jobs = maps = reduces = 0
    seconds = Fraction(0)
    for row in table_rows(path, "\t", RAW, CONVERTED):
        if not hours or row.whole("submit_time_seconds") < hours * 3_600:
            both = phases_of(row, split * MIB, divide)
            jobs, maps, reduces = jobs + 1, maps + both[0].tasks, reduces + both[1].tasks
            seconds += sum(phase.tasks * phase.seconds for phase in both)
    return jobs, maps + reduces, seconds


@pytest.mark.slow
@pytest.mark.parametrize(("year", "split", "divide", "hours", "jobs", "count", "seconds"), [
    pytest.param(2009, 128, 1, 0, 5_894, 256_031, 7_804_046, id="FB-2009, day"),
    pytest.param(2009, 128, 10, 0, 5_894, 33_098, 802_889, id="FB-2009, day, bytes divided by 10"),
    pytest.param(2009, 128, 1, 6, 1_119, 77_199, 1_818_451, id="FB-2009, first 6 h"),
    pytest.param(2010, 256, 1, 0, 24_442, 4_590_231, 231_752_752, id="FB-2010, day", marks=pytest.mark.whole),
    pytest.param(2010, 256, 10, 0, 24_442, 565_626, 23_495_083, id="FB-2010, day, by 10", marks=pytest.mark.whole),
    pytest.param(2010, 256, 30, 0, 24_442, 219_668, 7_925_072, id="FB-2010, day, by 30", marks=pytest.mark.whole),
    pytest.param(2010, 256, 1, 6, 6_877, 962_331, 45_284_833, id="FB-2010, first 6 h", marks=pytest.mark.whole),
    pytest.param(2010, 256, 3, 6, 6_877, 346_887, 15_173_274, id="FB-2010, first 6 h, by 3", marks=pytest.mark.whole),
    pytest.param(2010, 256, 10, 6, 6_877, 119_192, 4_597_360, id="FB-2010, first 6 h, by 10", marks=pytest.mark.whole),
    pytest.param(2010, 256, 30, 6, 6_877, 47_540, 1_555_881, id="FB-2010, first 6 h, by 30", marks=pytest.mark.whole),
])  # fmt: skip
def test_facebook_windows(shared, year, split, divide, hours, jobs, count, seconds):
    path = facebook_file(shared, year)

    *exact, exact_s = facebook_totals(path, split, divide, hours)
    lines = list(facebook.convert(path, divide=divide, to_hour=hours, demands="one-core"))

    assert exact == [jobs, count]
    assert abs(exact_s - seconds) < 1  # The table has whole seconds, most of them cut off.
    assert (len(lines), sum(tasks(line) for line in lines)) == (jobs, count)


@pytest.mark.parametrize(("year", "maps", "reduces", "percents"), [
    pytest.param(2009, 210_756, 45_275, (62, 90, 95), id="FB-2009"),
    pytest.param(2010, 4_123_191, 467_040, (25, 75, 89), id="FB-2010", marks=pytest.mark.whole),
])  # fmt: skip
def test_facebook_tasks_and_how_small_most_jobs_are(shared, year, maps, reduces, percents):
    lines = list(facebook.convert(facebook_file(shared, year)))
    by_stage: Counter = Counter()
    for line in lines:
        for stage in line["stages"]:
            by_stage[stage["stage"]] += stage["tasks"]

    assert by_stage == {"map": maps, "reduce": reduces}
    assert (
        tuple(round(100 * sum(tasks(line) <= few for line in lines) / len(lines)) for few in (1, 10, 100)) == percents
    )


@pytest.mark.parametrize("year", [2009, pytest.param(2010, marks=pytest.mark.whole)])
def test_every_raw_facebook_row_becomes_its_converted_row_to_the_millisecond(shared, year):
    raw = facebook.convert(facebook_file(shared, year))
    converted = facebook.convert(facebook_file(shared, year, "converted.tsv"))

    assert all(mine == theirs for mine, theirs in zip(raw, converted, strict=True))


# ---------------------------------------------------------------- tpch
@pytest.mark.slow
@pytest.mark.parametrize(("size", "count", "seconds", "at_1_s", "at_5_s"), [
    ("2g", 20_065, 1_146, 875, 348),
    ("5g", 20_479, 2_135, 1_422, 555),
    ("10g", 21_188, 3_875, 2_358, 898),
    ("20g", 22_684, 7_222, 4_274, 1_568),
    ("50g", 27_157, 17_663, 10_028, 3_653),
])  # fmt: skip
def test_tpch_sizes_whole_and_coalesced(shared, size, count, seconds, at_1_s, at_5_s):
    path = str(shared / "traces" / "tpch" / f"tpch_{size}.jsonl.gz")

    *shape, work_s = totals(tpch.convert(path))

    assert (shape, round(work_s)) == ([22, 202, 187, count], seconds)
    for coalesce_ms, fewer in ((1_000, at_1_s), (5_000, at_5_s)):
        assert totals(tpch.convert(path, coalesce_ms=coalesce_ms))[3:] == (fewer, work_s)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_tpch_measured_with_two_executors_is_the_task_list(shared, size):
    folder = shared / "traces" / "tpch"

    lists = list(tpch.convert(str(folder / f"tpch_{size}.jsonl.gz")))

    assert lists == list(tpch.convert(str(folder / "raw" / f"tpch_{size}.raw.jsonl.gz")))


@pytest.mark.slow
@pytest.mark.whole
def test_tpch_demands_drawn_by_the_rule_are_the_files(shared):
    folder = shared / "traces" / "tpch"
    file = str(folder / "demands" / "tpch.demands.jsonl.gz")

    read = list(tpch.convert(str(folder), demands=file))

    assert read == list(tpch.convert(str(folder), demand_seed="carbyne-v1"))
    assert len(read) == 22 * len(SIZES)
    assert read[0]["stages"][0]["demand"] == {"cpu": "2", "memory": "3Gi", "disk_io": "248M", "network": "56M"}


@pytest.mark.slow
@pytest.mark.whole
def test_carbynes_offline_jobs_are_warmed_runs_stretched_by_32(shared):
    """All but those of 80g and 100g, whose measurements are elsewhere; the files round to 100 ms."""
    raw = tpch.convert(str(shared / "traces" / "tpch" / "raw"), executors=50, warm=True, stretch=Fraction(32))
    known = {tuple(tuple((ms + 50) // 100 for ms in stage["durations_ms"]) for stage in line["stages"]) for line in raw}
    jobs = [
        tuple(tuple(int(s) // 100 for s in stage.wholes("durations_ms")) for stage in row.rows("stages"))
        for seed in (4, 5, 6)
        for row in json_rows(str(shared / "traces" / "carbyne" / f"A-{seed}.jsonl.gz"))
    ]

    assert len(jobs) == 240
    assert sum(job in known for job in jobs) == 160


# ---------------------------------------------------------------- alibaba
@pytest.mark.slow
@pytest.mark.parametrize(("sample", "shape", "seconds", "core_seconds", "path_stages", "path_tasks"), [
    ("random", [3_897, 14_435, 11_247, 1_894_278], 102_923_136, 70_071_858, [2, 12, 58], [5, 1_473, 175_991]),
    ("medium", [1_887, 11_451, 10_247, 125_570], 20_670_337, 14_892_790, [6, 7, 7], [27, 197, 2_532]),
])  # fmt: skip
def test_alibaba_samples(shared, sample, shape, seconds, core_seconds, path_stages, path_tasks):
    path = str(shared / "traces" / "alibaba-dag-2018" / f"alibaba2018_{sample}_a.jsonl.gz")
    lines = list(alibaba_dag.convert(path))

    *found, work_s = totals(lines)
    work = sum(
        s["tasks"] * s["duration_ms"] * base("cpu", s["demand"]["cpu"]) for line in lines for s in line["stages"]
    )
    counts = [[measure(line) for line in lines] for measure in (lambda line: len(line["stages"]), tasks)]

    assert (found, round(work_s), round(work / 10**6)) == (shape, seconds, core_seconds)
    assert [[nearest_rank(values, p) for p in (50, 95, 100)] for values in counts] == [path_stages, path_tasks]


@pytest.mark.slow
@pytest.mark.whole
def test_the_one_huge_alibaba_job_can_be_left_out_without_moving_the_others(shared):
    path = str(shared / "traces" / "alibaba-dag-2018" / "alibaba2018_random_a.jsonl.gz")
    lines = list(alibaba_dag.convert(path))

    kept = list(alibaba_dag.convert(path, tasks_max=175_990))

    assert kept == [line for line in lines if tasks(line) != 175_991]
    assert len(kept) == len(lines) - 1


# ---------------------------------------------------------------- openb, swf, wfinstances
@pytest.mark.slow
@pytest.mark.whole
def test_openb_pods_that_ran_and_the_most_that_they_held_at_once(shared):
    pods = list(openb.convert(str(shared / "traces" / "gpu-openb-2023" / "pods_a.csv.gz"), start_s=0))
    changes: list = []
    held: Counter = Counter()
    most: Counter = Counter()
    for pod in pods:
        (stage,) = pod["stages"]
        changes.append((pod["submit_ms"] + stage["duration_ms"], 0, stage["demand"], -1))
        changes.append((pod["submit_ms"], 1, stage["demand"], 1))
    for _, _, demand, sign in sorted(changes, key=lambda change: change[:2]):
        for name, amount in demand.items():
            held[name] += sign * base(name, amount)
            most[name] = max(most[name], held[name])

    assert len(pods) == 4_891 - 431  # Those that were never scheduled are left out.
    assert (-(-most["cpu"] // 1_000), -(-most["gpu"] // 1_000)) == (745, 54)
    assert most["memory"] <= 2_222 * 1_024  # The table counts those that never ran too.


@pytest.mark.slow
def test_the_whole_openb_cluster(shared, tmp_path):
    folder, cluster = shared / "traces" / "gpu-openb-2023", str(tmp_path / "cluster.json")

    openb.convert(str(folder / "pods_a.csv.gz"), nodes=str(folder / "nodes.csv.gz"), cluster=cluster)
    nodes = read_cluster_file(cluster).nodes

    assert (len(nodes), sum(node.capacity["cpu"] for node in nodes)) == (1_523, 125_514_000)
    assert sum(node.capacity["memory"] for node in nodes) // 2**20 == 583  # TiB, 584 to the nearest.
    assert sum(node.capacity.get("gpu", 0) for node in nodes) == 6_212_000
    models = Counter(node.labels.get("gpu-model") for node in nodes)
    assert models == {"G2": 549, "T4": 404, None: 310, "P100": 134, "V100M16": 55, "G3": 39, "V100M32": 30, "A10": 2}


@pytest.mark.slow
def test_the_nasa_log(shared):
    lines = list(swf.convert(str(shared / "traces" / "swf" / "NASA-iPSC-1993-3.1-cln.oct-nov.swf.gz")))

    assert len(lines) == 11_466
    assert (
        int(totals(lines)[4]) == 340_220_270
    )  # Processor-seconds of the README, and 1 ms for each of 3,119 tasks of 0 s.
    assert all(line["stages"][0]["gang"] for line in lines)


@pytest.mark.slow
def test_wfinstances(shared):
    path = str(shared / "traces" / "wfinstances" / "wfinstances_a.jsonl.gz")

    *shape, seconds = totals(wfcommons.convert(path))

    assert (shape, round(seconds)) == ([18, 3_101, 5_823, 3_101], 325_845)
    assert totals(wfcommons.convert(path, group=True))[3:] == (3_101, seconds)


# ---------------------------------------------------------------- all
@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize(("convert", "file", "options"), [
    (tpch.convert, "tpch", {"demand_seed": "carbyne-v1", "jobs": 20}),
    (facebook.convert, "facebook/FB-2009_samples_24_times_1hr_0.tsv.gz", {"stragglers_permille": 300, "to_hour": 1}),
    (swf.convert, "swf/NASA-iPSC-1993-3.1-cln.oct-nov.swf.gz", {}),
    (alibaba_dag.convert, "alibaba-dag-2018/alibaba2018_random_a.jsonl.gz", {}),
    (openb.convert, "gpu-openb-2023/pods_a.csv.gz", {}),
    (wfcommons.convert, "wfinstances/wfinstances_a.jsonl.gz", {}),
    (wfcommons.convert, "wfinstances/wfinstances_a.jsonl.gz", {"group": True}),
])  # fmt: skip
def test_the_workload_reader_takes_what_importers_make(shared, tmp_path, convert, file, options):
    made = list(convert(str(shared / "traces" / file), **options))

    read = readable(made, tmp_path)

    assert [(line["submit_ms"], line["job"], tasks(line)) for line in made] == [
        (submit_ms, spec.job, sum(stage.tasks for stage in spec.stages)) for submit_ms, spec in read
    ]


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "jobs", "stages", "count", "last_s"), [
    ("A-4", 80, 714, 95_492, 0), ("A-5", 80, 737, 92_613, 0), ("A-6", 80, 772, 99_112, 0),
    ("B-4", 250, 2_335, 297_815, 5_337.6), ("B-5", 250, 2_341, 296_920, 5_014.4), ("B-6", 250, 2_358, 301_020, 5_350.2),
    ("C-4", 1_000, 1_778, 141_713, 3_953), ("C-5", 1_000, 1_778, 141_713, 3_953), ("C-6", 1_000, 1_657, 192_377, 4_813),
])  # fmt: skip
def test_ready_made_workloads(shared, name, jobs, stages, count, last_s):
    read = list(read_workload(str(shared / "traces" / "carbyne" / f"{name}.jsonl.gz")))

    every = [stage for _, spec in read for stage in spec.stages]
    assert (len(read), len(every), sum(stage.tasks for stage in every)) == (jobs, stages, count)
    assert max(submit_ms for submit_ms, _ in read) == last_s * 1_000
