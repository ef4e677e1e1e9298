"""Containers on a real engine: limits that hold and are told as such, stops, leases, and guardians that are killed."""

import os
import signal
import time
from dataclasses import replace

import pytest

from largesse.lifecycle.node_work import HeldAttempt, Start
from largesse.task_output import Wanted
from schemas import Container, Mount, Stage
from services.agent import lease_file
from services.agent.attempts import Attempts
from services.agent.container_settings import AllowedMount, ContainerSettings
from services.agent.container_task import container_name
from services.agent.documents import CLAIM, read_json
from services.agent.engine import AUTO, Engine
from services.agent.executors.container import CONTAINER
from services.agent.settings import NodeSettings
from services.agent.task_output import read_piece
from tests.contract.test_executors import Agents, kept
from tests.engine import IMAGE, engine_missing

pytestmark = [pytest.mark.docker, pytest.mark.slow]

PYTHON = "python:3.12-slim"


class Cell(Agents):
    """`more`: settings of the node."""

    def __init__(self, data, **more):
        self.hold = None
        self.settings = NodeSettings("n", data, containers=ContainerSettings(AUTO), cpu_limit="none", **more)
        super().__init__(data, AUTO)

    def _begin(self):
        table = Attempts(self.settings, hold=self.hold)
        table.open_events()
        table.scan()
        return table

    def run(self, *command, container=None, index=0, **stage):
        """Starts one attempt of this command."""
        demand = {"cpu": 100, "memory": 64} | stage.pop("demand", {})
        each = Stage("s", 10, demand, command=list(command), container=container or Container(IMAGE), **stage)
        start = Start(f"j/s/{index}/1", HeldAttempt("j", "s", index, 1, 5, "e.1"), each)
        prepared = self.table.prepare([start])
        self.note(self.table.launched(self.table.launch(prepared)))
        return prepared[0][0]

    def ended(self, *command, **more):
        """Starts one and sees it end."""
        local = self.run(*command, **more)
        self.until_ended(local)
        return local.result

    def printed(self, index=0, stream="stdout"):
        piece = read_piece(self.data, Wanted("j", "s", index, stream=stream))
        return "" if piece is None else piece.data.decode()

    def containers(self):
        engine = Engine(AUTO)
        try:
            return engine.containers(self.executor.node.rstrip("/"))
        finally:
            engine.close()

    @property
    def executor(self):
        return self.table.executors[CONTAINER]


@pytest.fixture
def cell(tmp_path, request):
    if why := engine_missing() or engine_missing(PYTHON):
        pytest.skip(why)
    (tmp_path / "data").mkdir()
    cell = Cell(tmp_path / "data", **getattr(request, "param", {}))
    yield cell
    for local in cell.table.by_key.values():
        cell.table.stop(local, "killed", 0)
    cell.until(lambda: not cell.table.alive)
    cell.until(lambda: not cell.containers())
    cell.table.close()


# ---------------------------------------------------------------- limits


def test_more_memory_than_asked_for_ends_a_container_as_memory(cell):
    hog = "a = []\nwhile True: a.append(bytearray(1 << 20))"
    result = cell.ended("python3", "-c", hog, container=Container(PYTHON))

    assert (result.reason, result.exit_code) == ("memory", None)
    assert result.detail == "used more than the 64 MiB of memory it may"
    assert result.peak["memory"] == 64


@pytest.mark.parametrize("cell", [{"task_pids": 20}], indirect=True)
def test_a_fork_bomb_is_refused_more_processes_than_it_may_have(cell):
    bomb = "i=0; while [ $i -lt 200 ]; do sleep 3 & i=$((i+1)); done; wait"
    result = cell.ended("sh", "-c", bomb)

    assert result.reason == "exit_code"
    assert result.detail.endswith("it was refused more than its 20 processes and threads")
    assert "fork" in cell.printed(stream="stderr")


def test_what_ignores_a_stop_is_killed_after_the_grace_at_its_time_limit(cell):
    cell.settings = replace(cell.settings, stop_grace_ms=500)
    cell.again()
    result = cell.ended("sh", "-c", "trap '' TERM; echo on; while :; do sleep 1; done", timeout_ms=1_500)

    assert (result.reason, result.exit_code) == ("timeout", 137)
    assert result.run_ms >= 2_000
    assert cell.printed() == "on\n"


def test_what_hears_a_stop_ends_by_itself(cell):
    local = cell.run("sh", "-c", "trap 'echo bye; exit 7' TERM; echo on; while :; do sleep 0.1; done")
    cell.until(lambda: cell.printed() == "on\n")
    cell.stop(local, "revoked", 60_000)
    cell.until_ended(local)

    assert (local.result.reason, local.result.exit_code) == ("revoked", 7)
    assert cell.printed() == "on\nbye\n"


def test_peak_and_cpu_time_are_as_the_kernel_has_them(cell):
    work = (
        "import resource, time\n"
        "a = bytearray(100 << 20)\n"
        "while time.process_time() < 1: pass\n"
        "u = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(u.ru_maxrss // 1024, round((u.ru_utime + u.ru_stime) * 1000))"
    )
    result = cell.ended("python3", "-c", work, container=Container(PYTHON), demand={"memory": 256})

    assert result.reason is None
    peak_mib, cpu_ms = map(int, cell.printed().split())
    assert result.peak["memory"] == pytest.approx(peak_mib, rel=0.10)  # That counts pages of files, too.
    assert result.cpu_ms >= cpu_ms
    assert result.cpu_ms == pytest.approx(cpu_ms, rel=0.25)  # Its first process and the start of the container as well.


# ---------------------------------------------------------------- what it sees


def test_a_container_sees_what_it_was_given_and_nothing_else(cell, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "word").write_text("hello")
    containers = ContainerSettings(AUTO, (AllowedMount(f"{tmp_path}/open"),))
    cell.settings = replace(cell.settings, containers=containers)
    cell.again()
    box = Container(IMAGE, [Mount(f"{tmp_path}/open", "/in")], network="none", read_only_root=True, shm_mib=7)
    look = (
        "cat /in/word; touch /in/no 2>/dev/null || echo; touch /no 2>/dev/null || echo fixed;"
        "touch /tmp/yes && echo yes;"
        "df -m --output=size /dev/shm | tail -1 | tr -d ' '; ls /sys/class/net | tr '\\n' ' '; echo; pwd;"
        "echo left > left; echo $LARGESSE_TASK_INDEX"
    )
    local = cell.run("sh", "-c", look, container=box)
    cell.until_ended(local)

    assert local.result.reason is None, local.result.detail
    assert cell.printed() == "hello\nfixed\nyes\n7\nlo \n/largesse/results\n0\n"
    assert (local.folder / "work" / "left").read_text() == "left\n"


def test_what_cannot_start_says_why(cell):
    missing = cell.ended("no-such-program")
    assert (missing.reason, missing.exit_code) == ("cannot_start", 127)
    assert "no-such-program" in missing.detail
    image = cell.ended("true", container=Container("largesse-test/none:1", pull="never"), index=1)
    assert image.reason == "cannot_start"
    assert "largesse-test/none:1" in image.detail
    barred = cell.ended("true", container=Container(IMAGE, network="host"), index=2)
    assert (barred.reason, barred.detail) == ("cannot_start", "node n does not allow network host")


# ---------------------------------------------------------------- guardians that are killed


def test_a_container_whose_shim_is_killed_is_ended_and_lost(cell):
    local = cell.run("sh", "-c", "echo hello; exec sleep 1000")
    cell.until(lambda: cell.printed() == "hello\n")

    os.kill(read_json(local.folder / CLAIM)["pid"], signal.SIGKILL)
    cell.until_ended(local)

    assert local.result.reason == "lost"
    assert cell.containers() == []


def test_a_container_whose_attendant_is_killed_is_ended_and_lost(cell):
    local = cell.run("sh", "-c", "echo hello; exec sleep 1000")
    cell.until(lambda: cell.printed() == "hello\n")

    os.kill(read_json(local.folder / "child.json")["pid"], signal.SIGKILL)
    cell.until_ended(local)

    assert local.result.reason == "lost"
    assert "what attended its container was ended" in local.result.detail
    cell.until(lambda: cell.containers() == [])


def test_a_container_ends_with_its_shim_where_no_agent_is_there(cell):
    local = cell.run("sh", "-c", "echo hello; exec sleep 1000")
    cell.until(lambda: cell.printed() == "hello\n")
    cell.table.close()

    os.kill(read_json(local.folder / CLAIM)["pid"], signal.SIGKILL)
    over_s = time.monotonic() + 120
    while cell.containers():
        assert time.monotonic() < over_s
        time.sleep(0.1)

    (found,) = cell.again().by_key.values()
    assert (found.result.reason, kept(found).reason) == ("lost", "lost")


def test_what_shim_and_attendant_and_agent_have_left_the_next_agent_ends(cell):
    local = cell.run("sh", "-c", "echo hello; exec sleep 1000")
    cell.until(lambda: cell.printed() == "hello\n")
    cell.table.close()
    shim, attendant = read_json(local.folder / CLAIM)["pid"], read_json(local.folder / "child.json")["pid"]
    for pid in (attendant, shim):
        os.kill(pid, signal.SIGSTOP)
    for pid in (attendant, shim):
        os.kill(pid, signal.SIGKILL)
    assert [found.running for found in cell.containers()] == [True]

    (found,) = cell.again().by_key.values()

    assert found.result.reason == "lost"
    assert cell.containers() == []


def test_a_container_of_that_name_is_not_made_twice(cell):
    local = cell.run("sh", "-c", "echo hello; exec sleep 1000")
    cell.until(lambda: has_printed_hello(cell))
    name = container_name(cell.executor.key(local))
    assert [found.name for found in cell.containers()] == [name]

    from services.agent.engine_socket import CONFLICT, EngineRefused, Line

    with pytest.raises(EngineRefused) as why:
        Line("/var/run/docker.sock").ask("POST", f"/containers/create?name={name}", {"Image": IMAGE})
    assert why.value.status == CONFLICT


def has_printed_hello(cell):
    return cell.printed() == "hello\n"


# ---------------------------------------------------------------- the lease


def test_a_container_is_suspended_and_ended_with_the_lease_of_its_node(cell, tmp_path):
    hold, lease_ms = tmp_path / "hold", 6_000

    def say(until_ms, beat_ms):
        hold.write_bytes(lease_file.written(beat_ms, until_ms, lease_ms))

    say(lease_file.boot_ms() + 100_000, lease_file.mono_ms())
    cell.hold = str(hold)
    cell.again()
    local = cell.run("sh", "-c", "echo hello; while :; do sleep 0.1; done")
    cell.until(lambda: has_printed_hello(cell))
    name = container_name(cell.executor.key(local))

    say(lease_file.boot_ms() + 500, lease_file.mono_ms() + 100_000)  # The agent lives, and was not heard.
    cell.until(lambda: state(name)["Paused"])
    say(lease_file.boot_ms() + 100_000, lease_file.mono_ms())
    cell.until(lambda: not state(name)["Paused"])
    assert local.phase == "running"

    say(lease_file.boot_ms() + 500, lease_file.mono_ms() - 100_000)  # It is dead.
    cell.until_ended(local)
    assert local.result.reason == "lost"
    assert "its agent was silent" in local.result.detail


def state(name):
    engine = Engine(AUTO)
    try:
        with engine.asked() as client:
            return client.inspect_container(name)["State"]
    finally:
        engine.close()
