"""Recurring reservations in simulations: occurrences are requested as in a cell, and jobs that name a series run under
them."""

import json

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from largesse.log.export import ExportWriter
from schemas.edge.read import Malformed, read_cluster, read_workload_line
from schemas.edge.reservations import occurrence_name
from services.cli.ending import Wrong
from services.cli.simulating import Asked, comparison, inputs_of, run_one, summary
from services.planner.occurrences import AHEAD_MAX
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.report.table import reservations_table
from services.simulator.reservations import of_series, outcome_of
from services.simulator.run import Options, simulate
from services.simulator.workloads.workload_file import read_reservation_line

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WINDOW = "window(0, 1h, atom(b='1 cpu', g=1, h=8, l=1m, w=60m))"


def series(name="s", at_ms=0, **terms):
    asked = {"series": name, "user": "ann", "every": "0 2 * * *", "rdl": WINDOW}
    return read_reservation_line({"submit_ms": at_ms, "series": asked | terms})


def ended(at_ms, name="s"):
    return read_reservation_line({"submit_ms": at_ms, "end_series": {"series": name, "user": "ann"}})


def job(name, at_ms, reservation=None, tasks=4, lasts_ms=50_000):
    stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "duration_ms": lasts_ms}
    line = {"job": name, "user": "ann", "submit_ms": at_ms, "reservation": reservation, "stages": [stage]}
    return read_workload_line(line)


def ran(*arrivals, listener=None, cores=8, **knobs):
    nodes = [{"name": "n", "count": 2, "capacity": {"cpu": cores}}]
    cluster = read_cluster({"nodes": nodes, "policy": {"preset": "rayon"} | knobs})
    return simulate(arrivals, cluster, Options({}, listener=listener))


def jobs_of(result):
    return {each["reservation"]: each["jobs"] for each in result["reservations"] if each["jobs"]}


def night(day, hour=2):
    return occurrence_name("s", (day * DAY_MS + hour * HOUR_MS) // 1_000)


def test_occurrences_are_requested_as_the_horizon_moves_and_serve_the_jobs_that_name_the_series():
    jobs = [job(f"j{day}", day * DAY_MS + 2 * HOUR_MS + 60_000, "s") for day in range(10)]
    result = ran(series(), *jobs)

    assert jobs_of(result) == {night(day): 1 for day in range(10)}
    assert {each["met"] for each in result["reservations"] if each["jobs"]} == {True}
    asked = {each["reservation"]: each["submit_ms"] for each in result["reservations"]}
    assert asked[night(0)] == 0
    horizon_ms, step_ms = 7 * DAY_MS, 60_000
    assert asked[night(9)] == 9 * DAY_MS + 3 * HOUR_MS - horizon_ms + step_ms


def test_a_job_that_comes_between_two_windows_runs_under_the_next_occurrence():
    result = ran(series(), job("early", 0, "s"), job("late", 2 * HOUR_MS + HOUR_MS, "s"))

    assert jobs_of(result) == {night(0): 1, night(1): 1}


def test_a_job_may_name_an_occurrence_as_in_a_cell():
    result = ran(series(), job("j", 1_000, night(1)))

    assert jobs_of(result) == {night(1): 1}


def test_a_job_whose_occurrence_was_rejected_runs_like_any_other():
    result = ran(series(rdl=WINDOW.replace("1 cpu", "9 cpu")), job("j", 2 * HOUR_MS + 60_000, "s"))

    assert {outcome_of(each) for each in result["reservations"]} == {"refused"}
    assert result["rejected"] == []
    assert result["per_job"][0]["end_ms"] == 2 * HOUR_MS + 110_000


def test_where_no_reservations_are_accepted_jobs_of_a_series_run_like_others():
    result = ran(series(), job("j", 2 * HOUR_MS, "s"), reservations="off")

    assert (result["reservations"], result["rejected"]) == ([], [])
    assert len(result["per_job"]) == 1


def test_a_series_that_ends_gives_back_what_has_not_begun_and_can_no_longer_be_named():
    night_s = (3 * DAY_MS + 2 * HOUR_MS) // 1_000
    rdl = f"window({night_s}, {night_s + 3_600}, atom(b='1 cpu', g=1, h=16, l=1m, w=960m))"  # The whole cell.
    request = {"reservation": "whole", "user": "ann", "rdl": rdl}
    later = [read_reservation_line({"submit_ms": DAY_MS + 1, "request": request}), job("b", 2 * DAY_MS)]

    def whole(*arrivals):
        return next(each for each in ran(series(), *arrivals)["reservations"] if each["reservation"] == "whole")

    assert not whole(*later)["accepted"]
    assert whole(ended(DAY_MS), *later)["accepted"]
    refused = ran(series(), ended(DAY_MS), job("c", 3 * DAY_MS, "s"))["rejected"]
    assert refused == [{"job": "c", "reason": "unknown_reservation"}]


def test_a_period_counts_from_the_window_of_the_first_occurrence():
    result = ran(series(every="6h", rdl=WINDOW.replace("0, 1h", "5h, 6h")), job("j", 12 * HOUR_MS, "s"))

    assert jobs_of(result) == {night(0, 17): 1}


def test_a_cron_expression_counts_in_its_zone_and_the_window_may_begin_later():
    result = ran(series(zone="Europe/Berlin", rdl=WINDOW.replace("0, 1h", "30m, 90m")), job("j", 0, "s"))
    (used,) = [each for each in result["reservations"] if each["jobs"]]

    assert used["reservation"] == night(0, 1)
    assert used["deadline_ms"] == HOUR_MS + 90 * 60_000
    assert result["per_job"][0]["end_ms"] <= used["deadline_ms"]


def test_so_many_occurrences_are_promised_ahead_and_a_simulation_ends_although_a_series_does_not():
    result = ran(series(every="1h"), job("j", 0))

    assert len(result["reservations"]) == AHEAD_MAX
    assert result["makespan_ms"] == 50_000


def test_a_series_that_the_cell_refuses_has_a_row_with_the_reason():
    result = ran(series(), series(every="1d", rdl=WINDOW.replace("0, 1h", "1h, 2h")), job("j", 0))

    assert outcome_of(result["reservations"][-1]) == "refused"
    assert "names another series" in result["reservations"][-1]["detail"]


@pytest.mark.parametrize(("terms", "said"), [
    pytest.param({"every": "99 * * * *"}, "series.every: ", id="no cron expression"),
    pytest.param({"every": "daily"}, "series.every: ", id="no period"),
    pytest.param({"every": "-2h"}, "series.every: ", id="a negative period"),
    pytest.param({"every": "30m"}, "series.every: ", id="occurrences that overlap"),
    pytest.param({"every": "0 2 30 2 *", "start_s": 0, "rdl": {}}, "series.rdl", id="no window"),
    pytest.param({"every": "0 2 30 2 *"}, "series.every: ", id="a day that never comes"),
    pytest.param({"zone": "Mars/Olympus"}, "series.zone: ", id="no time zone"),
    pytest.param({"rdl": "window(0, 1h"}, "series.rdl: line 1, ", id="no RDL"),
    pytest.param({"rdl": "atom(b='1 cpu', g=1, h=1, l=60, w=60)"}, "series.every: ", id="no window around it"),
    pytest.param({"user": None}, "series.user", id="no owner"),
    pytest.param({"begin": 0}, "series.begin: ", id="an unknown field"),
])  # fmt: skip
def test_a_series_that_could_not_recur_is_refused_with_the_field(terms, said):
    with pytest.raises(Malformed) as refused:
        series(**terms)
    assert str(refused.value).startswith(said)


def test_results_count_the_occurrences_of_a_series_together(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    result = ran(series(), job("j", 2 * HOUR_MS, "s"))

    assert list(of_series(result["reservations"])) == ["s"]
    assert "7: 1 in time, 6 accepted" in summary(result, [])
    assert "series s" in comparison({"rayon": result, "fifo": result})
    assert reservations_table({"rayon": result}).rows == [["s (series)", "7: 1 in time, 6 accepted"]]


def test_a_file_of_reservations_comes_before_the_workload(tmp_path):
    workload, reservations, cluster = (tmp_path / name for name in ("w.jsonl", "r.jsonl", "c.json"))
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": 1}, "duration_ms": 1_000}
    line = {"job": "j", "submit_ms": 0, "user": "ann", "reservation": "s", "stages": [stage]}
    asked = {"series": "s", "user": "ann", "every": "1h", "rdl": WINDOW}
    workload.write_text(json.dumps(line) + "\n")
    cluster.write_text(json.dumps({"nodes": [{"name": "n", "capacity": {"cpu": 8}}], "policy": {"preset": "rayon"}}))
    reservations.write_text(json.dumps({"submit_ms": 0, "series": asked}) + "\n")
    given = Asked(str(workload), str(cluster), [], reservations=str(reservations))

    assert jobs_of(run_one(inputs_of(given), {})) == {occurrence_name("s", 3_600): 1}

    reservations.write_text(json.dumps(line) + "\n")
    with pytest.raises(Wrong, match=r"w\.jsonl:1: job: is the name of the job in .*r\.jsonl:1 already"):
        inputs_of(given)
    with pytest.raises(Wrong, match="--reservations: standard input"):
        inputs_of(Asked("-", str(cluster), [], reservations="-"))


def test_the_log_of_a_simulation_with_series_replays(tmp_path):
    log = tmp_path / "log"
    with ExportWriter(str(log)) as writer:
        result = ran(series(), job("j", 2 * HOUR_MS, "s"), ended(DAY_MS), job("k", 2 * DAY_MS), listener=writer)
    verdict = verify(open_source(log))

    assert result["reservations"]
    assert verdict.is_same, verdict.text()


@drawn(
    st.lists(st.integers(0, 6 * DAY_MS), min_size=1, max_size=6),
    st.sampled_from(["0 */6 * * *", "0 2 * * *", "6h", "1d"]),
    st.none() | st.integers(0, 3 * DAY_MS),
)
def test_a_job_runs_under_the_occurrence_whose_window_holds_its_submission_or_the_next(times, every, end_ms):
    jobs = [job(f"j{i}", at_ms, "s", tasks=1, lasts_ms=1_000) for i, at_ms in enumerate(sorted(times))]
    stop = [ended(end_ms)] if end_ms is not None else []
    result = ran(series(every=every), *stop, *jobs)
    rows = result["reservations"]

    assert all(each["accepted"] for each in rows)
    assert [each["deadline_ms"] for each in rows] == sorted({each["deadline_ms"] for each in rows})
    refused = {each["job"] for each in result["rejected"]}
    for i, at_ms in enumerate(sorted(times)):
        assert (f"j{i}" in refused) == (end_ms is not None and at_ms >= end_ms)
    used = [each for each in rows for _ in range(each["jobs"])]
    came = [at_ms for i, at_ms in enumerate(sorted(times)) if f"j{i}" not in refused]
    earlier = [each["deadline_ms"] for each in rows]
    for at_ms, each in zip(came, used, strict=False):
        assert at_ms < each["deadline_ms"]
        assert each["deadline_ms"] == min(ends for ends in earlier if ends > at_ms)
