"""What an attempt's container is made of: the document that the engine gets, and what the node allows in it.

/largesse/results     the attempt's results folder, where the command begins
/largesse/inputs      results of earlier stages, which it cannot write to
"""

import os
from hashlib import blake2b
from pathlib import Path

from largesse.lifecycle.node_work import Start
from schemas import Container, Mount
from schemas.edge.containers import OWN
from services.agent import processes
from services.agent.cgroups import CPU_MILLI_MIN, PERIOD_US, SHARES_MIN, SHARES_OF_CORE
from services.agent.container_settings import ContainerSettings
from services.agent.devices.visible import CUDA, names_of, visible
from services.agent.engine import CREATED_BY, NODE, About
from services.agent.folders import INPUTS, WORK
from services.agent.local import NotStarted
from services.agent.settings import ROOT, NodeSettings
from services.agent.starting import limits_of, own_variables

RESULTS, INPUTS_SEEN = f"{OWN}/results", f"{OWN}/inputs"
GROUPS = "/docker/largesse-"
"""Below the engine's own group, so that what holds for all its containers holds for these."""
GPUS = Path("/dev/nvidiactl")
"""Where there are GPUs that an engine can hand out; nodes may also offer some that are only numbers."""


def container_name(key: str) -> str:
    """What the container of the attempt with that key is called."""
    return f"largesse-{_digest(key)}"


def group_of(key: str, about: About) -> str | None:
    """The control group above that of the attempt's container; None: the engine decides."""
    return f"{GROUPS}{_digest(key)}" if about.groups else None


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=12).hexdigest()


def container_document(start: Start, settings: NodeSettings, key: str, folder: Path, about: About) -> dict[str, object]:
    """What the engine is to make. `folder`: the attempt's. Raises NotStarted where this node does not allow it."""
    stage, held = start.stage, start.held
    said = stage.container
    assert said is not None
    check_allowed(said, settings)
    env = {name: os.environ[name] for name in settings.pass_env if name in os.environ}
    env |= (
        stage.env
        | _visible(start, settings)
        | own_variables(start, settings, RESULTS, INPUTS_SEEN)
        | {processes.KEY: key}
    )
    labels = {CREATED_BY: key, NODE: key.partition("/")[0], "largesse.node": settings.name, "largesse.job": held.job}
    labels |= {"largesse.cell": settings.cell} if settings.cell else {}
    labels |= {"largesse.stage": held.stage, "largesse.task": str(held.index), "largesse.number": str(held.attempt)}
    user = _user(said, start, settings)
    document = {
        "Image": said.image,
        "Entrypoint": stage.command,
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in env.items()],
        "WorkingDir": stage.cwd or RESULTS,
        "Labels": labels,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(start, settings, key, folder, about),
    }
    return document if user is None else {**document, "User": user}


def _user(said: Container, start: Start, settings: NodeSettings) -> str | None:
    if settings.task_user is None:
        mine = None if os.geteuid() == ROOT else f"{os.geteuid()}:{os.getegid()}"  # It has to remove what is left.
        return said.user or mine
    user = settings.task_user.of(start.held.run)
    return f"{user.uid}:{user.gid}"


def _host_config(start: Start, settings: NodeSettings, key: str, folder: Path, about: About) -> dict[str, object]:
    said = start.stage.container
    assert said is not None
    mounts = [_bind(str(folder / WORK), RESULTS, read_only=False)]
    if start.stage.inputs:
        mounts.append(_bind(str(folder.parents[1] / INPUTS), INPUTS_SEEN, read_only=True))
    mounts += [_bind(allowed_source(each, settings.containers), each.target, each.read_only) for each in said.mounts]
    document: dict[str, object] = {
        "Mounts": mounts,
        "NetworkMode": said.network,
        "ReadonlyRootfs": said.read_only_root,
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        "SecurityOpt": ["no-new-privileges"],
        "Init": about.init,
        **_limits(start, settings),
    }
    if said.read_only_root:
        document["Tmpfs"] = {"/tmp": ""}  # noqa: S108 - the container's own
    if said.shm_mib is not None:
        document["ShmSize"] = said.shm_mib << 20
    if settings.task_user is not None:
        document["CapDrop"] = ["ALL"]
        document["GroupAdd"] = [str(gid) for gid in settings.task_user.of(start.held.run).groups]
    if start.held.devices and GPUS.exists():
        names = names_of(start.held, settings.devices)
        document["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": names, "Capabilities": [["gpu"]]}]
    if (group := group_of(key, about)) is not None:
        document["CgroupParent"] = group
    return document


def _visible(start: Start, settings: NodeSettings) -> dict[str, str]:
    """What it finds in its environment of GPUs: as a process does, but for indexes, which count those that the engine
    hands out.
    """
    held = start.held
    env = visible(held, settings.devices, settings.capacity)
    if held.devices and GPUS.exists() and names_of(held, settings.devices)[0].isdecimal():
        env[CUDA] = ",".join(str(place) for place in range(len(held.devices)))
    return env


def _limits(start: Start, settings: NodeSettings) -> dict[str, object]:
    """As control groups hold processes to theirs (cgroups.py): what a task asks for is all that it gets."""
    limits = limits_of(start, settings)
    found: dict[str, object] = {}
    if limits.memory_mib is not None:
        # The same for both: no swap.
        found |= {"Memory": limits.memory_mib << 20, "MemorySwap": limits.memory_mib << 20}
    if limits.pids is not None:
        found["PidsLimit"] = limits.pids
    if limits.cpu != "none":
        counted = limits.counted or limits.millicores or 0
        found["CpuShares"] = max(counted * SHARES_OF_CORE // 1_000, SHARES_MIN)
    if limits.cpu == "hard" and limits.millicores is not None:
        quota_us = max(limits.millicores, CPU_MILLI_MIN) * PERIOD_US // 1_000
        found |= {"CpuPeriod": PERIOD_US, "CpuQuota": quota_us}
    return found


def _bind(source: str, target: str, read_only: bool) -> dict[str, object]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


# ---------------------------------------------------------------- what the node allows
def check_allowed(said: Container, settings: NodeSettings) -> None:
    """Raises NotStarted, as a fault of the job's, for what this node does not allow."""
    allowed = settings.containers
    if said.network not in allowed.networks:
        raise NotStarted(f"node {settings.name} does not allow network {said.network}", "cannot_start")
    if said.user is not None and settings.task_user is not None:
        raise NotStarted(f"node {settings.name} decides itself as whom tasks run: leave user out", "cannot_start")
    for mount in said.mounts:
        allowed_source(mount, allowed)


def allowed_source(mount: Mount, allowed: ContainerSettings) -> str:
    """The source of a mount without links, once it is known that it lies where this node allows it. Raises
    NotStarted."""
    source = os.path.realpath(mount.source)
    for each in allowed.mounts:
        if _lies_in(mount.source, each.path) and _lies_in(source, os.path.realpath(each.path)):
            if each.writable or mount.read_only:
                if not os.path.lexists(source):
                    raise NotStarted(f"there is no {mount.source} on this node", "cannot_start")
                return source
            raise NotStarted(f"this node lets tasks only read {mount.source}", "cannot_start")
    raise NotStarted(f"this node does not let containers mount {mount.source}", "cannot_start")


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
