"""What is told of capacity that is taken back: to the task, to the queue that waits and to the one that lost it."""

from largesse.log.codec import decode
from schemas import JobSpec, RoundClosed, Stage
from schemas.edge.read import read_cluster
from schemas.topics import LOG
from services.gateway import view
from services.gateway.why.find import why_document
from services.simulator.run import Options, simulate

QUEUES = {"name": "root", "children": [{"name": "p", "children": [{"name": "a"}, {"name": "b"}]}]}
CELL = {"nodes": [{"name": "n", "capacity": {"cpu": "4", "memory": "64Gi"}}], "queues": QUEUES}


def texts(state, name, kind):
    return [reason["text"] for reason in why_document(state, name, kind)["reasons"]]


def test_a_claim_is_told_to_all_whom_it_concerns():
    state, told = view.start(), {}
    long = JobSpec("long", "p/a", [Stage("s", 4, {"cpu": 1_000}, [], 600_000, [600_000])])
    mine = JobSpec("mine", "p/b", [Stage("s", 2, {"cpu": 1_000}, [], 600_000, [600_000])])

    def listen(topic, header, content):
        record = decode(content)
        if topic == LOG or topic in view.READS:
            view.fold(state, record)
        if isinstance(record.body, RoundClosed) and record.body.revoked:
            told["seq"] = record.seq
            for name, kind in (("long/s/0", "job"), ("p/b", "queue"), ("p/a", "queue")):
                told[name] = texts(state, name, kind)
        elif told and "after" not in told and not state.taken:
            told["after"] = texts(state, "long/s/0", "job")

    knobs = {"preset": "hdrf", "preemption": "on", "preempt_rate_permille": 1_000}
    simulate([(0, long), (60_000, mine)], read_cluster(CELL), Options(knobs, None, listen))

    below = "which held less than it is guaranteed"
    claim = f"its room was taken back for queue p/b, {below} of queue p (record {told['seq']})"
    assert told["long/s/0"][0] == f"attempt 1 has to end: {claim}"
    assert any(claim in text for text in told["after"])
    assert "2 tasks of others end for it, as it holds less than it is guaranteed" in told["p/b"]
    lost = f"2 tasks of queue p/a gave way to queue p/b, {below} (record {told['seq']}, 1 s ago)"
    assert lost in told["p/a"]
    assert lost in told["p/b"]
    assert (state.taken_tasks, state.taken) == ({"p/a": 2}, {})
