"""Attempts found again in their folders, whatever state an earlier agent, its shims or the machine left them in."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from largesse.lifecycle.node_work import HeldAttempt, Start
from schemas import Device, DeviceShare, Stage
from services.agent import shim
from services.agent.attempts import Attempts
from services.agent.documents import RESULT, STOP, TASK, claim, read_json, write_json
from services.agent.executors.process import PROCESS
from services.agent.forks import SHIM_PATH, SHIM_START
from services.agent.local import mono_ms
from services.agent.outbox import Result
from services.agent.proc import session_of, start_ticks
from services.agent.processes import KEY, attempt_key
from services.agent.settings import NodeSettings
from services.agent.starting import environment, task_of

NAME = "j/map/0/1"
SLEEPS = "import time; print(flush=True); time.sleep(1_000)"


def start(*, devices=(), **stage):
    held = HeldAttempt("j", "map", 0, 1, 5, "e.1", devices=list(devices))
    return Start(NAME, held, Stage("map", 1, {"cpu": 1}, **stage))


@pytest.fixture
def attempts(tmp_path):
    return lambda: Attempts(NodeSettings("n", tmp_path, cgroup="off"))


def prepared(attempts, **stage):
    """An attempt's folder with its task, as it is directly before the shim is spawned."""
    table = attempts()
    ((local, begun),) = table.prepare([start(**stage)])
    local.folder.mkdir(parents=True)
    ids = {"key": NAME, "job": "j", "stage": "map", "index": 0, "attempt": 1, "admitted": 5}
    if stage.get("command"):
        write_json(
            local.folder / TASK,
            {**ids, **task_of(begun, table.settings, table.executors[PROCESS].key(local), local.folder)},
        )
    else:
        write_json(local.folder / TASK, {**ids, "run_ms": begun.stage.durations_ms[0], "reason": None})
    return local.folder


def key_of(attempts, folder):
    """What processes of the attempt in a folder carry."""
    return attempt_key(attempts().executors[PROCESS].node, folder.parents[4], folder)


def found(attempts):
    table = attempts()
    table.scan()
    return table.by_key[NAME]


@contextmanager
def process(script=SLEEPS, *words, **env):
    """A process in a session of its own, for as long as it is needed, with `words` on its command line."""
    command = [sys.executable, "-S", "-c", script, *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **env}
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield running
        finally:
            running.kill()


def test_what_never_began_may_not_begin_any_more(attempts):
    folder = prepared(attempts, command=["touch", "begun"])

    local = found(attempts)
    subprocess.run([sys.executable, "-I", "-S", "-c", SHIM_START, SHIM_PATH, folder], check=True)

    assert (local.phase, local.result.reason) == ("ended", "lost")
    assert list(folder.glob("work/*")) == []
    assert (read_json(folder / RESULT) or {})["reason"] == "lost"


def test_what_is_stopped_before_it_has_begun_never_begins(tmp_path, monkeypatch):
    """However late its shim comes to claim it."""
    table = Attempts(NodeSettings("n", tmp_path, cgroup="off"))
    with process() as late:  # Has been forked, and has not come to the attempt yet.
        monkeypatch.setattr("services.agent.forks.Forks.spawn", lambda *_: (late.pid, start_ticks(late.pid)))
        table.launched(table.launch(table.prepare([start(command=["touch", "begun"])])))
        local = table.by_key[NAME]
        assert local.phase == "starting"
        table.stop(local, "killed", 0)

        subprocess.run([sys.executable, "-I", "-S", "-c", SHIM_START, SHIM_PATH, local.folder], check=True)

    assert list(local.folder.glob("work/*")) == []
    assert not (local.folder / RESULT).exists()


def test_a_folder_without_a_task_is_no_attempt(attempts):
    folder = prepared(attempts, command=["true"])
    (folder / TASK).unlink()

    table = attempts()
    table.scan()

    assert table.by_key == {}


def test_a_living_shim_is_adopted(attempts):
    folder = prepared(attempts, command=["true"])
    with process(SLEEPS, key_of(attempts, folder)) as running:
        ticks = start_ticks(running.pid)
        claim(folder, {"pid": running.pid, "start": ticks, "boot": shim.boot_id()})

        local = found(attempts)

        assert (local.phase, local.handle.pid, local.handle.ticks) == ("running", running.pid, ticks)


@pytest.mark.parametrize("other", [{"start": 1}, {"boot": "another"}, {}], ids=["later", "another boot", "another's"])
def test_a_process_that_only_has_the_number_is_not_the_shim(attempts, other):
    folder = prepared(attempts, command=["true"])
    with process(SLEEPS, "no key") as running:
        claim(folder, {"pid": running.pid, "start": start_ticks(running.pid), "boot": shim.boot_id(), **other})

        local = found(attempts)

        assert local.result.reason == "lost"
        assert running.poll() is None


def test_what_a_dead_shim_left_running_is_ended(attempts):
    folder = prepared(attempts, command=["true"])
    family = "import os, time; os.fork(); print(flush=True); time.sleep(1_000)"
    with process(family, **{KEY: key_of(attempts, folder)}) as running:
        claim(folder, {"pid": 1 << 22, "start": 1, "boot": shim.boot_id()})

        assert found(attempts).result.reason == "lost"

        assert running.wait(240) == -9
        over_s = time.monotonic() + 240
        while any(start_ticks(pid) for pid in session_of(running.pid)) and time.monotonic() < over_s:
            time.sleep(0.01)
        assert not any(start_ticks(pid) for pid in session_of(running.pid))


def test_a_result_that_was_left_is_the_result(attempts):
    folder = prepared(attempts, command=["true"])
    claim(folder, {"pid": 1 << 22, "start": 1, "boot": shim.boot_id()})
    write_json(folder / RESULT, {"state": "succeeded", "run_ms": 7, "exit_code": 0, "peak_mib": 3})

    assert found(attempts).result == Result(None, run_ms=7, exit_code=0, peak={"memory": 3})


def test_a_result_has_the_peak_of_cpu_that_was_measured(attempts):
    folder = prepared(attempts, command=["true"])
    claim(folder, {"pid": 1 << 22, "start": 1, "boot": shim.boot_id()})
    write_json(folder / RESULT, {"state": "succeeded", "run_ms": 7, "exit_code": 0, "cpu_ms": 9, "cpu_peak": 1_286})

    assert found(attempts).result == Result(None, run_ms=7, exit_code=0, peak={"cpu": 1_286}, cpu_ms=9)


def test_what_was_asked_to_stop_and_left_no_result_was_stopped(attempts):
    folder = prepared(attempts, command=["true"])
    claim(folder, {"pid": 1 << 22, "start": 1, "boot": shim.boot_id()})
    write_json(folder / STOP, {"reason": "revoked", "grace_ms": 0})

    assert found(attempts).result.reason == "revoked"


@pytest.mark.parametrize("boot", ["this", "another"])
def test_a_simulated_task_goes_on_where_its_time_stands(attempts, boot):
    folder = prepared(attempts, durations_ms=[10_000])
    now_ms, wall_ms = mono_ms(), time.time_ns() // 1_000_000
    if boot == "this":
        claim(folder, {"boot": shim.boot_id(), "mono_ms": now_ms - 4_000, "wall_ms": 0})
    else:
        claim(folder, {"boot": "another", "mono_ms": 0, "wall_ms": wall_ms - 4_000})

    local = found(attempts)

    assert local.phase == "running"
    assert now_ms + 5_900 <= local.handle.ends_ms <= mono_ms() + 6_100


def test_a_simulated_task_whose_time_ran_out_meanwhile_has_lasted_as_long_as_it_should(attempts):
    folder = prepared(attempts, durations_ms=[10_000])
    claim(folder, {"boot": shim.boot_id(), "mono_ms": mono_ms() - 20_000, "wall_ms": 0})
    table = attempts()
    table.scan()

    (local,) = table.look(mono_ms())

    assert local.result == Result(None, run_ms=10_000)
    assert attempts().scan() is None
    assert found(attempts).result == Result(None, run_ms=10_000)


def test_an_attempt_that_has_a_folder_is_not_started_again(attempts):
    folder = prepared(attempts, command=["true"])
    (folder / "kept").touch()
    table = attempts()
    table.found[folder] = True

    (local,) = table.launched(table.launch(table.prepare([start(command=["true"])])))

    assert local.result.reason == "lost"
    assert sorted(path.name for path in folder.iterdir()) == ["kept", TASK]


def test_a_folder_that_was_not_there_when_the_agent_began_was_made_by_a_task(attempts):
    table = attempts()
    table.scan()
    prepared(attempts, command=["true"])

    (local,) = table.launched(table.launch(table.prepare([start(command=["true"])])))

    assert (local.result.reason, local.result.detail) == (
        "cannot_start",
        "a task of the job has made a folder in its place",
    )


def test_what_is_launched_while_it_is_stopped_ends(attempts):
    table = attempts()
    prepared_starts = table.prepare([start(command=["sleep", "1000"])])
    outcomes = table.launch(prepared_starts)
    table.stop(prepared_starts[0][0], "killed", 0)

    table.launched(outcomes)

    ended, over_s = [], time.monotonic() + 240
    while not ended and time.monotonic() < over_s:
        time.sleep(0.01)
        ended = [local for local in table.look(mono_ms()) if local.phase == "ended"]  # It may have begun before.
    assert [local.result.reason for local in ended] == ["killed"]


FOLDER = Path("/data/jobs/j/5-e.1/s/0.1")


def test_where_results_go_and_come_from_is_told_to_the_task(tmp_path):
    node = NodeSettings("n", tmp_path)
    env = environment(start(env={"A": "1"}), node, FOLDER)
    assert env["LARGESSE_RESULTS"] == "/data/jobs/j/5-e.1/s/0.1/work"
    assert "LARGESSE_INPUTS" not in env
    assert environment(start(inputs=["a"]), node, FOLDER)["LARGESSE_INPUTS"] == "/data/jobs/j/5-e.1/#inputs"


def test_gpus_are_named_to_the_task(attempts, tmp_path):
    share = [DeviceShare(3, 1_000), DeviceShare(1, 500)]

    env = environment(start(devices=share, command=["true"]), NodeSettings("n", tmp_path), FOLDER)
    own = environment(start(devices=share, env={"CUDA_VISIBLE_DEVICES": "x"}), NodeSettings("n", tmp_path), FOLDER)

    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "3,1"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert own["CUDA_VISIBLE_DEVICES"] == "3,1", "no task has others than its own"


def test_a_task_without_gpus_sees_none_of_its_node(attempts, tmp_path):
    listed = NodeSettings("n", tmp_path, devices=[Device(0)])
    counted = NodeSettings("n", tmp_path, capacity={"cpu": 1_000, "gpu": 1_000})

    for node in (listed, counted):
        env = environment(start(env={"CUDA_VISIBLE_DEVICES": "0"}), node, FOLDER)
        assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("-1", "void")
    bare = environment(start(), NodeSettings("n", tmp_path), FOLDER)
    assert not [name for name in bare if "DEVICES" in name]


def test_devices_are_named_by_uuid_where_all_have_one(attempts, tmp_path):
    uuids = [Device(0, uuid="GPU-a"), Device(1), Device(101, 428, uuid="MIG-b")]
    node = NodeSettings("n", tmp_path, devices=uuids)

    def seen(*indexes):
        held = [DeviceShare(index, 1_000) for index in indexes]
        return environment(start(devices=held), node, FOLDER)["CUDA_VISIBLE_DEVICES"]

    assert seen(101, 0) == "MIG-b,GPU-a"
    assert seen(0, 1) == "0,1"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(b"nonsense\n", [], id="no word of ours"),
        pytest.param(b"started nobody/s/0/1\nended \xff\n", [], id="of nobody"),
        pytest.param(b"started j/map/0/1", [], id="half a line"),
        pytest.param(b"started j/map/0/1\nstarted j/map/0/1\n", ["running"], id="twice"),
    ],
)
def test_the_pipe_may_say_anything(attempts, line, words):
    table = attempts()
    table.prepare([start(command=["true"])])
    table.open_events()
    os.write(table.executors[PROCESS].events[1], line)

    assert [local.phase for local in table.hear()] == words
    table.close()


def test_the_pipe_speaks_of_commands_alone(attempts):
    table = attempts()
    table.prepare([start(durations_ms=[1_000])])
    table.open_events()
    os.write(table.executors[PROCESS].events[1], b"started j/map/0/1\nended j/map/0/1\n")

    assert table.hear() == []
    table.close()


def test_an_end_that_is_told_twice_counts_once(attempts):
    folder = prepared(attempts, command=["true"])
    write_json(folder / RESULT, {"state": "succeeded", "run_ms": 7, "exit_code": 0})
    table = attempts()
    ((local, _),) = table.prepare([start(command=["true"])])
    table.open_events()
    os.write(table.executors[PROCESS].events[1], b"ended j/map/0/1\nended j/map/0/1\n")

    assert table.hear() == [local]
    assert table.hear() == []
    table.close()
