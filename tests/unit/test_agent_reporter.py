"""When an agent says what it has to say."""

import asyncio
import json
from itertools import count
from pathlib import Path

import pytest

from largesse.bus.memory import MemoryBus
from largesse.lifecycle import node_work as core
from schemas import NodeRegistered, NodeReported, Policy, Record, SequencerClaimed
from schemas.topics import BEATS
from services.agent import reporter
from services.agent.local import Local
from services.agent.outbox import Name, Result
from services.agent.reporter import Reporter
from services.agent.settings import NodeSettings

LEASE_MS = Policy().node_lease_ms


@pytest.fixture
def bus():
    return MemoryBus()


@pytest.fixture
def speaker(bus, tmp_path):
    return Reporter(bus, NodeSettings("n", tmp_path, report_flush_ms=0))


@pytest.fixture
def work():
    return core.NodeWork("n", "e.1", {"e.1": core.Registration("registered")})


async def _said(bus) -> list[list[int]]:
    """Which tasks each message says have started."""
    if (await bus.bounds("tasks", 0))[1] == 0:
        return []
    documents = [json.loads(message.value) for message in await bus.fetch("tasks", 0, 0)]
    return [
        [item["first"] + task for item in each["started"]["items"] for task in range(item["count"])]
        for each in documents
    ]


def began(speaker, index: int) -> None:
    speaker.outbox.started(f"j/s/{index}/1", Name("j", "s", index, 1), 0)


def test_reports_are_gathered_until_the_log_shows_the_last_one(bus, speaker, work, monkeypatch):
    monkeypatch.setattr(reporter, "GATHER_MS", 10**9)

    async def story():
        began(speaker, 0)
        await speaker.speak(work, LEASE_MS, [])
        for index in (1, 2):
            began(speaker, index)
            await speaker.speak(work, LEASE_MS, [])
        assert await _said(bus) == [[0]]

        speaker.outbox.begun("j/s/0/1")
        await speaker.speak(work, LEASE_MS, [])

        assert await _said(bus) == [[0], [1, 2]]

    asyncio.run(story())


def local(index: int, **about) -> Local:
    name = Name("j", "s", index, 1)
    return Local(f"j/s/{index}/1", name, 5, Path("unused"), **about)


@pytest.mark.parametrize("begins", [True, False], ids=["an attempt that begins", "an open round"])
def test_reports_wait_for_what_is_about_to_follow(bus, speaker, work, monkeypatch, begins):
    monkeypatch.setattr(reporter, "BEGINS_MS", 10**12)
    locals_ = [local(1)] if begins else []

    async def story():
        began(speaker, 0)
        again_ms = await speaker.speak(work, LEASE_MS, locals_, in_round=not begins)
        assert (await _said(bus), again_ms > reporter.mono_ms()) == ([], True)

        for each in locals_:
            each.phase = "running"
        began(speaker, 1)
        await speaker.speak(work, LEASE_MS, locals_)

        assert await _said(bus) == [[0, 1]]

    asyncio.run(story())


def test_an_attempt_that_began_and_ended_at_once_is_reported_with_both(bus, speaker, work):
    async def story():
        speaker.note(local(0, unsaid=True, phase="ended", result=Result(None, run_ms=1)), 0)
        await speaker.speak(work, LEASE_MS, [])
        documents = [json.loads(message.value) for message in await bus.fetch("tasks", 0, 0)]
        assert [list(document) for document in documents] == [["started"], ["finished"]]

    asyncio.run(story())


@pytest.mark.parametrize("result", [Result(None, run_ms=60_000), Result("revoked"), Result("exit_code", exit_code=1)])
def test_what_ran_for_long_or_failed_waits_for_nothing(bus, speaker, work, result):
    async def story():
        speaker.outbox.ended("j/s/0/1", Name("j", "s", 0, 1), result, reporter.mono_ms())
        await speaker.speak(work, LEASE_MS, [local(1)], in_round=True)
        assert (await bus.bounds("tasks", 0))[1] == 1

    asyncio.run(story())


def test_nothing_is_waited_for_beyond_a_limit(bus, speaker, work, monkeypatch):
    monkeypatch.setattr(reporter, "BEGINS_MS", 0)

    async def story():
        began(speaker, 0)
        await speaker.speak(work, LEASE_MS, [local(1)], in_round=True)
        assert await _said(bus) == [[0]]

    asyncio.run(story())


def test_an_attempt_that_waits_for_results_of_others_is_not_waited_for(bus, speaker, work, monkeypatch):
    monkeypatch.setattr(reporter, "BEGINS_MS", 10**12)

    async def story():
        began(speaker, 0)
        await speaker.speak(work, LEASE_MS, [local(1, waits=True)])
        assert await _said(bus) == [[0]]

    asyncio.run(story())


def test_a_log_that_shows_nothing_is_not_waited_for(bus, speaker, work, monkeypatch):
    monkeypatch.setattr(reporter, "GATHER_MS", 0)

    async def story():
        for index in (0, 1):
            began(speaker, index)
            await speaker.speak(work, LEASE_MS, [])

        assert [each[-1] for each in await _said(bus)] == [0, 1]

    asyncio.run(story())


def test_an_end_that_the_log_shows_is_not_awaited(bus, speaker, work, monkeypatch):
    monkeypatch.setattr(reporter, "GATHER_MS", 10**9)

    async def story():
        speaker.outbox.ended("j/s/0/1", Name("j", "s", 0, 1), Result(None), 0)
        await speaker.speak(work, LEASE_MS, [])
        speaker.outbox.over("j/s/0/1")
        began(speaker, 1)

        await speaker.speak(work, LEASE_MS, [])

        assert (await bus.bounds("tasks", 0))[1] == 2

    asyncio.run(story())


# ---------------------------------------------------------------- heartbeats
OFFER = {"cpu": 4_000}


def heartbeats(tmp_path):
    """A reporter of a registered node whose heartbeats are always due, what it says by topic, and the log so far."""
    bus = MemoryBus()
    state = core.start("n", "e.1")
    told = count(1)

    def logged(body):
        core.fold(state, Record(type(body).__name__, 1, "default", next(told), 0, 0, "", "", body))

    reporter = Reporter(bus, NodeSettings("n", tmp_path, capacity=OFFER, heartbeat_ms=0))
    logged(SequencerClaimed("t", beats=True))
    logged(NodeRegistered("n", "e.1", OFFER))

    async def speaks():
        before = {topic: (await bus.bounds(topic, 0))[1] for topic in ("nodes", BEATS)}
        await reporter.speak(state.nodes["n"], LEASE_MS, [], is_known=lambda said: core.has(state, said))
        return [
            (topic, json.loads(message.value))
            for topic, end in before.items()
            for message in await bus.fetch(topic, 0, end)
        ]

    return reporter, bus, logged, speaks


def test_where_the_log_has_what_a_node_offers_a_sign_of_life_will_do(tmp_path):
    async def story():
        reporter, _, logged, speaks = heartbeats(tmp_path)
        await speaks()
        assert await speaks() == [(BEATS, {"node": {"node": "n", "epoch": "e.1"}})]

        reporter.unschedulable = "full"
        for _ in range(2):
            ((topic, document),) = await speaks()
            assert (topic, document["report"]["unschedulable"]) == ("nodes", "full"), "until the log shows it"
        logged(NodeReported("n", "e.1", OFFER, unschedulable="full"))
        assert [topic for topic, _ in await speaks()] == [BEATS]

    asyncio.run(story())


def test_who_changes_and_changes_back_says_so_although_the_log_has_shown_neither(tmp_path):
    async def story():
        reporter, _, logged, speaks = heartbeats(tmp_path)
        await speaks()
        for why in ("full", ""):
            reporter.unschedulable = why
            assert [topic for topic, _ in await speaks()] == ["nodes"]
        assert [topic for topic, _ in await speaks()] == [BEATS]
        logged(NodeReported("n", "e.1", OFFER, unschedulable="full"))
        assert [topic for topic, _ in await speaks()] == ["nodes"]

    asyncio.run(story())


def test_to_a_sequencer_that_does_not_hear_signs_of_life_a_node_reports(tmp_path):
    async def story():
        _, _, logged, speaks = heartbeats(tmp_path)
        await speaks()
        logged(SequencerClaimed("of an earlier version"))
        assert [topic for topic, _ in await speaks()] == ["nodes"]
        logged(SequencerClaimed("of this one", beats=True))
        assert [topic for topic, _ in await speaks()] == [BEATS]

    asyncio.run(story())


def test_a_sign_of_life_counts_as_word_of_the_node_and_one_that_fails_does_not(tmp_path, monkeypatch):
    async def story():
        reporter, bus, _, speaks = heartbeats(tmp_path)
        await speaks()
        monkeypatch.setattr("services.agent.reporter.boot_ms", lambda: 77)
        await speaks()
        assert reporter.sure_ms("e.1") == 77
        monkeypatch.setattr("services.agent.reporter.boot_ms", lambda: 88)
        bus.inject("lost", topic=BEATS)
        await speaks()
        assert reporter.sure_ms("e.1") == 77

    asyncio.run(story())
