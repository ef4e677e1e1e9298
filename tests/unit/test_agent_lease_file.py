"""For how long tasks run on without word of their agent, as its shims judge by the file that it keeps."""

import os
import signal
import subprocess

import pytest

from services.admission.node_leases import Leases
from services.agent import lease_file
from services.agent.keeping import Holding
from services.agent.lease_file import END, KEPT, RUN, SUSPEND, Hold, read, this_process, written
from services.agent.proc import start_ticks

LEASE_MS = 10_000


class Clocks:
    """Both clocks of the machine. Asleep, only one of them goes on."""

    def __init__(self, monkeypatch):
        self.mono_ms = self.boot_ms = 1_000_000
        monkeypatch.setattr(lease_file, "mono_ms", lambda: self.mono_ms)
        monkeypatch.setattr(lease_file, "boot_ms", lambda: self.boot_ms)

    def passes(self, ms, *, asleep=False):
        self.boot_ms += ms
        self.mono_ms += 0 if asleep else ms


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


@pytest.fixture
def file(tmp_path):
    opened = os.open(tmp_path / "hold", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def looked(hold, clocks, ms, *, beats=None):
    """What a shim does over so long, looking every half second. `beats`: called before each look."""
    seen = []
    for _ in range(ms // 500):
        clocks.passes(500)
        if beats is not None:
            beats()
        seen.append(hold.look())
    return seen


def test_a_task_whose_agent_died_is_ended_before_the_lease_is_over(clocks, file):
    os.pwrite(file, written(clocks.mono_ms, clocks.boot_ms + LEASE_MS, LEASE_MS), 0)
    hold = Hold(file)
    assert set(looked(hold, clocks, 7_500)) == {RUN}
    assert looked(hold, clocks, 500) == [END]
    assert hold.grace_ms() == 1_000


def test_a_task_whose_agent_lives_and_is_cut_off_is_suspended_and_goes_on(clocks, file):
    until_ms = clocks.boot_ms + LEASE_MS

    def beat():
        os.pwrite(file, written(clocks.mono_ms, until_ms, LEASE_MS), 0)

    beat()
    hold = Hold(file)
    assert set(looked(hold, clocks, 8_500, beats=beat)) == {RUN}
    assert set(looked(hold, clocks, 60_000, beats=beat)) == {SUSPEND}
    until_ms = clocks.boot_ms + LEASE_MS
    assert looked(hold, clocks, 500, beats=beat) == [RUN]


def test_a_suspended_task_ends_once_its_agent_is_silent_too(clocks, file):
    os.pwrite(file, written(clocks.mono_ms + 20_000, clocks.boot_ms + LEASE_MS, LEASE_MS), 0)
    hold = Hold(file)
    seen = looked(hold, clocks, 24_000)
    assert seen[-1] == END
    assert seen.count(SUSPEND) > 10


def test_after_a_night_asleep_a_task_waits_for_its_agent_to_say_something(clocks, file):
    os.pwrite(file, written(clocks.mono_ms, clocks.boot_ms + LEASE_MS, LEASE_MS), 0)
    hold = Hold(file)
    clocks.passes(8 * 3_600_000, asleep=True)
    assert looked(hold, clocks, 500) == [SUSPEND]


def test_a_shim_that_was_paused_with_its_agent_gives_it_time_to_say_something(clocks, file):
    os.pwrite(file, written(clocks.mono_ms, clocks.boot_ms + LEASE_MS, LEASE_MS), 0)
    hold = Hold(file)
    clocks.passes(60_000)
    assert hold.look() == SUSPEND
    assert looked(hold, clocks, 4_000)[-1] == END


def test_a_task_whose_whole_cell_is_paused_is_suspended_until_the_cell_is_gone(clocks, file):
    cell = subprocess.Popen(["sleep", "600"])
    os.kill(cell.pid, signal.SIGSTOP)
    named = (cell.pid, start_ticks(cell.pid))
    os.pwrite(file, written(clocks.mono_ms, clocks.boot_ms + LEASE_MS, LEASE_MS, named), 0)
    hold = Hold(file)
    assert set(looked(hold, clocks, 60_000)) == {RUN, SUSPEND}
    cell.kill()
    os.waitid(os.P_PID, cell.pid, os.WEXITED | os.WNOWAIT)
    assert hold.look() == END  # Nobody has taken note of its end yet.
    cell.wait()
    assert hold.look() == END


def test_another_process_with_the_pid_of_the_cell_is_not_the_cell(clocks, file):
    pid, start = this_process()
    os.pwrite(file, written(clocks.mono_ms, clocks.boot_ms + LEASE_MS, LEASE_MS, (pid, start - 1)), 0)
    assert looked(Hold(file), clocks, 8_000)[-1] == END


def test_what_was_kept_in_order_waits_for_ever(clocks, file):
    os.pwrite(file, written(clocks.mono_ms, KEPT, LEASE_MS), 0)
    assert set(looked(Hold(file), clocks, 3_600_000)) == {RUN}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1\n2\n3\n0\n0\n",
        b"1\n2\n3\n0\n0\n1\n2\n4\n0\n0\n",
        b"x\n2\n3\n0\n0\nx\n2\n3\n0\n0\n",
        b"1\n2\n0\n0\n0\n1\n2\n0\n0\n0\n",
        b"1\n2\n3\n1\n2\n3\n",
    ],
)
def test_half_a_word_says_nothing(file, text):
    os.pwrite(file, text, 0)
    assert read(file) is None


def test_half_a_word_leaves_what_was_said_before(clocks, file):
    os.pwrite(file, written(clocks.mono_ms, clocks.boot_ms + LEASE_MS, LEASE_MS), 0)
    hold = Hold(file)
    assert hold.look() == RUN
    os.pwrite(file, b"9", 3)
    assert hold.look() == RUN


def test_a_restarted_agent_goes_on_from_what_was_said_before_it(tmp_path):
    first = Holding(tmp_path, LEASE_MS)
    first.put_off(lease_file.boot_ms() + 5_000, LEASE_MS)
    said = first.until_ms
    first.close()
    second = Holding(tmp_path, 60_000)
    assert (second.until_ms, second.lease_ms) == (said, LEASE_MS)
    second.keep()
    second.close()
    third = Holding(tmp_path, LEASE_MS)
    assert lease_file.boot_ms() < third.until_ms <= lease_file.boot_ms() + LEASE_MS
    third.close()


# ---------------------------------------------------------------- the cell's side
def test_what_could_not_be_heard_is_no_silence():
    leases = Leases()
    leases.renew("a", 0)
    leases.renew("b", 3_000)
    assert leases.silent(10_000, LEASE_MS) == ["a"]
    assert not leases.put_off(-1, LEASE_MS)
    assert not leases.put_off(4_000, LEASE_MS)
    assert leases.silent(13_999, LEASE_MS) == []
    assert leases.silent(14_000, LEASE_MS) == ["a"]
    assert leases.next_ms(LEASE_MS) == 14_000
    assert leases.put_off(6_000, LEASE_MS)  # So long that nobody could speak either.
