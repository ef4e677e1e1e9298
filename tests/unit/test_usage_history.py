"""What a simulated run uses over time, and what its jobs give away and receive, by hand-checked figures."""

import json
from itertools import pairwise

import plotly.graph_objects
import pytest

from schemas import Asks, LedgerEntry
from schemas.edge.read import read_cluster, read_workload_line
from services.gateway.documents.ledger import ledger_document
from services.gateway.view.ledger import fold_ledger
from services.gateway.view.state import State
from services.simulator.report import Inputs, charts, comparison_page, comparison_table
from services.simulator.report.usage import kinds_of, leftover_over_time, used_over_time
from services.simulator.run import Options, simulate
from services.simulator.usage_history import UsageHistory
from tests.unit.test_class_history import CLUSTER, CROWD, STORY, line


def followed(lines, preset, **knobs):
    """A run's history, its result, and the accounts that its log tells, in order."""
    history, accounts = UsageHistory(), []

    def note(topic, header, content):
        if topic == "asks":
            accounts.extend(json.loads(content)["body"].get("ledger", []))

    jobs = [read_workload_line(each) for each in lines]
    options = Options({"preset": preset, "round_gap_ms": 100, **knobs}, listener=note, usage=history)
    return history, simulate(jobs, read_cluster(CLUSTER), options), accounts


CHAINS = [
    {
        "job": f"j{i}",
        "submit_ms": 0,
        "stages": [
            {"stage": "a", "tasks": 2 + i, "duration_ms": 4_000, "demand": {"cpu": "1"}},
            {"stage": "b", "tasks": 1, "duration_ms": 9_000, "demand": {"cpu": "1"}},
            {"stage": "c", "after": ["a", "b"], "tasks": 3, "duration_ms": 5_000, "demand": {"cpu": "1"}},
        ],
    }
    for i in range(4)
]
"""Jobs that can put tasks of one stage off while another runs."""


def test_what_is_in_use_changes_when_tasks_start_and_end():
    history, result, _ = followed(STORY, "drf")

    assert history.kinds == ["cpu"]
    assert list(zip(history.used.times_ms, history.used.values, strict=True)) == [
        (0, [0.8]),
        (6_000, [0.9]),
        (12_000, [1.0]),
        (20_000, [0.2]),
        (36_000, [0.1]),
        (42_000, [0.0]),
    ]
    assert result["utilisation_over_time"] == {
        "times_ms": [0, 6_000, 12_000, 20_000, 36_000, 42_000],
        "mean_ms": 0,
        "used": {"cpu": [0.8, 0.9, 1.0, 0.2, 0.1, 0.0]},
    }


@pytest.mark.parametrize("preset", ["drf", "carbyne", "dress"])
def test_the_area_below_the_line_is_the_utilisation_of_the_run(preset):
    history, result, _ = followed(CROWD, preset)

    spans = pairwise(zip(history.used.times_ms, history.used.values, strict=True))
    area = sum(values[0] * (until_ms - from_ms) for (from_ms, values), (until_ms, _) in spans)
    assert history.used.values[-1] == [0.0]
    assert area / result["makespan_ms"] == pytest.approx(result["utilisation"]["cpu"], abs=1e-6)


def test_what_is_donated_and_received_is_the_sum_of_the_accounts():
    history, result, accounts = followed(CHAINS, "carbyne")

    over = [account for account in accounts if account.get("over")]
    assert sorted(account["job"] for account in over) == ["j0", "j1", "j2", "j3"]
    for what in ("donated", "received"):
        core_s = sum(account[what].get("cpu", 0) for account in over) / 1_000
        assert core_s > 0
        assert result["leftover"][what]["cpu"] == pytest.approx(core_s / 10 / (result["makespan_ms"] / 1_000), abs=1e-6)
    for before, after in pairwise(history.leftover.values):
        assert all(one <= other for one, other in zip(before, after, strict=True)), "a sum never falls"


def test_jobs_and_queues_have_the_accounts_that_a_live_cell_shows():
    chains = [chain | {"queue": f"q{i % 2}"} for i, chain in enumerate(CHAINS)]
    _, result, accounts = followed(chains, "carbyne")
    state = State()
    fold_ledger(state, Asks(0, 1, [], ledger=[LedgerEntry(**account) for account in accounts]))
    live = ledger_document(state)

    told = ("donated", "received", "waited", "lost_ms")
    assert {row["job"]: [row[key] for key in told] for row in result["per_job"]} == {
        row["job"]: [row[key] for key in told] for row in live["jobs"]
    }
    assert result["ledger"] == {row["queue"]: {key: row[key] for key in told} for row in live["queues"]}
    assert set(result["ledger"]) == {"q0", "q1"}


def test_rows_of_jobs_that_were_planned_have_four_more_fields():
    _, plain, _ = followed(CHAINS, "drf")
    _, planned, _ = followed(CHAINS, "carbyne")

    assert set(planned["per_job"][0]) - set(plain["per_job"][0]) == {"donated", "received", "waited", "lost_ms"}


def test_where_jobs_are_not_planned_nothing_is_donated():
    history, result, _ = followed(CHAINS, "drf")

    assert not {"leftover", "ledger"} & set(result)
    assert history.leftover.values == []


def runs():
    found = {preset: followed(CHAINS, preset) for preset in ("drf", "carbyne")}
    return {name: run[1] for name, run in found.items()}, {name: run[0] for name, run in found.items()}


def test_the_table_has_what_was_given_of_each_kind_and_a_dash_where_nothing_is_planned():
    results, _ = runs()
    table = {row[0]: row[1:] for row in comparison_table(results).rows}

    for what in ("donated", "received"):
        assert table[f"{what} cpu"] == ["-", f"{results['carbyne']['leftover'][what]['cpu']:.3f}"]


def test_charts_have_a_line_a_preset_and_plotly_takes_them():
    _, histories = runs()
    groups = [["drf"], ["carbyne"]]
    used, left = used_over_time("cpu", histories, groups), leftover_over_time("cpu", histories, groups)

    assert kinds_of(histories) == ["cpu"]
    assert [line["name"] for line in used["data"]] == ["drf", "carbyne"]
    assert [line["name"] for line in left["data"]] == ["carbyne: donated", "carbyne: received"]
    for figure in (used, left):
        plotly.graph_objects.Figure(figure)  # Raises where a name or a value is none of plotly's.
    assert used["data"][0]["y"][0] == pytest.approx(100 * histories["drf"].used.values[0][0])


def test_what_a_preset_gave_away_is_drawn_also_where_another_made_the_same_schedule():
    _, histories = runs()
    left = leftover_over_time("cpu", histories, [["drf", "carbyne"]])

    assert [line["name"] for line in left["data"]] == ["carbyne: donated", "carbyne: received"]


def test_the_page_shows_use_and_leftover_only_where_there_is_some():
    results, histories = runs()
    inputs = Inputs("1", "w", "c", 1, {"cpu": "10"}, usage=histories)

    page = comparison_page(results, inputs)
    assert "Utilisation over time" in page
    assert "Leftover, donated and used" in page
    plain = comparison_page({"drf": results["drf"]}, inputs)
    assert "Utilisation over time" in plain
    assert "Leftover, donated and used" not in plain


@pytest.mark.parametrize(("jobs", "by"), [(len(charts.COLOURS), "job"), (len(charts.COLOURS) + 1, "queue")])
def test_few_jobs_have_a_colour_each_in_the_chart_of_a_schedule(jobs, by):
    _, result, _ = followed([line(f"j{i}", 0, 1, 1_000) for i in range(jobs)], "drf")

    assert charts.colours_by(result) == {f"j{i}": f"j{i}" if by == "job" else "q" for i in range(jobs)}
