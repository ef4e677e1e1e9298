"""Real processes whose wall clock jumps by an hour, a day and a year, there and back: rounds, wake-ups, node leases
and takeovers come within their times.
"""

import asyncio
import json
from time import time

import pytest

from schemas import NodeLost
from tests.live.kafka_cell import KafkaCell, free_partition
from tests.live.up_process import up
from tests.live.wall_clock import WallClock, compiled
from tests.unit.cli_process import largesse

pytestmark = pytest.mark.slow

HOUR, DAY, YEAR = 3_600, 86_400, 365 * 86_400
AHEADS = [sign * span for span in (HOUR, DAY, YEAR) for sign in (1, -1)]
GUARD_S = 240
"""Ends what hangs: far more than a job or a takeover takes on a busy machine, far less than any jump."""
LOG_AHEAD_S = HOUR / 2
"""Log time that went along with a jump would be further off than that."""
NODE_LEASE_MS = 300_000
"""A node that a busy machine keeps from speaking is not lost; one whose lease followed a jump of an hour would be."""
TWICE = ["sh", "-c", "test $LARGESSE_ATTEMPT = 2"]
"""Fails at first, so that it takes a wake-up, for the second try, to end."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("library"))


def spec(name):
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "100m"}, "retries": 1, "command": TWICE}
    return {"job": name, "stages": [stage]}


def test_jobs_run_and_tries_come_again_in_an_embedded_cell_whatever_its_wall_clock_does(library, daily, tmp_path):
    clock = WallClock(library, tmp_path / "ahead")
    with up(tmp_path / "cell", "--nodes", 1, **clock.environment) as cell:
        jumps = AHEADS[:2] if daily else AHEADS
        for number, ahead in enumerate([0, *(each for jump in jumps for each in (jump, 0))]):
            clock.is_ahead(ahead)
            name = f"j{number}"
            assert cell.ask("submit", "-", stdin=json.dumps(spec(name))).code == 0
            document = cell.until(name, lambda job: job["ended_ms"] is not None)
            assert document["state"] == "succeeded", f"{ahead} s ahead"
            assert abs(document["ended_ms"] / 1_000 - time()) < LOG_AHEAD_S, "log time went along"
        nodes = cell.ask("get", "nodes", "--json").json
        assert [node["state"] for node in nodes] == ["ready"]
        assert cell.end()[0] == 0
    assert largesse("replay", tmp_path / "cell", "--verify").code == 0


@pytest.mark.whole
def test_a_cell_started_with_a_clock_ahead_runs_on_when_it_is_started_with_the_right_one(library, tmp_path):
    clock = WallClock(library, tmp_path / "ahead")
    for number, ahead in enumerate((DAY, 0)):
        clock.is_ahead(ahead)
        with up(tmp_path / "cell", "--nodes", 1, **clock.environment) as cell:
            assert cell.ask("submit", "-", stdin=json.dumps(spec(f"j{number}"))).code == 0
            document = cell.until(f"j{number}", lambda job: job["ended_ms"] is not None)
            assert document["state"] == "succeeded"
            assert cell.end()[0] == 0


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka cells")
def test_standbys_take_over_within_their_lease_and_no_node_is_lost_on_kafka(kafka_address, library, tmp_path):
    async def story():
        cell = KafkaCell(
            kafka_address, await free_partition(kafka_address), f"clock-{tmp_path.name}", tmp_path / "cell"
        )
        clocks = {name: WallClock(library, tmp_path / f"{name}.ahead") for name in cell.members}
        for name, member in cell.members.items():
            member.environment |= clocks[name].environment
        async with cell:
            cell.start(*cell.members.values())
            await cell.ready()
            await cell.tell("config", {"set": {"node_lease_ms": NODE_LEASE_MS}})
            await runs(cell, "before")  # Whoever leads a new cell first takes its own clock's word.
            for ahead in AHEADS:
                await jumps_and_takes_over(cell, clocks, ahead)
            records = [accepted.record for accepted in cell.records]

        times = [record.time for record in records if record.seq]
        assert times == sorted(times)
        assert abs(times[-1] / 1_000 - time()) < LOG_AHEAD_S, "log time went along"
        assert [record.body.node for record in records if isinstance(record.body, NodeLost)] == []

    asyncio.run(story())


async def jumps_and_takes_over(cell, clocks, ahead):
    """The clocks of the leader and its standby differ by a jump, first one way and then the other; the leader dies."""
    for moved, name in (("0", f"apart-{ahead}"), ("1", f"exchanged-{ahead}")):
        for member, clock in clocks.items():
            clock.is_ahead(ahead if member.endswith(moved) else 0)
        await runs(cell, name)
    tokens = len(cell.tokens)
    cell.held.clear()
    leader = cell.leader()
    leader.kill()
    await cell.until(lambda: len(cell.tokens) > tokens, GUARD_S)
    await runs(cell, f"after-{ahead}")
    cell.held.set()
    await cell.ready(leader.name)


async def runs(cell, name):
    """A job, with its second try, from submission to end."""
    await cell.tell("jobs", spec(name))
    await cell.until(lambda: name in cell.ended, GUARD_S)
    assert cell.ended[name] == "succeeded"
