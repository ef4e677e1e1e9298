"""Each importer on a trace of a few lines: what becomes what, and what its options change."""

import gzip
import json
from fractions import Fraction

import pytest

from services.simulator.workloads import alibaba_dag, facebook, openb, swf, tpch, wfcommons
from services.simulator.workloads.workload_file import read_cluster_file


@pytest.fixture
def trace(tmp_path):
    """Writes a trace and gives its path. Text as it is, objects as JSON lines."""

    def write(*lines, name="trace"):
        path = tmp_path / name
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return str(path)

    return write


# ---------------------------------------------------------------- facebook
MAP_ONLY = "job0\t3600\t0\t0\t0\t40000000"
SHUFFLE = "job1\t7205\t3605\t268435457\t20000000\t10000000"


def test_a_facebook_job_is_maps_and_then_reduces_where_it_shuffles(trace):
    only, both = facebook.convert(trace(MAP_ONLY, SHUFFLE), demands="one-core")

    assert only == {"job": "job0", "submit_ms": 3_600_000, "stages": [
        {"stage": "map", "after": [], "demand": {"cpu": "1"}, "tasks": 1, "duration_ms": 5_000}]}  # fmt: skip
    assert [(s["stage"], s["after"], s["tasks"], s["duration_ms"]) for s in both["stages"]] == [
        ("map", [], 3, 14_518),  # 3 s + 268,435,457 / 3 / 8 MB/s + 20,000,000 / 3 / 20 MB/s
        ("reduce", ["map"], 1, 5_500),
    ]


@pytest.mark.parametrize(("options", "maps"), [
    pytest.param({}, 3, id="128 MiB a map"),
    pytest.param({"split": 256}, 2, id="256 MiB a map"),
    pytest.param({"divide": 2}, 1, id="bytes are divided before the conversion, rounded down"),
])  # fmt: skip
def test_facebook_maps(trace, options, maps):
    (line,) = facebook.convert(trace(SHUFFLE), **options)

    assert line["stages"][0]["tasks"] == maps


def test_facebook_files_of_2010_have_larger_splits(trace):
    (line,) = facebook.convert(trace(SHUFFLE, name="FB-2010.tsv"))

    assert line["stages"][0]["tasks"] == 2


def test_a_window_of_hours_starts_at_zero(trace):
    lines = list(facebook.convert(trace(MAP_ONLY, SHUFFLE), from_hour=2, to_hour=3))

    assert [(line["job"], line["submit_ms"]) for line in lines] == [("job1", 5_000)]


def test_stragglers_change_durations_and_nothing_else(trace):
    path = trace("job1\t0\t0\t268435457000\t0\t0")
    (plain,), (spread,) = facebook.convert(path), facebook.convert(path, stragglers_permille=300, seed=1)
    durations = spread["stages"][0]["durations_ms"]

    assert len(durations) == plain["stages"][0]["tasks"] == 2_001
    assert sorted(durations)[1_000] == pytest.approx(plain["stages"][0]["duration_ms"], rel=0.05)
    assert max(durations) > 2 * min(durations)
    assert spread["stages"][0]["demand"] == plain["stages"][0]["demand"]
    assert spread == next(iter(facebook.convert(path, stragglers_permille=300, seed=1)))
    assert spread != next(iter(facebook.convert(path, stragglers_permille=300, seed=2)))


def test_facebook_demands_keep_to_the_ranges_of_the_rule():
    demands = [facebook.demand_of(f"job{i}", phase) for i in range(2_000) for phase in ("map", "reduce")]
    memory = sorted(demand["memory"] for demand in demands)

    assert {demand["cpu"] for demand in demands} == {1_000, 2_000, 3_000}
    assert (memory[0], memory[-1]) == (1_024, 8_704)
    assert memory[len(memory) // 2] == 3_072
    assert sum(demand["cpu"] == 1_000 for demand in demands) / len(demands) == pytest.approx(0.8, abs=0.02)


# ---------------------------------------------------------------- tpch
QUERY = {"query": 1, "size": "2g", "stages": [
    {"id": 0, "parents": [], "tasks": [0.25, 0.5, 1.25]}, {"id": 1, "parents": [0], "tasks": [0.001]}]}  # fmt: skip


def test_a_tpch_query_keeps_its_graph_and_every_duration(trace):
    (line,) = tpch.convert(trace(QUERY))

    assert line == {"job": "q1-2g", "submit_ms": 0, "stages": [
        {"stage": "s0", "after": [], "demand": {"cpu": "1"}, "durations_ms": [250, 500, 1_250]},
        {"stage": "s1", "after": ["s0"], "demand": {"cpu": "1"}, "durations_ms": [1]}]}  # fmt: skip


@pytest.mark.parametrize(("options", "durations"), [
    pytest.param({"coalesce_ms": 1_500}, [1_000, 1_000], id="as many tasks as the work needs, of one length"),
    pytest.param({"coalesce_ms": 10}, [667, 667, 666], id="never more tasks than there were"),
    pytest.param({"coalesce_ms": 10_000}, [2_000], id="never less than one"),
    pytest.param({"stretch": Fraction("1.5")}, [375, 750, 1_875], id="stretched by a fraction"),
    pytest.param({"stretch": Fraction(1, 10_000)}, [1, 1, 1], id="never nothing"),
    pytest.param({"coalesce_ms": 1_500, "stretch": 10}, [10_000, 10_000], id="coalesced before it is stretched"),
])  # fmt: skip
def test_tpch_durations(trace, options, durations):
    (line,) = tpch.convert(trace(QUERY), **options)

    assert line["stages"][0]["durations_ms"] == durations


def test_tpch_jobs_are_drawn_and_more_of_them_change_no_earlier_one(trace):
    path = trace(QUERY, QUERY | {"query": 2}, QUERY | {"query": 3, "size": "5g"})
    few = list(tpch.convert(path, jobs=10, mean_gap_ms=1_000, seed=5))
    many = list(tpch.convert(path, jobs=2_000, mean_gap_ms=1_000, seed=5))

    assert many[:10] == few
    assert many[-1]["submit_ms"] / 2_000 == pytest.approx(1_000, rel=0.1)
    assert [line["submit_ms"] for line in many] == sorted(line["submit_ms"] for line in many)
    assert {line["job"][5:] for line in many} == {"-q1-2g", "-q2-2g", "-q3-5g"}


@pytest.mark.parametrize(("options", "jobs"), [
    ({"queries": "2-3"}, ["q2-2g", "q3-5g"]),
    ({"sizes": "5g"}, ["q3-5g"]),
    ({"sizes": "2g", "queries": "1,3"}, ["q1-2g"]),
])  # fmt: skip
def test_tpch_choice_of_queries_and_sizes(trace, options, jobs):
    path = trace(QUERY, QUERY | {"query": 2}, QUERY | {"query": 3, "size": "5g"})

    assert [line["job"] for line in tpch.convert(path, **options)] == jobs


def test_a_folder_stands_for_its_sizes_smallest_first(trace, tmp_path):
    for size in ("10g", "2g"):
        trace(QUERY | {"size": size}, name=f"tpch_{size}.jsonl")
    trace("no trace", name="notes.txt")

    assert [line["job"] for line in tpch.convert(str(tmp_path))] == ["q1-2g", "q1-10g"]


RUNS = {
    "2": {"first": [900, 800], "rest": [100, 102, 110], "fresh": [800]},
    "5": {"first": [5], "rest": [], "fresh": [5]},
}


@pytest.mark.parametrize(("options", "durations"), [
    pytest.param({}, [900, 800, 100, 102, 110], id="the run with two executors"),
    pytest.param({"executors": 4, "warm": True}, [900, 102, 100, 102, 110], id="fresh ones are as the median"),
    pytest.param({"executors": 50, "warm": True}, [5], id="no rest to be warmed by"),
])  # fmt: skip
def test_tpch_raw_runs(trace, options, durations):
    raw = {"query": 1, "size": "2g", "stages": [{"id": 0, "parents": [], "exec": RUNS}]}

    (line,) = tpch.convert(trace(raw), **options)

    assert line["stages"][0]["durations_ms"] == durations


# ---------------------------------------------------------------- alibaba
def alibaba_job(job="j_1", submit_s=100, **stage):
    stage = {"id": 1, "kind": "M", "parents": [], "n": 2, "mean_s": 1.5, "cpu": 0.5, "mem": 0.59} | stage
    child = {"id": 2, "kind": "R", "parents": [1], "n": 1, "mean_s": 0.0001, "cpu": 1.0, "mem": 100}
    return {"job": job, "submit_s": submit_s, "stages": [stage, child]}


def test_an_alibaba_stage_is_named_by_kind_and_memory_is_in_hundredths_of_a_machine(trace):
    (line,) = alibaba_dag.convert(trace(alibaba_job()))

    assert line == {
        "job": "j_1",
        "submit_ms": 0,
        "stages": [
            {
                "stage": "M1",
                "after": [],
                "demand": {"cpu": "500m", "memory": "605Mi"},
                "tasks": 2,
                "duration_ms": 1_500,
            },
            {"stage": "R2", "after": ["M1"], "demand": {"cpu": "1", "memory": "100Gi"}, "tasks": 1, "duration_ms": 1},
        ],
    }


def test_alibaba_options(trace):
    path = trace(alibaba_job(), alibaba_job("j_2", 103, n=50))

    assert [line["submit_ms"] for line in alibaba_dag.convert(path, compress=Fraction(2))] == [0, 1_500]
    assert [line["job"] for line in alibaba_dag.convert(path, tasks_max=3)] == ["j_1"]
    assert next(alibaba_dag.convert(path, machine_memory_mib=1_000))["stages"][0]["demand"]["memory"] == "6Mi"
    assert len(next(alibaba_dag.convert(path, stragglers_permille=300))["stages"][0]["durations_ms"]) == 2


# ---------------------------------------------------------------- swf
def swf_line(**fields):
    values = dict.fromkeys(swf.FIELDS, -1) | {"job": 7, "submit": 11, "runtime": 60, "processors": 4} | fields
    return " ".join(str(value) for value in values.values())


def test_a_swf_job_is_a_gang_of_its_processors(trace):
    (line,) = swf.convert(trace("; a comment", swf_line()), compress=Fraction("2.2"))

    assert line == {
        "job": "job-7",
        "submit_ms": 5_000,
        "stages": [
            {"stage": "run", "after": [], "tasks": 4, "demand": {"cpu": "1"}, "duration_ms": 60_000, "gang": True}
        ],
    }


def test_swf_fields_that_are_known_are_kept(trace):
    known = swf_line(processors=-1, processors_asked=2, memory_kb=1_025, time_asked=90, user=3, queue=1)

    (line,) = swf.convert(trace(known), queue="queue", gang=False)

    assert (line["user"], line["queue"]) == ("user-3", "queue-1")
    assert line["stages"][0] == {"stage": "run", "after": [], "tasks": 2, "demand": {"cpu": "1", "memory": "2Mi"},
                                 "duration_ms": 60_000, "gang": False, "estimate_ms": 90_000}  # fmt: skip


@pytest.mark.parametrize(("fields", "jobs"), [
    pytest.param({"runtime": -1}, 0, id="unknown runtime"),
    pytest.param({"processors": -1}, 0, id="unknown processors"),
    pytest.param({"runtime": 0, "status": 5}, 0, id="cancelled before it ran"),
    pytest.param({"runtime": 0}, 1, id="shorter than the clock's second"),
])  # fmt: skip
def test_swf_jobs_that_never_ran_are_left_out(trace, fields, jobs):
    assert len(list(swf.convert(trace(swf_line(**fields))))) == jobs


# ---------------------------------------------------------------- openb
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = (
    "sn,cpu_milli,memory_mib,gpu,model",
    "n-cpu,32000,262144,0,",
    "n-t4,96000,524288,2,T4",
    "n-g2,96000,524288,8,G2",
)


def test_a_pod_is_a_job_of_one_task_with_its_part_of_a_gpu(trace):
    (line,) = openb.convert(trace(PODS, "p1,6000,12288,1,460,T4,LS,Running,130,190,150"), start_s=100)

    assert line == {"job": "p1", "queue": "LS", "submit_ms": 30_000, "stages": [
        {"stage": "pod", "after": [], "tasks": 1, "demand": {"cpu": "6", "memory": "12Gi", "gpu": "460m"},
         "duration_ms": 40_000, "labels": {"gpu-model": "T4"}}]}  # fmt: skip


def test_pods_of_before_the_start_are_running_already_and_pending_ones_are_left_out(trace):
    path = trace(
        PODS,
        "later,1000,1,0,0,,BE,Failed,150,160,150",
        "gone,1000,1,0,0,,BE,Failed,50,100,50",
        "running,1000,1,0,0,,BE,Running,50,190,60",
        "pending,1000,1,0,0,,BE,Pending,150,190,",
    )

    lines = list(openb.convert(path, start_s=100))

    assert [(line["job"], line["submit_ms"], line["stages"][0]["duration_ms"]) for line in lines] == [
        ("running", 0, 90_000),
        ("later", 50_000, 10_000),
    ]


def test_openb_writes_a_cluster_where_any_of_several_models_is_one_label(trace, tmp_path):
    pods = trace(PODS, "p1,1000,1,2,1000,T4|G2|T4,LS,Running,0,9,0", "p2,1000,1,0,0,,BE,Running,0,9,0")
    cluster = str(tmp_path / "cluster.json")

    gpu, cpu = openb.convert(pods, start_s=0, nodes=trace(*NODES, name="nodes"), cluster=cluster)
    read = read_cluster_file(cluster)

    assert gpu["stages"][0]["labels"] == {"gpu-any/G2.T4": "yes"}
    assert gpu["stages"][0]["demand"]["gpu"] == "2"
    assert "labels" not in cpu["stages"][0]
    assert [(node.name, node.capacity.get("gpu"), node.labels) for node in read.nodes] == [
        ("n-cpu", None, {}),
        ("n-t4", 2_000, {"gpu-any/G2.T4": "yes", "gpu-model": "T4"}),
        ("n-g2", 8_000, {"gpu-any/G2.T4": "yes", "gpu-model": "G2"}),
    ]
    assert read.queues is not None
    assert [queue.name for queue in read.queues.children] == ["BE", "LS"]


def test_a_sample_of_nodes_is_the_seeds(trace, tmp_path):
    pods, nodes = trace(PODS, "p,1000,1,0,0,,BE,Running,0,9,0"), trace(*NODES, name="nodes")
    chosen = []
    for seed in range(6):
        openb.convert(pods, nodes=nodes, cluster=str(tmp_path / "c"), sample=1, seed=seed, queues=False)
        chosen.append([node.name for node in read_cluster_file(str(tmp_path / "c")).nodes])

    assert all(len(names) == 1 for names in chosen)
    assert len({names[0] for names in chosen}) > 1


# ---------------------------------------------------------------- wfcommons
def neutral_task(number, *parents, name="align", **fields):
    return {"id": number, "name": name, "parents": list(parents), "runtime_s": 2.0} | fields


NEUTRAL = {"workflow": "rna", "tasks": [
    neutral_task(0, avg_cpu_pct=250.5, mem_bytes=2**20 + 1, read_bytes=10**6, written_bytes=10**6),
    neutral_task(1, name="index", cores=2, runtime_s=0),
    neutral_task(3, 0, 1, avg_cpu_pct=0.0, read_bytes=10**12),
    neutral_task(2, 0, runtime_s=4)]}  # fmt: skip


def test_a_workflow_asks_for_what_its_tasks_used(trace):
    (line,) = wfcommons.convert(trace(NEUTRAL))

    assert [(s["stage"], s["after"], s["durations_ms"], s["demand"]) for s in line["stages"]] == [
        ("t0", [], [2_000], {"cpu": "2505m", "memory": "2Mi", "disk_io": "8M"}),
        ("t1", [], [1], {"cpu": "2"}),
        ("t3", ["t0", "t1"], [2_000], {"cpu": "10m", "disk_io": "4G"}),
        ("t2", ["t0"], [4_000], {"cpu": "1"}),
    ]


def test_grouped_tasks_of_one_program_and_depth_are_one_stage(trace):
    (line,) = wfcommons.convert(trace(NEUTRAL), group=True, disk_io=False)

    assert [(s["stage"], s["after"], s["durations_ms"], s["demand"]) for s in line["stages"]] == [
        ("align.0", [], [2_000], {"cpu": "2505m", "memory": "2Mi"}),
        ("index.0", [], [1], {"cpu": "2"}),
        ("align.1", ["align.0", "index.0"], [2_000, 4_000], {"cpu": "1"}),
    ]


def test_a_wfformat_document_over_many_lines(trace):
    document = {
        "name": "seismology/1",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {"id": "b", "name": "sift", "parents": ["a"], "children": []},
                    {"id": "a", "name": "decon", "parents": [], "children": ["b"]},
                ]
            },
            "execution": {
                "makespanInSeconds": 9,
                "executedAt": "2020-01-01",
                "tasks": [
                    {"id": "a", "runtimeInSeconds": 1.5, "avgCPU": 90.0, "memoryInBytes": 2**21},
                    {"id": "b", "runtimeInSeconds": 3, "coreCount": 4, "readBytes": 3_000_000, "machines": ["x"]},
                ],
            },
        },
    }

    (line,) = wfcommons.convert(trace(json.dumps(document, indent=2)))

    assert line == {"job": "seismology_1", "submit_ms": 0, "stages": [
        {"stage": "b", "after": ["a"], "demand": {"cpu": "4", "disk_io": "8M"}, "durations_ms": [3_000]},
        {"stage": "a", "after": [], "demand": {"cpu": "900m", "memory": "2Mi"}, "durations_ms": [1_500]}]}  # fmt: skip


def test_workflows_may_arrive_one_after_the_other(trace):
    path = trace(NEUTRAL, NEUTRAL | {"workflow": "dna"})

    first, second = wfcommons.convert(path, mean_gap_ms=60_000)

    assert 0 < first["submit_ms"] < second["submit_ms"]


def test_traces_are_read_compressed_too(trace, tmp_path):
    path = trace(QUERY)
    (tmp_path / "packed").write_bytes(gzip.compress((tmp_path / "trace").read_bytes()))

    assert list(tpch.convert(str(tmp_path / "packed"))) == list(tpch.convert(path))
