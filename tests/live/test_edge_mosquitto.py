"""Agents and bridges over a real mosquitto whose connections are cut, half open and slow: each task runs once."""

import asyncio
import random
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker, MqttOptions
from schemas import NodeLost, NodeRegistered, TaskFailed, TaskFinished, TaskStarted
from tests.live.agent_cell import GUARD_SECONDS, end_tasks, eventually, outcome_of, scripted_cell, settings
from tests.live.edge_cell import bridge_on, edge_agent_on, ended
from tests.mosquitto import Mosquitto
from tests.mqtt_proxy import Proxy

QUICK = MqttOptions(keep_alive_seconds=1, answer_seconds=1, connect_seconds=2)


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


def told(folder, story):
    """Runs a story with a cell, a broker, a proxy before it, and who comes through that."""

    @asynccontextmanager
    async def running():
        mosquitto = Mosquitto(folder)
        mosquitto.start()
        try:
            async with Proxy(mosquitto.port).running() as proxy, scripted_cell() as cell:
                far = ClientBroker(read_address(f"mqtt://127.0.0.1:{proxy.port}"), QUICK)
                yield cell, mosquitto, proxy, far
        finally:
            mosquitto.kill()

    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), running() as parts:
            await story(*parts)

    asyncio.run(guarded())


def writes(path):
    return ["sh", "-c", f'sleep 0.1; echo "$LARGESSE_JOB $LARGESSE_TASK_INDEX $LARGESSE_ATTEMPT" >> {path}']


@pytest.mark.parametrize("seed", range(3))
def test_whatever_becomes_of_connections_each_task_runs_once(tmp_path, seed):
    dice = random.Random(seed)

    async def disturb(mosquitto, proxy, second):
        while True:
            await asyncio.sleep(dice.uniform(0.1, 0.5))
            match dice.choice(["cut", "cut", "freeze", "slow", "restart"]):
                case "cut":
                    proxy.cut()
                case "freeze":
                    proxy.freeze(dice.choice(proxy.clients) if proxy.clients else None)
                case "slow":
                    proxy.delay = dice.choice([0.0, 0.01, 0.05])
                case "restart":
                    mosquitto.kill()
                    try:
                        await asyncio.sleep(dice.uniform(0, 0.3))
                    finally:
                        mosquitto.start()
            if dice.random() < 0.2:
                await ended(second)

    async def story(cell, mosquitto, proxy, far):
        node = settings(tmp_path / "data")
        await cell.tell("config", {"set": {"node_lease_ms": 120_000}})
        async with bridge_on(cell, far), bridge_on(cell, far, "b2") as second, edge_agent_on(far, node):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            disturbing = asyncio.ensure_future(disturb(mosquitto, proxy, second))
            try:
                for number in range(5):
                    await cell.submit(f"j{number}", {"tasks": 5, "command": writes(tmp_path / "out")})
                    await asyncio.sleep(0.3)
            finally:
                disturbing.cancel()
                await asyncio.wait((disturbing,))
            proxy.delay = 0.0
            proxy.cut()
            for number in range(5):
                assert await outcome_of(cell, f"j{number}") == "succeeded"
        expected = sorted(f"j{number} {index} 1" for number in range(5) for index in range(5))
        assert sorted((tmp_path / "out").read_text().splitlines()) == expected
        assert len(cell.items(TaskFinished)) == 25
        assert (cell.bodies(TaskFailed), cell.bodies(NodeLost)) == ([], [])

    told(tmp_path, story)


def is_suspended(pid):
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


def pid_in(path):
    """What a task has written there; None: not all of it yet."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None


def test_a_task_without_contact_waits_before_the_cell_gives_it_to_others_and_goes_on_with_it(tmp_path):
    async def story(cell, mosquitto, proxy, far):
        await cell.tell("config", {"set": {"node_lease_ms": 4_000}})
        async with bridge_on(cell, far), edge_agent_on(far, settings(tmp_path / "data")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            waits = ["sh", "-c", f"echo $$ > {tmp_path}/pid; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"]
            await cell.submit("j", {"command": waits})
            await cell.until(lambda: cell.items(TaskStarted))
            pid = await eventually(lambda: pid_in(tmp_path / "pid"))
            mosquitto.pause()
            await eventually(lambda: is_suspended(pid))
            mosquitto.pause(False)
            await eventually(lambda: not is_suspended(pid))
            (tmp_path / "go").touch()
            assert await outcome_of(cell) == "succeeded"

    told(tmp_path, story)
