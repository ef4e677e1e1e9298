"""What people and their programs wrote reaches a terminal as text: it controls nothing, whatever it holds, and is shown
as far as the terminal's encoding goes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.ending import shown, styled, visible
from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving
from tests.unit.test_cli_queues import queue
from tests.unit.test_cli_rows import job

EVIL = "\x1b]0;PWNED\x07\x1b[31m\u202ex\x9b2J\r\n12:00:00 j: succeeded"
DRAWN = re.compile(r"\x1b\[([0-9;]*m|\?25[hl]|2K|1A)")
"""What our own tables and their redrawing may send: colours, the cursor's being shown, one line up, a line wiped."""


@given(st.text())
def test_what_is_shown_controls_nothing(text):
    assert all(c.isprintable() or c in "\n\t" for c in shown(text))
    assert visible(text).isprintable()


def test_colours_of_a_table_stay():
    assert shown(styled("\x1b[31m") + "\x1b[31m") == "\x1b[31m\\x1b[31m"


def evil_job():
    stage = {"stage": f"s{EVIL}", "tasks": {"total": 2, "waiting": 1, "starting": 0, "running": 0, "succeeded": 0}}
    stage["tasks"]["failed_attempts"] = 1
    stage |= {"why": [{"text": EVIL, "reason": "no_room"}], "nodes": {EVIL: 1}, "indexes": {EVIL: [1]}, "usage": None}
    failed = {"stage": "s", "index": 0, "attempt": 1, "node": EVIL, "reason": "cannot_start", "detail": EVIL}
    failed |= {"exit_code": None, "run_ms": 1, "peak_memory": None, "cpu_ms": None}
    document = job(f"j{EVIL}", "failed", EVIL)
    for name in ("queue", "user", "author", "detail"):
        document[name] = EVIL
    document |= {"ended_ms": 5, "stages": [stage], "failures": [failed]}
    return document | {"results": [{"node": EVIL, "folder": EVIL, "until_ms": 5}], "reservation": EVIL}


NODE = {"node": EVIL, "state": "ready", "running": 0, "kept": None, "labels": {EVIL: EVIL}, "unschedulable": EVIL}
NODE |= {"free": {"cpu": "1"}, "capacity": {"cpu": "1"}, "drain": {"author": EVIL, "reason": EVIL, "until_ms": None}}
ANSWERS = {
    "/v1/jobs": {"jobs": [evil_job()]},
    "/v1/nodes": {"nodes": [NODE]},
    "/v1/queues": queue("", queue(EVIL)),
}


def answer(request, body):
    """As a gateway whose every text is EVIL."""
    path = request.path.partition("?")[0]
    if path.endswith("/events"):
        data = f"data: {json.dumps(evil_job())}\n\n".encode()
        respond(request, 200, {"Content-Type": "text/event-stream"}, data)
    elif path.endswith("/logs") and "/tasks/" in path:
        headers = {"Largesse-Output-Attempt": "1", "Largesse-Output-End": "9", "Largesse-Task-State": "ended"}
        respond(request, 200, headers, EVIL.encode() + b"\xff\n")
    elif path.endswith("/logs"):
        rows = [
            {"stage": "s", "index": 0, "attempt": 1, "end": 9, "output": EVIL},
            {"stage": "s", "index": 1, "problem": {"detail": EVIL}},
        ]
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        respond(request, 200, {"Content-Type": "application/jsonl"}, data)
    elif path in ANSWERS:
        respond(request, 200, {"Content-Type": "application/json"}, json.dumps(ANSWERS[path]).encode())
    elif path == "/v1/jobs/j":
        respond(request, 200, {"Content-Type": "application/json"}, json.dumps(evil_job()).encode())
    else:
        problem = {"type": "urn:largesse:unknown_job", "detail": f"{EVIL} is unknown"}
        respond(request, 404, {"Content-Type": "application/problem+json"}, json.dumps(problem).encode())


@pytest.fixture(scope="module")
def url():
    with serving(answer) as address:
        yield address


COMMANDS = (
    "get jobs",
    "get job j",
    "get job unknown",
    "get nodes",
    "get queues",
    "watch j",
    "cancel unknown",
    "logs j",
    "logs j/s/0",
    "node drain unknown",
)


@pytest.mark.parametrize(
    ("command", "terminal"),
    [*((each, True) for each in COMMANDS), *((each, False) for each in COMMANDS if not each.startswith("logs"))],
)
def test_no_command_passes_on_what_controls_a_terminal(url, command, terminal):
    said = largesse(*command.split(), "--url", url, terminal=terminal)

    text = DRAWN.sub("", said.out) + said.err
    assert "PWNED" in text
    if command == "watch j":
        text = text.replace("\r", "")  # What draws it anew goes to the start of a line.
    assert all(c.isprintable() or c in "\n\t" for c in text)
    if not command.startswith("logs"):
        assert not re.search("^12:00:00 j: succeeded", text, re.MULTILINE)


def test_output_is_passed_on_as_it_is_where_that_is_wanted(url):
    raw = largesse("logs", "j/s/0", "--url", url, "--raw", terminal=True, encoding="latin-1").out
    piped = largesse("logs", "j/s/0", "--url", url, encoding="latin-1").out

    assert raw == piped == (EVIL.encode() + b"\xff\n").decode("latin-1")


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_that_lacks_characters_shows_the_others(monkeypatch, encoding, terminal):
    def unicode(request, body):
        jobs = {"jobs": [job("größe-日本", "running", "…")]}
        respond(request, 200, {"Content-Type": "application/json"}, json.dumps(jobs).encode())

    with serving(unicode) as url:
        said = largesse("get", "jobs", "--url", url, terminal=terminal, encoding=encoding)
    assert (said.code, said.err) == (0, "")
    assert ("größe-??" if encoding == "latin-1" else "gr??e-??") in said.out


def test_an_error_can_be_shown_anywhere():
    said = largesse("submit", "größe-日本.yaml", encoding="latin-1")

    assert said.code == 2
    assert "größe-??.yaml" in said.err
