"""What an attempt begins with: the instructions of its shim, and the environment of its command."""

import os
from collections.abc import Sequence
from pathlib import Path

from largesse.descriptors import inherited_limit
from largesse.lifecycle.node_work import Start
from schemas.arrays import choice_of, index_of
from services.agent import processes
from services.agent.cgroups import Limits
from services.agent.devices.visible import visible
from services.agent.folders import INPUTS, WORK
from services.agent.settings import NodeSettings

BASE_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of the agent that tasks get; all others may be secrets of the agent."""

MEMORY_MIB_MIN = 64
"""A limit of memory is never below this: an interpreter takes as much before it does anything."""
ADDRESS_MIB_EXTRA = 256
"""On top of the memory asked for, in an `address_space` limit: programs, libraries and locale tables are mapped too."""


PEERS_MAX = 100_000
"""Characters of LARGESSE_PEERS. A command with a variable of 128 KiB cannot be started."""


def limits_of(start: Start, settings: NodeSettings) -> Limits:
    """What control groups hold an attempt to, as far as there are any: to what it asks for. Where CPU is short, it gets
    its part by what it counts for: the room for no more is its own."""
    demand = start.stage.demand
    memory_mib = memory_limit_mib(demand.get("memory")) if settings.memory_limit == "auto" else None
    pids, counted = settings.task_pids or None, start.counted.get("cpu")
    return Limits(settings.cpu_limit, demand.get("cpu"), memory_mib, pids, counted)


def memory_limit_mib(asked_mib: int | None) -> int | None:
    """How much an attempt may use that asked for so much; None: any amount."""
    return None if asked_mib is None else max(asked_mib, MEMORY_MIB_MIN)


def task_of(
    start: Start, settings: NodeSettings, key: str, folder: Path, groups: dict[str, object] | None = None
) -> dict[str, object]:
    """The shim's instructions for its attempt, beside its name. `folder`: the attempt's. `groups`: as
    `cgroups.Groups.make` says."""
    stage = start.stage
    user = None if settings.task_user is None else settings.task_user.of(start.held.run)
    memory_mib = stage.demand.get("memory")
    limit = settings.memory_limit if memory_mib is not None else "none"
    kernel = groups is not None and groups["memory"]
    watched = limit == "resident" or (limit == "auto" and not kernel)
    return {
        "command": stage.command,
        "env": {**environment(start, settings, folder), processes.KEY: key},
        "cwd": stage.cwd,
        "timeout_ms": stage.timeout_ms,
        "grace_ms": settings.stop_grace_ms if stage.grace_ms is None else stage.grace_ms,
        "descriptors": inherited_limit(),
        "resident_mib": memory_limit_mib(memory_mib) if watched else None,
        "memory_mib": memory_limit_mib(memory_mib) if kernel and limit == "auto" else None,
        "address_mib": (memory_mib or 0) + ADDRESS_MIB_EXTRA if limit == "address_space" else None,
        "output_bytes": settings.output_bytes,
        "groups": groups,
        "pids": settings.task_pids,
        "secrets": _secrets(start, settings),
        "user": None if user is None else {"uid": user.uid, "gid": user.gid, "groups": list(user.groups)},
        "private": not processes.hidden(),
    }


def _secrets(start: Start, settings: NodeSettings) -> dict[str, object] | None:
    """Which secrets the shim puts into the environment, by name: values stand in no document."""
    names = start.stage.secrets
    folder = None if settings.secrets is None else str(settings.secrets.absolute())
    return {"folder": folder, "queue": start.queue, "names": names} if names else None


def environment(start: Start, settings: NodeSettings, folder: Path) -> dict[str, str]:
    """What a task finds in its environment: a little of the agent's, what its stage says, its name, its GPUs, where
    results go and come from. `folder`: the attempt's."""
    names = [*BASE_ENV, *settings.pass_env, *(name for name in os.environ if name.startswith("LC_"))]
    env = {name: os.environ[name] for name in names if name in os.environ}
    if settings.task_user is not None:
        user = settings.task_user.of(start.held.run)
        env |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
        env.pop("TMPDIR", None)  # The agent's may not be one that others can write to.
    env.update(start.stage.env)
    env.update(visible(start.held, settings.devices, settings.capacity))
    return env | own_variables(start, settings, str(folder / WORK), str(folder.parents[1] / INPUTS))


def own_variables(start: Start, settings: NodeSettings, results: str, inputs: str) -> dict[str, str]:
    """What every task finds, wherever it runs: its name, its values of a matrix, and where it sees results, inputs and
    others of its gang.
    """
    held, env = start.held, _combination(start)
    env["LARGESSE_JOB"], env["LARGESSE_STAGE"] = held.job, held.stage
    env["LARGESSE_TASK_INDEX"], env["LARGESSE_ATTEMPT"] = str(held.index), str(held.attempt)
    env["LARGESSE_NODE"], env["LARGESSE_TASK_COUNT"] = settings.name, str(start.stage.tasks)
    env["LARGESSE_ARRAY_INDEX"] = str(index_of(start.stage.array, held.index))
    env["LARGESSE_RESULTS"] = results
    if start.stage.inputs:
        env["LARGESSE_INPUTS"] = inputs
    return env | _of_gang(start.peers)


def _combination(start: Start) -> dict[str, str]:
    """The values of its stage's matrix that a task has."""
    axes = start.stage.matrix
    choice = choice_of([len(axis.values) for axis in axes], start.held.index)
    return {axis.name: axis.values[at] for axis, at in zip(axes, choice, strict=True)}


def _of_gang(peers: Sequence[str]) -> dict[str, str]:
    """Where a task of a gang reaches the others, and first of all task 0."""
    if not peers:
        return {}
    host, _, port = peers[0].rpartition(":")
    env = {"LARGESSE_MASTER_ADDR": host.strip("[]"), "LARGESSE_MASTER_PORT": port}
    text = ",".join(peers)
    return env | {"LARGESSE_PEERS": text} if len(text) <= PEERS_MAX else env
