"""A killed process loses nothing that it acknowledged, and leaves no lock behind."""

import random
import signal
import subprocess
import sys

import pytest

from largesse.bus.file import lock
from largesse.bus.file.bus import DirectoryHeld, FileBus
from largesse.bus.file.lock import DirectoryLock
from largesse.bus.file.reading import read_journal
from tests.conftest import ROOT
from tests.unit.file_bus_folders import everything, out, with_bus

ROUNDS, ROUNDS_DAILY = 20, 8
LOOKS = 5
"""After so many looks in vain at a lock its last holder goes."""
GUARD_S = 240


def process(*arguments):
    command = [sys.executable, "-m", "tests.unit.file_bus_process", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed_while_writing(folder, name, after) -> dict[int, str]:
    """What a writing process had acknowledged when it was killed: all it said, which is at least `after` messages."""
    with process("write", folder, name) as writing:
        said = [writing.stdout.readline() for _ in range(after)]
        writing.kill()
        said += writing.stdout.readlines()
        assert writing.wait() == -signal.SIGKILL
    # The kill may have torn what it was saying, too.
    whole = [line.split(" ", 1) for line in said if line.endswith("\n")]
    return {int(offset): value.rstrip("\n") for offset, value in whole}


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing_acknowledged(tmp_path, daily):
    rounds = ROUNDS_DAILY if daily else ROUNDS
    chance = random.Random(20_140_811)
    acknowledged: dict[int, str] = {}
    log: list[str] = []
    for number in range(rounds):
        acknowledged |= killed_while_writing(tmp_path, number, after=chance.randrange(1, 120))
        log = [message.value.decode() for message in read_journal(tmp_path) if message.topic == "cluster.log"]
        assert {offset: log[offset] for offset in acknowledged} == acknowledged

    assert len(acknowledged) >= rounds
    seen = with_bus(tmp_path, lambda bus: everything(bus, "cluster.log"))
    assert [message.value.decode() for message in seen] == log


def test_a_directory_that_another_process_holds_is_refused_with_its_pid(tmp_path):
    with process("hold", tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DirectoryHeld, match=str(holder.pid)) as held:
            FileBus(tmp_path)
        assert held.value.pid == holder.pid
        assert list(read_journal(tmp_path)) == []
        holder.stdin.close()
        assert holder.wait() == 0

    assert with_bus(tmp_path, lambda bus: bus.writer().send([out("mine now")])) == [0]


def test_a_killed_holder_leaves_no_lock_behind(tmp_path):
    with process("hold", tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()

    assert with_bus(tmp_path, lambda bus: bus.writer().send([out("mine now")])) == [0]


ORPHANED = """
import os, sys
from pathlib import Path
from largesse.bus.file.lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
if os.fork() == 0:
    sys.stdout.close()
    sys.stdin.read()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_lock_that_outlives_its_holder_is_waited_for_and_not_for_ever(tmp_path, monkeypatch, is_waited_for):
    """As where a process is killed in the middle of starting another."""
    words = [sys.executable, "-c", ORPHANED, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE) as holder:
        assert holder.wait() == 0  # Its child holds on until its input ends.
        if is_waited_for:
            looks = []
            take = DirectoryLock._take

            def take_and_let_go(self):
                looks.append(take(self))
                if len(looks) == LOOKS:
                    holder.stdin.close()
                return looks[-1]

            monkeypatch.setattr(lock, "ORPHAN_WAIT_S", GUARD_S)
            monkeypatch.setattr(DirectoryLock, "_take", take_and_let_go)
            DirectoryLock(tmp_path).release()
            assert looks[:LOOKS] == [False] * LOOKS
        else:
            with pytest.raises(DirectoryHeld):
                DirectoryLock(tmp_path)


def test_a_process_that_the_holder_started_does_not_hold_on(tmp_path):
    """As a task's shim does, which outlives the agent that started it."""

    async def story(bus):
        return started()

    def started():
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    with with_bus(tmp_path, story) as child:
        assert child.poll() is None
        assert with_bus(tmp_path, lambda bus: bus.writer().send([out("next")])) == [0]
        child.stdin.close()
