"""What somebody writes to the topics of a cell who may write there: the sequencer and every reader judge it."""

import asyncio
import json

import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.log.codec import encode, record_of, wrap
from largesse.log.decisions import DecisionReader, messages_of
from largesse.log.reader import LogReader
from largesse.log.wanted import Wanted, answer, wanted_of
from largesse.telemetry import DEAD_LETTERS
from schemas import (
    Header,
    InputRefused,
    JobAdmitted,
    JobEnded,
    NodeLost,
    Releases,
    RoundClosed,
    SequencerClaimed,
    Shares,
    TaskFinished,
)
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.shares import Level
from tests.attacks.listed import Attack, Target, check_names, named
from tests.bus_stories import append_raw
from tests.desk import JOB, NODE, Desk, pass_time

TARGET = Target(
    "Topics of the bus",
    "A sequencer and readers of the log, on a bus where everybody may write everything. What is refused is a record,"
    " `InputRefused`, and a dead letter; the table names the field. Counted in `largesse_dead_letters_total` or"
    " `largesse_log_void`.",
)


def tried(attack):
    """What came of an attack on a cell with one node that runs one job."""

    async def run():
        desk = Desk(MemoryBus())
        await desk.turn()
        await desk.take("nodes", {"register": NODE})
        await desk.answer()
        before = counts()
        refused = await attack.story(desk)
        went = [topic for topic, value in counts().items() if value > before.get(topic, 0)]
        void = ["void"] if await is_void(desk) else []
        assert desk.sequencer.is_leading
        return refused, ", ".join(went + void)

    return asyncio.run(run())


def counts():
    samples = [sample for metric in DEAD_LETTERS.collect() for sample in metric.samples]
    return {sample.labels["topic"]: sample.value for sample in samples if sample.name.endswith("_total")}


async def is_void(desk):
    """Whether there is something in the log that does not count."""
    reader = LogReader(desk.bus)
    while await reader.read():
        pass
    return reader.order.void > 0


def writes(topic, document):
    """An input: what the sequencer says of it."""

    async def story(desk):
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        await desk.bus.writer().send([Outgoing(topic, 0, data, headers={"author": "mallory"})])
        found = [each.record.body for each in await desk.turn()]
        refused = [each for each in found if isinstance(each, InputRefused)]
        assert not [each for each in found if isinstance(each, JobAdmitted | JobEnded | TaskFinished)]
        return f"{refused[0].field or 'message'}: {refused[0].reason}"[:60] if refused else "nothing of it counts"

    return story


async def old_epoch(desk):
    """Reports of an agent that was before it do not keep a node alive that is silent."""
    for _ in range(4):
        await pass_time(desk, 2_500)
        await desk.send("nodes", {"report": {**NODE, "epoch": "e0"}})
    assert len(await desk.bodies(NodeLost)) == 1
    return "the node is lost all the same"


def finished(**changes):
    item = {"job": "j", "stage": "s", "first": 0, "count": 1, "attempt": 1, "node": "n1", "epoch": "e1", "run_ms": [1]}
    return {"finished": {"items": [{**item, **changes}]}}


def forged(header_token, body, **changes):
    """A record in the log by somebody who is not the sequencer."""

    async def story(desk):
        last = (await desk.records())[-1].record
        fields = {"cell": "default", "seq": last.seq + 1, "round_number": 1, "time": 0, "id_": "forged", "cause": ""}
        await append_raw(
            desk.bus, "cluster.log", wrap(Header(header_token), encode(record_of(body, **fields | changes)))
        )
        after = (await desk.records())[-1].record
        assert after == last
        assert await desk.take("config", {"set": {"seed": 7}})
        return "void for every reader"

    return story


async def foreign_answer(desk):
    """To a round that the log never opened so, before the right one."""
    await desk.take("jobs", JOB | {"job": "j"})
    opening = await desk.opening()
    wanted = Wanted("shares", 0, 1)
    other = type(opening)(**{**vars(opening), "id": opening.id + "x"})
    record, content = answer(other, wanted, Shares([]))
    await desk.bus.writer().send(messages_of(record, content, wanted, 0, "mallory"))
    found = await DecisionReader(desk.bus).gather(opening.id, [wanted])
    assert found is None
    await desk.answer()
    return "ignored; the round closes by the right answers"


async def second_answer(desk):
    """Under the right name, behind the one that a service gave."""
    await desk.take("jobs", JOB | {"job": "j"})
    opening = await desk.opening()
    (wanted,) = wanted_of(["shares"], 1)
    for author, levels in (("fairness", []), ("mallory", [Level("root", 1)])):
        record, content = answer(opening, wanted, Shares(levels))
        await desk.bus.writer().send(messages_of(record, content, wanted, 0, author))
    found = await DecisionReader(desk.bus).gather(opening.id, [wanted])
    assert found[0].record.body.levels == []
    return "the first of a name wins"


async def garbage_answers(desk):
    await desk.take("jobs", JOB | {"job": "j"})
    for topic in ("releases", "plans", "shares", "asks", "grants"):
        for data in (b"hello", b"[]", b'{"header":{"token":""},"content":{}}', b"[" * 100_000):
            await append_raw(desk.bus, topic, data)
    await desk.answer()
    return "passed over; the round closes"


async def huge_seq(desk):
    """A forecast of the future, which would have all others look old."""
    await desk.take("jobs", JOB | {"job": "j"})
    opening = await desk.opening()
    later = type(opening)(**{**vars(opening), "seq": 10**15, "id": f"default/{10**15}/r9/00", "round": 9})
    for each in (later, opening):
        record, content = answer(each, Wanted("releases", 0, 1), Releases(0, 5_000))
        await desk.bus.writer().send(messages_of(record, content, Wanted("releases", 0, 1), 0, "estimator"))
        await desk.turn()
    assert [body.at_ms for body in await desk.bodies(Releases)] == [5_000]
    return "ignored; the right one counts"


CLAIM = SequencerClaimed("mallory")
CLOSING = RoundClosed([], [], [], None, [])

ATTACKS = [
    Attack(
        "a report of an agent's earlier life (stale epoch)", old_epoch, "the node is lost all the same", counted="nodes"
    ),
    Attack("the end of a task that was never granted", writes("tasks", finished()), "items", counted="tasks"),
    Attack("the end of a task in another node's name", writes("tasks", finished(node="n2")), "items", counted="tasks"),
    Attack("a result of an earlier life", writes("tasks", finished(epoch="e0")), "items", counted="tasks"),
    Attack("a closing without the sequencer's token", forged("", CLOSING), "void for every reader", counted="void"),
    Attack("a closing with a token of its own", forged("mallory", CLOSING), "void for every reader", counted="void"),
    Attack("a claim in which two tokens stand", forged("x", CLAIM, seq=0), "void for every reader", counted="void"),
    Attack("a claim that has a seq", forged("mallory", CLAIM), "void for every reader", counted="void"),
    Attack(
        "an answer to a round that was not opened so", foreign_answer, "ignored; the round closes by the right answers"
    ),
    Attack("a second answer to a round", second_answer, "the first of a name wins"),
    Attack("garbage on the topics of decisions", garbage_answers, "passed over; the round closes"),
    Attack("a forecast from the future", huge_seq, "ignored; the right one counts"),
    Attack("a job that is no JSON", writes("jobs", b"hello"), "message", counted="jobs"),
    Attack("a job of 100,000 brackets", writes("jobs", b"[" * 100_000), "message", counted="jobs"),
    Attack("a job that is too large", writes("jobs", b" " * (INPUT_BYTES_MAX + 1)), "message", counted="jobs"),
    Attack("a job with one key twice", writes("jobs", b'{"job": "a", "job": "b"}'), "job", counted="jobs"),
    Attack("a job whose name controls a terminal", writes("jobs", {**JOB, "job": "a\x1b[2J"}), "job", counted="jobs"),
    Attack("a job whose name leads elsewhere", writes("jobs", {**JOB, "job": "../../etc"}), "job", counted="jobs"),
    Attack(
        "a node that would be another",
        writes("nodes", {"register": {**NODE, "node": "a\nb"}}),
        "register.node",
        counted="nodes",
    ),
    Attack(
        "a token without its hash",
        writes("access", {"make": {"name": "m", "user": "m", "roles": []}}),
        "make.roles",
        counted="access",
    ),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(attack):
    refused, counted = tried(attack)

    # Of a refusal the field stands in the list, and what was wrong in the record.
    assert refused.partition(":")[0] == attack.refused or refused == attack.refused
    assert counted == attack.counted
