"""What `largesse doctor --bus kafka://` says of a real cluster."""

import asyncio
from contextlib import suppress

import pytest

from largesse.bus.groups import Group
from largesse.bus.kafka.rights import group_of
from largesse.bus.kafka.topic_settings import TOPICS
from schemas.policy import SHARDS_MAX
from services.cli.doctor.bus import ANSWERING, of_bus
from tests.contract.kafka_rig import new_name, put_right_at_once
from tests.contract.test_kafka_bus import address, needs_kafka, open_bus, tell

__all__ = ["address"]  # The fixture.


async def told(address, cell, partition=0):
    """(area, level, text) of each finding."""
    findings = await asyncio.to_thread(lambda: list(of_bus(f"kafka://{address}", cell, partition)))
    return [(each.area, each.level, each.text) for each in findings]


@needs_kafka
@pytest.mark.xdist_group("kafka cells")  # It works on the topics that cells use.
def test_instances_of_each_service_are_counted_and_topics_looked_at(address):
    async def story():
        cell = new_name("cell")
        await put_right_at_once(address, TOPICS.values(), cells=1, grow=True)
        found = await told(address, cell)
        assert [each for each in found if each[0] == "topics"] == [
            ("topics", "ok", f"{len(TOPICS)} topics are as Largesse needs them")
        ]
        services = [each for each in found if each[0] == "services"]
        assert services == [
            ("services", "bad", f"no instance of {name} takes part: rounds wait for it") for name in ANSWERING
        ]

        async with open_bus(address) as one, open_bus(address) as other:
            group = group_of("fairness", cell)
            joining = [asyncio.create_task(bus.join(group, lambda _: None)) for bus in (one, other)]
            try:
                while ("services", "ok", "fairness has 2 instances") not in await told(address, cell):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            finally:
                for each in joining:
                    each.cancel()
                    with suppress(asyncio.CancelledError):
                        await each

    tell(story)


@needs_kafka
def test_a_bus_tells_which_instance_has_which_shard_and_forgets_one_that_leaves(address):
    async def story():
        group, nobody = (group_of(service, new_name("cell")) for service in ("fairness", "planner"))
        dealt = {"one": None, "other": None}
        async with open_bus(address) as one, open_bus(address) as other:
            assert await one.told([group, nobody]) == {group: Group(), nobody: Group()}

            async def takes_part(bus, name):
                await bus.join(group, lambda shards: dealt.update({name: tuple(sorted(shards))}))

            async def told():
                found = (await one.told([nobody, group]))[group]
                return sorted(each.shards for each in found.members) if found.is_settled else None

            joining = [asyncio.create_task(takes_part(*each)) for each in ((one, "one"), (other, "other"))]
            try:
                while None in dealt.values() or await told() != sorted(dealt.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                hosts = {each.host for each in (await one.told([group]))[group].members}
                assert all(host and "/" not in host for host in hosts)
                joining[1].cancel()
                while await told() != [tuple(range(SHARDS_MAX))]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            finally:
                for each in joining:
                    each.cancel()
                    with suppress(asyncio.CancelledError):
                        await each

    tell(story)


def test_a_cluster_that_does_not_answer_is_one_finding(monkeypatch):
    monkeypatch.setattr("services.cli.doctor.bus.ANSWER_MS", 300)

    (finding,) = of_bus("kafka://127.0.0.1:1", "default", 0)
    assert (finding.area, finding.level) == ("bus", "bad")
    assert "cannot be reached" in finding.text
