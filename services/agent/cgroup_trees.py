"""Where control groups can be made on this system: mounted hierarchies of cgroup v2 and v1, and delegated groups of v2
(cgroups.py). PARENT is the group below which the agent makes its own.
"""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

AGENT = "agent"
"""The group for the processes that were in PARENT."""
WANTED = ("cpu", "memory", "pids")
MOUNTS, OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a delegated group; the second can be read by root only."""
OPTIONAL = ("memory.swap.max", "memory.oom.group", "cpu.max", "cpu.cfs_period_us", "cpu.cfs_quota_us")
"""Files that a kernel may have been built without (swap, bandwidth control)."""
MOVES_MAX = 10
"""Looks at PARENT for processes that were forked while others were moved out of it."""


class NoCgroups(Exception):
    """Why no control groups can be made here, in words."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A hierarchy in which groups can be made below `parent`. `controllers`: which of WANTED it limits by."""

    version: Literal[1, 2]
    parent: Path
    controllers: tuple[str, ...]


def found_trees(mounts: Path = MOUNTS, own: Path = OWN) -> list[Tree]:
    """Where groups can be made, by what this process is in. Raises NoCgroups."""
    paths = _own_paths(own)
    trees: list[Tree] = []
    why = "no cgroup file system is mounted"
    for kind, mount, root, options in _mounts(mounts):
        if kind == "cgroup2" and "" in paths:
            try:
                trees.append(delegated_tree(_parent_of(mount / _below(root, paths[""]))))
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


def delegated_tree(parent: Path) -> Tree:
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
            write_file(control, f"+{controller}")
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EOPNOTSUPP):
                raise
            _move_out(parent)  # Processes were forked into it meanwhile.
        else:
            return True
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _move_out(parent: Path) -> None:
    """Moves the processes of a group into the group AGENT below it. Raises OSError."""
    inner, moved = parent / AGENT, processes_in(parent)
    if moved:
        inner.mkdir(exist_ok=True)
    for pid in moved:
        with suppress(ProcessLookupError):
            write_file(inner / "cgroup.procs", str(pid))


def processes_in(group: Path) -> list[int]:
    """Without those of other pid namespaces, which are listed as 0. Raises OSError."""
    return [pid for pid in map(int, (group / "cgroup.procs").read_text().split()) if pid]


def write_file(path: Path, text: str) -> None:
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
