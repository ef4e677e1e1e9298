"""A checkpoint is noted in the log only where it names a closing that the log has, by seq and prefix."""

from largesse.log.reader import LogReader
from schemas import Checkpoint, InputRefused, RoundClosed
from tests.desk import NODE, desk, kinds

STATE = {"service": "admission", "shard": 0, "layout": 22, "sha256": "0a" * 32}


async def closed(desk):
    """Has a round closed; returns the seq of its closing and the prefix up to it."""
    await desk.take("nodes", {"register": NODE})
    await desk.answer()
    reader, found = LogReader(desk.bus), (0, "")
    while more := await reader.read(most=1):
        if isinstance(more[0].record.body, RoundClosed):
            found = more[0].record.seq, reader.order.prefix
    return found


def told(closing, prefix, **given):
    return {
        "checkpoint": {
            "closing": closing,
            "prefix": prefix,
            "positions": [],
            "states": [STATE],
            "file": "9e" * 32,
            **given,
        }
    }


async def refused(desk, document):
    (body,) = await desk.take("config", document)
    assert isinstance(body, InputRefused)
    return body.field, body.reason


@desk
async def test_a_checkpoint_at_a_closing_of_the_log_becomes_a_record(desk):
    seq, prefix = await closed(desk)
    (body,) = await desk.take("config", told(seq, prefix, positions=[{"topic": "nodes", "partition": 0, "offset": 0}]))

    assert isinstance(body, Checkpoint)
    assert (body.closing, body.prefix, body.author) == (seq, prefix, "ann")
    assert [each.service for each in body.states] == ["admission"]


@desk
async def test_one_of_another_log_or_place_is_refused(desk):
    seq, prefix = await closed(desk)

    assert await refused(desk, told(seq - 1, prefix)) == (
        "checkpoint.closing",
        f"no round ends at seq {seq - 1} as far as this sequencer knows (those from {seq} on): make another one",
    )
    assert (await refused(desk, told(seq, "5f" * 32)))[0] == "checkpoint.prefix"
    ahead = [{"topic": "nodes", "partition": 0, "offset": 1}]
    assert await refused(desk, told(seq, prefix, positions=ahead)) == (
        "checkpoint.positions",
        "nodes has been read up to 0, not 1",
    )


@desk
async def test_it_opens_no_round_and_changes_no_state(desk):
    seq, prefix = await closed(desk)

    assert kinds(await desk.take("config", told(seq, prefix))) == ["Checkpoint"]
    assert kinds(await desk.take("config", {"checkpoint": {}})) == ["InputRefused"]


@desk(snapshot_rounds=1)
async def test_a_successor_knows_the_closings_behind_its_snapshot_and_that_one(desk):
    seq, prefix = await closed(desk)
    desk.start()
    await desk.turn()

    assert kinds(await desk.take("config", told(seq, prefix))) == ["Checkpoint"]


@desk
async def test_it_stands_alone(desk):
    seq, prefix = await closed(desk)

    field, reason = await refused(desk, told(seq, prefix) | {"set": {"node_lease_ms": 5_000}})
    assert (field, reason) == ("checkpoint", "stands alone: send everything else in a message of its own")
