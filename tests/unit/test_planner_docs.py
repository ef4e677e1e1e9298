"""The example of docs/reservations.md does what the page says."""

import re

from schemas.edge.read import read_cluster
from services.planner.offline.solve import parsed, solve
from services.simulator.run import Options, simulate
from services.simulator.workloads.workload_file import read_workload
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reservations.md").read_text()


def test_the_example_is_answered_as_the_page_says():
    problem = re.search(r"solve <<'END'\n(.*?)\nEND\n", PAGE, re.DOTALL)
    assert problem is not None

    answer = solve(parsed(problem[1]))

    report, training, imported = answer["results"]
    assert [report["accepted"], training["accepted"], imported["accepted"]] == [True, True, False]
    assert [lease["n"] for lease in report["leases"]] == [8, 10]
    assert training["moved"] == ["report"]
    assert imported["offer"]["from"] == training["leases"][0]["from"]


def test_the_workload_of_the_page_is_simulated_and_its_deadline_met(tmp_path):
    lines = re.search(r"```jsonl\n(.*?)```", PAGE, re.DOTALL)
    assert lines is not None
    path = tmp_path / "workload.jsonl"
    path.write_text(lines[1])
    cluster = read_cluster({"nodes": [{"name": "n", "count": 2, "capacity": {"cpu": 8}}], "policy": {"preset": "hdrf"}})

    (reservation,) = simulate(read_workload(str(path)), cluster, Options({}))["reservations"]

    assert (reservation["accepted"], reservation["jobs"], reservation["met"]) == (True, 1, True)
