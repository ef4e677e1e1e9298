"""What a broker that dies, stays away or compacts does to writers and readers."""

import asyncio
import os

import pytest

from largesse.bus.port import BusError
from tests.contract.kafka_rig import make_topic, new_name
from tests.contract.test_kafka_bus import GUARD_SECONDS, LONG_MS, needs_kafka, open_bus, out, read_on, tell
from tests.kafka_broker import SCRIPT, Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    if not SCRIPT.exists():
        pytest.skip(f"no broker to kill: {SCRIPT} is missing")
    if "LARGESSE_TEST_KAFKA" not in os.environ:
        pytest.skip("no broker to kill: LARGESSE_TEST_KAFKA is not set, so no broker is wanted here")
    quick_compaction = ("log.cleaner.backoff.ms=50", "log.cleaner.min.cleanable.ratio=0.001")
    own = Broker(tmp_path_factory.mktemp("broker"), *quick_compaction, heap="256m")
    try:
        own.start()
        yield own
    finally:
        own.kill()


@needs_kafka
@pytest.mark.slow
def test_a_killed_broker_loses_and_doubles_nothing_that_was_acknowledged(broker):
    acknowledged: dict[int, bytes] = {}
    progress = asyncio.Condition()

    async def write(bus, topic: str, name: str, over: asyncio.Event) -> None:
        writer, number = bus.writer(), 0
        while not over.is_set():
            values = [f"{name}/{number + more}".encode() for more in range(3)]
            for offset, value in zip(await writer.send([out(topic, value) for value in values]), values, strict=True):
                assert offset not in acknowledged
                acknowledged[offset] = value
            number += 3
            async with progress:
                progress.notify_all()

    async def follow(bus, topic: str, met: list[bytes], written: asyncio.Event) -> None:
        while not written.is_set() or len(met) < len(acknowledged):
            if await bus.wait_any({(topic, 0): len(met)}, 100):
                met += [message.value for message in await bus.fetch(topic, 0, len(met))]

    async def until(count: int) -> None:
        async with progress:
            await progress.wait_for(lambda: len(acknowledged) >= count)

    async def story():
        topic = await make_topic(broker.address, new_name(), 1)
        over, written = asyncio.Event(), asyncio.Event()
        met: list[bytes] = []
        # A broker on a loaded machine may need longer to come back than a service would wait for it.
        patient = {"patience_ms": GUARD_SECONDS * 1_000}
        async with open_bus(broker.address, **patient) as writing, open_bus(broker.address, **patient) as reading:
            tasks = [asyncio.create_task(write(writing, topic, name, over)) for name in "abc"]
            following = asyncio.create_task(follow(reading, topic, met, written))
            await until(300)
            for _ in range(2):
                broker.kill()
                await asyncio.to_thread(broker.start)
                await until(len(acknowledged) + 300)
            over.set()
            await asyncio.gather(*tasks)
            written.set()
            await following
            first, end = await reading.bounds(topic, 0)

        assert (first, end) == (0, len(acknowledged))
        assert met == [acknowledged[offset] for offset in range(end)]
        for name in "abc":
            own = [int(value.split(b"/")[1]) for value in met if value.startswith(name.encode())]
            assert own == list(range(len(own)))

    tell(story)


@needs_kafka
@pytest.mark.slow
def test_a_send_whose_broker_stays_away_is_unknown_and_ends_the_writer(broker):
    async def story():
        topic = await make_topic(broker.address, new_name(), 1)
        async with open_bus(broker.address, patience_ms=5_000) as hasty, open_bus(broker.address) as patient:
            writer = hasty.writer()
            await writer.send([out(topic, "before")])
            assert await read_on(patient, topic, 0, 1) == [b"before"]
            waiting = asyncio.create_task(patient.fetch(topic, 0, 1, wait_ms=LONG_MS))
            broker.kill()
            with pytest.raises(BusError):
                await writer.send([out(topic, "unknown")])
            with pytest.raises(BusError):
                await writer.send([out(topic, "never")])
            await asyncio.to_thread(broker.start)
            await patient.writer().send([out(topic, "after")])

            # Who was waiting goes on, as if nothing had been.
            assert [message.value for message in await waiting] in ([b"after"], [b"unknown"], [b"unknown", b"after"])
            _, end = await patient.bounds(topic, 0)
            assert await read_on(patient, topic, 0, end) in ([b"before", b"after"], [b"before", b"unknown", b"after"])

    tell(story)


@needs_kafka
@pytest.mark.slow
def test_a_reader_passes_over_what_compaction_took(broker):
    async def story():
        name = await make_topic(broker.address, new_name(), 1, cleanup_policy="compact", segment_ms="100")
        async with open_bus(broker.address) as bus, open_bus(broker.address) as anew:
            writer = bus.writer()
            for number in range(60):
                await writer.send([out(name, f"{number}", key=f"slot-{number % 2}")])
            while True:
                # Segments end only when something is appended after their time.
                (last,) = await writer.send([out(name, "tick", key="tick")])
                async with open_bus(broker.address) as looking:
                    found = await looking.fetch(name, 0, 0, wait_ms=LONG_MS)
                if found[0].offset >= 58:
                    break
            values = await read_on(anew, name, 0, last + 1)
            assert values[:2] == [b"58", b"59"]
            assert await read_on(anew, name, 7, last + 1) == values
            assert await anew.fetch(name, 0, last + 1) == []

    tell(story)
