"""Shims that come from a fork server: as those that have an interpreter of their own, and begun once whatever dies."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from largesse.lifecycle.node_work import HeldAttempt, Start
from schemas import Stage
from services.agent import fork_server, forks, processes
from services.agent.attempts import Attempts
from services.agent.documents import CHILD
from services.agent.executors.process import PROCESS
from services.agent.proc import start_ticks
from services.agent.settings import NodeSettings
from tests.live.agent_cell import AgentProcess, eventually, is_alive, outcome_of
from tests.live.test_agent_restarts import go, once, ran, running

GUARD_S = 60
FRESH = itertools.count(100)
"""Indexes that no test names."""
HEARD_BY_SHIMS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
SURROUNDINGS = """
umask; pwd | sed 's/[0-9]*\\.[0-9]*.work$//'; env | grep -v -e _INDEX -e _RESULTS -e KEY -e PWD | sort
grep -E '^(Sig[^Q]|Shd|NoNewPrivs|Groups|Uid|Gid)' /proc/self/status; ulimit -a
for number in 0 1 2 3 4 5 6 7 8 9; do test -e /proc/$$/fd/$number && echo $number; done
ps -o sid=,pid= $$ | awk '{print $1 == $2}'
"""


@pytest.fixture
def attempts(tmp_path, monkeypatch):
    monkeypatch.setattr(forks, "IDLE_S", 600)  # Whatever the machine has to do meanwhile.
    (tmp_path / "data").mkdir()
    table = Attempts(NodeSettings("n", tmp_path / "data", cgroup="off"))
    table.open_events()
    table.scan()
    yield table
    for local in table.by_key.values():
        table.stop(local, "killed", 0)
    until(table, lambda: not table.alive)
    table.close()


def shims(table):
    """What runs the commands of a table."""
    return table.executors[PROCESS]


def begin(table, *indexes, script="true", environment=None):
    """Starts attempts; they have begun as far as the agent knows."""
    stage = Stage("s", 1_000, {"cpu": 1}, command=["sh", "-c", script], env=environment or {})
    return begin_all(
        table, [Start(f"j/s/{index}/1", HeldAttempt("j", "s", index, 1, 5, "e.1"), stage) for index in indexes]
    )


def begin_all(table, starts):
    outcomes = table.launch(table.prepare(starts))
    table.launched(outcomes)
    assert [outcome.trouble for outcome in outcomes if outcome.trouble] == []
    return [outcome.local for outcome in outcomes]


def until(table, holds: Callable[[], bool]) -> None:
    over = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < over
        table.hear()
        table.look(time.monotonic_ns() // 1_000_000)
        time.sleep(0.01)


def begin_with(table, shim, script="true"):
    """Starts attempts until one is guarded by that shim, which is said to be idle a moment before it can be used."""
    for index in itertools.islice(FRESH, 100):
        (local,) = begin(table, index, script=script)
        if local.handle.pid == shim:
            return local
    raise AssertionError("it took on nothing")


def ends(table, locals_):
    until(table, lambda: all(local.phase == "ended" for local in locals_))
    return {local.result.reason for local in locals_}


def opened(pid: int) -> list[str]:
    """What a process has open, by kind."""
    kinds = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        kinds.append(f"{entry.name} {entry.readlink()}".partition(":[")[0].replace(str(pid), "PID"))
    return sorted(kinds)


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")


def alone(table, monkeypatch) -> None:
    """From here on there is no fork server."""
    shims(table).forks.close()
    monkeypatch.setattr(shims(table), "forks", forks.Forks(table.settings.data))
    monkeypatch.setattr(forks, "SERVER_START", "raise SystemExit(1)")


def test_a_shim_that_was_forked_has_open_what_one_with_its_own_interpreter_has(attempts, monkeypatch):
    forked = begin(attempts, 0, 1, 2, script="sleep 1000")
    until(attempts, lambda: all(local.phase == "running" for local in forked))
    assert shims(attempts).forks.pid is not None
    alone(attempts, monkeypatch)
    (spawned,) = begin(attempts, 3, script="sleep 1000")
    until(attempts, lambda: spawned.phase == "running")
    assert shims(attempts).forks.pid is None

    def seen(local):
        """By kind, whatever their numbers; and what errors of the shim's own go to."""
        lines = [line.replace(f"/{local.name.index}.1/", "/INDEX/") for line in opened(local.handle.pid)]
        return sorted(line.partition(" ")[2] for line in lines if not line.startswith("2 "))

    assert [seen(local) for local in forked] == [sorted([*seen(spawned), "socket"])] * 3


def test_a_command_finds_the_same_around_it_either_way(attempts, monkeypatch):
    old = os.umask(0o027)
    try:
        (forked,) = begin(attempts, 0, script=SURROUNDINGS)
        alone(attempts, monkeypatch)
        (spawned,) = begin(attempts, 1, script=SURROUNDINGS)
        assert ends(attempts, [forked, spawned]) == {None}
    finally:
        os.umask(old)

    said = (forked.folder / "stdout").read_text()
    assert said == (spawned.folder / "stdout").read_text()
    assert said.startswith("0027\n")
    assert said.endswith("\n0\n1\n2\n1\n")
    (ignored,) = [int(line.split()[1], 16) for line in said.splitlines() if line.startswith("SigIgn:")]
    assert [number for number in HEARD_BY_SHIMS if ignored & (1 << (number - 1))] == []


def test_a_program_is_found_as_a_shell_finds_it(attempts, tmp_path):
    for folder, name in (("first", "other"), ("second", "tool"), ("third", "tool")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / name).chmod(0o755)
    (tmp_path / "second" / "tool").chmod(0o644)
    path = ":".join(str(tmp_path / folder) for folder in ("none", "first", "second", "third"))
    stage = Stage("s", 1_000, {"cpu": 1}, command=["tool"], env={"PATH": path})
    lost = Stage("s", 1_000, {"cpu": 1}, command=["nowhere"], env={"PATH": path})
    found, missing = begin_all(
        attempts,
        [
            Start(f"j/s/{index}/1", HeldAttempt("j", "s", index, 1, 5, "e.1"), each)
            for index, each in enumerate((stage, lost))
        ],
    )

    ends(attempts, [found, missing])

    assert (found.folder / "stdout").read_text() == "third\n"
    assert (missing.result.reason, missing.result.exit_code) == ("cannot_start", 127)
    assert missing.result.detail == "cannot execute nowhere: No such file or directory"


def test_what_prints_nothing_leaves_no_files_of_its_output(attempts):
    silent, loud = begin(attempts, 0)[0], begin(attempts, 1, script="echo out; echo err >&2")[0]

    assert ends(attempts, [silent, loud]) == {None}

    names = {path.name for path in silent.folder.iterdir()} - {CHILD}  # Which a command that is not brief has.
    assert names == {"task.json", "claim.json", "result.json", "work"}
    assert ((loud.folder / "stdout").read_text(), (loud.folder / "stderr").read_text()) == ("out\n", "err\n")


def test_a_brief_command_is_heard_of_once_with_start_and_end(attempts):
    (brief,) = begin(attempts, 0)
    over = time.monotonic() + GUARD_S
    while brief.phase != "ended":
        assert time.monotonic() < over
        heard = attempts.hear()
        time.sleep(0.01)

    assert heard[-1] is brief
    assert brief.unsaid, "nobody was told that it began"


def test_processes_say_what_they_are(attempts):
    (local,) = begin(attempts, 0, script="sleep 1000")
    until(attempts, lambda: local.phase == "running")

    assert words_of(shims(attempts).forks.pid) == ["largesse-forks", str(attempts.settings.data)]
    assert words_of(local.handle.pid)[:2] == ["largesse-shim", str(local.folder)]
    assert Path(f"/proc/{local.handle.pid}/comm").read_text() == "largesse-shim\n"
    assert Path(f"/proc/{local.handle.pid}/stat").read_text().split()[3] == str(os.getpid()), "not a child of its agent"


def test_a_shim_guards_one_attempt_after_the_other_each_as_if_it_were_the_first(attempts, tmp_path):
    old = os.umask(0o027)
    try:
        (first,) = begin(attempts, 0, script=SURROUNDINGS)
        assert ends(attempts, [first]) == {None}
        others = []
        for _ in range(3):
            others.append(begin_with(attempts, first.handle.pid, script=SURROUNDINGS))
            assert ends(attempts, others) == {None}
    finally:
        os.umask(old)

    assert {(local.folder / "stdout").read_text() for local in others} == {(first.folder / "stdout").read_text()}


def test_what_a_shim_measures_is_of_its_present_attempt_alone(attempts):
    (large,) = begin(attempts, 0, script="head -c 60000000 /dev/zero | tail -c 60000000 > /dev/null; exit 3")
    ends(attempts, [large])
    small = begin_with(attempts, large.handle.pid)
    ends(attempts, [small])

    assert large.result.peak["memory"] > 50 > small.result.peak["memory"]
    assert (large.result.exit_code, small.result.exit_code) == (3, 0)


def test_a_stop_that_comes_late_does_not_reach_the_next_attempt_of_a_shim(attempts):
    (first,) = begin(attempts, 0)
    until(attempts, lambda: processes.has_moved_on(first.handle.pid, shims(attempts).key(first)))
    second = begin_with(attempts, first.handle.pid, script="sleep 1000")
    until(attempts, lambda: second.phase == "running")

    first.phase = "running"  # As if its last word had not come yet.
    attempts.stop(first, "killed", 0)
    first.handle.force_ms = 0
    attempts.look(time.monotonic_ns() // 1_000_000)
    until(attempts, lambda: first.phase == "ended")

    assert first.result.reason is None
    time.sleep(0.2)
    attempts.look(time.monotonic_ns() // 1_000_000)
    assert second.phase == "running"
    assert start_ticks(second.handle.pid) == second.handle.ticks


def test_shims_that_wait_end_with_their_server(attempts):
    (local,) = begin(attempts, 0)
    until(attempts, lambda: processes.has_moved_on(local.handle.pid, shims(attempts).key(local)))

    shims(attempts).forks.close()

    until(attempts, lambda: start_ticks(local.handle.pid) is None)


def test_an_idle_shim_that_was_killed_starts_nothing_and_is_not_waited_for(attempts):
    (local,) = begin(attempts, 0)
    until(attempts, lambda: processes.is_idle(local.handle.pid, attempts.settings.data))
    os.kill(local.handle.pid, signal.SIGKILL)

    (other,) = begin(attempts, 1)

    assert ends(attempts, [other]) == {None}
    assert other.handle.pid != local.handle.pid


def test_an_idle_shim_that_does_not_answer_is_ended_with_its_server(attempts, monkeypatch):
    monkeypatch.setattr(forks, "ANSWER_S", 0.3)
    (local,) = begin(attempts, 0)
    until(attempts, lambda: processes.is_idle(local.handle.pid, attempts.settings.data))
    os.kill(local.handle.pid, signal.SIGSTOP)

    (other,) = begin(attempts, 1)

    assert ends(attempts, [other]) == {None}
    assert start_ticks(local.handle.pid) is None


def test_every_task_runs_once_while_servers_are_killed(attempts, monkeypatch, tmp_path):
    monkeypatch.setattr(forks, "PAUSE_S", 0)  # Some are killed before they serve.
    over, killed = threading.Event(), set()

    def kill():
        while not over.wait(0.05):
            if (pid := shims(attempts).forks.pid) is not None and start_ticks(pid) is not None:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        started = begin(attempts, *range(200), script=f'echo "$LARGESSE_TASK_INDEX" >> {tmp_path}/ran')
    finally:
        over.set()
        killer.join()

    assert ends(attempts, started) == {None}
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(200))
    assert len(killed) > 5


@pytest.mark.parametrize("script", ["sleep 1000", "true"])
def test_what_a_server_has_begun_before_it_died_is_seen_as_begun(attempts, monkeypatch, script):
    server = shims(attempts).forks
    ask, answers = server._ask, []

    def asked(request, events):
        answers.append(ask(request, events))
        folder = Path(os.fsdecode(request.partition(b"\0")[0]))
        while not (folder / "claim.json").exists():
            time.sleep(0.01)  # Before that it has begun nothing, and is rightly asked for again.
        if script == "true":
            while not processes.is_idle(answers[-1], attempts.settings.data):
                time.sleep(0.01)
            assert (folder / "result.json").exists()
        os.kill(server.pid, signal.SIGKILL)
        return

    monkeypatch.setattr(server, "_ask", asked)
    (local,) = begin(attempts, 0, script=script)

    assert [local.handle.pid] == answers
    until(attempts, lambda: local.phase == ("ended" if script == "true" else "running"))
    assert local.result is None or local.result.reason is None


def test_a_server_that_does_not_answer_is_replaced(attempts, monkeypatch):
    monkeypatch.setattr(forks, "ANSWER_S", 2)
    assert ends(attempts, begin(attempts, 0)) == {None}
    stuck = shims(attempts).forks.pid
    os.kill(stuck, signal.SIGSTOP)

    assert ends(attempts, begin(attempts, 1)) == {None}
    assert shims(attempts).forks.pid not in (stuck, None)
    assert start_ticks(stuck) is None


def test_without_a_server_tasks_start_all_the_same(attempts, monkeypatch, capsys):
    alone(attempts, monkeypatch)

    assert ends(attempts, begin(attempts, 0, 1)) == {None}
    assert shims(attempts).forks.pid is None
    assert capsys.readouterr().err.count("tasks start without a fork server for now") <= 1


def test_a_server_ends_with_its_agent_and_leaves_nothing(attempts):
    (local,) = begin(attempts, 0, script="sleep 1000")
    until(attempts, lambda: local.phase == "running")
    server = shims(attempts).forks.pid

    shims(attempts).forks.close()

    assert start_ticks(server) is None
    assert start_ticks(local.handle.pid) == local.handle.ticks


def test_a_request_beyond_the_limit_starts_without_the_server(attempts, monkeypatch):
    monkeypatch.setattr(fork_server, "REQUEST_BYTES_MAX", 50)

    assert ends(attempts, begin(attempts, 0)) == {None}
    assert shims(attempts).forks.pid is None


def servers_of(data: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and is_alive(int(entry.name)):
            try:
                if words_of(int(entry.name)) == ["largesse-forks", str(data)]:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_shim_outlives_server_and_agent_and_is_adopted(tell, tmp_path):
    async def story(cell):
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await agent.start()
            await cell.submit("j", once(tmp_path, 2))
            pids = await running(tmp_path, "0-1", "1-1")
            (server,) = servers_of(agent.data)
            os.kill(server, signal.SIGKILL)
            (tmp_path / "k").mkdir()
            await cell.submit("k", once(tmp_path / "k", 1))
            await eventually(lambda: [pid for pid in servers_of(agent.data) if pid != server])
            await agent.kill()
            await eventually(lambda: not servers_of(agent.data))
            assert all(is_alive(pid) for pid in pids)

            await agent.start()
            go(tmp_path, 0, 1)
            go(tmp_path / "k", 0)
            assert await outcome_of(cell) == "succeeded"
            assert ran(tmp_path) == ["0-1", "1-1"]

    tell(story)
