"""What a simulation tells people of its reservations: how many were kept, and which were not, by their names."""

import json

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.cli.simulating import Asked, comparison, inputs_of, run_one, summary, values_of
from services.simulator.outages import Outage
from services.simulator.report import Inputs, comparison_page
from services.simulator.report.table import reservations_table
from services.simulator.reservations import outcome_of
from services.simulator.run import Options, simulate
from services.simulator.workloads.workload_file import read_reservation_line


def asked(name, units, *, queue="default"):
    atom = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": units, "l": 60, "w": 60 * units}
    rdl = {"op": "window", "s": 0, "e": 600, "of": atom}
    request = {"reservation": name, "user": "ann", "queue": queue, "rdl": rdl}
    return read_reservation_line({"submit_ms": 0, "request": request})


@pytest.fixture(scope="module")
def result():
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 10_000}
    job = {"job": "j", "user": "ann", "submit_ms": 1_000, "reservation": "kept", "stages": [stage]}
    arrivals = [asked("kept", 2), asked("too-wide", 99), asked("astray", 1, queue="nowhere"), read_workload_line(job)]
    queues = {"name": "root", "children": [{"name": "default"}]}
    nodes = [{"name": "n", "count": 1, "capacity": {"cpu": 4}}]
    return simulate(
        arrivals, read_cluster({"nodes": nodes, "queues": queues, "policy": {"preset": "rayon"}}), Options({})
    )


def test_each_reservation_has_its_name_also_where_admission_refused_it(result):
    outcomes = [(each["reservation"], outcome_of(each)) for each in result["reservations"]]

    assert sorted(outcomes) == [("astray", "refused"), ("kept", "in time"), ("too-wide", "refused")]


def test_a_run_says_how_many_were_kept_and_which_were_not(result, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = summary(result, [])

    assert "3: 1 in time, 2 refused" in text
    assert "in time: all its jobs succeeded by its deadline\nrefused: not promised\n" in text
    assert "accepted: promised, but" not in text  # Only what occurs is explained.
    head, _, unkept = text.partition("reservations not kept:\n")
    assert "kept" not in head
    assert {line.split()[0] for line in unkept.splitlines() if line[0] != " "} == {"astray", "too-wide"}
    assert "reservation" not in summary({key: of for key, of in result.items() if key != "reservations"}, [])


def test_a_comparison_counts_them_by_preset(result):
    without = {key: of for key, of in result.items() if key != "reservations"}
    lines = [line.split() for line in comparison({"rayon": result, "fifo": without}).splitlines()]

    assert ["reservations", "3", "0"] in lines
    assert ["reservations", "in", "time", "1", "0"] in lines
    assert ["reservations", "refused", "2", "0"] in lines
    assert not any("reservations" in line for line in comparison({"fifo": without}).splitlines())


def test_the_page_lists_them_those_that_were_not_kept_first(result):
    table = reservations_table({"rayon": result})
    page = comparison_page({"rayon": result}, Inputs("0", "w", "c", 1, {"cpu": "4"}))

    assert table.columns == ["reservation", "rayon"]
    assert table.rows[-1] == ["kept", "in time"]
    assert table.rows[0][1].startswith("refused")
    assert "<h2>Reservations</h2>" in page
    assert "1 node with" in page
    assert "1 job, 1 task" in page


def test_simulate_says_that_the_solver_takes_no_part(tmp_path, capsys):
    workload, cluster = tmp_path / "w.jsonl", tmp_path / "c.json"
    workload.write_text(json.dumps({"job": "j", "submit_ms": 0, "stages": [STAGE]}) + "\n")
    cluster.write_text(json.dumps({"nodes": [{"name": "n", "capacity": {"cpu": 1}}]}))
    given = Asked(str(workload), str(cluster), ["reservation_solver_ms=60000"])

    run_one(inputs_of(given), values_of(given, None))
    assert "without the solver" in capsys.readouterr().err

    given.settings.clear()
    run_one(inputs_of(given), values_of(given, None))
    assert "solver" not in capsys.readouterr().err


STAGE = {"stage": "s", "tasks": 1, "demand": {"cpu": 1}, "duration_ms": 1_000}


def test_a_promise_that_is_restored_counts_as_kept():
    stage = {"stage": "s", "tasks": 2, "demand": {"cpu": "1"}, "duration_ms": 60_000}
    job = {"job": "j", "user": "ann", "submit_ms": 400_000, "reservation": "r", "stages": [stage]}
    atom = {"op": "atom", "b": {"cpu": "1"}, "g": 2, "h": 2, "l": 60, "w": 120}
    rdl = {"op": "window", "s": 180, "e": 1_200, "of": atom}
    request = {"submit_ms": 0, "request": {"reservation": "r", "user": "ann", "queue": "default", "rdl": rdl}}
    nodes = [{"name": "a", "count": 1, "capacity": {"cpu": 1}}, {"name": "b", "count": 1, "capacity": {"cpu": 1}}]
    cluster = read_cluster({"nodes": nodes, "policy": {"preset": "rayon"}})
    arrivals = [read_reservation_line(request), read_workload_line(job)]
    options = Options({}, outages=[Outage("a-0", 60_000, 300_000)])
    (row,) = simulate(arrivals, cluster, options)["reservations"]
    assert (row["restored"], row["broken"], outcome_of(row)) == (1, False, "in time")
