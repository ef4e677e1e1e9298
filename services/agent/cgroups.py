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

from services.agent.processes import end

CpuLimit = Literal["hard", "share", "none"]

AGENT = "agent"
"""The group for the processes that were in PARENT."""
WANTED = ("cpu", "memory", "pids")
MOUNTS, OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a delegated group; the second can be read by root only."""
PERIOD_US = 100_000
CPU_MILLI_MIN = 50
"""A hard limit is never below this: an interpreter would take seconds to start."""
SHARES_OF_CORE, SHARES_MIN = 1_024, 2
WEIGHT_OF_CORE, WEIGHT_MIN, WEIGHT_MAX = 100, 1, 10_000
MOVES_MAX = 10
"""Looks at PARENT for processes that were forked while others were moved out of it."""
MAKES_MAX = 10
FORSAKEN_S = 3_600
"""An empty group of an attempt on any node is removed when it is so old."""
REMOVE_WAIT_S, REMOVE_PAUSE_S = 2.0, 0.01


class NoCgroups(Exception):
    """Why no control groups can be made here, in words."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A hierarchy in which groups can be made below `parent`. `controllers`: which of WANTED it limits by."""

    version: Literal[1, 2]
    parent: Path
    controllers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one attempt may use. `millicores`: None where it asked for none; `memory_mib`, `pids`: None for no limit."""

    cpu: CpuLimit
    millicores: int | None
    memory_mib: int | None
    pids: int | None


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

    def told(self, cpu: CpuLimit, memory: str) -> str:
        """What holds tasks to their limits, in words. `memory`: as the settings have it (settings.py)."""
        by = {name: f"cgroup v{tree.version}" for tree in self.trees for name in tree.controllers}
        if cpu == "none":
            cpu_told = "CPU is not limited"
        elif "cpu" in by:
            cpu_told = f"CPU by {by['cpu']} ({'never more' if cpu == 'hard' else 'more only where it is free'})"
        else:
            cpu_told = "CPU is not limited"
        memory_told = {"none": "memory is not limited", "address_space": "memory by RLIMIT_AS"}.get(memory)
        if memory_told is None:
            kernel = memory == "auto" and "memory" in by
            memory_told = f"memory by {by['memory']}" if kernel else "memory by looking at it every second"
        pids_told = f"processes by {by['pids']}" if "pids" in by else "the number of processes is not limited"
        told = f"{cpu_told}, {memory_told}, {pids_told}"
        return f"{told} ({self.why_not})" if self.why_not else told

    def make(self, key: str, limits: Limits) -> dict[str, Any] | None:
        """Groups for one attempt; returns what its shim has to know of them (meter.py), None where there are none.

        Raises OSError.
        """
        if not self.trees:
            return None
        told: dict[str, Any] = {"join": [], "v2": None, "memory": False}
        try:
            for tree in self.trees:
                group = self._made(tree, key)
                for name, text in _written(tree, limits):
                    _write(group / name, text)
                told["join"].append(str(group / "cgroup.procs"))
                if tree.version == 2:
                    told["v2"], told["memory"] = str(group), "memory" in tree.controllers
        except OSError:
            self.remove(key)
            raise
        return told

    def _made(self, tree: Tree, key: str) -> Path:
        """Another node's agent may remove a node's group that is empty just before something is made in it."""
        group = self._group(tree, key)
        for _ in range(MAKES_MAX):
            try:
                self._make_node(tree)
                group.mkdir(exist_ok=True)
            except FileNotFoundError:
                continue
            return group
        raise OSError(errno.ENOENT, f"{group.parent} cannot be made")

    def _make_node(self, tree: Tree) -> None:
        node = self._node(tree)
        with suppress(FileExistsError):
            node.mkdir()
            if tree.version == 2:  # Each for itself: one of them may be refused.
                for controller in tree.controllers:
                    _write(node / "cgroup.subtree_control", f"+{controller}")

    def remove(self, key: str) -> None:
        """Removes the groups of an attempt that has ended. What still runs in them is killed, and another try made by
        `remove_left`."""
        left = [tree for tree in self.trees if not _removed(self._group(tree, key))]
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
        found = [path for tree in self.trees for path in self._node(tree).glob("task-*") if path.name not in kept]
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
        return Groups(node, (_delegated(Path(where)),))
    try:
        return Groups(node, tuple(found_trees()))
    except NoCgroups as why:
        return Groups(node, why_not=str(why))


# ---------------------------------------------------------------- which there are
def found_trees(mounts: Path = MOUNTS, own: Path = OWN) -> list[Tree]:
    """Where groups can be made, by what this process is in. Raises NoCgroups."""
    paths = _own_paths(own)
    trees: list[Tree] = []
    why = "no cgroup file system is mounted"
    for kind, mount, root, options in _mounts(mounts):
        if kind == "cgroup2" and "" in paths:
            try:
                trees.append(_delegated(_parent_of(mount / _below(root, paths[""]))))
            except NoCgroups as fault:
                why = str(fault)
        elif kind == "cgroup":
            for controller in [name for name in ("cpu", "pids") if name in options and name in paths]:
                parent = mount / _below(root, paths[controller])
                if os.access(parent, os.W_OK):
                    trees.append(Tree(1, parent, (controller,)))
    if not trees:
        raise NoCgroups(why)
    return trees


def _own_paths(own: Path) -> dict[str, str]:
    """This process's group by controller; that of cgroup v2 under the empty name."""
    try:
        lines = own.read_text().splitlines()
    except OSError as error:
        raise NoCgroups(f"{own}: {error.strerror}") from None
    paths = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mounts(mounts: Path) -> list[tuple[str, Path, str, list[str]]]:
    """(file system, where, which part of it, its own options) of every cgroup file system (proc_pid_mountinfo(5))."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError as error:
        raise NoCgroups(f"{mounts}: {error.strerror}") from None
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        words, about = before.split(), after.split()
        if about[0] in ("cgroup", "cgroup2"):
            found.append((about[0], Path(words[4]), words[3], about[2].split(",")))
    return found


def _below(root: str, path: str) -> str:
    """A group's path below a mount that shows the hierarchy from `root` on."""
    if path == root or path.startswith(root.rstrip("/") + "/"):
        return path[len(root.rstrip("/")) :].lstrip("/")
    return path.lstrip("/")


def _parent_of(own: Path) -> Path:
    """The group that is delegated to this process: its own, or the one above where it was moved by an earlier life, or
    put by systemd's DelegateSubgroup. Raises NoCgroups.
    """
    candidates = [own.parent, own] if own.name == AGENT else [own]
    for group in candidates:
        if _is_top(group) or any(_attribute(group, name) == b"1" for name in DELEGATED):
            return group
    raise NoCgroups(
        "its control group is not delegated to it: set Delegate=yes in its systemd unit, or name a group in "
        "LARGESSE_NODE_CGROUP"
    )


def _is_top(group: Path) -> bool:
    """Whether no group lies above: of the machine, or of the container's own view of it."""
    return not (group.parent / "cgroup.procs").exists()


def _attribute(group: Path, name: str) -> bytes:
    try:
        return os.getxattr(group, name)
    except OSError:
        return b""


def _delegated(parent: Path) -> Tree:
    """Makes a group of cgroup v2 ready to have others below it. Raises NoCgroups."""
    try:
        there = (parent / "cgroup.controllers").read_text().split()
    except OSError as error:
        raise NoCgroups(f"{parent} is no group of cgroup v2: {error.strerror}") from None
    wanted = [name for name in WANTED if name in there]
    if not wanted:
        raise NoCgroups(f"cgroup v2 has none of the controllers {', '.join(WANTED)} at {parent}")
    if not os.access(parent / "cgroup.subtree_control", os.W_OK) or not os.access(parent, os.W_OK):
        raise NoCgroups(f"{parent} cannot be written to")
    try:
        enabled = [name for name in wanted if _enable(parent, name)]
    except OSError as error:
        raise NoCgroups(f"{parent} takes no controllers: {error.strerror}") from None
    return Tree(2, parent, tuple(enabled))


def _enable(parent: Path, controller: str) -> bool:
    """Passes a controller on to the groups below. Raises OSError."""
    control = parent / "cgroup.subtree_control"
    if controller in control.read_text().split():
        return True
    if (parent / "cgroup.type").exists():
        # Only a group without processes may limit those below it; the top of the machine may have both. CPU alone could
        # be passed on, but would make it a root of threads, which takes no memory limits any more.
        _move_out(parent)
    for _ in range(MOVES_MAX):
        try:
            _write(control, f"+{controller}")
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EOPNOTSUPP):
                raise
            _move_out(parent)  # Processes were forked into it meanwhile.
        else:
            return True
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _move_out(parent: Path) -> None:
    """Moves the processes of a group into the group AGENT below it. Raises OSError."""
    inner, moved = parent / AGENT, _processes(parent)
    if moved:
        inner.mkdir(exist_ok=True)
    for pid in moved:
        with suppress(ProcessLookupError):
            _write(inner / "cgroup.procs", str(pid))


def _processes(group: Path) -> list[int]:
    """Without those of other pid namespaces, which are listed as 0. Raises OSError."""
    return [pid for pid in map(int, (group / "cgroup.procs").read_text().split()) if pid]


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
    milli = limits.millicores or 0
    quota_us = max(milli, CPU_MILLI_MIN) * PERIOD_US // 1_000
    hard = limits.cpu == "hard" and limits.millicores is not None
    if version == 2:
        weight = min(max(milli * WEIGHT_OF_CORE // 1_000, WEIGHT_MIN), WEIGHT_MAX)
        return [("cpu.weight", str(weight)), *([("cpu.max", f"{quota_us} {PERIOD_US}")] if hard else [])]
    shares = max(milli * SHARES_OF_CORE // 1_000, SHARES_MIN)
    quota = [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us))] if hard else []
    return [("cpu.shares", str(shares)), *quota]


def _write(path: Path, text: str) -> None:
    """Writes a file of the kernel's, which has to be there already. Raises OSError."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.name in OPTIONAL:
            return
        raise
    try:
        os.write(file, text.encode())
    except OSError as error:
        # In cgroup v1 nothing may have more than the group above it, which then holds it anyway.
        if (path.name, error.errno) != ("cpu.cfs_quota_us", errno.EINVAL):
            raise
    finally:
        os.close(file)


OPTIONAL = ("memory.swap.max", "memory.oom.group", "cpu.max", "cpu.cfs_period_us", "cpu.cfs_quota_us")
"""Files that a kernel may have been built without (swap, bandwidth control)."""


def _removed(group: Path) -> bool:
    """Ends what is in a group and removes it with all groups below; False where something is still there."""
    if not group.is_dir():
        return True
    with suppress(OSError):
        group.rmdir()  # As a rule it is empty.
        return True
    _kill(group)
    for inner, folders, _ in os.walk(group, topdown=False):
        for name in folders:
            with suppress(OSError):
                Path(inner, name).rmdir()
    with suppress(OSError):
        group.rmdir()
    return not group.is_dir()


def _remove_empty(parent: Path) -> None:
    """Removes what is left of nodes that no longer run here. A group in which something runs resists."""
    for node in parent.glob("largesse-*"):
        for task in node.glob("task-*"):
            with suppress(OSError):
                if time.time() - task.stat().st_mtime > FORSAKEN_S:  # A younger one may be about to be joined.
                    task.rmdir()
        with suppress(OSError):
            node.rmdir()


def _kill(group: Path) -> None:
    try:
        _write(group / "cgroup.kill", "1")
    except OSError:  # cgroup v1, or a kernel before 5.14.
        for inner in [group, *(path for path in group.rglob("*") if path.is_dir())]:
            with suppress(OSError):
                end(_processes(inner))
