"""Processes of cells: one that breaks is nothing to the others, and all end with the first, also where it is killed."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from largesse.process import forked_cells
from tests.conftest import ROOT

SECONDS = 60


@contextmanager
def started(*cells):
    command = [sys.executable, "-m", "tests.unit.nursery_child", *cells]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def lines_of(process, count):
    """The next lines that it says, as words."""
    return [process.stdout.readline().split() for _ in range(count)]


def is_gone(pid):
    """Whether a process has ended, soon."""
    for _ in range(SECONDS * 100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def pids_of(lines):
    return [int(words[-1]) for words in lines if words[0] in ("cell", "keeper")]


def test_each_cell_is_a_process_of_its_own_and_one_that_breaks_is_told_to_the_keeper_alone():
    with started("a", "broken", "b") as process:
        lines = lines_of(process, 5)

        assert sorted(words[:3] for words in lines if words[0] == "cell") == [
            ["cell", "a", "0"],
            ["cell", "b", "2"],
            ["cell", "broken", "1"],
        ]
        assert [words for words in lines if words[0] == "ended"] == [
            ["ended", "broken", *["its", "process", "has", "ended", "with", "exit", "code", "3"]]
        ]
        assert len(set(pids_of(lines)) | {process.pid}) == 5
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read().splitlines()
        assert sorted(rest) == ["ends a", "ends b", "keeper ends"]
        assert rest[-1] == "keeper ends"
        assert process.wait(SECONDS) == 7


@pytest.mark.parametrize("which", ["the first", "the keeper"])
def test_nobody_outlives_the_first_process_or_the_keeper(which):
    with started("a", "b") as process:
        lines = lines_of(process, 3)
        keeper = next(int(words[1]) for words in lines if words[0] == "keeper")

        os.kill(process.pid if which == "the first" else keeper, signal.SIGKILL)

        assert process.wait(SECONDS) != 0
        assert all(is_gone(pid) for pid in pids_of(lines))


def test_a_cell_that_does_not_end_is_killed(monkeypatch):
    assert forked_cells.CELL_END_SECONDS < 10  # Who stops containers waits that long.
    with started("stubborn") as process:
        lines = lines_of(process, 2)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)

        assert process.wait(SECONDS) == 7
        assert time.monotonic() - begun >= forked_cells.CELL_END_SECONDS
        assert all(is_gone(pid) for pid in pids_of(lines))
