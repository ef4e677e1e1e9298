"""Damaged traces and wrong options: the error names file and line, or the option, and what was expected there."""

import gzip
import json

import pytest

from services.simulator.workloads import alibaba_dag, facebook, openb, swf, tpch, wfcommons
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.importers import IMPORTERS

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
POD = "p1,6000,12288,1,460,T4,LS,Running,30,90,50"
DAG_STAGE = {"id": 1, "kind": "M", "parents": [], "n": 2, "mean_s": 1.5, "cpu": 0.5, "mem": 0.59}
QUERY_STAGE = {"id": 0, "parents": [], "tasks": [0.5]}
TASK = {"id": 0, "name": "a", "parents": [], "runtime_s": 1}


def dag(*stages, **fields):
    return json.dumps({"job": "j", "submit_s": 9, "stages": [DAG_STAGE | stage for stage in stages]} | fields)


def query(*stages, **fields):
    return json.dumps({"query": 1, "size": "2g", "stages": [QUERY_STAGE | stage for stage in stages]} | fields)


def workflow(*tasks, **fields):
    return json.dumps({"workflow": "w", "tasks": [TASK | task for task in tasks]} | fields)


GOOD = {
    "facebook": "job0\t0\t0\t5\t5\t5",
    "swf": "1 0 -1 10 4 " + "-1 " * 13,
    "alibaba-dag": dag({}),
    "tpch": query({}),
    "wfcommons": workflow({}),
}


@pytest.mark.parametrize(("name", "bad", "said"), [
    ("facebook", "job1\t0\t0\t5\t5", "has to have 6 columns"),
    ("facebook", "job1\tx\t0\t5\t5\t5", "submit_time_seconds: has to be a number"),
    ("facebook", "job1\t0\t0\t-5\t5\t5", "map_input_bytes: .* at least 0"),
    ("facebook", "job1\t0\t0\t5.5\t5\t5", "map_input_bytes: .* whole"),
    ("facebook", "\t0\t0\t5\t5\t5", "job_id: has to be a text"),
    ("facebook", f"j\t0\t0\t{10**15}\t5\t5", "more than 200000 tasks"),
    ("swf", "1 0 -1 10 4", "has to have 18 fields, has 5"),
    ("swf", "1 0 -1 x 4 " + "-1 " * 13, "runtime: has to be a number"),
    ("alibaba-dag", "{", "is no JSON"),
    ("alibaba-dag", "[]", "has to be an object"),
    ("alibaba-dag", dag({"n": 0}), r"stages\[0\]: n: .* at least 1"),
    ("alibaba-dag", dag({"n": 10**9}), r"n: .* at most 200000"),
    ("alibaba-dag", dag({"parents": [7]}), "parents: there is no stage 7"),
    ("alibaba-dag", dag({}, {}), "id: 1 is the id of another"),
    ("alibaba-dag", dag({"cpu": True}), "cpu: has to be a number"),
    ("alibaba-dag", dag({"cpu": None}), "cpu: .* is None"),
    ("alibaba-dag", dag({}, submit_s=8), "submit_s: .* first job's 9"),
    ("alibaba-dag", dag(stages=[]), "stages: may not be empty"),
    ("alibaba-dag", dag({}).replace("1.5", "1e999999999"), "exponent"),
    ("tpch", query({"tasks": []}), "tasks: may not be empty"),
    ("tpch", query({"tasks": [1, "x"]}), "tasks: 1: has to be a number"),
    ("tpch", query({"parents": [1]}), "parents: has to name earlier"),
    ("tpch", query({"exec": {"80": {}}}), "exec: has no run with 2"),
    ("wfcommons", workflow({}, {}), "id: is the id of another"),
    ("wfcommons", workflow({"parents": [4]}), "t0 waits for t4"),
    ("wfcommons", workflow({"parents": [0]}), "wait for each other"),
    ("wfcommons", workflow({"runtime_s": -1}), "runtime_s: .* at least 0"),
    ("wfcommons", workflow(*({"id": i} for i in range(1_001))), "group them"),
    ("wfcommons", '{"schemaVersion": "1.7", "name": "w"}', "schemaVersion"),
])  # fmt: skip
def test_a_damaged_line_is_named(tmp_path, name, bad, said):
    path = tmp_path / "trace"
    path.write_text(f"{GOOD[name]}\n\n{bad}\n")

    with pytest.raises(Damaged, match=said) as error:
        list(IMPORTERS[name].convert(str(path)))

    assert str(error.value).startswith(f"{path}:3: ")


@pytest.mark.parametrize(("row", "said"), [
    pytest.param(POD.replace("6000", ""), "cpu_milli: has to be a number", id="an empty cell"),
    pytest.param(POD + ",1", "has to have 11 columns", id="a cell too many"),
])  # fmt: skip
def test_a_damaged_pod_is_named(tmp_path, row, said):
    path = tmp_path / "pods"
    path.write_text(f"{PODS}\n{row}\n")

    with pytest.raises(Damaged, match=f"pods:2: {said}"):
        openb.convert(str(path), start_s=0)


def test_a_broken_archive_says_where_it_breaks(tmp_path):
    packed = gzip.compress(("\n".join(dag({}, job=f"j{i}") for i in range(5_000))).encode())
    path = tmp_path / "trace.gz"
    path.write_bytes(packed[: len(packed) // 2])

    with pytest.raises(Damaged, match=r"trace\.gz:\d+: is a broken gzip archive"):
        list(alibaba_dag.convert(str(path)))


def test_bytes_that_are_no_text_are_damage_and_not_a_crash(tmp_path):
    (tmp_path / "trace").write_bytes(b"\xff\xfe\x00\t1\n")

    for convert in (facebook.convert, alibaba_dag.convert, tpch.convert, wfcommons.convert, swf.convert):
        with pytest.raises(Damaged, match="trace"):
            list(convert(str(tmp_path / "trace")))


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_a_trace_that_is_not_there_is_the_systems_error(tmp_path, name):
    with pytest.raises(FileNotFoundError):
        list(IMPORTERS[name].convert(str(tmp_path / "missing")))


@pytest.mark.parametrize(("name", "options", "said"), [
    ("facebook", {"divide": 0}, "divide: has to be at least 1, is 0"),
    ("facebook", {"from_hour": 3, "to_hour": 3}, "to_hour: has to be 0 or after from_hour"),
    ("facebook", {"demands": "none"}, "demands: has to be one of fb-v1, one-core"),
    ("facebook", {"stragglers_permille": 5_000}, "stragglers_permille: has to be from 0 to 1000"),
    ("tpch", {"stretch": 0}, "stretch: has to be above 0"),
    ("tpch", {"queries": "1-x"}, "queries: has to be numbers and spans"),
    ("tpch", {"queries": "23"}, "queries: has to be between 1 and 22"),
    ("tpch", {"demands": "a", "demand_seed": "b"}, "demand_seed: has to be left out"),
    ("swf", {"compress": 0}, "compress: has to be above 0"),
    ("swf", {"queue": "lane"}, "queue: has to be one of"),
    ("alibaba-dag", {"machine_memory_mib": 0}, "machine_memory_mib: has to be at least 1"),
    ("openb", {"cluster": "out.json"}, "nodes: has to be given together with cluster"),
    ("wfcommons", {"mean_gap_ms": -1}, "mean_gap_ms: has to be at least 0"),
])  # fmt: skip
def test_a_wrong_option_is_named_before_anything_is_read(name, options, said):
    with pytest.raises(ValueError, match=said):
        IMPORTERS[name].convert("no such file", **options)


def test_options_of_the_raw_trace_are_refused_for_a_converted_one(tmp_path):
    path = tmp_path / "converted.tsv"
    path.write_text("\t".join(facebook.CONVERTED) + "\njob0\t49\t1\t3.210\t1\t3.265\n")

    assert [stage["duration_ms"] for stage in next(facebook.convert(str(path)))["stages"]] == [3_210, 3_265]
    with pytest.raises(ValueError, match="split: has to be left out"):
        list(facebook.convert(str(path), split=128))
    with pytest.raises(ValueError, match="divide: has to be left out"):
        list(facebook.convert(str(path), divide=2))
