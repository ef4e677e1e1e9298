"""How jobs look as text: one with its stages and nodes, and many as a table."""

import re

import pytest

from services.cli import job_lists, show, watching
from services.cli.ending import shown
from services.cli.job_lists import jobs_text
from services.cli.show import in_blocks, listed, remarked, rendered, table
from services.cli.watching import PLACES_SHOWN, job_text, ranges_text

TASKS = {"total": 6, "waiting": 1, "starting": 1, "running": 3, "succeeded": 1, "failed_attempts": 0}


def stage(name="map", nodes=None, indexes=None):
    return {"stage": name, "tasks": TASKS, "why": [], "nodes": nodes or {}, "indexes": indexes}


def job(name="j", *stages, **more):
    about = {"queue": "ads/prod", "class": "small", "priority": 0, "user": "ann", "author": "ops", "why": None}
    times = {"submitted_ms": 1_000_000, "started_ms": None, "ended_ms": None}
    work = {"state": "running", "tasks": TASKS, "detail": "", "stages": list(stages), "failures": []}
    return {"job": name, **about, **times, **work, **more}


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(job_lists, "time", lambda: 1_090)


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 1, 2, 3, 7, 9, 10], "0-3, 7, 9-10")],
)
def test_numbers_in_a_row_are_a_range(indexes, text):
    assert ranges_text(indexes) == text


def test_a_job_says_on_which_nodes_its_tasks_are_and_which():
    text = job_text(job("j", stage(nodes={"n0": 3, "n1": 1}, indexes={"n0": [0, 1, 2], "n1": [5]}), stage("reduce")))

    lines = [line.split() for line in text.splitlines()]
    assert ["stage", "on", "node", "running", "tasks"] in lines
    assert lines[-2:] == [["map", "n0", "3", "0-2"], ["map", "n1", "1", "5"]]


def test_of_a_large_stage_only_counts_are_shown_and_of_so_many_nodes():
    nodes = {f"n{i}": 2 for i in range(PLACES_SHOWN + 2)}

    lines = job_text(job("j", stage(nodes=nodes))).splitlines()
    assert lines[-1] == "and on 2 more nodes"
    assert lines[-2].split() == ["map", f"n{PLACES_SHOWN - 1}", "2"]


def test_a_job_that_runs_nowhere_says_nothing_of_nodes():
    assert "on node" not in job_text(job("j", stage()))


def test_jobs_have_an_age_and_a_user():
    text = jobs_text([job("a", why="no room"), job("b", user="", submitted_ms=2_000_000)])

    assert [re.split(r" {2,}", line) for line in text.splitlines()] == [
        ["job", "state", "queue", "user", "age", "done", "why"],
        ["a", "running", "ads/prod", "ann", "90.0 s", "1/6", "no room"],
        ["b", "running", "ads/prod", "ops", "0 ms", "1/6"],
    ]


@pytest.mark.parametrize("columns", [60, 79, 80])
def test_a_narrow_terminal_shows_no_users(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = jobs_text([job("word-count-of-everything", why="no node has room for it now")])

    assert ("user" in text.splitlines()[0].split()) == (columns >= 80)
    assert max(map(len, text.splitlines())) <= columns


LONG = "n" * 65


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize("show", [lambda each: jobs_text([job("a"), *each]), lambda each: job_text(each[0])])
def test_a_long_id_can_be_copied(monkeypatch, columns, show):
    monkeypatch.setenv("COLUMNS", str(columns))

    assert LONG in re.split(r"\s+", show([job(LONG, stage("map"), why="no node has room for it now")]))


def test_a_long_id_stands_above_its_row_and_widens_no_other(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    jobs = [job("a"), job(LONG), job(LONG + "2", state="succeeded"), job("b")]

    lines = jobs_text(jobs).splitlines()
    assert [line.split()[0] for line in lines] == ["job", "a", LONG, "running", LONG + "2", "succeeded", "b"]
    assert max(len(line) for line in lines if LONG not in line) <= 60


@pytest.mark.parametrize("columns", [60, 80])
def test_numbers_and_heads_are_never_folded(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    tasks = TASKS | {"total": 1_000_000, "succeeded": 999_990}
    lines = jobs_text([job("a", queue="q" * 40, why="w" * 90, tasks=tasks)]).splitlines()

    assert lines[0].split()[:3] == ["job", "state", "queue"]
    assert "999990/1000000" in lines[1].split()
    assert max(map(len, lines)) <= columns


def test_a_head_keeps_its_width_beside_a_long_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    head = "h" * 25

    lines = rendered(table((head, "x"), [("v", "y" * 60)])).splitlines()
    assert lines[0].split() == [head, "x"]
    assert max(map(len, lines)) <= 40


def test_states_have_colours_and_names_that_read_alike_have_none(monkeypatch):
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    red = "\x1b[31m"

    assert red not in shown(in_blocks(("", "fifo"), [("rejected", "0")]))
    assert red not in shown(listed(("job", "state"), [("failed", "waiting")], kinds="kk"))
    assert red in shown(listed(("job", "state"), [("j", "failed")], kinds="kk"))


NO_ROOM = "one task asks for cpu 64, memory 1Gi; the largest node that could take it, node-0, has cpu 2, memory 4Gi"


@pytest.mark.parametrize("columns", [60, 80])
def test_where_a_reason_has_no_room_beside_its_job_two_lines_below_have_its_beginning(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    refused = job("ten-letter", state="rejected", why=NO_ROOM * 2)

    heads, first, *below, last = jobs_text([refused, job("b")]).splitlines()
    assert "why" not in heads
    assert first.split()[:2] == ["ten-letter", "rejected"]
    assert (len(below), last.split()[0]) == (2, "b")
    assert below[1].endswith("…")
    assert max(map(len, below)) <= columns
    assert (NO_ROOM * 2).startswith(" ".join(line.strip() for line in below).rstrip("…"))


def test_a_reason_stands_below_its_job_also_where_every_job_is_a_block(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = remarked(("job", "state", "why"), [("j", "s" * 40, NO_ROOM), ("k", "s", "")], kinds="kkl")

    assert text.splitlines()[:3] == ["j", "  state: " + "s" * 40, "  one task asks for cpu 64, memory 1Gi;"]
    assert text.splitlines()[3].endswith("…")
    assert text.splitlines()[4:] == ["k", "  state: s"]


def test_a_reason_with_room_beside_its_job_stays_there(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    heads, first = jobs_text([job("a", why=NO_ROOM[:40])]).splitlines()

    assert heads.split()[-1] == "why"
    assert first.endswith(NO_ROOM[:40])


def test_no_jobs():
    assert jobs_text([]) == "no jobs"


def printed(document):
    """What a pipe shows of a job as it goes, without the times of day."""
    return [line for _, line in watching._lines(document)]


def test_what_a_queue_at_its_max_holds_is_no_news(capsys):
    def waits(text, reason="queue_max"):
        why = {"reason": reason, "tasks": 1, "text": text}
        return job("j", stage() | {"tasks": TASKS | {"running": 0, "succeeded": 0}, "why": [why]}, why=text)

    full = "queue a has a max of cpu 1 and holds"
    texts = [waits(f"{full} 1"), waits(f"{full} 750m; a task asks for 500m"), waits("no node has room", "no_room")]
    list(watching._printed(iter([*texts, texts[0]])))

    lines = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [f"j: running: {text}" for text in (f"{full} 1", "no node has room", f"{full} 1")]


def test_the_numbers_of_a_reason_are_no_news_and_what_it_names_is(capsys):
    def waits(text):
        why = {"reason": "no_room", "tasks": 1, "text": text}
        return job("j", stage() | {"tasks": TASKS | {"running": 0, "succeeded": 0}, "why": [why]}, why=text)

    text = "no node has room for it now; queue ml holds {} % of the cell, room is gathered on {}"
    told = [text.format(*each) for each in ((56.3, "node-1"), (59.4, "node-1"), (56.3, "node-2"), (9, "node-2"))]
    list(watching._printed(iter(map(waits, told))))
    lines = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [f"j: running: {each}" for each in (told[0], told[2])]


def test_on_a_terminal_a_reason_stands_once():
    why = {"reason": "no_room", "tasks": 1, "text": "no node has room for it now"}
    waits = job("j", stage() | {"why": [why]}, state="waiting", why=why["text"])
    assert watching._head(waits) == "j: waiting"
    assert why["text"] in watching.stages_text(waits)
    assert watching._head(waits | {"why": "held by ann"}) == "j: waiting (held by ann)"
    assert watching._head(waits | {"detail": "a: exit 1"}) == "j: waiting (a: exit 1)"


def test_what_the_end_of_a_job_left_undone_is_told_by_stage():
    done = TASKS | {"succeeded": 1, "running": 0, "starting": 0}
    over = job(
        "j",
        stage("map") | {"tasks": done, "killed": 2, "never_started": 1},
        stage("reduce") | {"tasks": done | {"succeeded": 0}, "killed": 0, "never_started": 6},
        state="failed",
        ended_ms=1_005_000,
    )

    rows = [re.split(r" {2,}", line) for line in watching.stages_text(over).splitlines()]

    assert [row[-1] for row in rows] == [
        "what is left",
        "2 tasks ended with the job; 1 task never started",
        "never started",
    ]
    assert "why it waits" in watching.stages_text(job("j", stage()))


def test_a_job_that_is_followed_says_its_state_before_the_reason():
    quiet = TASKS | {"running": 0, "succeeded": 0}
    waits = job("j", stage() | {"tasks": quiet}, state="waiting", why="is considered in the next round")
    retries = job("j", stage(), why="task map/0 failed (exit_code), and is retried in 1 s")

    assert printed(waits) == ["j: waiting: is considered in the next round"]
    assert printed(waits | {"why": None}) == ["j: waiting"]
    assert printed(retries)[1:] == ["j: running: task map/0 failed (exit_code), and is retried in 1 s"]
    assert printed(retries | {"why": None}) == ["j/map: 1 of 6 done, 3 running"]
    assert printed(job("j", state="failed", detail="a: exit 1", ended_ms=1_005_000)) == [
        "j: failed after 5.0 s: a: exit 1"
    ]


def test_a_terminal_shows_the_last_jobs_that_have_ended_and_how_many_more():
    jobs = [job("live"), *(job(f"e{i}", "succeeded", ended_ms=3_000_000) for i in range(5))]

    live, ended, more = jobs_text(jobs, ended_most=2).split("\n\n")[0:3]
    assert [line.split()[0] for line in (live + "\n" + ended).splitlines()] == ["job", "live", "ended", "e0", "e1"]
    assert more == "and 3 more that have ended: --state, --since or --limit shows them\n"
    assert "more that have ended" not in jobs_text(jobs, ended_most=5) + jobs_text(jobs)
