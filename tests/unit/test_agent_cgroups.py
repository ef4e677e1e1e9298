"""Control groups of attempts: where they may be made, and what is written into them."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from services.agent.cgroup_trees import NoCgroups, Tree, found_trees
from services.agent.cgroups import Groups, Limits, _written, open_groups

MOUNTED = {
    "v1": [
        "33 31 0:30 / {top}/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct",
        "36 31 0:36 / {top}/pids rw,relatime - cgroup cgroup rw,pids",
        "37 31 0:37 / {top}/memory rw,relatime - cgroup cgroup rw,memory",
    ],
    "v2": ["41 31 0:38 / {top} rw,relatime - cgroup2 cgroup2 rw"],
    "container": ["41 31 0:38 /docker/1 {top} rw,relatime - cgroup2 cgroup2 rw"],
}


def machine(tmp_path, mounts, own, *groups, controllers="cpu io memory pids"):
    """A machine's cgroup file system as far as it is plain files: what is mounted, where this process is, groups."""
    (tmp_path / "mountinfo").write_text("\n".join(MOUNTED[mounts]).format(top=tmp_path / "fs") + "\n")
    (tmp_path / "own").write_text(own + "\n")
    for group in groups:
        folder = tmp_path / "fs" / group
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text("")
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text(controllers)
    return tmp_path / "mountinfo", tmp_path / "own"


def test_the_top_of_a_containers_view_can_be_used(tmp_path):
    files = machine(tmp_path, "container", "0::/docker/1", ".")

    assert found_trees(*files) == [Tree(2, tmp_path / "fs", ("cpu", "memory", "pids"))]


def test_a_group_that_nobody_delegated_is_left_alone(tmp_path):
    files = machine(tmp_path, "v2", "0::/user.slice/session-1.scope", ".", "user.slice", "user.slice/session-1.scope")

    with pytest.raises(NoCgroups, match="is not delegated to it: set Delegate=yes"):
        found_trees(*files)


@pytest.mark.parametrize("inner", ["", "/agent"], ids=["in it", "moved by an earlier life"])
def test_a_group_that_systemd_delegated_can_be_used(tmp_path, inner):
    own = "system.slice/largesse.service"
    files = machine(tmp_path, "v2", f"0::/{own}{inner}", ".", "system.slice", own, f"{own}/agent")
    try:
        os.setxattr(tmp_path / "fs" / own, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"this file system keeps no extended attributes: {error.strerror}")

    assert found_trees(*files) == [Tree(2, tmp_path / "fs" / own, ("cpu", "memory", "pids"))]


def test_what_v1_has_is_used_for_cpu_and_processes_only(tmp_path):
    files = machine(tmp_path, "v1", "4:memory:/a\n3:pids:/a\n2:cpu,cpuacct:/", "cpu,cpuacct", "pids/a", "memory/a")

    top = tmp_path / "fs"
    assert found_trees(*files) == [Tree(1, top / "cpu,cpuacct", ("cpu",)), Tree(1, top / "pids/a", ("pids",))]


def test_without_controllers_there_are_no_groups(tmp_path):
    files = machine(tmp_path, "v2", "0::/", ".", controllers="hugetlb")

    with pytest.raises(NoCgroups, match="has none of the controllers cpu, memory, pids"):
        found_trees(*files)


def test_where_nothing_is_mounted_it_is_said(tmp_path):
    files = machine(tmp_path, "v2", "")
    files[0].write_text("22 1 0:20 / /proc rw - proc proc rw\n")
    files[1].write_text("")

    with pytest.raises(NoCgroups, match="no cgroup file system is mounted"):
        found_trees(*files)


def test_a_machine_that_hides_its_mounts_has_no_groups(tmp_path):
    (tmp_path / "own").write_text("")

    with pytest.raises(NoCgroups, match="mountinfo: No such file"):
        found_trees(tmp_path / "mountinfo", tmp_path / "own")


def test_a_named_group_that_is_none_is_refused(tmp_path):
    with pytest.raises(NoCgroups, match=f"{tmp_path} is no group of cgroup v2"):
        open_groups(str(tmp_path), "1.2/")


def test_groups_that_are_turned_off_limit_nothing():
    groups = open_groups("off", "1.2/")

    assert groups.make("key", Limits("hard", 500, 64, 10)) is None
    assert groups.limits_text("hard", "auto") == (
        "CPU is not limited, memory by looking at it every second, the number of processes is not limited "
        "(LARGESSE_NODE_CGROUP=off)"
    )


def test_what_holds_tasks_is_told_in_words(tmp_path):
    groups = Groups("n", (Tree(2, tmp_path, ("cpu", "memory", "pids")),))

    expected = "CPU by cgroup v2 (never more), memory by cgroup v2, processes by cgroup v2"
    assert groups.limits_text("hard", "auto") == expected
    assert groups.limits_text("share", "resident") == (
        "CPU by cgroup v2 (more only where it is free), memory by looking at it every second, processes by cgroup v2"
    )
    assert groups.limits_text("none", "none") == "CPU is not limited, memory is not limited, processes by cgroup v2"


@pytest.mark.parametrize(
    ("version", "limits", "written"),
    [
        pytest.param(
            2,
            Limits("hard", 500, 64, 10),
            {
                "cpu.weight": "50",
                "cpu.max": "50000 100000",
                "memory.max": str(64 << 20),
                "memory.oom.group": "1",
                "memory.swap.max": "0",
                "pids.max": "10",
            },
            id="v2",
        ),
        pytest.param(2, Limits("share", 500, None, None), {"cpu.weight": "50"}, id="v2, a share"),
        pytest.param(
            2,
            Limits("hard", 4_000, None, None, 2_500),
            {"cpu.weight": "250", "cpu.max": "400000 100000"},
            id="v2, counts for less than it asks for",
        ),
        pytest.param(2, Limits("none", 500, None, None), {}, id="v2, nothing"),
        pytest.param(2, Limits("hard", None, None, None), {"cpu.weight": "1"}, id="v2, asked for no CPU"),
        pytest.param(
            2, Limits("hard", 1, None, None), {"cpu.weight": "1", "cpu.max": "5000 100000"}, id="v2, next to none"
        ),
        pytest.param(
            2,
            Limits("hard", 200_000, None, None),
            {"cpu.weight": "10000", "cpu.max": "20000000 100000"},
            id="v2, more than the largest weight",
        ),
        pytest.param(
            1,
            Limits("hard", 500, 64, 10),
            {
                "cpu.shares": "512",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "50000",
                "memory.max": str(64 << 20),
                "memory.oom.group": "1",
                "memory.swap.max": "0",
                "pids.max": "10",
            },
            id="v1",
        ),
        pytest.param(
            1,
            Limits("hard", 4_000, None, None, 2_500),
            {"cpu.shares": "2560", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "400000"},
            id="v1, counts for less than it asks for",
        ),
        pytest.param(1, Limits("share", 1, None, None), {"cpu.shares": "2"}, id="v1, the smallest share"),
    ],
)
def test_limits_as_the_kernel_takes_them(tmp_path, version, limits, written):
    tree = Tree(version, tmp_path, ("cpu", "memory", "pids"))

    assert dict(_written(tree, limits)) == written


def test_groups_of_other_cells_may_go_while_what_is_empty_is_removed(tmp_path):
    """Two agents clear one parent at a time: what one has listed the other may have removed."""
    others = Groups("largesse-other", (Tree(1, tmp_path, ("pids",)),))
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            for node in range(20):
                Path(tmp_path, f"largesse-{node}").mkdir(exist_ok=True)
            for node in range(20):
                with suppress(OSError):
                    Path(tmp_path, f"largesse-{node}").rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(500):
            assert others.sweep([]) == 0
    finally:
        over.set()
        thread.join()
