"""`largesse up`: a cell on this machine, until Ctrl-C."""

import asyncio
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from largesse.access import URL_DEFAULT
from largesse.bus.file.bus import DirectoryHeld, JournalDamaged
from largesse.bus.port import BusFull
from largesse.descriptors import raise_limit
from largesse.process.heap import set_up_heap
from largesse.process.serve import calm_collector
from largesse.process.ways_out import with_way_out
from largesse.settings import PREFIX, SettingWrong
from largesse.telemetry import configure
from schemas.edge.read import Cluster
from schemas.quantities import vector_text
from schemas.wording import plural
from services.agent.capacity import measured
from services.agent.cgroup_trees import NoCgroups
from services.agent.cgroups import open_groups
from services.agent.settings import NodeSettings, TaskUser, TaskUsers, read_task_user, with_limits
from services.cli import interrupts
from services.cli.archive_beside import store_of
from services.cli.arguments import given
from services.cli.documents import config_of, read_cluster_of
from services.cli.ending import Broken, Wrong, note, out
from services.cli.hosting import BUS, Given, Host, Plan, opened
from services.cli.show import span
from services.gateway.http.serve import PortTaken

AGENTS_MAX = 64
"""Agents in one process: each follows the whole log."""

PORT = 8642

_NUMBERED = re.compile("node-[0-9]{1,9}")
"""Names that `--nodes` gives."""

NODES_SHOWN_MAX = 10
"""Nodes of earlier starts that are named."""


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
    archive: str | None = None


INSTEAD = {
    "BUS": "--data",
    "CELL": "the cell is called default",
    "PARTITION": "there is one partition",
    "CELLS": "there is one cell",
    "CELL_COPIES": "there is one instance",
    "SHARD": "all shards are run",
    "NODE": "--nodes or --cluster",
    "NODE_DATA": "--data",
    "NODE_OFFER": "--cluster",
    "NODE_PASS_ENV": "only an agent of its own has it",
    "NODE_AT_END": "--stop-tasks",
    "NODE_CUT_OFF_SECONDS": "there is no bus to be cut off from",
    "ADVERTISE": "output is read from --data",
    "OIDC_ISSUER": "it goes by tokens alone",
    "TLS_CERT_FILE": "it listens on 127.0.0.1 alone, without TLS",
    "TLS_KEY_FILE": "it listens on 127.0.0.1 alone, without TLS",
    "NODE_HOST": "tasks of gangs reach each other at 127.0.0.1",
}
"""Settings of services that are processes of their own, by name without the prefix, and what `up` goes by instead."""


def check_environment(environment: Mapping[str, str], port: int) -> None:
    """Says which settings of the environment are not read. Raises Wrong for an address of the gateway: passed over, it
    would be served where nobody asks."""
    if (address := environment.get(f"{PREFIX}HTTP")) is not None:
        text = f"`up` listens on 127.0.0.1:{port}, as --http says: unset this, and write --http PORT"
        raise Wrong(f"{PREFIX}HTTP={address}: {text}")
    for name, instead in INSTEAD.items():
        if f"{PREFIX}{name}" in environment:
            note(f"note: `up` does not read {PREFIX}{name}: {instead}")


def up(asked: Asked) -> None:
    """Runs the cell. Raises Wrong, Broken."""
    check_environment(os.environ, asked.port)
    configure("console", level="info" if asked.verbose else "warning")
    plan = plan_of(asked)
    if asked.archive is not None:
        plan = replace(plan, archive=store_of(given("--archive", asked.archive)))
    calm_collector()
    set_up_heap()
    raise_limit()
    asyncio.run(_up(plan))


def plan_of(asked: Asked) -> Plan:
    """What to run. Raises Wrong that names the option, or the file and its field."""
    data = Path(asked.data).absolute()
    keep, user = asked.keep_running, _task_user()
    if asked.cluster is None:
        count = 1 if asked.nodes is None else asked.nodes
        _check_agents("--nodes", count)
        capacity = measured(_nearest(data), count)
        if "cpu" not in capacity or "memory" not in capacity:
            raise Wrong(f"--nodes: this machine is too small to be divided into {count}")
        nodes = [
            _limited(NodeSettings(f"node-{i}", Path(), capacity=capacity, keep_running=keep, task_user=user))
            for i in range(count)
        ]
        return Plan(data, nodes, asked.port, author=asked.author)
    if asked.nodes is not None:
        raise Wrong("--nodes: the cluster file says which nodes there are: use only one of them")
    cluster, given = _cluster_of(asked.cluster)
    _check_agents("--cluster", len(cluster.nodes))
    nodes = [
        _limited(
            NodeSettings(
                node.name,
                Path(),
                capacity=node.capacity,
                labels=node.labels,
                devices=node.devices,
                keep_running=keep,
                task_user=user,
            )
        )
        for node in cluster.nodes
    ]
    return Plan(data, nodes, asked.port, author=asked.author, given=given)


def _limited(node: NodeSettings) -> NodeSettings:
    """A node with its limits from the environment, as an agent has them. Raises Wrong."""
    try:
        return with_limits(node)
    except SettingWrong as fault:
        raise Wrong(str(fault)) from None


def _task_user() -> TaskUser | TaskUsers | None:
    """As whom tasks run, if not as we do. Raises Wrong."""
    try:
        return read_task_user()
    except SettingWrong as fault:
        raise Wrong(str(fault)) from None


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: they share a file system, and a plan creates nothing."""
    return next((each for each in (folder, *folder.parents) if _is_there(each)), folder)


def _is_there(folder: Path) -> bool:
    try:
        return folder.exists()
    except OSError:  # Of a folder above, which may not be looked into.
        return False


def _make_folders(plan: Plan) -> Path | None:
    """The data folder and the bus's, closed to other users of the machine; the outermost that was not there before.
    Raises OSError.
    """
    bus = plan.data / BUS
    above = _nearest(bus)
    plan.data.mkdir(parents=True, exist_ok=True)
    bus.mkdir(mode=0o700, exist_ok=True)
    with suppress(PermissionError):  # It is another user's, who has to close it.
        bus.chmod(0o700)
    return None if above == bus else above / bus.relative_to(above).parts[0]


def _check_agents(option: str, count: int) -> None:
    if not 1 <= count <= AGENTS_MAX:
        raise Wrong(f"{option}: has to be from 1 to {AGENTS_MAX} nodes in one process, is {count}")


def _cluster_of(path: str) -> tuple[Cluster, Given]:
    """The file's nodes, and what it says of queues and policy."""
    try:
        cluster, document = read_cluster_of(path)
    except OSError as error:
        raise Wrong(f"--cluster: {error.filename}: {error.strerror}") from None
    return cluster, Given(path, config_of(document), cluster.values, cluster.queues)


async def _up(plan: Plan) -> None:
    limits = _limits_text(plan.nodes[0])
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        interrupts.guard()  # The second time it is meant at once.

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    host = await _opened(plan, stop)
    await host.run(lambda: _greet(plan, host, limits))
    running = sum(node.holds for node in host.follower.state.nodes.values())
    waits = running and plan.nodes[0].keep_running
    out(f"ended; {_left_running(running)}" if waits else "ended")


async def _opened(plan: Plan, stop: asyncio.Event) -> Host:
    """The host, with its folder and its port. Raises Wrong, Broken; where the port or a setting is to blame, no folder
    is left that was not there before.
    """
    made: Path | None = None
    try:
        made = _make_folders(plan)
        return await opened(plan, stop)
    except (DirectoryHeld, JournalDamaged) as error:
        raise Wrong(with_way_out(f"--data: {error}", error, str(plan.data))) from None
    except PortTaken as error:
        _remove(made)
        raise Wrong(f"--http: {error}: name another port, or 0 for any that is free") from None
    except SettingWrong as error:
        _remove(made)
        raise Wrong(str(error)) from None
    except BusFull as error:
        raise Broken(str(error)) from None
    except OSError as error:
        raise Wrong(f"--data: {error.filename}: {error.strerror}") from None


def _remove(made: Path | None) -> None:
    """Removes what this start has made: nothing has been served from it."""
    if made is not None:
        shutil.rmtree(made, ignore_errors=True)


def _limits_text(node: NodeSettings) -> str:
    """What holds tasks to their limits here. Raises Wrong for a control group that cannot be used."""
    try:
        return open_groups(node.cgroup, "").limits_text(node.cpu_limit, node.memory_limit)
    except NoCgroups as fault:
        raise Wrong(f"LARGESSE_NODE_CGROUP: {fault}") from None


def _left_running(tasks: int) -> str:
    goes_on = "runs on and waits" if tasks == 1 else "run on and wait"
    return f"{plural(tasks, 'task')} {goes_on} for the next start"


def _greet(plan: Plan, host: Host, limits: str) -> None:
    first = plan.nodes[0]
    alike = all(node.capacity == first.capacity for node in plan.nodes)
    what = (
        f"{'each ' if len(plan.nodes) > 1 else ''}{vector_text(first.capacity)}" if alike else "as in the cluster file"
    )
    left = "go on, and the next `largesse up` here takes them over" if first.keep_running else "are ended"
    out(f"cell `default` at {host.url}")
    out(f"{plural(len(plan.nodes), 'node')}: {what}")
    for line in (_other_config(plan, host), _other_nodes(plan, host)):
        if line:
            out(line)
    out(f"data in {plan.data}")
    out(f"limits of tasks: {limits}")
    out(f"Ctrl-C ends it; tasks that run then {left}")


def _other_config(plan: Plan, host: Host) -> str:
    """Says where something else is in force than the cluster file says; else empty."""
    state, given = host.follower.state, plan.given
    others = given.differing(state.policy, state.queues) if given is not None else []
    if given is None or not others:
        return ""
    where = "" if host.url == URL_DEFAULT else f" --url {host.url}"
    return (
        f"in force is not what {given.file} says of {', '.join(others)}:"
        f" `largesse config apply {shlex.quote(given.file)}{where}` puts that in force"
    )


def _other_nodes(plan: Plan, host: Host) -> str:
    """Says which nodes of earlier starts are not started, and what becomes of the tasks there; else empty."""
    state = host.follower.state
    started = {node.name: True for node in plan.nodes}
    departing = {node.name: True for node in host.departing}
    missing = [name for name in {**state.nodes, **departing} if name not in started]
    if not missing:
        return ""
    held = sum(state.nodes[name].holds for name in missing if name in state.nodes and name not in departing)
    names = ", ".join(missing[:NODES_SHOWN_MAX])
    if len(missing) > NODES_SHOWN_MAX:
        names += f" and {len(missing) - NODES_SHOWN_MAX} more"
    after = span(state.policy.node_lease_ms)
    lost = f"; the {held} tasks there count as lost after {after}, and are tried again" if held else ""
    if held == 1:
        lost = f"; the task there counts as lost after {after}, and is tried again"
    ended = "; what still runs there is ended, and tried again" if departing else ""
    return f"not started: {names}, of an earlier start{ended}{lost}; {_repeat(state.nodes, missing)}"


def _repeat(nodes: Iterable[str], missing: list[str]) -> str:
    """What would start nodes of an earlier start again."""
    if all(_NUMBERED.fullmatch(name) for name in missing):
        count = max(int(name.partition("-")[2]) for name in [*missing, *filter(_NUMBERED.fullmatch, nodes)]) + 1
        return f"to start {'it' if len(missing) == 1 else 'them'} again, repeat --nodes {count}"
    what = "it" if len(missing) == 1 else "them"
    return f"to start {what} again, repeat --cluster with the file that describes {what}"
