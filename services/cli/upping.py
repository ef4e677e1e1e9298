"""`largesse up`: a cell on this machine, until Ctrl-C."""

import asyncio
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from largesse.file_bus import DirectoryHeld, JournalDamaged
from largesse.settings import SettingWrong
from largesse.telemetry import configure
from schemas.edge import Cluster
from services.agent.capacity import measured
from services.agent.settings import NodeSettings
from services.cli.documents import read_cluster_of
from services.cli.ending import Wrong, out
from services.cli.hosting import Host, Plan, opened
from services.cli.quantities import vector_text
from services.cli.show import counted
from services.gateway.problems import dumped
from services.gateway.serve import PortTaken

AGENTS_MAX = 64
"""Agents in one process: each follows the whole log."""

PORT = 8642


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says. `nodes` and `cluster` exclude each other."""

    data: str
    nodes: int | None
    cluster: str | None
    port: int
    author: str
    keep_running: bool
    verbose: bool


def up(asked: Asked) -> None:
    """Runs the cell. Raises Wrong, Broken."""
    configure("console", level="info" if asked.verbose else "warning")
    asyncio.run(_up(plan_of(asked)))


def plan_of(asked: Asked) -> Plan:
    """What to run. Raises Wrong that names the option, or the file and its field."""
    data = Path(asked.data).absolute()
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Wrong(f"--data: {error.filename}: {error.strerror}") from None
    keep = asked.keep_running
    if asked.cluster is None:
        count = 1 if asked.nodes is None else asked.nodes
        _check_agents("--nodes", count)
        capacity = measured(data, count)
        if "cpu" not in capacity or "memory" not in capacity:
            raise Wrong(f"--nodes: nothing of this machine is left for each of {count}")
        nodes = [NodeSettings(f"node-{i}", Path(), capacity=capacity, keep_running=keep) for i in range(count)]
        return Plan(data, nodes, asked.port, author=asked.author)
    if asked.nodes is not None:
        raise Wrong("--nodes: the cluster file says which nodes there are: leave one of them out")
    cluster, config = _cluster_of(asked.cluster)
    _check_agents("--cluster", len(cluster.nodes))
    nodes = [
        NodeSettings(
            node.name, Path(), capacity=node.capacity, labels=node.labels, devices=node.devices, keep_running=keep
        )
        for node in cluster.nodes
    ]
    return Plan(data, nodes, asked.port, author=asked.author, config=config)


def _check_agents(option: str, count: int) -> None:
    if not 1 <= count <= AGENTS_MAX:
        raise Wrong(f"{option}: has to be from 1 to {AGENTS_MAX} nodes in one process, is {count}")


def _cluster_of(path: str) -> tuple[Cluster, dict[str, Any]]:
    """The file's nodes, and what it says of queues and policy as a message of the config topic."""
    try:
        cluster, document = read_cluster_of(path)
    except OSError as error:
        raise Wrong(f"--cluster: {error.filename}: {error.strerror}") from None
    said = {"set": document.get("policy") or None, "queues": document.get("queues")}
    config = {form: content for form, content in said.items() if content is not None}
    # Decimals that the edge takes have 6 digits behind the point at most: a float's shortest text keeps them.
    return cluster, json.loads(dumped(config, default=float))


async def _up(plan: Plan) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # The second time it is meant at once.

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        host = await opened(plan, stop)
    except (DirectoryHeld, JournalDamaged) as error:
        raise Wrong(f"--data: {error}") from None
    except PortTaken as error:
        raise Wrong(f"--http: {error}") from None
    except SettingWrong as error:
        raise Wrong(str(error)) from None
    await host.run(lambda: _greet(plan, host))
    running = sum(node.holds for node in host.follower.state.nodes.values())
    waits = running and plan.nodes[0].keep_running
    out(f"ended; {_left_running(running)}" if waits else "ended")


def _left_running(tasks: int) -> str:
    goes_on = "runs on and waits" if tasks == 1 else "run on and wait"
    return f"{counted(tasks, 'task')} {goes_on} for the next start"


def _greet(plan: Plan, host: Host) -> None:
    first = plan.nodes[0]
    alike = all(node.capacity == first.capacity for node in plan.nodes)
    what = (
        f"{'each ' if len(plan.nodes) > 1 else ''}{vector_text(first.capacity)}" if alike else "as in the cluster file"
    )
    left = "go on, and the next `largesse up` here takes them over" if first.keep_running else "are ended"
    out(f"cell `default` at {host.url}")
    out(f"{counted(len(plan.nodes), 'node')}: {what}")
    out(f"data in {plan.data}")
    out(f"Ctrl-C ends it; tasks that run then {left}")
