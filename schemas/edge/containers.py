"""`container` of a stage as people write it: in which image its tasks run, and with how much of their node."""

import re
from typing import Annotated

from pydantic import Field

from schemas.edge.base import NO_NUL_PATTERN, Input, Malformed, shown
from schemas.jobs import ENGINE_LABEL, ENGINE_THERE, Container, Mount, Network, Pull

IMAGE_MAX = 512
MOUNTS_MAX = 64
PATH_MAX = 4_096
USER_MAX = 128
SHM_MIB_MAX = 1 << 20

IMAGE_PATTERN = (
    r"^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)
USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$"

OWN = "/largesse"
"""Below it lie results and inputs of a task in its container."""
_TAKEN = ("/proc", "/sys", "/dev", OWN)

Path = Annotated[str, Field(min_length=1, max_length=PATH_MAX, pattern=NO_NUL_PATTERN)]


class MountInput(Input):
    """A folder or file of the node that tasks see in their container. The node has to allow it."""

    source: Path
    target: Path | None = None
    read_only: bool = True


class ContainerInput(Input):
    """Tasks of the stage run in a container of this image, on nodes that have a container engine."""

    image: Annotated[str, Field(min_length=1, max_length=IMAGE_MAX, pattern=IMAGE_PATTERN)]
    mounts: Annotated[list[MountInput], Field(max_length=MOUNTS_MAX)] = []
    user: Annotated[str, Field(min_length=1, max_length=USER_MAX, pattern=USER_PATTERN)] | None = None
    network: Network = "bridge"
    read_only_root: bool = False
    shm_mib: Annotated[int, Field(ge=1, le=SHM_MIB_MAX)] | None = None
    pull: Pull = "missing"


def container_of(said: ContainerInput | None, command: list[str] | None, cwd: str | None) -> Container | None:
    """The normalised container. Raises Malformed."""
    if said is None:
        return None
    if command is None:
        raise Malformed("container", 'needs "command": what a task runs in its container')
    if cwd is not None and not cwd.startswith("/"):
        raise Malformed("cwd", f"has to begin with / in a container, is {shown(cwd)}")
    mounts = [_mount(i, mount) for i, mount in enumerate(said.mounts)]
    targets = [mount.target for mount in mounts]
    for i, target in enumerate(targets):
        if target in targets[:i]:
            raise Malformed(f"container.mounts[{i}].target", f"{shown(target)} is the target of another one already")
    more = said.user, said.network, said.read_only_root, said.shm_mib, said.pull
    return Container(said.image, mounts, *more)


def labels_with(labels: dict[str, str], container: Container | None) -> dict[str, str]:
    """The labels that a node has to have, in order: for a container that of an engine, too. Raises Malformed."""
    if container is None:
        return labels
    if labels.get(ENGINE_LABEL, ENGINE_THERE) != ENGINE_THERE:
        raise Malformed(f"labels.{ENGINE_LABEL}", f'is "{ENGINE_THERE}" on nodes that run containers: leave it out')
    return dict(sorted({**labels, ENGINE_LABEL: ENGINE_THERE}.items()))


def _mount(i: int, said: MountInput) -> Mount:
    target = said.source if said.target is None else said.target
    for field, path in (("source", said.source), ("target", target)):
        where = f"container.mounts[{i}].{field}"
        if not path.startswith("/"):
            raise Malformed(where, f"has to begin with /, is {shown(path)}")
        if ".." in path.split("/"):
            raise Malformed(where, f'may not go up by "..", is {shown(path)}')
    source, target = (re.sub(r"/+(\.?/+)*", "/", f"{path}/").rstrip("/") or "/" for path in (said.source, target))
    if target == "/" or any(target == taken or target.startswith(f"{taken}/") for taken in _TAKEN):
        where = f"container.mounts[{i}].target"
        raise Malformed(where, f"{shown(target)} is the container's own: choose another folder")
    return Mount(source, target, said.read_only)
