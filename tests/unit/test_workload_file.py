"""Workload and cluster files: read as they are, plain, compressed or from a pipe; the first wrong line ends it."""

import gzip
import io
import json
import sys

import pytest

from services.simulator.workloads.files import Damaged
from services.simulator.workloads.workload_file import read_cluster_file, read_workload

STAGE = {"stage": "scan", "tasks": 2, "duration_ms": 900, "demand": {"cpu": "1"}}


def line(job="q1", **fields):
    return json.dumps({"job": job, "submit_ms": 5, "stages": [STAGE]} | fields) + "\n"


@pytest.fixture
def written(tmp_path):
    """Writes a file and gives its path."""

    def write(content, name="workload.jsonl"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_jobs_come_in_the_files_order_with_their_submission(written):
    ((first_ms, first), (second_ms, second)) = read_workload(written(line("b", submit_ms=9) + "\n" + line("a")))

    assert (first_ms, first.job, second_ms, second.job) == (9, "b", 5, "a")
    assert first.stages[0].demand == {"cpu": 1_000}


@pytest.mark.parametrize("name", ["workload.jsonl.gz", "workload"])
def test_a_compressed_file_is_read_as_is_whatever_its_name(written, name):
    assert [spec.job for _, spec in read_workload(written(gzip.compress(line().encode()), name))] == ["q1"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dash_is_standard_input(monkeypatch, pack):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(pack(line().encode())))))

    assert [spec.job for _, spec in read_workload("-")] == ["q1"]


@pytest.mark.parametrize(("bad", "said"), [
    pytest.param(line("q2", prio=1), "workload.jsonl:3: prio: unknown field", id="unknown field"),
    pytest.param(line("q1"), "workload.jsonl:3: job: is the name of the job in line 1 already", id="a name twice"),
    pytest.param('{"job": "q2"', "workload.jsonl:3: is no JSON", id="cut off"),
    pytest.param(line("q2", submit_ms=-1), "workload.jsonl:3: submit_ms: has to be at least 0", id="before time 0"),
    pytest.param(line("q2", stages=[STAGE | {"demand": {"disk": 1.5}}]), r"3: stages\[0\].demand.disk: ", id="a byte"),
    pytest.param(line("q2", stages=[STAGE | {"after": ["scan"]}]), r"3: stages\[0\].after", id="a circle"),
    pytest.param(b"\xff\n", "workload.jsonl:3: is not valid UTF-8", id="no text"),
])  # fmt: skip
def test_the_first_wrong_line_is_named_with_its_field(written, bad, said):
    content = line("q1").encode() + b"  \n" + (bad if isinstance(bad, bytes) else bad.encode())

    reading = read_workload(written(content))

    assert next(reading)[1].job == "q1"
    with pytest.raises(Damaged, match=said):
        next(reading)


def test_a_file_without_a_job_is_a_mistake(written):
    with pytest.raises(Damaged, match="has no job"):
        list(read_workload(written("\n")))


def test_what_is_allowed_and_hardly_meant_is_told_with_its_line(written):
    warnings: list[str] = []

    list(read_workload(written(line() + line("q2", stages=[STAGE | {"demand": {"cpu": 500}}])), warnings.append))

    assert len(warnings) == 1
    assert "workload.jsonl:2: stages[0].demand.cpu: " in warnings[0]


def test_a_cluster_file_over_many_lines(written):
    document = {"nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "20"}}], "policy": {"preset": "drf"}}

    cluster = read_cluster_file(written(json.dumps(document, indent=2), "cluster.json"))

    assert [(node.name, node.capacity) for node in cluster.nodes] == [
        ("n-0", {"cpu": 20_000}),
        ("n-1", {"cpu": 20_000}),
    ]
    assert cluster.values == {"preset": "drf"}


def test_a_wrong_cluster_file_names_its_field(written):
    path = written(
        '{"nodes": [{"name": "n", "capacity": {"cpu": "20"}}], "policy": {"preset": "best"}}', "cluster.json"
    )

    with pytest.raises(Damaged, match=r"cluster\.json: policy\.preset: has to be one of"):
        read_cluster_file(path)
