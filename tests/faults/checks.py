"""What has to hold of what a run has left: the log, the inputs, every decision and snapshot, and what ran.

The log's rules are those of tests/live/campaign_checks.py, which shares no line with the sequencer, the cores or
replay; decisions are those of `services.replay`; snapshots are compared with a fold from the log's first record.
"""

import asyncio
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator
from typing import Any

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message, Outgoing
from largesse.log import snapshots
from largesse.log.fencing import LogOrder, advance
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import RoundAbandoned, RoundClosed
from schemas.topics import DECISIONS, LOG, SNAPSHOTS
from services.admission import core as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner
from services.replay.source import Source, steps_of
from services.replay.verify import verify
from tests.faults.world import World
from tests.live import campaign_checks as log_checks

CORES: tuple[Any, ...] = (fairness, leftover, estimator, planner, altruism)
VOID = "log records are void"  # They are what fencing is for.
LETTERS = "dead letters"  # One may be written twice where an append failed, or may have.
UNANSWERED = "was never answered"


def check(world: World) -> None:
    """Tells the world what is wrong with what it has left."""
    _check_acknowledged(world)
    journal = log_checks.journal_of(_messages(world))
    for text in log_checks.check_log(journal):
        if VOID not in text:
            world.fail("the log breaks its rules", text)
    for text in log_checks.check_inputs(journal):
        if LETTERS not in text and not (UNANSWERED in text and _is_unread(world, text)):
            world.fail("an input is lost or taken twice", text)
    if {*world.watch.refused} != world.letters():
        world.fail("a dead letter is lost", f"{world.watch.refused}, but {world.letters()}")
    for text in log_checks.check_rounds(journal):
        world.fail("a round is answered in two ways", text)
    _check_attempts(world, journal)
    _check_jobs(world)
    if world.plan.seed % 2 == 0 and not world.wrong:
        _check_replay(world)
    elif not world.wrong:
        asyncio.run(_check_snapshots(world))


def _messages(world: World) -> Iterator[Message]:
    """Everything, decisions before the log."""
    places = world.broker.places()
    for place in [*(p for p in places if p[0] in DECISIONS), *(p for p in places if p[0] not in DECISIONS)]:
        yield from world.broker.shown(place)


def _is_unread(world: World, text: str) -> bool:
    """What came late may lie behind all that was taken."""
    topic, _, offset = literal_eval(text.partition(": was")[0])
    return int(offset) > world.watch.taken.get(topic, -1)


def _check_acknowledged(world: World) -> None:
    """What the bus has acknowledged is there, and each job was answered once."""
    for acked in world.acked:
        shown = world.broker.shown((acked.topic, 0))
        if acked.offset >= len(shown) or shown[acked.offset].value != acked.value:
            world.fail("an acknowledged input is lost", f"{acked.topic} {acked.offset} {acked.job}")
        taken = world.watch.taken.get(acked.topic, -1)
        if acked.job and acked.job not in world.watch.admitted and acked.job not in world.watch.rejected:
            world.fail("an acknowledged input is lost", f"{acked.job}, {acked.topic} is taken up to {taken}")


def _check_attempts(world: World, journal: log_checks.Journal) -> None:
    story = log_checks.tell(journal)
    for text in story.wrong:
        world.fail("attempts in the log break their rules", text)
    for text in _torn_gangs(journal, story):
        world.fail("a gang is granted in parts", text)
    for attempt, code in world.runs.ended.items():
        life = story.lives.get(attempt)
        if life is None:
            world.fail("an attempt ran without a grant", str(attempt))
        elif life.end in ("succeeded", "exit_code"):
            expected = 0 if life.end == "succeeded" else life.code
            if code != expected:
                world.fail("an attempt ended otherwise than the log says", f"{attempt}: {code}, and {life}")
    for attempt, life in story.lives.items():
        if life.end in ("succeeded", "exit_code") and attempt not in world.runs.ended:
            world.fail("an attempt ended that never ran", f"{attempt}: {life}")


def _torn_gangs(journal: log_checks.Journal, story: log_checks.Story) -> Iterator[str]:
    """A gang starts together or not at all."""
    for entry in journal.of("RoundClosed"):
        granted = Counter[tuple[str, str, int]]()
        for grant in entry.body["grants"]:
            granted[grant["job"], grant["stage"], grant["attempt"]] += grant["count"]
        for (job, stage, attempt), count in granted.items():
            about = story.stages[job, stage]
            if about["gang"] and count != about["tasks"]:
                yield f"{entry.record['id']}: {count} of {about['tasks']} of {job}/{stage}, attempt {attempt}"


def _check_jobs(world: World) -> None:
    for job in world.plan.jobs:
        found = world.watch.ended.get(job.name)
        if found != job.outcome:
            world.fail("a job ended otherwise than it had to", f"{job.name}: {found}, expected {job.outcome}")


def _check_replay(world: World) -> None:
    """Every decision is the one that a replay of the log comes to."""
    messages = list(_messages(world))
    found = verify(Source("run", lambda hear: steps_of(messages, hear=hear), lambda: world.plan.shards))
    if not found.is_same:
        world.fail("replay decides otherwise", found.text())
    world.met["replay: rounds compared"] += found.rounds_compared


async def _check_snapshots(world: World) -> None:
    """Every snapshot of a service is what a fold of the whole log comes to at that place."""
    bus, taken = await _copied(world), dict[tuple[str, int], dict[int, bytes]]()
    for core in CORES:
        for shard in range(world.plan.shards if core is altruism else 1):
            taken[core.NAME, shard] = _snapshots(world, core.NAME, shard)
    settings = Settings(snapshot_rounds=1_000_000)
    for core in CORES:
        for shard in range(world.plan.shards if core is altruism else 1):
            kept = taken[core.NAME, shard]
            if kept:
                await _compare(world, Shell(core, bus, settings, shard=shard, of=world.plan.shards), kept)
    _compare_admission(world, _snapshots(world, admission.NAME, 0))


async def _copied(world: World) -> MemoryBus:
    bus = MemoryBus()
    writer = bus.writer()
    for place in world.broker.places():
        await writer.send([Outgoing(*place, message.value) for message in world.broker.shown(place)])
    return bus


def _snapshots(world: World, service: str, shard: int) -> dict[int, bytes]:
    """States by the offset that they stand before."""
    found = {}
    for message in world.broker.shown((SNAPSHOTS, 0)):
        piece = snapshots.piece_of(message, service, shard)
        if piece is not None and piece[0]["parts"] == 1:
            snapshot = snapshots.unpack(piece[0], [piece[1]])
            found[snapshot.order.offset] = snapshot.state
    return found


async def _compare(world: World, shell: Shell[Any], kept: dict[int, bytes]) -> None:
    shell.shard = world.plan.shards  # It answers nothing.
    while (accepted := await shell.folded.take()) is not None:
        ends = isinstance(accepted.record.body, RoundClosed | RoundAbandoned)
        at = accepted.offset + 1
        if ends and at in kept:
            world.met["snapshots compared"] += 1
            if snapshots.dump(shell.state) != kept[at]:
                world.fail("a snapshot is not the fold", f"{shell.name} before offset {at}")


def _compare_admission(world: World, kept: dict[int, bytes]) -> None:
    order, state = LogOrder(), admission.start()
    for message in world.broker.shown((LOG, 0)):
        accepted = advance(order, message.offset, message.value)
        if accepted is None:
            continue
        learn = admission.FOLDS.get(type(accepted.record.body))
        if learn is not None:
            learn(state, accepted.record)
        if accepted.offset + 1 in kept:
            world.met["snapshots compared"] += 1
            if snapshots.dump(state) != kept[accepted.offset + 1]:
                world.fail("a snapshot is not the fold", f"admission before offset {accepted.offset + 1}")
