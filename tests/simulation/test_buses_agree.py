"""The decisions are the log's alone: not the bus's, not a cache's, not a restart's, not the number of instances'."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Bus, Fetched, Outgoing, Writer
from schemas import NodeLost, RoundClosed, RoundOpened, TaskFailed
from schemas.topics import SHARDED, TOPICS
from services.replay.source import Source, open_source, steps_of, write_export
from services.replay.verify import verify
from tests.bus_cell import BusCell
from tests.contract.kafka_rig import kafka_address, make_topic, new_name
from tests.simulation.cell_story import JOBS, SHARDS_HOSTED, record_story
from tests.stepped_cell import Recording, Stage, recorded


# ---------------------------------------------------------------- buses
@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Bus]:
    yield MemoryBus()


_folders = itertools.count()


@asynccontextmanager
async def file(folder: Path) -> AsyncIterator[Bus]:
    bus = FileBus(folder / f"bus-{next(_folders)}", segment_bytes=200_000, cache_bytes=50_000)
    yield bus
    await bus.close()


@asynccontextmanager
async def kafka(folder: Path) -> AsyncIterator[Bus]:
    """Topics of its own on a broker that others use too. Skips where there is none."""
    address = await asyncio.to_thread(kafka_address)
    prefix = new_name("")
    for topic in TOPICS:
        await make_topic(address, prefix + topic.name, SHARDS_HOSTED if topic.name in SHARDED else 1)
    bus = Renamed(KafkaBus(address), prefix)
    yield bus
    await bus.close()


class Renamed:
    """A Bus whose topics have longer names on the one behind it."""

    def __init__(self, behind: Bus, prefix: str) -> None:
        self._behind, self._prefix = behind, prefix

    def writer(self) -> Writer:
        return RenamedWriter(self._behind.writer(), self._prefix)

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        found = await self._behind.fetch(self._prefix + topic, partition, offset, wait_ms=wait_ms, most=most)
        return Fetched([replace(message, topic=topic) for message in found], found.position)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return await self._behind.bounds(self._prefix + topic, partition)

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        named = {(self._prefix + topic, partition): at for (topic, partition), at in positions.items()}
        return await self._behind.wait_any(named, wait_ms)

    async def close(self) -> None:
        await self._behind.close()


class RenamedWriter:
    def __init__(self, behind: Writer, prefix: str) -> None:
        self._behind, self._prefix = behind, prefix

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        return await self._behind.send(
            [replace(each, topic=self._prefix + each.topic) for each in batch], durable=durable
        )

    async def drop(self) -> None:
        await self._behind.drop()


Opening = Callable[[Path], AbstractAsyncContextManager[Bus]]


@pytest.fixture(scope="module", params=[1, 2, 4])
def shards(request):
    return request.param


@pytest.fixture(scope="module")
def recording(shards):
    async def tell():
        return await record_story(MemoryBus(), shards)

    return asyncio.run(tell())


def heard(recording: Recording, opening: Opening, folder: Path, shards: int, **how: bool) -> Stage:
    async def hear() -> Stage:
        async with opening(folder) as bus:
            stage = Stage(bus, shards, **how)
            await stage.hear(recording)
            return stage

    return asyncio.run(hear())


def assert_alike(stage: Stage, recording: Recording) -> None:
    """Every answer of the recording was given again, byte by byte, and no other."""
    assert (stage.compared, stage.unrecorded) == (len(recording.first_answers()), 0)


# ---------------------------------------------------------------- the story itself
def test_the_story_has_everything_in_it(recording, shards):
    assert len(recording.outcomes()) == JOBS
    assert set(recording.outcomes().values()) == {"succeeded", "failed", "cancelled"}
    assert (recording.outcomes()["j3"], recording.outcomes()["j5"]) == ("cancelled", "cancelled")
    assert [lost.node for lost in recording.bodies(NodeLost)] == ["n2"]
    assert {item.reason for body in recording.bodies(TaskFailed) for item in body.items} == {
        "exit_code",
        "killed",
        "gang",
    }
    assert {opening.shards for opening in recording.bodies(RoundOpened)} == {shards}


@pytest.mark.rotating(3)
def test_the_same_story_is_the_same_log_on_another_bus(recording, shards, tmp_path):
    async def tell():
        async with file(tmp_path) as bus:
            return await record_story(bus, shards)

    again = asyncio.run(tell())
    assert [message.value for message in again.log] == [message.value for message in recording.log]
    assert again.first_answers() == recording.first_answers()


@pytest.mark.rotating(3)
def test_grants_do_not_depend_on_the_number_of_shards(recording):
    async def tell():
        return await record_story(MemoryBus(), 1)

    one = asyncio.run(tell())
    assert [body.grants for body in recording.bodies(RoundClosed)] == [body.grants for body in one.bodies(RoundClosed)]


# ---------------------------------------------------------------- heard by others
@pytest.mark.rotating(3)
@pytest.mark.parametrize("opening", [memory, file, pytest.param(kafka, marks=pytest.mark.kafka)])
def test_a_recorded_log_is_answered_alike_on_another_bus(recording, shards, opening, tmp_path):
    assert_alike(heard(recording, opening, tmp_path, shards), recording)


@pytest.mark.rotating(3)
def test_caches_change_no_byte(recording, shards, tmp_path):
    assert_alike(heard(recording, memory, tmp_path, shards, forgetful=True), recording)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("opening", [memory, file, pytest.param(kafka, marks=pytest.mark.kafka)])
def test_a_restart_from_every_snapshot_changes_no_byte(recording, shards, opening, tmp_path):
    stage = heard(recording, opening, tmp_path, shards, restarting=True)

    assert_alike(stage, recording)
    assert stage.restarts == len(recording.bodies(RoundClosed))


@pytest.mark.rotating(3)
def test_what_a_file_holds_is_answered_alike_in_memory(shards, tmp_path):
    async def tell():
        async with file(tmp_path) as bus:
            return await record_story(bus, shards)

    recording = asyncio.run(tell())
    stage = heard(recording, memory, tmp_path, shards, forgetful=True, restarting=True)
    assert_alike(stage, recording)


def test_another_number_of_shards_on_the_way_changes_no_byte(tmp_path):
    changes = ((1_500, 4), (2_800, 1), (4_200, 3))

    async def tell():
        return await record_story(MemoryBus(), 2, hosted=4, later=changes)

    recording = asyncio.run(tell())
    assert {opening.shards for opening in recording.bodies(RoundOpened)} == {1, 2, 3, 4}
    stage = heard(recording, file, tmp_path, 4, forgetful=True, restarting=True)
    assert_alike(stage, recording)


@pytest.mark.parametrize("opening", [memory, file, pytest.param(kafka, marks=pytest.mark.kafka)])
def test_what_services_did_side_by_side_is_answered_alike_one_by_one(opening, tmp_path):
    """Recorded by the wall clock, services and agents running as they come; heard in memory."""

    async def tell():
        async with opening(tmp_path) as bus:
            async with BusCell(bus, nodes=3, shards=2, snapshot_rounds=5) as cell:
                await cell.submit(10)
                await cell.until_ended(10)
            return await recorded(bus, 2)

    recording = asyncio.run(tell())
    assert heard(recording, memory, tmp_path, 2).compared >= 4 * len(recording.bodies(RoundClosed))
    found = verify(Source("side by side", lambda hear: steps_of(recording.messages(), hear=hear), lambda: 2))
    assert found.is_same, found.text()


@pytest.mark.rotating(3)
def test_another_answer_is_seen(recording, shards, tmp_path):
    place, kept = next((place, kept) for place, kept in recording.decisions.items() if place[0] == "grants")
    at, granting = next((at, message) for at, message in enumerate(kept) if b'"attempt":1' in message.value)
    other = replace(granting, value=granting.value.replace(b'"attempt":1', b'"attempt":2', 1))
    changed = Recording(recording.log, {**recording.decisions, place: [*kept[:at], other, *kept[at + 1 :]]})

    with pytest.raises(AssertionError, match="/r"):
        heard(changed, memory, tmp_path, shards)


# ---------------------------------------------------------------- decided by replay
@pytest.mark.rotating(3)
def test_replay_decides_the_same(recording, shards):
    found = verify(Source("memory", lambda hear: steps_of(recording.messages(), hear=hear), lambda: shards))

    assert found.is_same, found.text()
    assert found.rounds_compared == len(recording.bodies(RoundClosed))


@pytest.mark.rotating(3)
def test_replay_decides_the_same_from_a_folder_and_from_an_export(shards, tmp_path):
    async def tell():
        async with file(tmp_path) as bus:
            await record_story(bus, shards)
            return bus.directory

    source = open_source(asyncio.run(tell()))
    write_export(source, tmp_path / "log.gz")
    from_folder, from_export = verify(source), verify(open_source(tmp_path / "log.gz"))

    assert from_folder.is_same, from_folder.text()
    assert from_export.is_same, from_export.text()
    assert from_export.prefix == from_folder.prefix
