"""The nodes and tasks topics: what agents may say, and what it comes to."""

import pytest

from schemas.edge.base import BATCH_MAX, TASKS_MAX
from schemas.edge.known_attempts import DETAIL_MAX
from schemas.edge.nodes import ADDRESS_MAX, DEVICES_MAX, NodeLeft
from schemas.edge.read import Malformed, read_input
from schemas.nodes import Device, KnownAttempt, NodeDrained, NodeRegistered, NodeReported, ResultsKept
from schemas.tasks import TaskEnd, TaskFailed, TaskFailure, TaskFinished, TaskRange, TaskStarted

RANGE = {"job": "j", "stage": "s", "first": 2, "count": 3, "attempt": 1, "node": "n", "epoch": "e/1"}
KNOWN = {"job": "j", "stage": "s", "first": 0, "count": 2, "attempt": 1}


def node(**fields):
    return {"node": "n", "epoch": "e/1", "capacity": {"cpu": "4"}, **fields}


def refusal(topic, document):
    with pytest.raises(Malformed) as refused:
        read_input(topic, document, "agent")
    return refused.value


# Nodes


def test_a_registration_says_what_the_node_has_and_knows():
    document = node(
        capacity={"memory": "1G", "cpu": "4.0009", "licence": 0},
        labels={"zone": "a", "arch": "arm"},
        attempts=[
            KNOWN | {"state": "running"},
            KNOWN | {"state": "succeeded", "run_ms": [5], "peak": {"cpu": "0.1"}},
            KNOWN
            | {"state": "failed", "reason": "exit_code", "exit_code": -9, "detail": "out of luck", "run_ms": [5, 6]},
        ],
    )

    assert read_input("nodes", {"register": document}, "agent") == NodeRegistered(
        node="n",
        epoch="e/1",
        capacity={"cpu": 4000, "memory": 953},
        labels={"arch": "arm", "zone": "a"},
        attempts=[
            KnownAttempt("j", "s", 0, 2, 1, "running"),
            KnownAttempt("j", "s", 0, 2, 1, "succeeded", run_ms=[5], peak={"cpu": 100}),
            KnownAttempt("j", "s", 0, 2, 1, "failed", [5, 6], "exit_code", -9, "out of luck"),
        ],
        author="agent",
    )


def test_a_report_says_what_the_node_has():
    assert read_input("nodes", {"report": node()}, "agent") == NodeReported("n", "e/1", {"cpu": 4000}, author="agent")


@pytest.mark.parametrize("draining", [True, False])
def test_a_drain(draining):
    document = {"drain": {"node": "n", "draining": draining}}

    assert read_input("nodes", document, "ops") == NodeDrained("n", draining, "ops")


def test_an_agent_that_goes_says_so():
    assert read_input("nodes", {"leave": {"node": "n", "epoch": "e/1"}}, "agent") == NodeLeft("n", "e/1")


@pytest.mark.parametrize(
    "address", ["", "node-1:9464", "10.0.0.7:1", "[::1]:65535", "a.b-c.example:9464", "6d41a3c0f2b1:9464"]
)
def test_an_agent_may_say_where_it_shows_output(address):
    taken = read_input("nodes", {"register": node(address=address)}, "agent")

    assert isinstance(taken, NodeRegistered)
    assert taken.address == address


@pytest.mark.parametrize(
    "address",
    [
        "node-1",
        "node-1:",
        ":9464",
        "node-1:0",
        "node-1:65536",
        "node-1:9464/x",
        "a b:1",
        "a@b:1",
        "http://n:1",
        "::1:5",
    ],
)
def test_an_address_is_a_host_and_a_port(address):
    problem = refusal("nodes", {"register": node(address=address)})

    assert str(problem) == f'register.address: has to be [https://]HOST:PORT, like node-1:9464, is "{address}"'


def test_an_address_has_a_length():
    longest = "n" * (ADDRESS_MAX - 5) + ":9464"
    read_input("nodes", {"register": node(address=longest)}, "agent")

    assert "is too long" in str(refusal("nodes", {"register": node(address="n" + longest)}))


def test_listed_devices_say_how_many_gpus_there_are():
    devices = {"gpu": [{"index": 3, "model": "V100"}, {"index": 0, "milli": 500}]}

    taken = read_input("nodes", {"report": node(devices=devices)}, "agent")

    assert isinstance(taken, NodeReported)
    assert taken.capacity == {"cpu": 4000, "gpu": 1500}
    assert taken.devices == [Device(0, 500), Device(3, 1000, "V100")]
    agreeing = node(devices=devices, capacity={"cpu": "4", "gpu": "1.5"})
    assert read_input("nodes", {"report": agreeing}, "agent") == taken


def test_gpus_without_listed_devices_stay_a_number():
    taken = read_input("nodes", {"report": node(capacity={"gpu": "8"}, devices={"gpu": []})}, "agent")

    assert isinstance(taken, NodeReported)
    assert (taken.capacity, taken.devices) == ({"gpu": 8000}, [])


def test_a_long_story_does_not_cost_the_fact():
    attempt = KNOWN | {"state": "failed", "reason": "cannot_start", "detail": "x" * 10_000}

    taken = read_input("nodes", {"register": node(attempts=[attempt])}, "agent")

    assert isinstance(taken, NodeRegistered)
    assert taken.attempts[0].detail == "x" * DETAIL_MAX


def test_as_many_devices_as_there_may_be():
    devices = [{"index": i} for i in range(DEVICES_MAX)]
    read_input("nodes", {"report": node(devices={"gpu": devices})}, "agent")

    problem = refusal("nodes", {"report": node(devices={"gpu": [*devices, {"index": DEVICES_MAX}]})})

    assert problem.field == "report.devices.gpu"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({}, 'exactly one of "register", "known", "report", "drain", "leave", "remove" is', id="no form"),
        pytest.param({"report": node(), "drain": {"node": "n", "draining": True}}, "drain: exactly one of", id="two"),
        pytest.param({"registr": node()}, 'registr: unknown field; did you mean "register"?', id="another form"),
        pytest.param({"report": node(epoch="")}, "report.epoch: may not be empty", id="no epoch"),
        pytest.param({"report": node(node="a/b")}, 'report.node: may hold no "/"', id="a slash"),
        pytest.param(
            {"report": node(capcity={})}, 'report.capcity: unknown field; did you mean "capacity"?', id="a slip"
        ),
        pytest.param({"report": node(attempts=[])}, "report.attempts: unknown field", id="attempts in a report"),
        pytest.param({"report": node(capacity={})}, "report.capacity: has to offer something", id="nothing"),
        pytest.param({"report": node(capacity={"cpu": "0.0001"})}, "report.capacity: has to offer", id="too little"),
        pytest.param({"report": node(capacity={"memory": 4096})}, "report.capacity.memory: 4096 is", id="few bytes"),
        pytest.param(
            {"report": node(capacity={"gpu": "1"}, devices={"gpu": [{"index": 0}, {"index": 1}]})},
            "report.capacity.gpu: is 1000, but the devices add up to 2000: leave it out",
            id="a sum that disagrees",
        ),
        pytest.param(
            {"report": node(capacity={"gpu": 0}, devices={"gpu": [{"index": 0}]})},
            "report.capacity.gpu: is 0, but the devices add up to 1000: leave it out",
            id="none, and one",
        ),
        pytest.param(
            {"report": node(devices={"gpu": [{"index": 1}, {"index": 0}, {"index": 1}]})},
            "report.devices.gpu[2].index: 1 is the index of another device too",
            id="an index twice",
        ),
        pytest.param(
            {"report": node(devices={"gpu": [{"index": 0, "milli": 1001}]})},
            "report.devices.gpu[0].milli: has to be at most 1000, is 1001",
            id="more than a device",
        ),
        pytest.param({"report": node(devices={"tpu": []})}, "report.devices.tpu: unknown field", id="other devices"),
        pytest.param({"drain": {"node": "n"}}, "drain.draining: is missing", id="no direction"),
        pytest.param({"leave": {"node": "n"}}, "leave.epoch: is missing", id="nobody's goodbye"),
        pytest.param({"drain": {"node": "n", "draining": 1}}, "drain.draining: has to be true or false", id="a number"),
        pytest.param(
            {"register": node(attempts=[KNOWN | {"state": "failed"}])},
            "register.attempts[0].reason: belongs to an attempt that failed",
            id="failed without a reason",
        ),
        pytest.param(
            {"register": node(attempts=[KNOWN | {"state": "running", "reason": "lost"}])},
            "register.attempts[0].reason: belongs to an attempt that failed",
            id="a reason without a failure",
        ),
        pytest.param(
            {"register": node(attempts=[KNOWN | {"state": "succeeded"}])},
            "register.attempts[0].run_ms: has 0 entries",
            id="no run time",
        ),
        pytest.param(
            {"register": node(attempts=[KNOWN | {"state": "ended"}])},
            "register.attempts[0].state: has to be one of 'running', 'succeeded' or 'failed'; is \"ended\"",
            id="another state",
        ),
        pytest.param(
            {"register": node(attempts=[KNOWN | {"state": "running", "peak": {"cpu": "x"}}])},
            "register.attempts[0].peak.cpu:",
            id="a peak that is no quantity",
        ),
    ],
)
def test_what_is_refused_of_a_node(document, problem):
    assert str(refusal("nodes", document)).startswith(problem)


# Tasks


def test_tasks_that_started():
    taken = read_input("tasks", {"started": {"items": [RANGE, RANGE | {"first": 0, "count": 1}]}}, "agent")

    assert taken == TaskStarted(
        [TaskRange("j", "s", 2, 3, 1, "n", "e/1"), TaskRange("j", "s", 0, 1, 1, "n", "e/1")], author="agent"
    )


@pytest.mark.parametrize("run_ms", [[7], [7, 8, 9]], ids=["one for all", "one for each"])
def test_tasks_that_finished(run_ms):
    item = RANGE | {"run_ms": run_ms, "peak": {"memory": "1.5Mi"}}

    assert read_input("tasks", {"finished": {"items": [item]}}, "agent") == TaskFinished(
        [TaskEnd("j", "s", 2, 3, 1, "n", "e/1", run_ms, {"memory": 2})], author="agent"
    )


@pytest.mark.parametrize(("form", "more"), [("finished", {"run_ms": [7]}), ("failed", {"reason": "memory"})])
def test_each_attempt_has_its_peak_of_memory_and_its_cpu_time(form, more):
    measured = {"peak_mib": [10, 20, 30], "cpu_ms": [1, 2, 3]}

    (item,) = read_input("tasks", {form: {"items": [RANGE | more | measured]}}, "agent").items

    assert (item.peak_mib, item.cpu_ms) == ([10, 20, 30], [1, 2, 3])


def test_a_registration_says_what_is_kept_of_results():
    kept = {"folder": "/var/lib/largesse-agent", "age_ms": 1_000, "bytes": 2, "runs": 3, "inodes": 4}

    assert read_input("nodes", {"register": node(results=kept)}, "agent").results == ResultsKept(**kept)
    assert read_input("nodes", {"register": node()}, "agent").results is None


def test_tasks_that_failed():
    item = RANGE | {"reason": "timeout", "detail": "x" * 10_000}

    assert read_input("tasks", {"failed": {"items": [item]}}, "agent") == TaskFailed(
        [TaskFailure("j", "s", 2, 3, 1, "n", "e/1", "timeout", detail="x" * DETAIL_MAX)], author="agent"
    )


def test_a_batch_as_large_as_it_may_be():
    read_input("tasks", {"started": {"items": [RANGE] * BATCH_MAX}}, "agent")

    assert refusal("tasks", {"started": {"items": [RANGE] * (BATCH_MAX + 1)}}).field == "started.items"


def test_the_last_task_that_a_stage_can_have():
    read_input("tasks", {"started": {"items": [RANGE | {"first": TASKS_MAX - 1, "count": 1}]}}, "agent")
    read_input("tasks", {"started": {"items": [RANGE | {"first": 0, "count": TASKS_MAX}]}}, "agent")

    problem = refusal("tasks", {"started": {"items": [RANGE | {"first": 1, "count": TASKS_MAX}]}})

    assert problem.field == "started.items[0].count"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({}, 'exactly one of "started", "finished", "failed" is needed, not 0', id="no form"),
        pytest.param({"started": {"items": []}}, "started.items: may not be empty", id="no items"),
        pytest.param({"started": {"items": [RANGE | {"first": -1}]}}, "started.items[0].first: has to be", id="first"),
        pytest.param({"started": {"items": [RANGE | {"count": 0}]}}, "started.items[0].count: has to be", id="count"),
        pytest.param({"started": {"items": [RANGE | {"attempt": 0}]}}, "started.items[0].attempt: has", id="attempt"),
        pytest.param({"started": {"items": [RANGE | {"count": True}]}}, "started.items[0].count: has", id="a boolean"),
        pytest.param(
            {"started": {"items": [RANGE | {"run_ms": [1]}]}}, "started.items[0].run_ms: unknown", id="run_ms"
        ),
        pytest.param({"finished": {"items": [RANGE]}}, "finished.items[0].run_ms: is missing", id="no run time"),
        pytest.param(
            {"finished": {"items": [RANGE, RANGE | {"run_ms": [1]}, RANGE | {"run_ms": [1, 2]}][1:]}},
            "finished.items[1].run_ms: has 2 entries: give one for all 3 tasks, or one for each",
            id="too few run times",
        ),
        pytest.param(
            {"finished": {"items": [RANGE | {"run_ms": []}]}}, "finished.items[0].run_ms: has 0 entries", id="none"
        ),
        pytest.param(
            {"finished": {"items": [RANGE | {"run_ms": [1], "peak": {"CPU": 1}}]}},
            "finished.items[0].peak.CPU: is no resource name",
            id="a peak of no resource",
        ),
        pytest.param(
            {"finished": {"items": [RANGE | {"run_ms": [1], "cpu_ms": [1]}]}},
            "finished.items[0].cpu_ms: has 1 entries: give one for each of 3 tasks",
            id="one CPU time for all",
        ),
        pytest.param(
            {"failed": {"items": [RANGE | {"reason": "lost", "peak_mib": [1, 2, 3, 4]}]}},
            "failed.items[0].peak_mib: has 4 entries",
            id="too many peaks",
        ),
        pytest.param({"failed": {"items": [RANGE]}}, "failed.items[0].reason: is missing", id="no reason"),
        pytest.param(
            {"failed": {"items": [RANGE | {"reason": "bad luck"}]}},
            "failed.items[0].reason: has to be one of",
            id="luck",
        ),
        pytest.param(
            {"failed": {"items": [RANGE | {"reason": "lost", "run_ms": [1, 2]}]}},
            "failed.items[0].run_ms: has 2 entries",
            id="run times of some",
        ),
        pytest.param(
            {"failed": {"items": [RANGE | {"reason": "exit_code", "exit_code": 2**31}]}},
            "failed.items[0].exit_code: has to be at most",
            id="no exit code",
        ),
    ],
)
def test_what_is_refused_of_tasks(document, problem):
    assert str(refusal("tasks", document)).startswith(problem)
