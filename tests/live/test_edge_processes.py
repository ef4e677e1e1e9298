"""Agents behind a real MQTT broker: whoever is killed between them and the cell, each task runs once."""

import asyncio
import json
from pathlib import Path

import pytest

from schemas import NodeRegistered, TaskStarted
from tests.live.kafka_cell import READY_SECONDS, KafkaCell, free_partition
from tests.mosquitto import mosquitto
from tests.unit.cli_process import largesse

__all__ = ["mosquitto"]  # The fixture.

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells")]

COPIES = {"admission": 1, "fairness": 1, "altruism": 1, "leftover": 1, "planner": 1, "bridge": 2, "agent": 2}
JOBS, TASKS = 8, 6
LEASE_MS = 60_000


class EdgeCell(KafkaCell):
    """Its agents know the MQTT broker only."""

    def __init__(self, address: str, partition: int, name: str, folder: Path, mqtt: str) -> None:
        self._mqtt = mqtt
        super().__init__(address, partition, name, folder, COPIES)

    def _environment(self, service: str, name: str, port: int) -> dict[str, str]:
        said = super()._environment(service, name, port)
        if service == "agent":
            said["LARGESSE_BUS"] = self._mqtt
        if service == "bridge":
            said["LARGESSE_MQTT"] = self._mqtt
        return said

    def has(self, kind: type, count: int) -> bool:
        """Whether the log has so many records of a type."""
        return sum(isinstance(accepted.record.body, kind) for accepted in self.records) >= count


def test_a_cell_whose_bridges_and_broker_are_killed_runs_each_task_once(kafka_address, mosquitto, tmp_path):
    out, go = tmp_path / "out", tmp_path / "go"
    says = f'echo "$LARGESSE_JOB $LARGESSE_TASK_INDEX $LARGESSE_ATTEMPT" >> {out}'
    waits = f"{says}; while [ ! -e {go} ]; do sleep 0.1; done"

    async def story():
        mqtt = f"mqtt://127.0.0.1:{mosquitto.port}"
        partition = await free_partition(kafka_address)
        cell = EdgeCell(kafka_address, partition, f"edge-{tmp_path.name}", tmp_path / "cell", mqtt)

        async def submit(name, command):
            stage = {"stage": "s", "tasks": TASKS, "demand": {"cpu": "500m"}, "command": ["sh", "-c", command]}
            await cell.tell("jobs", {"job": name, "stages": [stage]})

        async with cell:
            cell.start(*cell.members.values())
            await cell.ready()
            await cell.tell("config", {"set": {"node_lease_ms": LEASE_MS}})
            await cell.until(lambda: cell.has(NodeRegistered, 2), READY_SECONDS)
            await submit("long", waits)
            await cell.until(lambda: cell.has(TaskStarted, 1), READY_SECONDS)
            for number in range(JOBS):
                await submit(f"j{number}", says)
                match number:
                    case 1:
                        cell.members["bridge-0"].kill()
                    case 2:
                        mosquitto.kill()
                        await asyncio.sleep(1)
                        mosquitto.start()
                    case 3:
                        cell.members["bridge-0"].kill()
                        cell.members["bridge-1"].kill()
                    case 4:
                        cell.members["agent-0"].kill()
                    case 5:
                        mosquitto.kill()
                        cell.members["bridge-1"].kill()
                        mosquitto.start()
                if number % 2:
                    await cell.until(lambda upto=number: len(cell.ended) > upto, READY_SECONDS)
            go.touch()
            await cell.until(lambda: len(cell.ended) == JOBS + 1, READY_SECONDS)
            assert set(cell.ended.values()) == {"succeeded"}
            assert {name: member.own_accord for name, member in cell.members.items() if member.own_accord} == {}
            answers = [(await cell.get(cell.members[name].port, "/metrics"))[1] for name in ("bridge-0", "bridge-1")]
            assert all("largesse_bridge_told_total" in answer for answer in answers)
            assert set((await cell.drain()).values()) == {0}
        return cell.url

    url = asyncio.run(story())
    names = [f"j{number}" for number in range(JOBS)] + ["long"]
    ran = [line.split() for line in out.read_text().splitlines()]
    # An attempt that was granted when its agent was killed, and not begun, is lost: another one ran.
    assert sorted((job, int(index)) for job, index, _ in ran) == [
        (job, i) for job in sorted(names) for i in range(TASKS)
    ]
    verified = largesse("replay", url, "--verify")
    assert verified.code == 0, json.dumps([verified.out, verified.err])
