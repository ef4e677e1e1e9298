"""The configuration in infra/mosquitto with a real mosquitto: who is let in, and what each may say and hear."""

import asyncio
from contextlib import suppress

import pytest

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker
from largesse.mqtt.port import PAYLOAD_BYTES_MAX, Refused
from largesse.mqtt.topics import (
    ask_topic,
    down_topic,
    fetch_filter,
    fetch_topic,
    fetched_topic,
    hello_filter,
    hello_topic,
    reply_filter,
    reply_topic,
    up_filter,
    up_topic,
)
from tests.mqtt_site import INFRA, Site
from tests.secret_files import keep

GUARD_SECONDS = 120
UP, DOWN = up_topic("default", "n1"), down_topic("default", "n1")


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    for user in ("n1", "n2", "bridge"):
        made.password(user)
    made.mosquitto.start()
    yield made
    made.mosquitto.kill()


def told(story):
    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS):
            await story()

    asyncio.run(guarded())


async def arrived(session, count):
    found = []
    while len(found) < count:
        found += await session.next()
    return [(message.topic, message.payload) for message in found]


def test_a_node_and_a_bridge_hear_each_other(site):
    async def story():
        async with site.broker("n1").session("n1") as node, site.broker("bridge").session("b1") as bridge:
            await bridge.subscribe(up_filter("default"))
            await node.subscribe(DOWN)
            await node.publish(UP, b"x" * PAYLOAD_BYTES_MAX)
            assert await arrived(bridge, 1) == [(UP, b"x" * PAYLOAD_BYTES_MAX)]
            await bridge.publish(DOWN, b"work", retain=True)
            assert await arrived(node, 1) == [(DOWN, b"work")]

    told(story)


def test_a_bridge_asks_a_node_and_is_answered_alone(site):
    async def story():
        asked, reply = ask_topic("default", "n1"), reply_topic("default", "n1", "b1")
        async with (
            site.broker("n1").session("n1") as node,
            site.broker("bridge").session("b1") as bridge,
            site.broker("bridge").session("b2") as other,
        ):
            await node.subscribe(asked)
            await bridge.subscribe(reply_filter("default", "b1"))
            await other.subscribe(reply_filter("default", "b2"))
            await bridge.publish(asked, b"what?")
            assert await arrived(node, 1) == [(asked, b"what?")]
            await node.publish(reply, b"that")
            assert await arrived(bridge, 1) == [(reply, b"that")]
            await node.publish(reply_topic("default", "n1", "b2"), b"this")
            assert await arrived(other, 1) == [(reply_topic("default", "n1", "b2"), b"this")]

    told(story)


def test_a_node_asks_the_bridges_and_is_answered(site):
    async def story():
        asked, answer = fetch_topic("default", "n1"), fetched_topic("default", "n1")
        async with site.broker("n1").session("n1") as node, site.broker("bridge").session("b1") as bridge:
            await node.subscribe(answer)
            await bridge.subscribe(fetch_filter("default"))
            await node.publish(asked, b"what?")
            assert await arrived(bridge, 1) == [(asked, b"what?")]
            await bridge.publish(answer, b"that")
            assert await arrived(node, 1) == [(answer, b"that")]

    told(story)


def test_what_a_node_says_before_it_is_known_is_kept_for_a_bridge_that_looks(site):
    async def story():
        hello = hello_topic("default", "n1")
        async with site.broker("n1").session("n1") as node, site.broker("bridge").session("b1") as bridge:
            await node.publish(hello, b"hello", retain=True)
            await bridge.subscribe(hello_filter("default"))
            (kept,) = await bridge.next()
            assert (kept.topic, kept.payload, kept.retained) == (hello, b"hello", True)
            await node.publish(hello, b"", retain=True)
            (gone,) = await bridge.next()
            assert (gone.payload, gone.retained) == (b"", False)

    told(story)


@pytest.mark.parametrize(
    "topic",
    [
        *(up_topic("default", "n2"), DOWN, down_topic("default", "n2"), up_topic("other", "n1"), "x"),
        *(ask_topic("default", "n1"), ask_topic("default", "n2"), reply_topic("default", "n2", "b1")),
        *(fetch_topic("default", "n2"), fetched_topic("default", "n1"), hello_topic("default", "n2")),
    ],
)
def test_a_node_says_nothing_outside_of_its_branch(site, topic):
    async def story():
        async with site.broker("n1").session("n1") as node:
            with pytest.raises(Refused, match="publish"):
                await node.publish(topic, b"")
            await node.publish(UP, b"")

    told(story)


@pytest.mark.parametrize(
    "wanted",
    [
        *("#", "largesse/#", "largesse/default/node/+/down", down_topic("default", "n2"), UP, up_filter("default")),
        *("largesse/default/node/+/ask", ask_topic("default", "n2"), "largesse/default/bridge/+"),
        *(reply_filter("default", "b1"), "largesse/default/node/n2/#", "+/+/+/+/+", "$SYS/#"),
        *(
            fetch_filter("default"),
            fetch_topic("default", "n2"),
            fetched_topic("default", "n2"),
            hello_filter("default"),
        ),
    ],
)
def test_a_node_hears_nothing_outside_of_its_branch(site, wanted):
    async def story():
        async with (
            site.broker("n1").session("n1") as node,
            site.broker("n2").session("n2") as other,
            site.broker("bridge").session("b1") as bridge,
        ):
            await bridge.publish(down_topic("default", "n2"), b"kept", retain=True)
            with suppress(Refused):  # Mosquitto 2.0 takes it, and sends nothing.
                await node.subscribe(wanted)
            await node.subscribe(DOWN)
            await bridge.publish(down_topic("default", "n2"), b"not for n1")
            await bridge.publish(ask_topic("default", "n2"), b"not for n1")
            await bridge.publish("largesse/default/bridge/b1", b"not for n1", retain=True)
            await bridge.publish(fetched_topic("default", "n2"), b"not for n1")
            await other.publish(reply_topic("default", "n2", "b1"), b"not for n1")
            await other.publish(fetch_topic("default", "n2"), b"not for n1")
            await other.publish(hello_topic("default", "n2"), b"not for n1", retain=True)
            await other.publish(up_topic("default", "n2"), b"not for n1")
            await node.publish(UP, b"not to be heard by itself")
            await bridge.publish(DOWN, b"for n1")
            assert set(await arrived(node, 1)) == {(DOWN, b"for n1")}

    told(story)


@pytest.mark.parametrize(("user", "secret"), [("n1", "n2"), ("n3", "n1"), ("bridge", "n1")])
def test_a_wrong_name_or_password_is_refused(site, user, secret):
    async def story():
        with pytest.raises(Refused, match="not in"):
            async with site.broker(user, secret=secret).session(user):
                pass

    told(story)


def test_nobody_comes_in_without_a_name(site):
    async def story():
        for port in (site.mosquitto.port, site.inner_port):
            with pytest.raises(Refused):
                async with ClientBroker(read_address(f"mqtt://127.0.0.1:{port}")).session("n1"):
                    pass

    told(story)


@pytest.mark.parametrize(("user", "topic"), [("bridge", DOWN), ("n1", UP)])
def test_sessions_of_one_user_with_ids_of_their_own_stand_beside_each_other(site, user, topic):
    async def story():
        async with site.broker(user).session("1") as one, site.broker(user).session("2") as two:
            await one.publish(topic, b"")
            await two.publish(topic, b"")
            await one.publish(topic, b"")

    told(story)


def test_another_password_counts_once_the_broker_has_read_it(site):
    async def story():
        old = (site.folder / "n1.secret").read_text()
        site.password("n1")
        site.mosquitto.reload()
        keep(site.folder / "old.secret", old)
        while True:
            try:
                async with site.broker("n1", secret="old").session("n1"):
                    await asyncio.sleep(0.01)
            except Refused:
                break
        async with site.broker("n1").session("n1") as node:
            await node.publish(UP, b"")

    told(story)


def lines_of(name):
    text = (INFRA / name).read_text()
    return {line.removeprefix("plugin_opt_") for line in text.splitlines() if line and not line.startswith("#")}


def test_both_configurations_say_the_same_but_for_where_passwords_and_rules_are_read():
    assert lines_of("mosquitto-2.0.conf") ^ lines_of("mosquitto-2.1.conf") == {
        "per_listener_settings false",
        "global_plugin /usr/lib/mosquitto_password_file.so",
        "global_plugin /usr/lib/mosquitto_acl_file.so",
    }


def test_the_broker_of_the_containers_is_that_of_the_page_without_tls():
    differing = lines_of("mosquitto-2.0.conf") ^ lines_of("compose.conf")

    assert {line.split()[0] for line in differing} == {"certfile", "keyfile", "listener", "password_file"}
