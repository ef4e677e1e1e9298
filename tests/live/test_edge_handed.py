"""Two nodes that nothing but the broker reaches run a job of two stages: what the first left comes to the second."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import pytest

from schemas import JobAdmitted, NodeLost, NodeRegistered, TaskFailed
from tests.conftest import ROOT
from tests.live.agent_cell import GUARD_SECONDS, end_tasks, eventually, outcome_of, scripted_cell
from tests.live.edge_cell import bridge_on, ended
from tests.mqtt_proxy import Proxy
from tests.mqtt_site import Site
from tests.ports import free_port

SIZE = 5_000_000


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


@asynccontextmanager
async def agent_process(site, proxy, name):
    """An agent that serves its port to this machine alone, and is told of no address."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LARGESSE_BUS": f"mqtt://{name}@127.0.0.1:{proxy.port}",
        "LARGESSE_MQTT_PASSWORD_FILE": str(site.folder / f"{name}.secret"),
        "LARGESSE_MQTT_KEEP_ALIVE_S": "1",
        "LARGESSE_METRICS_PORT": str(free_port()),
        "LARGESSE_NODE": name,
        "LARGESSE_NODE_DATA": str(site.folder / name),
        "LARGESSE_NODE_OFFER": json.dumps({"capacity": {"cpu": "2", "memory": "1Gi"}, "labels": {"zone": name}}),
        "LARGESSE_NODE_CGROUP": "off",
    }
    with (site.folder / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.agent", cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


def told(folder, story):
    @asynccontextmanager
    async def running():
        site = Site(folder)
        for user in ("n1", "n2", "bridge"):
            site.password(user)
        site.mosquitto.start()
        try:
            async with (
                Proxy(site.mosquitto.port).running() as proxy,
                scripted_cell() as cell,
                agent_process(site, proxy, "n1"),
                agent_process(site, proxy, "n2"),
            ):
                yield site, proxy, cell
        finally:
            site.mosquitto.kill()

    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), running() as parts:
            await story(*parts)

    asyncio.run(guarded())


def two_stages(folder):
    env = {"SOURCE": str(folder / "source"), "OUT": str(folder / "out")}
    makes = 'cp "$SOURCE" "$LARGESSE_RESULTS/big"; mkdir "$LARGESSE_RESULTS/d"; ln -s ../big "$LARGESSE_RESULTS/d/link"'
    reads = 'cd "$LARGESSE_INPUTS/make"; for i in *; do cmp "$i/d/link" "$SOURCE" && echo same >> "$OUT"; done'
    return (
        {"stage": "make", "tasks": 3, "command": ["sh", "-c", makes], "labels": {"zone": "n1"}, "env": env},
        {"stage": "use", "command": ["sh", "-c", reads], "labels": {"zone": "n2"}, "env": env}
        | {"after": ["make"], "inputs": ["make"]},
    )


def test_results_reach_the_next_stage_on_a_node_that_reaches_nothing_but_the_broker(tmp_path):
    (tmp_path / "source").write_bytes(os.urandom(SIZE))

    async def story(site, proxy, cell):
        async with bridge_on(cell, site.broker("bridge")):
            registered = await cell.until(lambda: (found := cell.bodies(NodeRegistered))[1:] and found)
            assert [body.address for body in registered] == ["", ""]
            await cell.submit("j", *two_stages(tmp_path))
            assert await outcome_of(cell) == "succeeded"
        assert (tmp_path / "out").read_text() == "same\n" * 3
        assert (cell.bodies(TaskFailed), cell.bodies(NodeLost)) == ([], [])

    told(tmp_path, story)


def test_a_bridge_that_dies_and_connections_that_are_cut_cost_no_more_than_the_pieces_on_the_way(tmp_path):
    (tmp_path / "source").write_bytes(os.urandom(SIZE))

    async def story(site, proxy, cell):
        async with (
            bridge_on(cell, site.broker("bridge"), "b1") as first,
            bridge_on(cell, site.broker("bridge"), "b2") as second,
        ):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            proxy.delay = 0.02
            await cell.submit("j", *two_stages(tmp_path))
            await cell.until(lambda: cell.bodies(JobAdmitted))
            await eventually(lambda: list((tmp_path / "n2").glob("jobs/*/*/#inputs/make/*/big")))
            proxy.cut()
            await ended(first)
            await ended(second)
            proxy.delay = 0
            async with bridge_on(cell, site.broker("bridge"), "b3"):
                await asyncio.sleep(0.5)
                proxy.cut()
                assert await outcome_of(cell) == "succeeded"
        assert (tmp_path / "out").read_text() == "same\n" * 3

    told(tmp_path, story)
