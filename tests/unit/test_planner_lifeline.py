"""The solver's processes end with the planner that started them, also where it is killed."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from services.planner.lifeline import lifeline
from tests.bus_cell import GUARD_S
from tests.unit.cli_process import ROOT
from tests.unit.test_planner_solver_beside import ended, started

CHILD = (
    "import os, pathlib, threading",
    "from services.planner.lifeline import end_with_parent",
    "end_with_parent()",
    "pathlib.Path({fifo!r}).write_text(f'{{os.getppid()}} {{os.getpid()}}')",
    "threading.Event().wait()",
)
"""Says its parent's pid and its own, and never ends by itself."""

OF_THE_SERVICE = """
import asyncio, sys
from tests.unit.test_planner_proposals import promising
from tests.unit.test_planner_solver_beside import beside
reorganiser, _ = beside(promising("r", reservation_solver_ms=1).story.state, {code!r})
asyncio.run(reorganiser.ask())
"""

OF_A_PLANNER_OFFLINE = """
import sys
from services.planner.offline import reorganise
reorganise.COMMAND = (sys.executable, "-c", {code!r})
reorganise.asked([1], 1, [], [], 3600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("parent", [
    pytest.param(OF_THE_SERVICE, id="the planner's service"),
    pytest.param(OF_A_PLANNER_OFFLINE, id="what asks the solver"),
])  # fmt: skip
def test_what_a_killed_process_has_asked_ends(tmp_path, parent):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = "; ".join(CHILD).format(fifo=str(fifo))

    async def story(process):
        async with asyncio.timeout(GUARD_S):
            handles = await started(fifo)
            process.kill()
            await ended(handles)

    process = subprocess.Popen([sys.executable, "-c", parent.format(code=code)], cwd=ROOT)
    try:
        asyncio.run(story(process))
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("module", [["services.planner", "reorganise"], ["services.planner.milp"]])
def test_the_solvers_programs_end_with_their_lifeline(module):
    """They wait for their question, which never comes."""
    pipe = subprocess.PIPE
    with lifeline() as (inherited, environment):
        command = [sys.executable, "-m", *module]
        process = subprocess.Popen(command, stdin=pipe, cwd=ROOT, pass_fds=(inherited,), env=environment)
    try:
        assert process.wait(GUARD_S) == 1
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_program_that_nobody_gave_a_lifeline_answers_as_ever():
    done = subprocess.run(
        [sys.executable, "-m", "services.planner", "reorganise"],
        input=b"{}",
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 2
    assert b"now_ms" in done.stderr
