"""The broker in memory is as bad as it was asked to be; topics and filters are those of MQTT."""

import asyncio

import pytest

from largesse.mqtt.memory import MemoryBroker
from largesse.mqtt.port import MqttError, Refused, Will
from largesse.mqtt.topics import NameWrong, check_filter, check_topic, down_topic, matches, node_of, up_filter, up_topic


def told(story):
    async def guarded():
        async with asyncio.timeout(60):
            await story(MemoryBroker())

    asyncio.run(guarded())


async def publishes(broker, *texts, client="writer"):
    """Publishes one after another, each in a session of its own where the last was lost; what its publisher heard."""
    found = []
    for text in texts:
        try:
            async with broker.session(client) as session:
                await session.publish("t", text.encode())
            found.append("ok")
        except MqttError as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize(
    ("fault", "heard", "arrived"),
    [
        pytest.param({"kind": "lost"}, "ok", "acd", id="lost: its publisher hears nothing of it"),
        pytest.param({"kind": "repeated"}, "ok", "abbcd", id="repeated: it arrives twice"),
        pytest.param({"kind": "late", "after": 1}, "ok", "acbd", id="late: after one other"),
        pytest.param({"kind": "late", "after": 2}, "ok", "acdb", id="late: after two others"),
        pytest.param({"kind": "late"}, "ok", "acd", id="late: not yet"),
        pytest.param({"kind": "cut"}, "MqttError", "acd", id="cut: nothing arrives"),
        pytest.param({"kind": "unknown"}, "MqttError", "abcd", id="unknown: it arrived"),
        pytest.param({"kind": "refused"}, "Refused", "acd", id="refused: nothing arrives"),
        pytest.param({"kind": "lost", "topic": "other/#"}, "ok", "abcd", id="of other topics: not this one"),
    ],
)
def test_a_fault_strikes_one_publication(fault, heard, arrived):
    async def story(broker):
        async with broker.session("reader") as reader:
            await reader.subscribe("t")
            broker.inject(**fault, skip=1)
            assert await publishes(broker, "a", "b", "c", "d") == ["ok", heard, "ok", "ok"]
            found = await reader.next()
            assert b"".join(message.payload for message in found).decode() == arrived

    told(story)


def test_what_is_late_arrives_when_told():
    async def story(broker):
        broker.inject("late")
        async with broker.session("one") as session:
            await session.subscribe("t")
            await session.publish("t", b"first")
            await session.publish("t", b"second")
            assert broker.deliver_late() == 1
            assert [message.payload for message in await session.next()] == [b"second", b"first"]

    told(story)


def test_a_publication_that_was_refused_leaves_its_session_alone():
    async def story(broker):
        broker.inject("refused")
        async with broker.session("one") as session:
            await session.subscribe("t")
            with pytest.raises(Refused, match="one may not publish on t"):
                await session.publish("t", b"no")
            await session.publish("t", b"yes")
            assert [message.payload for message in await session.next()] == [b"yes"]

    told(story)


def test_a_frozen_session_waits_until_it_is_cut_and_hears_nothing():
    async def story(broker):
        async with broker.session("half") as half, broker.session("whole") as whole:
            await half.subscribe("t")
            await whole.subscribe("t", "will")
            broker.freeze("half")
            await whole.publish("t", b"1")
            saying = asyncio.create_task(half.publish("t", b"2"))
            hearing = asyncio.create_task(half.next())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not saying.done()
            assert not hearing.done()
            assert broker.cut("half")
            for waiting in (saying, hearing):
                with pytest.raises(MqttError, match="connection was lost"):
                    await waiting
            assert [message.payload for message in await whole.next()] == [b"1"]

    told(story)


def test_who_is_barred_is_refused_until_admitted():
    async def story(broker):
        async with broker.session("one") as session:
            broker.bar("one")
            with pytest.raises(MqttError, match="withdrawn"):
                await session.next()
        with pytest.raises(Refused, match="one may not come in"):
            async with broker.session("one"):
                pass
        broker.admit("one")
        async with broker.session("one"):
            assert broker.clients == ["one"]
        assert broker.clients == []

    told(story)


@pytest.mark.parametrize("forget", [True, False])
def test_a_broker_that_is_down_lets_nobody_in_and_may_forget(forget):
    async def story(broker):
        async with broker.session("one", Will("will", b"said", retain=True)) as session:
            await session.publish("t", b"kept", retain=True)
            broker.stop(forget=forget)
            with pytest.raises(MqttError):
                await session.next()
        with pytest.raises(MqttError, match="no broker"):
            async with broker.session("one"):
                pass
        broker.start()
        async with broker.session("one"):
            assert broker.retained == ({} if forget else {"t": b"kept"})

    told(story)


@pytest.mark.parametrize(
    ("wanted", "topic", "is_match"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("+/b", "a/b", True),
        ("+", "/a", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_a_filter_takes_in_what_mqtt_says(wanted, topic, is_match):
    check_filter(wanted)
    check_topic(topic)
    assert matches(wanted, topic) is is_match


def test_the_topics_of_a_node_lead_back_to_it():
    topic = up_topic("default", "rack1 n3")

    assert topic == "largesse/default/node/rack1 n3/up"
    assert down_topic("default", "rack1 n3") == "largesse/default/node/rack1 n3/down"
    assert node_of(topic, "default") == "rack1 n3"
    assert matches(up_filter("default"), topic)
    assert node_of(topic, "other") is None
    assert node_of(down_topic("default", "n"), "default") is None


@pytest.mark.parametrize("name", ["", "a/b", "+", "n#1", "a\0"])
def test_a_name_that_is_no_level_of_a_topic_is_refused(name):
    with pytest.raises(NameWrong, match="the node"):
        up_topic("default", name)
    with pytest.raises(NameWrong, match="the cell"):
        up_filter(name)
