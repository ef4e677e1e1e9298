"""Instances that start on a long log without a snapshot, beside others that serve it: rounds go on meanwhile."""

import asyncio
import signal

import pytest

from schemas import RoundClosed, RoundOpened
from tests.live.kafka_cell import KafkaCell, free_partition

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells"), pytest.mark.timeout(1_800)]

RECORDS = 100_000
AT_ONCE = 500
SERVICES = ("fairness", "altruism", "leftover")
FOLDED_S = 600
PARTS_MIN = 2
"""Where a newcomer is dealt a shard before it can answer, a round takes as long as it folds the log: no round may take
so large a part of that time. Both are measured under the same load.
"""


def test_instances_that_start_on_a_long_log_or_come_back_from_a_pause_do_not_hold_rounds_up(kafka_address, tmp_path):
    async def story():
        cell = KafkaCell(kafka_address, await free_partition(kafka_address), f"long-{tmp_path.name}", tmp_path / "cell")
        for member in cell.members.values():
            member.environment["LARGESSE_SNAPSHOT_ROUNDS"] = str(10**9)
        async with cell:
            cell.start(
                *(cell.members[name] for name in ("admission-0", "agent-0", *(f"{each}-0" for each in SERVICES)))
            )
            await cell.tell("jobs", job("first"))
            await cell.until(lambda: "first" in cell.ended, FOLDED_S)
            await grows(cell)
            await until_new(cell, "before")
            began = len(cell.records)
            newcomers = [cell.members[f"{each}-1"] for each in SERVICES]
            standby = cell.members["admission-1"]
            cell.start(*newcomers, standby)
            working = asyncio.ensure_future(works(cell, "starting"))
            for member in newcomers:
                await dealt(cell, member)
            await cell.ready(standby.name, *(member.name for member in newcomers))
            folding_ms = cell.records[-1].record.time - cell.records[began - 1].record.time
            await stops(working)
            await until_new(cell, "started")
            starting_ms = rounds_of(cell.records[began:])
            owners = [cell.owner(each) for each in SERVICES]
            print("paused:", *(owner.name for owner in owners))
            for owner in owners:
                owner.send(signal.SIGSTOP)
            for number in range(5):
                await until_new(cell, f"paused-{number}")
            for owner in owners:
                owner.send(signal.SIGCONT)
            for number in range(5):
                await until_new(cell, f"back-{number}")
            seq = cell.records[-1].record.seq
        assert seq > RECORDS
        assert len(cell.tokens) == 1, "a standby claimed the log of a leader that lives"
        print(f"{len(starting_ms)} rounds in {folding_ms} ms, the longest {max(starting_ms)} ms")
        assert max(starting_ms) < folding_ms / PARTS_MIN

    asyncio.run(story())


def job(name):
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "100m"}, "duration_ms": 1}
    return {"job": name, "stages": [stage]}


async def grows(cell):
    """One record for each change of a knob that matters to nobody."""
    for first in range(0, RECORDS, AT_ONCE):
        await asyncio.gather(*(cell.tell("config", {"set": {"seed": first + number}}) for number in range(AT_ONCE)))
    await cell.until(lambda: cell.records[-1].record.seq > RECORDS, FOLDED_S)


async def works(cell, name):
    """Jobs one after another, so that there is always a round."""
    number = 0
    while True:
        number += 1
        await cell.tell("jobs", job(f"{name}-{number}"))
        await asyncio.sleep(0.05)


async def stops(working):
    working.cancel()
    await asyncio.wait([working])


async def until_new(cell, name):
    await cell.tell("jobs", job(name))
    await cell.until(lambda: name in cell.ended, FOLDED_S)


async def dealt(cell, member):
    async with asyncio.timeout(FOLDED_S):
        while cell.said(member, "shards_dealt") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


def rounds_of(records):
    """Milliseconds from each opening to its closing."""
    opened, spans = {}, []
    for accepted in records:
        record = accepted.record
        if isinstance(record.body, RoundOpened):
            opened[record.round] = record.time
        elif isinstance(record.body, RoundClosed) and record.round in opened:
            spans.append(record.time - opened[record.round])
    return spans
