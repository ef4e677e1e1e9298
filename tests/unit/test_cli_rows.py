"""Listings: on a terminal of any width no id and no state is torn, in a pipe every row is a line with tabs between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.quantities import quantity_text, rounded_text
from services.cli import getting
from services.cli.classes import HEADS, HISTORY_SHOWN_MAX, KINDS, OFF, about_pools, class_rows
from services.cli.getting import node_row, numbered
from services.cli.job_lists import jobs_text
from services.cli.queues import tree_rows
from services.cli.show import listed, rounded, tabbed
from services.cli.watching import job_text
from tests.unit.test_cli_queues import BREACH
from tests.unit.test_cli_queues import queue as a_queue

WIDTHS = range(40, 201, 4)
IDS = ["a", "word-count-of-everything", "nightly/../2026-11-23 rerun".replace("/", "_"), "x" * 63, "日本語" * 9]
STATES = ["waiting", "running", "succeeded", "failed", "cancelled", "rejected"]
WHY = "no available node could run it: it asks for more than any has"


def job(name, state, why=WHY):
    tasks = {"total": 1_000_000, "waiting": 0, "starting": 0, "running": 3, "succeeded": 999_997, "failed_attempts": 0}
    return {
        "job": name, "state": state, "queue": "advertising/production", "class": "small", "priority": 0,
        "user": "ann@example.com", "author": "ann", "submitted_ms": 0, "started_ms": None, "ended_ms": None,
        "tasks": tasks, "why": why, "reason": None, "detail": "",
    }  # fmt: skip


def words(text):
    return [word for line in text.splitlines() for word in line.split("  ") if word]


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_id_and_no_state_of_a_job_is_torn(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    found = [job(name, state) for name, state in zip(IDS, STATES, strict=False)]

    printed = words(jobs_text(found))
    for each in found:
        assert each["job"] in [word.strip() for word in printed]
        assert any(word.strip().removeprefix("state: ") == each["state"] for word in printed)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("state", ["ready", "unschedulable", "draining"])
def test_no_name_and_no_state_of_a_node_is_torn(monkeypatch, columns, state):
    monkeypatch.setenv("COLUMNS", str(columns))
    node = {"node": "rack-17.example.com", "state": state, "running": 1_234, "kept": None, "free": {}, "capacity": {}}
    node |= {"unschedulable": "its disk is full" * 9, "capacity": {"memory": "7680Mi"}, "free": {"memory": "1Gi"}}

    printed = [
        word.strip() for word in words(listed(("node", "state", "tasks", "free"), [node_row(node)], kinds="kkrl"))
    ]
    assert node["node"] in printed
    assert any(word.removeprefix("state: ") == state for word in printed)


@pytest.mark.parametrize("columns", WIDTHS)
def test_failed_attempts_name_their_node_and_reason_whole(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    failed = {"stage": "reduce", "index": 199_999, "attempt": 3, "node": "n" * 30, "reason": "cannot_start"}
    document = job("j", "failed") | {"stages": [], "failures": [failed | {"detail": "no such file " * 9}]}

    printed = [word.strip().removeprefix("node: ").removeprefix("reason: ") for word in words(job_text(document))]
    assert {"reduce/199999", "n" * 30, "cannot_start"} <= set(printed)


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_line_but_one_of_an_id_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = jobs_text([job(name, "running") for name in IDS[:3]]).splitlines()

    assert max(map(len, lines)) <= columns


def failure(index, attempt, node="n1", detail="ended with status 1"):
    made = {"stage": "map", "index": index, "attempt": attempt, "node": node, "reason": "exit_code"}
    return made | {"detail": detail, "peak_memory": None, "cpu_ms": None}


def test_failed_attempts_that_are_alike_are_one_row_and_for_programs_a_row_each(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    alike = [failure(index, attempt) for attempt in (1, 2) for index in (0, 1, 2, 5)]
    found = [*alike, failure(3, 1, "n2"), failure(3, 2, detail="killed by signal 9")]
    document = job("j", "failed") | {"stages": [], "failures": found}

    rows = [words(line) for line in job_text(document).splitlines() if line.startswith("map/")]
    assert [[word.strip() for word in row] for row in rows] == [
        ["map/0-3, 5", "1-2", "9", "2 nodes", "exit_code", "ended with status 1"],
        ["map/3", "2", "1", "n1", "exit_code", "killed by signal 9"],
    ]
    assert sum(line.startswith("map/") for line in job_text(document, tabbed).splitlines()) == 10


@pytest.mark.parametrize("draw", [listed, tabbed])
@pytest.mark.parametrize(("failed", "said"), [(28, True), (20, False)])
def test_where_not_all_failed_attempts_are_shown_it_says_of_how_many(draw, failed, said):
    document = job("j", "failed") | {"stages": [], "failures": [failure(index, 1) for index in range(20)]}
    document["tasks"]["failed_attempts"] = failed

    assert (f"These are the last 20 of {failed} failed attempts.\n" in job_text(document, draw)) == said


def test_a_node_shows_its_labels():
    node = {"node": "n", "state": "ready", "running": 0, "kept": None, "labels": {"zone": "b", "disk": "ssd"}}

    assert node_row(node | {"free": {"cpu": "1"}, "capacity": {"cpu": "2"}})[3] == "cpu 1 of 2; labels disk=ssd, zone=b"


@pytest.mark.parametrize(
    ("until_ms", "outcome"), [(1_000, "what ran there was ended"), (2**52, "what runs there is ended")]
)
def test_a_drain_is_told_of_in_the_past_once_its_deadline_is_over(monkeypatch, until_ms, outcome):
    monkeypatch.setattr(getting, "moment", str)
    drain = {"author": "ops", "reason": "", "until_ms": until_ms}
    node = {"node": "n", "state": "draining", "running": 0, "kept": None, "free": {}, "capacity": {}, "drain": drain}

    assert node_row(node)[3] == f"drained by ops; {outcome} at {until_ms}"


def test_a_node_that_has_left_shows_no_room():
    node = {"node": "n", "state": "left", "running": 0, "kept": None, "free": {"cpu": "0"}, "capacity": {"cpu": "1m"}}

    assert node_row(node)[3] == ""
    assert (
        node_row(node | {"unschedulable": "it is not run any more"})[3] == "takes no new tasks: it is not run any more"
    )


def test_in_a_pipe_a_job_is_a_line_with_all_of_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = jobs_text([job(IDS[3], "waiting", WHY * 9), job("b\tc\n", "running", None)], tabbed).splitlines()

    assert [line.split("\t")[:4] for line in lines] == [
        ["job", "state", "queue", "user"],
        [IDS[3], "waiting", "advertising/production", "ann@example.com"],
        ["b\\tc\\n", "running", "advertising/production", "ann@example.com"],
    ]
    assert [line.split("\t")[6] for line in lines] == ["why", WHY * 9, ""]


def test_in_a_pipe_no_jobs_are_the_heads_alone():
    assert jobs_text([], tabbed) == "job\tstate\tqueue\tuser\tage\tdone\twhy\n"


def test_in_a_pipe_queues_have_their_whole_path_and_all_that_is_told_of_them():
    tree = a_queue("", a_queue("ads", a_queue("ads/prod", breach=BREACH, running_jobs_max=2)), a_queue("ml"))
    heads, *rows = [line.split("\t") for line in tree_rows(tree).splitlines()]

    assert [row[0] for row in rows] == ["root", "ads", "ads/prod", "ml"]
    assert {len(row) for row in rows} == {len(heads)}
    assert rows[2][heads.index("limits")] == "2 jobs run at once"
    assert "is guaranteed 30.0 %" in rows[2][heads.index("broken")]
    assert rows[1][heads.index("limits")] == ""


@given(
    st.sampled_from(["cpu", "gpu", "memory", "disk", "network", "disk_io", "licence"]),
    st.integers(0, 2**53 - 1) | st.integers(0, 3_000),
)
def test_an_exact_quantity_is_rounded_as_the_vocabulary_does(resource, amount):
    assert rounded(quantity_text(resource, amount)) == rounded_text(resource, amount)


def test_nodes_are_listed_by_name_and_number():
    assert sorted(["n-10", "n-2", "m", "n-1", "7", "n"], key=numbered) == ["7", "m", "n", "n-1", "n-2", "n-10"]


RESULTS = [
    {"node": "node-0", "folder": "/var/lib/largesse-agent/ended/*/use/9-*", "until_ms": 1_796_015_581_487},
    {"node": "node-1", "folder": "/var/lib/largesse-agent/jobs/use/9-*", "until_ms": None},
]


@pytest.mark.parametrize(("said", "shown"), [({"peak_cpu": "1250m"}, True), ({"peak_cpu": None}, False), ({}, False)])
def test_the_peak_of_cpu_of_a_stage_is_shown_where_it_is_known(said, shown):
    attempt = {"index": 0, "attempt": 1, "node": "n", "run_ms": 5, "peak_memory": "64Mi", "cpu_ms": 3}
    usage = {"peak_memory": "64Mi", "cpu_ms": 3, "attempts": [attempt], **said}
    stage = {"stage": "map", "tasks": job("j", "running")["tasks"], "why": [], "nodes": {}, "usage": usage}
    text = job_text(job("j", "running") | {"stages": [stage | {"indexes": None}], "failures": []}, tabbed)

    assert ("map\t1250m" in text.splitlines(), "peak of CPU" in text) == (shown, shown)


@pytest.mark.parametrize(("runs", "by"), [(7, "7 runs, peak 1300m"), (1, "1 run, peak 1300m")])
def test_what_tasks_count_for_is_shown_where_they_ask_for_more(runs, by):
    counted = {"asked": {"cpu": "4"}, "counted": {"cpu": "1625m"}, "runs": runs, "peak": {"cpu": "1300m"}}
    plain = {"tasks": job("j", "running")["tasks"], "why": [], "nodes": {}, "usage": None, "indexes": None}
    stages = [{"stage": "map", "counted": counted, **plain}, {"stage": "a", "counted": None, **plain}]
    older = {"stage": "older", **plain}  # As an older gateway has it.
    text = job_text(job("j", "running") | {"stages": [*stages, older], "failures": []}, tabbed)

    assert text.splitlines()[-2:] == ["stage\tresource\tasks for\tcounts for\tby", f"map\tcpu\t4\t1625m\t{by}"]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_where_results_lie_is_said_whole_at_any_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    attempt = {"index": 0, "attempt": 1, "node": "node-0", "run_ms": 5, "peak_memory": "64Mi", "cpu_ms": 3}
    usage = {"peak_memory": "64Mi", "cpu_ms": 3, "attempts": [attempt]}
    counts = {"total": 1, "succeeded": 1, "running": 0, "starting": 0}
    stage = {"stage": "s", "tasks": counts, "why": [], "nodes": {}, "indexes": {}, "usage": usage}
    about = {
        "job": "use",
        "state": "succeeded",
        "queue": "q",
        "class": "small",
        "priority": 0,
        "user": "",
        "author": "a",
    }
    times = {"submitted_ms": 0, "started_ms": 0, "ended_ms": 1, "detail": ""}
    document = {**about, **times, "stages": [stage], "failures": [], "results": RESULTS}

    text = job_text(document)

    for result in RESULTS:
        assert result["folder"] in text
    assert "results until" in text
    assert "not before the job ends" in text
    assert "64Mi" in text
    paths = [result["folder"] for result in RESULTS]
    assert all(len(line) <= columns for line in text.splitlines() if not any(path in line for path in paths))


def classes(pools="on", forecasts=3):
    """What the gateway says of three classes."""
    held = {"cpu": "1234567m", "memory": "123456Mi"}
    coming = [{"seconds": second, "amount": held} for second in (1, 5, 10, 30)]
    rows = [
        {
            "class": name, "threshold": threshold, "pool": pool if pools == "on" else None, "held": held,
            "jobs": {"running": 1_000, "waiting": 123_456}, "coming": coming,
        }
        for name, threshold, pool in (("small", 0.1, 0.1), ("medium", 0.5, 0.375), ("large", None, 0.525))
    ]  # fmt: skip
    errors = [{"seconds": second, "error": second / 1_000, "forecasts": forecasts} for second in (1, 5, 10, 30)]
    history = [{"since_ms": 1_000 * i, "pools": [0.1, 0.375, 0.525]} for i in range(9)]
    return {
        "pools": pools, "classes": rows, "forecaster": "durations" if pools == "on" else None,
        "scores": [{"forecaster": name, "errors": errors} for name in ("ramp", "durations") if pools == "on"],
        "history": [{"since_ms": 0, "pools": [0.2, 0.8]}, *history],
    }  # fmt: skip


@pytest.mark.parametrize("columns", WIDTHS)
def test_classes_fit_a_terminal_with_their_pools_over_time_and_the_errors_of_forecasts(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = listed(HEADS, class_rows(classes()), kinds=KINDS) + about_pools(classes())

    assert max(map(len, text.splitlines())) <= columns
    for word in ("small", "medium", "large", "52.5%", "durations (in use)", "ramp", "3.00%"):
        assert word in text
    if columns >= 60:
        assert text.count("1970-01-01") + text.count("1969-12-31") == HISTORY_SHOWN_MAX


def test_an_error_of_forecasts_that_were_never_compared_is_none():
    printed = about_pools(classes(forecasts=0))

    assert "0.10%" not in printed
    assert "-" in printed


def test_where_classes_have_no_pools_a_terminal_says_so():
    assert about_pools(classes(pools="off")) == OFF


def test_jobs_that_have_ended_stand_apart_from_live_ones(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    ended = job("over", "failed", None) | {"ended_ms": 65_000, "detail": "exit code 1"}
    live, over = jobs_text([job("a", "waiting"), ended]).split("\n\n")

    assert "over" not in live
    assert live.split()[:2] == ["job", "state"]
    heads, row = over.splitlines()
    assert heads.split() == ["ended", "job", "state", "queue", "user", "ago", "took", "done", "why"]
    assert ("65.0 s" in row, "exit code 1" in row) == (True, True)


def test_of_a_stage_of_many_tasks_percentiles_are_shown():
    each = {"percent": 50, "run_ms": 1_500, "peak_memory": "64Mi", "cpu_ms": 200}
    usage = {"peak_memory": "80Mi", "cpu_ms": 9_000, "attempts": None, "percentiles": [each, each | {"percent": 95}]}
    stage = {"stage": "map", "tasks": job("j", "running")["tasks"], "why": [], "nodes": {}, "usage": usage}
    document = job("j", "running") | {"stages": [stage | {"indexes": None}], "failures": []}

    rows = [line.split("\t") for line in job_text(document, tabbed).splitlines() if line.startswith("map, ")]
    assert rows == [
        ["map, median", "", "", "1.5 s", "64Mi", "200 ms"],
        ["map, 95 %", "", "", "1.5 s", "64Mi", "200 ms"],
    ]
