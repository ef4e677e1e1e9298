"""How the command starts and is interrupted: what short commands do not import, and Ctrl-C at any moment."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.unit.cli_process import ROOT
from tests.unit.stub_server import respond, serving

NOWHERE = "http://127.0.0.1:9"
HEAVY = {
    *("aiokafka", "click", "fastapi", "numba", "numpy", "orjson", "prometheus_client", "psutil", "pygments"),
    *("schemas", "services.gateway", "starlette", "structlog", "uvicorn", "yaml"),
}
ASKING = {"httpx", "pydantic"}

MODULES = """
import sys
from services.cli.main import process
sys.argv = ["largesse", *sys.argv[1:]]
try:
    process()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(*words):
    done = subprocess.run(
        [sys.executable, "-c", MODULES, *words], cwd=ROOT, capture_output=True, text=True, env=ENV, check=False
    )
    return set(done.stderr.splitlines()[-1].split())


ENV = {**os.environ, "LARGESSE_DEBUG": "", "XDG_CONFIG_HOME": "/nowhere"}


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["--version"], {*HEAVY, *ASKING, "rich"}),
        (["--help"], {*HEAVY, *ASKING, "rich"}),
        (["get", "--help"], {*HEAVY, "httpx", "rich"}),
        (["get", "jobs", "--url", NOWHERE], {*HEAVY, "rich"}),
        (["watch", "j", "--url", NOWHERE], {*HEAVY, "rich"}),
        (["logs", "j/s/0", "--url", NOWHERE], {*HEAVY, "rich"}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",  # A set has no order of its own.
)
def test_short_commands_do_not_import_what_they_do_not_need(words, unwanted):
    found = imported(*words)

    assert "services.cli.commands" in found
    assert not found & unwanted


# ---------------------------------------------------------------- Ctrl-C
INTERRUPTED = "largesse: interrupted\n"
WHILE_IMPORTING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["largesse", *sys.argv[1:]]
from services.cli.main import process
process()
"""


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("services.cli.commands", ["--version"]),
        ("typer", ["--version"]),
        ("services.cli.shipping", ["--version"]),
        ("httpx", ["watch", "j", "--url", NOWHERE]),
        ("services.cli.patience", ["watch", "j", "--url", NOWHERE]),
        ("services.cli.printing", ["logs", "j/s/0", "-f", "--url", NOWHERE]),
        ("yaml", ["submit", "-", "--watch", "--url", NOWHERE]),
        ("fastapi", ["up", "--http", "0"]),
        ("services.fairness.core", ["up", "--http", "0"]),
        ("services.simulator.run", ["simulate", "--workload", "-", "--cluster", "c"]),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_one_line(module, words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WHILE_IMPORTING.format(module=module), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**ENV, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", INTERRUPTED)


@contextmanager
def a_slow_gateway(answers):
    """Answers the paths in `answers`; at the first other path it sends Ctrl-C to the process that asks. Yields its
    address, and a list into which that process has to be put."""
    processes = []

    def interrupt():
        processes[0].send_signal(signal.SIGINT)
        processes[0].wait()

    def answer(request, _):
        if (response := answers.get((request.command, request.path.partition("?")[0]))) is None:
            interrupt()
            return
        kind, body, headers = response
        if kind != "text/event-stream":
            respond(request, 200, {"Content-Type": kind} | headers, body)
            return
        request.send_response(200)
        for name, value in ({"Content-Type": kind} | headers).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
        request.wfile.flush()
        processes[0].stdout.readline()  # It has taken the first event, and waits for the next.
        interrupt()

    with serving(answer, "HTTP/1.1") as url:
        yield url, processes


def interrupted(answers, *words, stdin=b""):
    """Exit code and stderr of a command that is interrupted by the gateway it asks."""
    with a_slow_gateway(answers) as (url, processes):
        command = [sys.executable, "-m", "services.cli.main", *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, env={**ENV, "LARGESSE_URL": url}, **pipes) as process:
            processes.append(process)
            process.stdin.write(stdin)
            process.stdin.close()
            err = process.stderr.read().decode()
        return process.returncode, err


Answers = dict[tuple[str, str], tuple[str, bytes, dict[str, str]]]
"""By method and path: media type, body, headers."""
JOB = b'{"job": "j", "state": "waiting"}'
SPEC = b'{"job": "j", "stages": [{"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": 1}}]}'
EVENT = (
    b'data: {"job": "j", "state": "waiting", "submitted_ms": 0, "ended_ms": null, "detail": "", "why": "no room", '
    b'"stages": []}\n\n'
)
SUBMITTED: Answers = {("POST", "/v1/jobs"): ("application/json", JOB, {})}
STREAMING: Answers = {("GET", "/v1/jobs/j/events"): ("text/event-stream", EVENT, {})}


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "words", "stdin"),
    [
        pytest.param({}, ["get", "jobs"], b"", id="get, before the answer"),
        pytest.param({}, ["watch", "j"], b"", id="watch, before the answer"),
        pytest.param(STREAMING, ["watch", "j"], b"", id="watch, between two events"),
        pytest.param({}, ["submit", "-", "--watch"], SPEC, id="submit, before the answer"),
        pytest.param(SUBMITTED, ["submit", "-", "--watch"], SPEC, id="submit --watch, before the first event"),
        pytest.param({}, ["logs", "j/s/0", "-f"], b"", id="logs, before the answer"),
    ],
)
def test_ctrl_c_while_the_gateway_is_waited_for_is_one_line(answers, words, stdin):
    assert interrupted(answers, *words, stdin=stdin) == (130, INTERRUPTED)


def test_ctrl_c_cancels_what_run_runs_and_says_so_in_one_line():
    cancelled = {("DELETE", "/v1/jobs/j"): ("application/json", JOB, {})}
    answers = SUBMITTED | cancelled

    assert interrupted(answers, "run", "--", "sleep", "60") == (130, "largesse: interrupted; job j is cancelled\n")


def test_a_command_in_the_background_of_a_script_ignores_ctrl_c_as_its_shell_asks():
    done = subprocess.run(
        [sys.executable, "-c", WHILE_IMPORTING.format(module="services.cli.commands"), "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=ENV,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
