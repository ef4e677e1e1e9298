"""A service as a process: what holds for all of them before their own work begins."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
import structlog

from largesse.process import serve
from tests.conftest import ROOT

SERVED = """
import gc, sys
from largesse.process.serve import COLLECTED_AFTER, serve
from largesse.process.usage import Usage

async def start(bus, settings, stop):
    gc.callbacks.append(lambda phase, info: walked.append(len(gc.get_objects())) if phase == "start" else None)
    gc.collect()
    print(gc.get_threshold() == COLLECTED_AFTER, gc.get_freeze_count() > 5 * walked[0])

walked = []
sys.argv[1:] = []
raise SystemExit(serve(Usage("toy", "A toy."), start))
"""

UP = """
import gc, sys
from largesse.process.serve import COLLECTED_AFTER
from services.cli import upping

async def run(plan):
    gc.callbacks.append(lambda phase, info: walked.append(len(gc.get_objects())) if phase == "start" else None)
    gc.collect()
    print(gc.get_threshold() == COLLECTED_AFTER, gc.get_freeze_count() > 5 * walked[0])

walked, upping._up = [], run
upping.up(upping.Asked(sys.argv[1], 1, None, 0, "ann", True, False))
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [SERVED, UP], ids=["a service", "a cell in one process"])
def test_the_collector_leaves_what_was_imported_alone(tmp_path, program):
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        cwd=ROOT,
        env=os.environ | {"LARGESSE_BUS": "memory:"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


STOPPED = """
import sys
from largesse.log.inputs import InputStopped
from largesse.process.serve import serve
from largesse.process.usage import Usage

async def start(bus, settings, stop):
    raise InputStopped("reading", "jobs", 0, 7)

sys.argv[1:] = []
raise SystemExit(serve(Usage("toy", "A toy."), start))
"""


def test_a_service_that_stops_says_what_helps():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED],
        cwd=ROOT,
        env=os.environ | {"LARGESSE_BUS": "memory:", "LARGESSE_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 3
    logged = json.loads((done.stdout + done.stderr).splitlines()[-1])
    assert logged["event"] == "stopped"
    assert logged["way_out"].startswith("if every start ends here: `largesse admin skip-input jobs 7` ")


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        pytest.param(["", ""], [("ready", None)], id="at once"),
        pytest.param(["", "catching up", "", ""], [("ready", None)], id="it had not begun to read at the first look"),
        pytest.param(["no bus"] * 2 + ["", ""], [("ready", None)], id="soon"),
        pytest.param(["no bus"] * 5 + ["", ""], [("waiting", "no bus"), ("ready", None)], id="late"),
        pytest.param(
            ["no bus"] * 4 + ["catching up"] * 3 + ["", ""],
            [("waiting", "no bus"), ("waiting", "catching up"), ("ready", None)],
            id="for one thing after another",
        ),
    ],
)
def test_a_service_says_what_it_waits_for_and_once_that_it_is_ready(monkeypatch, reasons, lines):
    monkeypatch.setattr(serve, "LOOK_SECONDS", 0)
    left = list(reasons)

    async def why_not():
        return left.pop(0)

    with structlog.testing.capture_logs() as logged:
        asyncio.run(serve.tell_ready(why_not, asyncio.Event()))
    assert [(each["event"], each.get("reason")) for each in logged] == lines
    assert left == []
