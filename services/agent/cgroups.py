"""Control groups that hold attempts to their CPU, memory and processes, where this system lets the agent make them.

    PARENT/agent                 the agent and its shims, moved here where PARENT had processes (cgroup v2 demands it)
    PARENT/largesse-NODE         one node; NODE is the inode of its data folder, as in the keys of attempts
    PARENT/largesse-NODE/task-X  one attempt; X is a hash of the attempt's key

cgroup v2 (https://docs.kernel.org/admin-guide/cgroup-v2.html): PARENT is the agent's own group where that is delegated
to it (systemd's `Delegate=yes`, a container whose /sys/fs/cgroup can be written, `LARGESSE_NODE_CGROUP`). A controller
that is still bound to cgroup v1 is used there for CPU and processes; memory is then watched (meter.py), for v1 ends
single processes and not the attempt.
"""

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from services.agent.cgroup_trees import NoCgroups, Tree, delegated_tree, found_trees, processes_in, write_file
from services.agent.processes import end

CpuLimit = Literal["hard", "share", "none"]

PERIOD_US = 100_000
CPU_MILLI_MIN = 50
"""A hard limit is never below this: an interpreter would take seconds to start."""
SHARES_OF_CORE, SHARES_MIN = 1_024, 2
WEIGHT_OF_CORE, WEIGHT_MIN, WEIGHT_MAX = 100, 1, 10_000
MAKES_MAX = 10
FORSAKEN_S = 3_600
"""An empty group of an attempt on any node is removed when it is so old."""
REMOVE_WAIT_S, REMOVE_PAUSE_S = 2.0, 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """What one attempt may use. `millicores`: None where it asked for none; `memory_mib`, `pids`: None for no limit.
    `counted`: the millicores by which CPU is divided where it is short; None: by `millicores`."""

    cpu: CpuLimit
    millicores: int | None
    memory_mib: int | None
    pids: int | None
    counted: int | None = None


@dataclass(slots=True)
class Groups:
    """The control groups of one node. Without trees it does nothing."""

    node: str = ""
    trees: tuple[Tree, ...] = ()
    why_not: str = ""
    left: dict[str, None] = field(default_factory=dict)
    """Keys of attempts whose groups could not be removed yet."""

    def limits(self, controller: str) -> bool:
        """Whether attempts are held to this resource by the kernel."""
        return any(controller in tree.controllers for tree in self.trees)

    def limits_text(self, cpu: CpuLimit, memory: str) -> str:
        """What holds tasks to their limits, in words. `memory`: as the settings have it (settings.py)."""
        by = {name: f"cgroup v{tree.version}" for tree in self.trees for name in tree.controllers}
        if cpu == "none":
            cpu_text = "CPU is not limited"
        elif "cpu" in by:
            cpu_text = f"CPU by {by['cpu']} ({'never more' if cpu == 'hard' else 'more only where it is free'})"
        else:
            cpu_text = "CPU is not limited"
        memory_text = {"none": "memory is not limited", "address_space": "memory by RLIMIT_AS"}.get(memory)
        if memory_text is None:
            kernel = memory == "auto" and "memory" in by
            memory_text = f"memory by {by['memory']}" if kernel else "memory by looking at it every second"
        pids_text = f"processes by {by['pids']}" if "pids" in by else "the number of processes is not limited"
        limits_text = f"{cpu_text}, {memory_text}, {pids_text}"
        return f"{limits_text} ({self.why_not})" if self.why_not else limits_text

    def make(self, key: str, limits: Limits) -> dict[str, Any] | None:
        """Groups for one attempt; returns what its shim has to know of them (meter.py), None where there are none.

        Raises OSError.
        """
        if not self.trees:
            return None
        groups: dict[str, Any] = {"join": [], "v2": None, "memory": False}
        try:
            for tree in self.trees:
                group = self._made(tree, key)
                for name, text in _written(tree, limits):
                    write_file(group / name, text)
                groups["join"].append(str(group / "cgroup.procs"))
                if tree.version == 2:
                    groups["v2"], groups["memory"] = str(group), "memory" in tree.controllers
        except OSError:
            self.remove(key)
            raise
        return groups

    def _made(self, tree: Tree, key: str) -> Path:
        """Another node's agent may remove a node's group that is empty just before something is made in it."""
        group = self._group(tree, key)
        for _ in range(MAKES_MAX):
            try:
                group.mkdir(exist_ok=True)
            except FileNotFoundError:
                with suppress(FileNotFoundError):
                    self._make_node(tree)
                continue
            return group
        raise OSError(errno.ENOENT, f"{group.parent} cannot be made")

    def _make_node(self, tree: Tree) -> None:
        node = self._node(tree)
        with suppress(FileExistsError):
            node.mkdir()
            if tree.version == 2:  # Each for itself: one of them may be refused.
                for controller in tree.controllers:
                    write_file(node / "cgroup.subtree_control", f"+{controller}")

    def remove(self, key: str) -> None:
        """Removes the groups of an attempt that has ended. What still runs in them is killed, and another try made by
        `remove_left`."""
        name = _name(key)
        left = [tree for tree in self.trees if not _removed(f"{tree.parent}/{self.node}/{name}")]
        if left:
            self.left[key] = None
        else:
            self.left.pop(key, None)

    def remove_left(self) -> None:
        """Tries again what could not be removed."""
        for key in list(self.left):
            self.remove(key)

    def sweep(self, running: Iterable[str]) -> int:
        """Removes the groups of all attempts but those with these keys, with what runs in them: those that an agent
        which was killed has left. Returns how many there were. Blocks for up to REMOVE_WAIT_S."""
        kept = {_name(key) for key in running}
        found = [path for tree in self.trees for path in _below(self._node(tree), "task-") if path.name not in kept]
        over_s = time.monotonic() + REMOVE_WAIT_S
        left = [path for path in found if not _removed(path)]
        for tree in self.trees:
            _remove_empty(tree.parent)
        while left and time.monotonic() < over_s:
            time.sleep(REMOVE_PAUSE_S)
            left = [path for path in left if not _removed(path)]
        return len(found)

    def close(self) -> None:
        """Removes the node's group where no attempt is left in it."""
        self.remove_left()
        for tree in self.trees:
            with suppress(OSError):
                self._node(tree).rmdir()

    def _node(self, tree: Tree) -> Path:
        return tree.parent / self.node

    def _group(self, tree: Tree, key: str) -> Path:
        return self._node(tree) / _name(key)


def open_groups(where: str, node_key: str) -> Groups:
    """The groups of the node whose data folder has this key (processes.py).

    `where`: `auto`, `off`, or the path of a group of cgroup v2 below which groups may be made. Raises NoCgroups for a
    path that cannot be used; with `auto` the groups say why there are none.
    """
    node = "largesse-" + node_key.rstrip("/")
    if where == "off":
        return Groups(node, why_not="LARGESSE_NODE_CGROUP=off")
    if where != "auto":
        return Groups(node, (delegated_tree(Path(where)),))
    try:
        return Groups(node, tuple(found_trees()))
    except NoCgroups as why:
        return Groups(node, why_not=str(why))


# ---------------------------------------------------------------- one attempt
def _name(key: str) -> str:
    return "task-" + blake2b(key.encode(), digest_size=12).hexdigest()


def _written(tree: Tree, limits: Limits) -> list[tuple[str, str]]:
    """Files of an attempt's group and what to write into them."""
    found = []
    for controller in tree.controllers:
        if controller == "cpu":
            found += _cpu(tree.version, limits)
        elif controller == "memory" and limits.memory_mib is not None:
            # Without swap, and all processes at once: half a task is worth nothing.
            found += [("memory.max", str(limits.memory_mib << 20)), ("memory.oom.group", "1")]
            found += [("memory.swap.max", "0")]
        elif controller == "pids" and limits.pids is not None:
            found.append(("pids.max", str(limits.pids)))
    return found


def _cpu(version: int, limits: Limits) -> list[tuple[str, str]]:
    if limits.cpu == "none":
        return []
    milli = limits.counted or limits.millicores or 0
    quota_us = max(limits.millicores or 0, CPU_MILLI_MIN) * PERIOD_US // 1_000
    hard = limits.cpu == "hard" and limits.millicores is not None
    if version == 2:
        weight = min(max(milli * WEIGHT_OF_CORE // 1_000, WEIGHT_MIN), WEIGHT_MAX)
        return [("cpu.weight", str(weight)), *([("cpu.max", f"{quota_us} {PERIOD_US}")] if hard else [])]
    shares = max(milli * SHARES_OF_CORE // 1_000, SHARES_MIN)
    quota = [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us))] if hard else []
    return [("cpu.shares", str(shares)), *quota]


def _removed(path: str | Path) -> bool:
    """Ends what is in a group and removes it with all groups below; False where something is still there."""
    try:
        os.rmdir(path)  # noqa: PTH106 - once a task: as a rule its shim has removed it, or it is empty.
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass
    group = Path(path)
    _kill(group)
    for inner, folders, _ in os.walk(group, topdown=False):
        for name in folders:
            with suppress(OSError):
                Path(inner, name).rmdir()
    with suppress(OSError):
        group.rmdir()
    return not group.is_dir()


def _below(folder: Path, prefix: str) -> list[Path]:
    """The groups right below one whose names begin so; none where it is gone. Agents of other cells on this machine
    may remove an empty group at any moment, also while it is listed, over which Path.glob stumbles.
    """
    try:
        return [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except OSError:
        return []


def _remove_empty(parent: Path) -> None:
    """Removes what is left of nodes that no longer run here. A group in which something runs resists."""
    for node in _below(parent, "largesse-"):
        for task in _below(node, "task-"):
            with suppress(OSError):
                if time.time() - task.stat().st_mtime > FORSAKEN_S:  # A younger one may be about to be joined.
                    task.rmdir()
        with suppress(OSError):
            node.rmdir()


def _kill(group: Path) -> None:
    try:
        write_file(group / "cgroup.kill", "1")
    except OSError:  # cgroup v1, or a kernel before 5.14.
        for inner in [Path(folder) for folder, _, _ in os.walk(group)]:
            with suppress(OSError):
                end(processes_in(inner))
