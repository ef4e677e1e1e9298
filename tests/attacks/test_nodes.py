"""A node over MQTT that means no good, with a password of its own, on the broker of infra/mosquitto."""

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import pytest

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker
from largesse.mqtt.port import PAYLOAD_BYTES_MAX, MqttError, Refused, Session
from largesse.mqtt.topics import (
    ask_topic,
    down_topic,
    fetched_topic,
    hello_topic,
    reply_topic,
    up_filter,
    up_topic,
)
from largesse.telemetry import BRIDGE_REFUSED
from schemas import NodeRegistered
from tests.attacks.listed import Attack, Target, check_names, named
from tests.live.agent_cell import GUARD_SECONDS, ScriptedCell, scripted_cell
from tests.live.edge_cell import bridge_on
from tests.mqtt_site import Site

TARGET = Target(
    "Nodes over MQTT",
    "mosquitto with the rules of `infra/mosquitto`, and a bridge behind it; who attacks is node `evil`, with its own"
    " password, beside node `n1`. Counted is in `largesse_bridge_refused_total`.",
)
UP, DOWN = up_topic("default", "evil"), down_topic("default", "evil")
NOT_PUBLISHED, NOT_IN = "not authorized to publish", "not let in"


@dataclass
class Broken:
    """`evil`: a session of the node; `watch`: of a bridge, which hears what is passed on."""

    site: Site
    cell: ScriptedCell
    evil: Session
    numbers: int = 0

    def number(self):
        self.numbers += 1
        return self.numbers


def report(number, *, node="evil", epoch="e", inside="evil", topic="nodes", form="report", **more):
    fields = {"cell": "default", "node": node, "epoch": epoch, "number": number, "seq": -1}
    said = {"topic": topic, "document": {form: {"node": inside, "epoch": "e", "capacity": {"cpu": "1"}, **more}}}
    return fields | {"messages": [said]}


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """Tries an attack; returns what came of it, and what was counted."""
    site = Site(tmp_path_factory.mktemp("mosquitto"))
    for user in ("n1", "evil", "bridge"):
        site.password(user)
    site.mosquitto.start()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start():
            cell = await stack.enter_async_context(scripted_cell())
            await stack.enter_async_context(bridge_on(cell, site.broker("bridge")))
            evil = await stack.enter_async_context(site.broker("evil").session("evil"))
            await evil.subscribe(DOWN)
            found = Broken(site, cell, evil)
            async with asyncio.timeout(GUARD_SECONDS):  # A bridge that was not there yet has not heard it.
                while not cell.bodies(NodeRegistered):
                    await evil.publish(UP, json.dumps(report(found.number(), form="register")).encode())
                    await asyncio.sleep(0.1)
            last = found.number()
            await evil.publish(UP, json.dumps(report(last)).encode())
            async with asyncio.timeout(GUARD_SECONDS):
                while await told(evil) != last:
                    pass
                records = -1
                while records != len(cell.records):  # What was repeated is sequenced after it was answered.
                    records = len(cell.records)
                    await asyncio.sleep(0.5)
            return found

        async def attempt(found, attack):
            before, inputs = counts(), len(found.cell.records)
            async with asyncio.timeout(GUARD_SECONDS):
                refused = await attack.story(found)
            after = counts()
            kinds = [type(each.body).__name__ for each in found.cell.records[inputs:]]
            assert set(kinds) <= {"SequencerAlive", "NodeLost"}, kinds
            return refused, ", ".join(key for key, value in after.items() if value > before.get(key, 0))

        found = runner.run(start())
        try:
            yield lambda attack: runner.run(attempt(found, attack))
        finally:
            runner.run(stack.aclose())
            site.mosquitto.kill()


async def told(evil):
    """The number of the newest report that the bridge has answered."""
    answers = [json.loads(message.payload)["answered"] for message in await evil.next() if message.payload]
    return answers[-1]["number"] if answers and answers[-1] else 0


def counts():
    samples = [sample for metric in BRIDGE_REFUSED.collect() for sample in metric.samples]
    return {sample.labels["reason"]: sample.value for sample in samples if sample.name.endswith("_total")}


def publishes(topic, payload=b"x", *, retain=False):
    async def story(found):
        try:
            await found.evil.publish(topic, payload, retain=retain)
        except Refused:
            return NOT_PUBLISHED
        return "published"

    return story


def hears(wanted):
    """Subscribes, and listens while a bridge and another node speak."""

    async def story(found):
        site = found.site
        async with site.broker("evil").session("evil-2") as evil, site.broker("bridge").session("b9") as bridge:
            with suppress(Refused):  # Mosquitto 2.0 takes it, and sends nothing.
                await evil.subscribe(wanted)
            await evil.subscribe(DOWN)
            async with site.broker("n1").session("n1") as other:
                await other.publish(hello_topic("default", "n1"), b"not for evil")
                await other.publish(reply_topic("default", "n1", "b9"), b"not for evil")
            for topic in (down_topic("default", "n1"), ask_topic("default", "n1"), fetched_topic("default", "n1")):
                await bridge.publish(topic, b"not for evil")
            await bridge.publish(DOWN, b"the end")
            while True:
                for message in await evil.next():
                    assert message.payload != b"not for evil"
                    if message.payload == b"the end":
                        return "hears nothing"

    return story


def says(make):
    """A report on its own branch, which the broker lets through and the bridge refuses: it is told why."""

    async def story(found):
        payload = make(found)
        await found.evil.publish(UP, payload if isinstance(payload, bytes) else json.dumps(payload).encode())
        while True:
            for message in await found.evil.next():
                if message.payload in (b"", b"the end"):
                    continue
                told = json.loads(message.payload)
                if told.get("refused"):
                    # One that is taken ends that it is told.
                    await found.evil.publish(UP, json.dumps(report(found.number())).encode())
                    return told["refused"].partition(":")[0]

    return story


def comes_as(user, secret=None, port="mosquitto"):
    async def story(found):
        site = found.site
        where = site.mosquitto.port if port == "mosquitto" else site.inner_port
        broker = site.broker(user, secret=secret) if user else ClientBroker(read_address(f"mqtt://127.0.0.1:{where}"))
        try:
            async with broker.session(user or "nobody"):
                return "let in"
        except MqttError:
            log = site.mosquitto.log.read_text()
            assert "not authorised" in log, log[-500:]
            return NOT_IN

    return story


def on(name, topic, **given):
    return Attack(name, publishes(topic, **given), NOT_PUBLISHED)


def hear(name, wanted):
    return Attack(name, hears(wanted), "hears nothing")


def say(name, reason, make):
    return Attack(name, says(make), reason, counted=reason)


ATTACKS = [
    Attack("another node's name with one's own password", comes_as("n1", "evil"), NOT_IN, "not authorised"),
    Attack("the bridge's name with a node's password", comes_as("bridge", "evil"), NOT_IN, "not authorised"),
    Attack("a name that nobody has", comes_as("n9", "evil"), NOT_IN, "not authorised"),
    Attack("no name", comes_as(""), NOT_IN, "not authorised"),
    Attack("no name, at the bridges' port", comes_as("", port="inner"), NOT_IN, "not authorised"),
    on("a report on another node's topic", up_topic("default", "n1")),
    on("work for another node", down_topic("default", "n1"), retain=True),
    on("work for itself", DOWN, retain=True),
    on("a retained message that poisons another's work", down_topic("default", "n1"), payload=b"{", retain=True),
    on("a question to another node", ask_topic("default", "n1")),
    on("an answer in another node's name", reply_topic("default", "n1", "b1")),
    on("results for itself, as if a bridge brought them", fetched_topic("default", "evil")),
    on("a hello in another node's name", hello_topic("default", "n1"), retain=True),
    on("a report in another cell", up_topic("other", "evil")),
    on("a topic of its own making", "largesse/default/admin"),
    hear("everything", "#"),
    hear("everything of the cell", "largesse/default/#"),
    hear("all reports", up_filter("default")),
    hear("the work of all nodes", "largesse/default/node/+/down"),
    hear("the work of another node", down_topic("default", "n1")),
    hear("the questions to another node", ask_topic("default", "n1")),
    hear("what is fetched for another node", fetched_topic("default", "n1")),
    hear("as many levels as there are", "+/+/+/+/+"),
    hear("what the broker says of itself", "$SYS/#"),
    say("reports for another node", "name", lambda found: report(found.number(), node="n1")),
    say("reports for another node, inside", "name", lambda found: report(found.number(), inside="n1")),
    say("drains a node", "form", lambda found: report(found.number(), form="drain")),
    say("removes a node", "form", lambda found: report(found.number(), form="remove")),
    say("submits a job", "malformed", lambda found: report(found.number(), topic="jobs")),
    say("makes a token", "malformed", lambda found: report(found.number(), topic="access", form="make")),
    say("changes policy", "malformed", lambda found: report(found.number(), topic="config", form="set")),
    say("replays a report", "number", lambda found: report(1)),
    say("brackets without end", "malformed", lambda found: b"[" * PAYLOAD_BYTES_MAX),
    say("a number without end", "malformed", lambda found: b"9" * PAYLOAD_BYTES_MAX),
    say("a field twice", "malformed", lambda found: json.dumps(report(9))[:-1].encode() + b', "number": 2}'),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tried, attack):
    assert tried(attack) == (attack.refused, attack.counted)
