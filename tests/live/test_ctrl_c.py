"""Ctrl-C at several moments of each command that runs for long, with a real cell: no traceback, whenever it comes.

A moment is a number of function calls of the main thread, not a time, so that a slow machine tries the same ones.
"""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from itertools import count

import pytest

from tests.live.up_process import up
from tests.unit.cli_process import ROOT

pytestmark = pytest.mark.slow

GUARD_S = 300
MOMENTS, MOMENTS_DAILY = 10, 3
INTERRUPTED = "largesse: interrupted\n"
AT_A_CALL = """
import os, signal, sys
moment, calls = int(sys.argv[1]), 0
def count(frame, event, arg):
    global calls
    if event == "call":
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["largesse", *sys.argv[2:]]
from services.cli.main import process
sys.setprofile(count)
try:
    process()
finally:
    sys.setprofile(None)
    print(f"{calls} calls", file=sys.stderr)
"""
JOB = '{{"job": "{}", "stages": [{{"stage": "s", "tasks": 2, "command": ["echo", "x"], "demand": {{"cpu": "10m"}}}}]}}'


@pytest.fixture
def moments(daily):
    return MOMENTS_DAILY if daily else MOMENTS


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    with up(tmp_path_factory.mktemp("cell"), "--nodes", 1) as running:
        assert running.ask("submit", "--watch", "-", stdin=JOB.format("done")).code == 0
        yield running


@contextmanager
def started(moment, *words, url="http://127.0.0.1:9"):
    """A command that gets Ctrl-C at its call number `moment`; 0: never."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**os.environ, "LARGESSE_URL": url, "LARGESSE_DEBUG": ""}
    command = [sys.executable, "-c", AT_A_CALL, str(moment), *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process, stdin=None):
    """Exit code, stdout, stderr, and the calls, where it came to its end."""
    out, err = process.communicate(stdin, timeout=GUARD_S)
    counted = re.search(r"^(\d+) calls\n\Z", err, re.MULTILINE)
    return process.returncode, out, err[: counted.start()] if counted else err, int(counted[1]) if counted else 0


COMMANDS = {
    "watch": (("watch", "done"), None),
    "logs -f": (("logs", "-f", "done/s/0"), None),
    "submit --watch": (("submit", "--watch", "-"), JOB),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_interrupted_says_so_in_one_line(cell, name, moments):
    words, job = COMMANDS[name]

    numbers = count(1)

    def run(moment):
        with started(moment, *words, url=cell.url) as process:
            return ended(process, job and job.format(f"job-{next(numbers)}"))

    code, _, err, calls = run(0)
    assert (code, err) == (0, "")
    runs = []
    for i in range(moments):
        moment = calls * (i + 1) // (moments + 1)
        code, _, err, took = run(moment)
        while code == 0 and took < moment:
            # How many calls a command takes differs with what it has to wait for: this time it had ended before.
            assert err == ""
            calls, moment = took, took * (i + 1) // (moments + 1)
            code, _, err, took = run(moment)
        runs.append((code, err))

    assert set(runs) <= {(130, INTERRUPTED), (0, "")}
    assert sum(code == 130 for code, _ in runs) >= moments - 2


def test_a_cell_that_is_interrupted_ends_in_order_or_says_so_in_one_line(tmp_path, moments):
    with started(0, "up", "--http", 0, "--data", tmp_path / "whole") as process:
        while not process.stdout.readline().startswith("Ctrl-C"):
            assert process.poll() is None
        process.terminate()
        code, _, err, calls = ended(process)
    assert (code, err) == (0, "")

    codes = []
    for i in range(moments):
        with started(calls * (i + 1) // moments, "up", "--http", 0, "--data", tmp_path / "cell") as process:
            code, out, err, _ = ended(process)
        codes.append(code)
        assert (code, err, out.endswith("ended\n")) in ((130, INTERRUPTED, False), (0, "", True)), (i, out)
    assert 130 in codes[: moments // 2]


HALF_BEGUN = """
import asyncio, os, signal, sys
from asyncio.base_events import BaseEventLoop
from services.cli import interrupts

async def never(): pass

def begin(loop):
    os.kill(os.getpid(), signal.SIGINT)

BaseEventLoop.__init__ = begin
interrupts.guard()
with interrupts.raising():
    try:
        asyncio.run(never())
    except KeyboardInterrupt:
        interrupts.tell()
sys.exit(interrupts.CODE)
"""


def test_an_event_loop_that_had_only_half_begun_does_not_complain():
    done = subprocess.run([sys.executable, "-c", HALF_BEGUN], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (130, INTERRUPTED)
