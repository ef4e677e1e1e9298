"""Three seeds of the campaign (kafka_campaign.py), and what a process of a service owes to whoever runs it."""

import asyncio

import pytest

from tests.live.kafka_campaign import POINTS, TURNS, run_seed, service_of
from tests.live.kafka_cell import READY_SECONDS, KafkaCell, free_partition
from tests.unit.cli_process import largesse

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells")]

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cell_that_is_killed_everywhere_loses_and_doubles_nothing(kafka_address, tmp_path, seed):
    outcome = asyncio.run(run_seed(seed, kafka_address, tmp_path))

    assert outcome.wrong == []
    assert outcome.kills >= 5
    assert outcome.struck, "of the failpoints that were armed none was hit"


def test_every_point_has_its_turn_and_no_process_two_at_once():
    assert len(set(POINTS)) == len(POINTS)
    for turn in TURNS:
        services = [service_of(point.partition(":")[0]) for point in turn]
        assert len(set(services)) == len(services)


def test_services_say_how_they_are_and_drain_and_their_log_is_exported_and_verified(kafka_address, tmp_path):
    async def story():
        cell = KafkaCell(
            kafka_address, await free_partition(kafka_address), f"quiet-{tmp_path.name}", tmp_path / "cell"
        )
        async with cell:
            cell.start(*cell.members.values())
            await cell.ready()
            await cell.tell("config", {"set": {"altruism_shards": 2}})
            stage = {"stage": "s", "tasks": 2, "demand": {"cpu": "1"}, "command": ["true"]}
            for number in range(3):
                await cell.tell("jobs", {"job": f"j{number}", "stages": [stage]})
            await cell.until(lambda: len(cell.ended) == 3, READY_SECONDS)
            assert set(cell.ended.values()) == {"succeeded"}
            await cell.ready()  # A moment without a leader, on a busy machine, would be no fault.
            for member in cell.members.values():
                port = cell.http if member.service == "gateway" else member.port
                assert [(await cell.get(port, path))[0] for path in ("/livez", "/metrics")] == [200] * 2
            assert set((await cell.drain()).values()) == {0}
        return cell.url

    url = asyncio.run(story())
    assert largesse("replay", url, "--verify").code == 0
    assert largesse("export", url, tmp_path / "log.gz").code == 0
    assert largesse("replay", tmp_path / "log.gz", "--verify").code == 0
