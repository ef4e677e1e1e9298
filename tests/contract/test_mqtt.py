"""What every adapter of the MQTT port does alike: in memory, and with a real broker."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker
from largesse.mqtt.memory import MemoryBroker
from largesse.mqtt.port import PAYLOAD_BYTES_MAX, Arrived, MqttError, Will
from tests.mosquitto import Mosquitto
from tests.mqtt_proxy import Proxy

GUARD_SECONDS = 60


class MemoryRig:
    """A broker in memory, and what happens to it."""

    def __init__(self):
        self.broker = MemoryBroker()

    @asynccontextmanager
    async def running(self):
        yield self

    async def restart(self):
        self.broker.stop()
        self.broker.start()

    async def cut(self, client):
        self.broker.cut(client)


class RealRig:
    """A mosquitto behind a proxy, and what happens to both."""

    def __init__(self, folder):
        self.mosquitto = Mosquitto(folder)
        self.proxy = Proxy(self.mosquitto.port)

    @asynccontextmanager
    async def running(self):
        self.mosquitto.start()
        try:
            async with self.proxy.running():
                self.broker = ClientBroker(read_address(f"mqtt://127.0.0.1:{self.proxy.port}"))
                yield self
        finally:
            self.mosquitto.kill()

    async def restart(self):
        self.mosquitto.kill()
        self.mosquitto.start()

    async def cut(self, client):
        assert self.proxy.cut(client) == 1


@pytest.fixture(params=["memory", "mosquitto"])
def rig(request, tmp_path):
    return MemoryRig() if request.param == "memory" else RealRig(tmp_path)


def told(rig, story):
    """Runs a story with the rig's broker."""

    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), rig.running():
            await story(rig.broker)

    asyncio.run(guarded())


async def heard(session, count):
    """The next so many messages, in order."""
    found = []
    while len(found) < count:
        found += await session.next()
    return found


async def is_over(session):
    """Waits for the end of a session; what still arrives is left aside."""
    try:
        while True:
            await session.next()
    except MqttError:
        pass


def test_what_is_published_arrives_in_order_at_those_who_asked_for_it(rig):
    async def story(broker):
        async with broker.session("reader") as reader, broker.session("writer") as writer:
            await reader.subscribe("a/+/up", "b/#")
            for topic, payload in [
                ("a/1/up", b"1"),
                ("a/1/down", b"no"),
                ("b", b"2"),
                ("a/x/y/up", b"no"),
                ("b/c/d", b"3"),
            ]:
                await writer.publish(topic, payload)
            await writer.publish("a/2/up", b"")

            assert await heard(reader, 4) == [
                Arrived("a/1/up", b"1"),
                Arrived("b", b"2"),
                Arrived("b/c/d", b"3"),
                Arrived("a/2/up", b""),
            ]

    told(rig, story)


def test_what_is_no_longer_subscribed_to_does_not_arrive(rig):
    async def story(broker):
        async with broker.session("reader") as reader, broker.session("writer") as writer:
            await reader.subscribe("a/+", "a/1", "b")
            await reader.unsubscribe("a/+", "never/subscribed")
            await writer.publish("a/2", b"no")
            await writer.publish("a/1", b"by name")
            await reader.unsubscribe("a/1")
            await writer.publish("a/1", b"no")
            await writer.publish("b", b"still")
            assert await heard(reader, 2) == [Arrived("a/1", b"by name"), Arrived("b", b"still")]

    told(rig, story)


def test_who_publishes_hears_it_too_if_they_asked_for_it(rig):
    async def story(broker):
        async with broker.session("one") as session:
            await session.subscribe("a")
            await session.publish("a", b"mine")
            assert await heard(session, 1) == [Arrived("a", b"mine")]

    told(rig, story)


def test_the_last_retained_message_is_kept_for_those_who_come_later(rig):
    async def story(broker):
        async with broker.session("writer") as writer:
            await writer.publish("kept/a", b"old", retain=True)
            await writer.publish("kept/a", b"new", retain=True)
            await writer.publish("kept/a", b"passing")
            await writer.publish("kept/b", b"gone", retain=True)
            await writer.publish("kept/b", b"", retain=True)
        async with broker.session("reader") as reader, broker.session("writer") as writer:
            await reader.subscribe("kept/+")
            await writer.publish("kept/c", b"live", retain=True)
            assert await heard(reader, 2) == [Arrived("kept/a", b"new", retained=True), Arrived("kept/c", b"live")]

    told(rig, story)


def test_nothing_is_kept_for_a_session_that_was_over(rig):
    async def story(broker):
        async with broker.session("reader") as reader:
            await reader.subscribe("#")
        async with broker.session("writer") as writer:
            await writer.publish("a", b"missed")
            async with broker.session("reader") as reader:
                await writer.publish("a", b"not asked for")
                await reader.subscribe("#")
                await writer.publish("a", b"heard")
                assert await heard(reader, 1) == [Arrived("a", b"heard")]

    told(rig, story)


def test_a_newer_session_of_the_same_client_ends_the_older(rig):
    async def story(broker):
        async with broker.session("same") as older, broker.session("same") as newer:
            await is_over(older)
            with pytest.raises(MqttError):
                await older.publish("a", b"")
            with pytest.raises(MqttError):
                await older.subscribe("a")
            await newer.subscribe("a")
            await newer.publish("a", b"alive")
            assert await heard(newer, 1) == [Arrived("a", b"alive")]

    told(rig, story)


def test_leaving_an_older_session_leaves_the_newer_alone(rig):
    async def story(broker):
        async with broker.session("same") as older:
            newer_context = broker.session("same")
            newer = await newer_context.__aenter__()
            await is_over(older)
        await newer.subscribe("a")
        await newer.publish("a", b"alive")
        assert await heard(newer, 1) == [Arrived("a", b"alive")]
        await newer_context.__aexit__(None, None, None)

    told(rig, story)


def test_a_will_is_said_for_a_session_that_was_cut_and_for_no_other(rig):
    async def story(broker):
        async with broker.session("watcher") as watcher:
            await watcher.subscribe("will/+")
            async with broker.session("polite", Will("will/polite", b"gone")):
                pass
            async with broker.session("doomed", Will("will/doomed", b"gone")) as doomed:
                await rig.cut("doomed")
                await is_over(doomed)
            assert await heard(watcher, 1) == [Arrived("will/doomed", b"gone")]

    told(rig, story)


def test_a_will_that_is_retained_and_empty_makes_the_broker_forget(rig):
    async def story(broker):
        async with broker.session("doomed", Will("state", b"", retain=True)) as doomed:
            await doomed.publish("state", b"here", retain=True)
            await rig.cut("doomed")
            await is_over(doomed)
        async with broker.session("watcher") as watcher:
            await watcher.subscribe("#")
            await watcher.publish("state", b"after")
            assert (await heard(watcher, 1))[-1] == Arrived("state", b"after")

    told(rig, story)


def test_the_largest_payload_arrives_and_a_larger_one_is_not_sent(rig):
    async def story(broker):
        async with broker.session("one") as session:
            await session.subscribe("big")
            with pytest.raises(ValueError, match="big"):
                await session.publish("big", bytes(PAYLOAD_BYTES_MAX + 1))
            await session.publish("big", b"x" * PAYLOAD_BYTES_MAX)
            [message] = await heard(session, 1)
            assert message.payload == b"x" * PAYLOAD_BYTES_MAX

    told(rig, story)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0"])
def test_what_is_no_topic_is_a_mistake_of_the_caller(rig, topic):
    async def story(broker):
        async with broker.session("one") as session:
            with pytest.raises(ValueError, match="topic"):
                await session.publish(topic, b"")
            await session.publish("a", b"")

    told(rig, story)


@pytest.mark.parametrize("wanted", ["", "a/#/b", "a+", "a/b#"])
def test_what_is_no_filter_is_a_mistake_of_the_caller(rig, wanted):
    async def story(broker):
        async with broker.session("one") as session:
            with pytest.raises(ValueError, match="filter"):
                await session.subscribe(wanted)
            await session.publish("a", b"")

    told(rig, story)


def test_a_restart_of_the_broker_ends_sessions_and_new_ones_are_as_good(rig):
    async def story(broker):
        async with broker.session("one") as session:
            await rig.restart()
            await is_over(session)
            with pytest.raises(MqttError):
                await session.publish("a", b"")
        async with broker.session("one") as session:
            await session.subscribe("a")
            await session.publish("a", b"again")
            assert await heard(session, 1) == [Arrived("a", b"again")]

    told(rig, story)


def test_a_wait_that_is_cancelled_loses_nothing(rig):
    async def story(broker):
        async with broker.session("reader") as reader, broker.session("writer") as writer:
            await reader.subscribe("a")
            for number in range(20):
                waiting = asyncio.create_task(reader.next())
                await asyncio.sleep(0)
                await writer.publish("a", str(number).encode())
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                waiting.cancel()
                taken = [] if (await asyncio.wait({waiting}))[0] and waiting.cancelled() else list(waiting.result())
                while not taken:
                    taken = list(await reader.next())
                assert [message.payload for message in taken] == [str(number).encode()]

    told(rig, story)


def test_a_session_that_was_left_says_so(rig):
    async def story(broker):
        async with broker.session("one") as session:
            pass
        with pytest.raises(MqttError):
            await session.publish("a", b"")
        with pytest.raises(MqttError):
            await session.next()

    told(rig, story)
