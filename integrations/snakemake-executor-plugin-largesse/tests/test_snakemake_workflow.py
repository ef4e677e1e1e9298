"""A workflow of the shape of Snakemake's own tutorial runs on a cell: samples are mapped, sorted, indexed, joined."""

import os
import subprocess
from pathlib import Path

import pytest

from largesse.client import Client
from tests.live.up_process import GUARD_S, up
from tests.unit.cli_process import ROOT

PYTHON = os.environ.get("LARGESSE_TEST_SNAKEMAKE", "")
HERE = Path(__file__).parents[1]

SNAKEFILE = """
SAMPLES = ["A", "B", "C"]

rule all:
    input: "plots/quals.txt"

rule map_reads:
    input: "data/genome.txt", "data/samples/{sample}.txt"
    output: "mapped/{sample}.txt"
    threads: 1
    resources: mem_mb=128
    shell: "cat {input} > {output}"

rule sort:
    input: "mapped/{sample}.txt"
    output: "sorted/{sample}.txt"
    resources: mem_mib=128, runtime=5
    shell: "sort {input} > {output}"

rule index:
    input: "sorted/{sample}.txt"
    output: "sorted/{sample}.txt.idx"
    resources: mem_mb=128
    shell: "wc -l < {input} > {output}"

rule call:
    input: expand("sorted/{sample}.txt", sample=SAMPLES), expand("sorted/{sample}.txt.idx", sample=SAMPLES)
    output: "calls/all.txt"
    params: extra=config.get("extra", "")
    resources: mem_mb=128
    shell: "cat {input} > {output}; {params.extra}"

rule plot:
    input: "calls/all.txt"
    output: "plots/quals.txt"
    resources: mem_mb=128
    script: "plot.py"
"""
SCRIPT = """
with open(snakemake.input[0]) as calls, open(snakemake.output[0], "w") as plot:
    plot.write(f"{len(calls.readlines())} lines\\n")
"""


@pytest.fixture
def workflow(tmp_path):
    if not PYTHON:
        pytest.skip("LARGESSE_TEST_SNAKEMAKE names no Python that has Snakemake 9")
    (tmp_path / "data/samples").mkdir(parents=True)
    (tmp_path / "data/genome.txt").write_text("genome\n")
    for sample in "ABC":
        (tmp_path / f"data/samples/{sample}.txt").write_text(f"{sample}2\n{sample}1\n")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "plot.py").write_text(SCRIPT)
    return tmp_path


def snakemake(workflow, cell, *words):
    env = os.environ | {
        "PYTHONPATH": f"{ROOT}:{HERE}",
        "LARGESSE_URL": cell.url,
        "LARGESSE_USER": "ann",
        "XDG_CACHE_HOME": str(workflow / "cache"),
    }
    words = ("--executor", "largesse", "--jobs", "8", "--envvars", "PYTHONPATH", "--latency-wait", "5", *words)
    words += ("--seconds-between-status-checks", "1")
    return subprocess.run(
        [PYTHON, "-m", "snakemake", *words],
        cwd=workflow,
        env=env,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )


@pytest.mark.slow
def test_a_workflow_runs_to_its_end_with_a_job_for_each_of_its_own(workflow, tmp_path_factory):
    with up(tmp_path_factory.mktemp("cell"), "--nodes", 2) as cell:
        done = snakemake(workflow, cell)
        assert done.returncode == 0, done.stderr
        assert (workflow / "plots/quals.txt").read_text() == "12 lines\n"
        with Client(cell.url) as ask:
            jobs = [ask.get(each["job"]) for each in ask.jobs(q="snakemake-")]

    assert [each["state"] for each in jobs] == ["succeeded"] * 11
    rules = sorted(each["job"].split("-")[2] for each in jobs)
    assert rules == sorted([*["map_reads", "sort", "index"] * 3, "call", "plot"])
    memory = {each["job"].split("-")[2]: each["stages"][0]["demand"]["memory"] for each in jobs}
    assert (memory["sort"], memory["map_reads"]) == ("128Mi", "123Mi")  # 128 MB, rounded up.


@pytest.mark.slow
def test_a_job_that_fails_ends_the_workflow_and_says_why(workflow, tmp_path_factory):
    with up(tmp_path_factory.mktemp("cell")) as cell:
        done = snakemake(workflow, cell, "--config", "extra=exit 3")

    assert done.returncode == 1
    assert "-call-" in done.stderr
    assert "failed" in done.stderr
    assert not (workflow / "plots").exists()


def test_a_gateway_that_is_none_is_named(workflow):
    class Nowhere:
        url = "nowhere"

    done = snakemake(workflow, Nowhere)

    assert done.returncode == 1
    assert "nowhere is not the address of a gateway" in done.stderr
