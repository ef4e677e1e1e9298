"""The library's client and its executor against a cell that runs tasks."""

import os
import sys
import threading
from concurrent.futures import CancelledError, as_completed, wait
from time import monotonic

import pytest

from largesse.client import Client, JobFailed, JobSpec, Stage
from largesse.client.executor import LargesseExecutor
from largesse.client.payload import PAYLOAD_BYTES_MAX, PayloadTooLarge, RemoteError, RemoteTraceback, TaskFailed
from tests.live.up_process import GUARD_S, eventually

SMALL = {"cpu": "100m", "memory": "64Mi"}
pytestmark = pytest.mark.slow


@pytest.fixture
def ask(cell):
    with Client(cell.url) as client:
        yield client


@pytest.fixture
def pool(cell):
    with LargesseExecutor(cell.url, demand=SMALL) as executor:
        yield executor


def shell(text, **more):
    return JobSpec(stages=[Stage(stage="run", tasks=1, demand=SMALL, command=["sh", "-c", text], **more)])


# ---------------------------------------------------------------- the client
def test_commands_are_mapped_to_tasks_and_their_output_is_read(ask):
    job = ask.map(["echo 'a b'; echo c", ["printf", "%s", "$HOME ' \" x"]], demand=SMALL)["job"]
    last = ask.wait(job, timeout_s=GUARD_S)

    assert last["tasks"]["succeeded"] == 2
    assert dict(ask.job_logs(job)) == {"map/0": b"a b\nc\n", "map/1": b"$HOME ' \" x"}


def test_output_is_followed_until_the_job_has_ended(ask):
    job = ask.submit(shell("echo one; sleep 1; echo two; echo err >&2"))["job"]

    assert b"".join(ask.logs(job, "run", follow=True)) == b"one\ntwo\n"
    assert b"".join(ask.logs(job, "run", stream="stderr")) == b"err\n"


def test_results_are_listed_and_fetched(ask):
    job = ask.submit(shell("mkdir d; printf 'x%.0s' $(seq 100000) > d/f"))["job"]
    ask.wait(job)
    rows = list(ask.results(job))

    assert [(row.get("path"), row.get("kind"), row.get("size")) for row in rows] == [
        (None, None, None),
        ("d", "folder", None),
        ("d/f", "file", 100_000),
    ]
    assert {"attempt", "left_out"} <= rows[0].keys()
    assert ask.result(job, "run", 0, "d/f") == b"x" * 100_000


def test_a_job_that_failed_is_an_error_with_its_document(ask):
    job = ask.submit(shell("exit 3"))["job"]

    with pytest.raises(JobFailed) as found:
        ask.wait(job)
    assert found.value.job["failures"][0]["exit_code"] == 3
    assert ask.rerun(job)["state"] == "waiting"
    assert ask.wait(job, check=False)["run"] == 2


# ---------------------------------------------------------------- the executor
def test_results_come_in_order_by_one_job_with_a_task_a_chunk(pool, ask):
    before = {each["job"] for each in ask.jobs()}

    assert list(pool.map(lambda x, y: x * y, range(30), range(1, 31), chunksize=7)) == [x * (x + 1) for x in range(30)]
    assert [each["tasks"]["total"] for each in ask.jobs() if each["job"] not in before] == [5]


def test_functions_and_arguments_of_any_kind_travel(pool):
    class Point:
        def __init__(self, x):
            self.x = x

    factor = 3
    found = pool.submit(lambda point, *, more: Point(point.x * factor + more), Point(2), more=1).result(GUARD_S)
    there = pool.submit(lambda: (os.environ["LARGESSE_STAGE"], "PICKLED_CALLS_0" in os.environ)).result(GUARD_S)

    assert (found.x, there) == (7, ("calls", False))


def test_an_exception_comes_back_with_its_traceback_and_keeps_no_other_call(pool):
    class Odd(Exception):
        def __reduce__(self):
            raise TypeError("cannot be pickled")

    def checked(x):
        if x == 1:
            raise KeyError("one", x)
        if x == 2:
            raise Odd("a word")
        if x == 3:
            sys.exit("leaves")
        return x

    futures = [pool.submit(checked, x) for x in range(5)]
    errors = [each.exception(GUARD_S) for each in futures]

    assert [futures[i].result() for i in (0, 4)] == [0, 4]
    assert (type(errors[1]), errors[1].args) == (KeyError, ("one", 1))
    assert type(errors[1].__cause__) is RemoteTraceback
    assert "in checked" in str(errors[1].__cause__)
    assert (type(errors[2]), "a word" in str(errors[2])) == (RemoteError, True)
    assert (type(errors[3]), errors[3].args) == (SystemExit, ("leaves",))


def test_a_task_that_dies_is_run_again_as_its_retries_say(cell):
    def dies_once():
        if os.environ["LARGESSE_ATTEMPT"] == "1":
            os._exit(9)
        return os.environ["LARGESSE_ATTEMPT"]

    def dies(x):
        print("last words", file=sys.stderr, flush=True)
        return os._exit(9) if x else "well"

    stage = Stage(stage="calls", demand=SMALL, retries=1)
    with LargesseExecutor(cell.url, demand=SMALL, stage=stage) as pool:
        assert pool.submit(dies_once).result(GUARD_S) == "2"
        well, dead = pool.submit(dies, 0), pool.submit(dies, 1)
        assert well.result(GUARD_S) == "well"
        with pytest.raises(TaskFailed, match=r"calls/1 failed: exit_code: .*9(.|\n)*last words"):
            dead.result(GUARD_S)


def test_results_come_as_tasks_end_and_not_with_the_job(pool, tmp_path):
    go = tmp_path / "go"

    def waits(path):
        from pathlib import Path
        from time import sleep

        while path and not Path(path).exists():
            sleep(0.05)
        return path

    slow, quick = pool.submit(waits, str(go)), pool.submit(waits, "")
    assert next(as_completed([slow, quick], GUARD_S)) is quick
    go.touch()
    assert slow.result(GUARD_S) == str(go)


def test_calls_that_nobody_waits_for_are_cancelled_with_their_job(cell, ask):
    with LargesseExecutor(cell.url, demand=SMALL, job=JobSpec(job="longs")) as pool:
        futures = [pool.submit(__import__("time").sleep, 600) for _ in range(2)]
        (job,) = eventually(lambda: [each["job"] for each in ask.jobs(q="longs")])
        assert futures[0].cancel()
        assert ask.get(job)["ended_ms"] is None
        pool.shutdown(wait=True, cancel_futures=True)

    assert [each.cancelled() for each in futures] == [True, True]
    assert wait(futures, GUARD_S).not_done == set()
    assert ask.get(job)["state"] == "cancelled"
    with pytest.raises(CancelledError):
        futures[1].result()
    with pytest.raises(RuntimeError):
        pool.submit(int)


def test_limits_are_named_and_hit_one_call_alone(pool):
    data = os.urandom(PAYLOAD_BYTES_MAX + 1)
    much, little, lock = pool.submit(len, data), pool.submit(len, data[:300_000]), pool.submit(len, threading.Lock())

    assert little.result(GUARD_S) == 300_000
    with pytest.raises(PayloadTooLarge, match=f"at most {PAYLOAD_BYTES_MAX}"):
        much.result(GUARD_S)
    assert isinstance(lock.exception(GUARD_S), TypeError)


def test_a_node_without_the_interpreter_says_so(cell):
    with LargesseExecutor(cell.url, demand=SMALL, python="/no/such/python") as pool:
        error = pool.submit(int).exception(GUARD_S)

    assert isinstance(error, TaskFailed)
    assert "cannot_start" in str(error)


def test_a_thousand_calls_are_a_few_jobs(cell, ask):
    before = {each["job"] for each in ask.jobs()}
    begun = monotonic()
    with LargesseExecutor(cell.url, demand=SMALL) as pool:
        futures = [pool.submit(pow, i, 2) for i in range(40)]
        assert wait(futures, GUARD_S).not_done == set()

    assert [each.result() for each in futures] == [i * i for i in range(40)]
    made = [each["tasks"]["total"] for each in ask.jobs() if each["job"] not in before]
    assert (sum(made), len(made) <= 4) == (40, True), made
    assert monotonic() - begun < GUARD_S
