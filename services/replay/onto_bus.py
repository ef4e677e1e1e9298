"""Puts a recorded log onto a bus, so that what follows a live cell follows it as well.

Records keep their headers and bytes. A claim stands before the first record of each writer, since readers believe no
record without one; decisions stand before the closing that names them. A log that begins in the middle gets the view's
state there as a snapshot, from which whoever follows it goes on.
"""

from collections.abc import Callable
from hashlib import sha256

from largesse.bus.port import Outgoing, Writer
from largesse.ids import content_hash, decision_id
from largesse.log.codec import heading
from largesse.log.decisions import DecisionGap, partition_of
from largesse.log.fencing import LogOrder, split
from largesse.log.past_states import kept_as
from largesse.log.snapshots import Snapshot, messages_of
from largesse.log.wanted import Wanted
from largesse.log.writer import claim_message
from schemas import Header, RoundClosed
from schemas.topics import LOG
from services.replay.source import Source, Step
from services.replay.start import Start

BATCH = 256
"""Records that are sent at a time."""

AUTHOR = "recorded"


async def put_onto(source: Source, writer: Writer, view: str, told: Callable[[int], None]) -> str:
    """Sends all of a log; returns the name of its cell. `view`: whose state a log that begins in the middle brings.
    `told`: hears of the number of records now and then. Raises DecisionGap, BusError, and what reading the source
    raises.
    """
    batch, token, count = list[Outgoing](), "", 0
    cell = "" if source.start is None else source.start.cell
    for step in source.steps():
        accepted = step.accepted
        record = accepted.record
        if accepted.header.token != token:
            token = accepted.header.token
            claim = claim_message(record.cell, 0, token, LogOrder(), record.time)
            batch.append(claim)
            if not count and source.start is not None:
                batch += _snapshots(source.start, view, claim, token)
        if isinstance(record.body, RoundClosed):
            batch += _decisions(step)
        messages = split(accepted.header, accepted.content, id_=record.id, seq=record.seq)
        batch += [Outgoing(LOG, 0, message) for message in messages]
        cell, count = record.cell, count + 1
        if count % BATCH == 0:
            await writer.send(batch)
            batch = []
            told(count)
    await writer.send(batch)
    return cell


def _decisions(step: Step) -> list[Outgoing]:
    """What a closing names."""
    closing, found = step.accepted.record, list[Outgoing]()
    for named in closing.body.hashes:
        wanted = Wanted(named.topic, named.shard, named.of)
        content = step.decision(closing.cause, named)
        if content is None or content_hash(content) != named.hash:
            raise DecisionGap(f"{decision_id(*wanted, closing.cause)} is not recorded")
        seq, id_ = heading(content)
        place = partition_of(wanted.topic, 0, wanted.shard)
        found += [Outgoing(wanted.topic, place, each) for each in split(Header(AUTHOR), content, id_=id_, seq=seq)]
    return found


def _snapshots(start: Start, view: str, claim: Outgoing, token: str) -> list[Outgoing]:
    """The state at the start, as the snapshot that a gateway is restored from and as one that it has kept on."""
    layout, data = start.states[view, 0]
    order = LogOrder(1, token, start.seq, start.prefix.hex(), start.time, start.round)
    landmark = sha256(claim.value).hexdigest()
    snapshot = Snapshot(view, 0, 1, layout, 0, order, landmark, {}, data)
    return [
        *messages_of(snapshot, start.cell, 0),
        *messages_of(snapshot, start.cell, 0, kept_as=kept_as(view), slot=0),
    ]
