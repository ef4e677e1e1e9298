"""What would become of a job that is submitted now: whether the cell takes it, and what of it the next round starts.

The sequencer's own rules judge it, at the end of the log. What is admitted is taken by a copy of the cell, which goes
on to the end of the next round; nothing is written.
"""

import asyncio
from dataclasses import dataclass, replace
from json import dumps, loads
from typing import BinaryIO

from largesse.bus.port import Bus, Message
from largesse.ids import content_hash, log_id
from largesse.lifecycle.job_classes import class_name
from largesse.log.codec import encode, record_of
from largesse.log.inputs import parse
from largesse.settings import Settings, read_settings
from schemas import Header, InputRefused, JobAdmitted, Record, RoundClosed
from schemas.edge.base import Malformed
from services.admission.core.judge import judge
from services.gateway.documents import Document
from services.gateway.documents.queues import queue_document
from services.gateway.view.jobs import waiting_of
from services.gateway.why.find import why_document
from services.replay.live.lent import LentBus
from services.replay.live.standing import Standing, standing
from services.simulator.engine import Cell

TOPIC = "jobs"
_SHARES = ("guaranteed", "fair", "allocated", "resource")


@dataclass(frozen=True, slots=True)
class Asked:
    """A message to the topic `jobs`, by whom, and when it would come. `shards`: of altruism, at least 1."""

    message: bytes
    author: str
    now_ms: int
    shards: int = 1


async def trial(bus: Bus, settings: Settings, asked: Asked) -> Document:
    """`at`: behind which record it would come; `offset`: where in `jobs`. `verdict`: the record that it would become,
    as the log has it. `then`: what follows; None where it is not admitted. Raises Malformed, and as `standing` does.
    """
    stand = await standing(bus, settings, asked.shards)
    # A job without a name would be named after its place.
    offset = (await bus.bounds(TOPIC, settings.partition))[1]
    item = parse(Message(TOPIC, settings.partition, offset, asked.message, {"author": asked.author}))
    if item.fault is not None:
        raise item.fault
    last = stand.last
    time_ms = max(asked.now_ms, last.time)
    body = judge(stand.admission, item.body, item.author, time_ms)
    assert body is not None, "a submission always becomes a record"
    if isinstance(body, InputRefused):
        body = replace(body, size=len(asked.message), hash=content_hash(asked.message))
    seq = last.seq + 1
    record = record_of(
        body, cell=last.cell, seq=seq, round_number=last.round, time=time_ms, id_=log_id(last.cell, seq), cause=""
    )
    at = {"seq": last.seq, "time": last.time}
    document: Document = {"at": at, "offset": offset, "verdict": encode(record).decode(), "then": None}
    if isinstance(body, JobAdmitted):
        document["then"] = _then(stand, body, Header("", TOPIC, settings.partition, offset), time_ms, asked.shards)
    return document


def answer(into: BinaryIO, out: BinaryIO) -> None:
    """Answers one question, the first line that comes in, over the bus that who asks it lends."""
    question = loads(into.readline())
    settings = replace(read_settings(), cell=question["cell"], partition=question["partition"])
    asked = Asked(question["message"].encode(), question["author"], question["now_ms"], question["shards"])
    document: Document
    try:
        document = {"answer": asyncio.run(trial(LentBus(into, out), settings, asked))}
    except Malformed as fault:
        document = {"malformed": [fault.field, fault.reason]}
    out.write(dumps(document).encode() + b"\n")
    out.flush()


def _then(stand: Standing, body: JobAdmitted, source: Header, time_ms: int, shards: int) -> Document:
    """What follows, up to the end of the next round."""
    view, job = stand.view, body.spec.job
    shares = _shares(queue_document(view), body.spec.queue)
    placed: dict[tuple[str, str], int] = {}

    def see(record: Record) -> None:
        for grant in record.body.grants if isinstance(record.body, RoundClosed) else ():
            if grant.job == job:
                place = grant.stage, grant.node
                placed[place] = placed.get(place, 0) + grant.count

    cell = Cell(shards=shards, observers=[see], followers=[stand.follower])
    cell.take_up(stand.cores, stand.last, stand.prefix)
    cell.advance(time_ms)
    cell.put(body, source)
    if stand.pending is not None:
        cell.close_round(stand.pending)
    cell.advance(max(cell.time, cell.earliest_opening_ms()))
    cell.settle()
    live = view.jobs[job]
    why = why_document(view, job, "job")
    starting = {"earliest_ms": cell.time, "likely_ms": cell.time, "latest_ms": cell.time, "accuracy": None}
    return {
        "class": class_name(view.policy, body.job_class),
        "queue": body.spec.queue,
        "shares": shares,
        "places": [{"stage": stage, "node": node, "tasks": count} for (stage, node), count in placed.items()],
        "waiting": sum(waiting_of(live, at) for at in range(len(live.graph.stages))),
        "start": starting if placed else why["start"],
        "reasons": why["reasons"],
    }


def _shares(queue: Document, path: str) -> Document:
    """Of the queue, or of what it is part of where it has none of its own."""
    for child in queue["children"]:
        if path == child["queue"] or path.startswith(f"{child['queue']}/"):
            return _shares(child, path)
    return {"queue": queue["queue"], **{name: queue[name] for name in _SHARES}}
