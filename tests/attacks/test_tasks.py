"""What a task tries against its agent, and against tasks of others on the same node."""

import os
import platform
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.attacks.listed import Attack, Target, check_names, named
from tests.live.up_jobs import job, shell
from tests.live.up_process import eventually, up

TARGET = Target(
    "Tasks",
    "A task of ann's on a node with `LARGESSE_TASK_USER=100000-2000000000`, where a task of bob's runs. The kernel"
    " refuses, so that nothing is logged.",
)
SECRET = "hunter2"
FIRST = 100_000
NUMBERS = f"{FIRST}-2000000000"
DENIED, FORBIDDEN = "Permission denied", "Operation not permitted"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as another user"),
]


PTRACE = {"x86_64": 101, "aarch64": 117}.get(platform.machine())
TRACE = f"""perl -e 'print syscall({PTRACE}, 16, $ENV{{AGENT}} + 0, 0, 0) ? "$!\\n" : "GOT\\n"'"""


def does(script):
    """What a task does: a line of shell, in which AGENT is the process of the agent, DATA its folder, SHIM the task's
    guardian, and BOB and BOBS a process of bob's and its working folder. It prints GOT where it comes through."""
    return script


ATTACKS = [
    Attack("the agent's environment", does("cat /proc/$AGENT/environ && echo GOT"), DENIED),
    Attack("the agent's memory", does("head -c 1 /proc/$AGENT/mem && echo GOT"), DENIED),
    Attack("where the agent's memory lies", does("cat /proc/$AGENT/maps && echo GOT"), DENIED),
    Attack("the agent's open files", does("ls /proc/$AGENT/fd/ && echo GOT"), DENIED),
    Attack("an open file of the agent's, by its number", does("cat /proc/$AGENT/fd/3 && echo GOT"), DENIED),
    Attack("the agent's working folder by /proc", does("ls /proc/$AGENT/cwd/ && echo GOT"), DENIED),
    Attack("the agent's stack", does("cat /proc/$AGENT/stack && echo GOT"), DENIED),
    Attack("the environment of its guardian", does("cat /proc/$SHIM/environ && echo GOT"), DENIED),
    Attack("the open files of its guardian", does("ls /proc/$SHIM/fd/ && echo GOT"), DENIED),
    Attack("end the agent", does("kill -9 $AGENT && echo GOT"), FORBIDDEN),
    Attack("suspend the agent", does("kill -STOP $AGENT && echo GOT"), FORBIDDEN),
    Attack("end its guardian", does("kill -9 $SHIM && echo GOT"), FORBIDDEN),
    Attack("trace the agent", does(TRACE), FORBIDDEN),
    Attack("the cell's log", does("cat $DATA/bus/* && echo GOT"), DENIED),
    Attack("write into the cell's log", does("echo x >> $DATA/bus/jobs && echo GOT"), DENIED),
    Attack("list what the node keeps", does("ls $DATA/nodes/node-0/ && echo GOT"), DENIED),
    Attack("the agent's file of secrets", does("cat $DATA/../secret && echo GOT"), DENIED),
    Attack("forge its own result", does("echo '{\"exit_code\": 0}' > ../result.json && echo GOT"), DENIED),
    Attack("change what it was started with", does("echo {} > ../task.json && echo GOT"), DENIED),
    Attack("overwrite its own output", does("echo x > ../stdout && echo GOT"), DENIED),
    Attack("lock its agent out", does("chmod 0 .. && echo GOT"), FORBIDDEN),
    Attack(
        "give itself root by a set-uid file",
        does("cp /bin/sh sh && chmod 4755 sh && ./sh -p -c 'cat /etc/shadow' && echo GOT"),
        DENIED,
    ),
    Attack(
        "give itself rights by a namespace of users",
        does("unshare --user --map-root-user cat /proc/$AGENT/environ && echo GOT"),
        DENIED,
    ),
    Attack("output of another's task", does("cat $BOBS/../stdout && echo GOT"), DENIED),
    Attack("how another's task was started", does("cat $BOBS/../task.json && echo GOT"), DENIED),
    Attack("list another's working folder", does("ls $BOBS/ && echo GOT"), DENIED),
    Attack("a file in another's working folder", does("cat $BOBS/left && echo GOT"), DENIED),
    Attack("write into another's working folder", does("echo x > $BOBS/more && echo GOT"), DENIED),
    Attack("environment of another's task", does("cat /proc/$BOB/environ && echo GOT"), DENIED),
    Attack("memory of another's task", does("head -c 1 /proc/$BOB/mem && echo GOT"), DENIED),
    Attack("another's working folder by /proc", does("ls /proc/$BOB/cwd/ && echo GOT"), DENIED),
    Attack("open files of another's task", does("ls /proc/$BOB/fd/ && echo GOT"), DENIED),
    Attack("end another's task", does("kill -9 $BOB && echo GOT"), FORBIDDEN),
]
check_names(ATTACKS)


def script_of(agent, data, bobs):
    """All attacks in one task, one after another: what one does, none after it depends on."""
    lines = [
        "exec 2>&1",
        f"export AGENT={agent} DATA={shlex.quote(str(data))} SHIM=$PPID BOBS={shlex.quote(str(bobs))}",
        # What belongs to bob is found by its folder, as nobody may look into it.
        f"export BOB={_process_in(bobs)}",
    ]
    for number, attack in enumerate(ATTACKS):
        lines += [f"echo '== {number}'", f"( {attack.story} )"]
    return "\n".join(lines)


def _process_in(folder):
    """A process that runs in a folder, as root sees it."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink() == folder:
                return entry.name
    return ""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What came of each attack, by its number."""
    folder = tmp_path_factory.mktemp("node")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    data = folder / "data"
    with up(data, LARGESSE_TASK_USER=NUMBERS, PASSWORD=SECRET) as cell:
        bobs = job("bobs", *shell(f"echo {SECRET} > left; echo {SECRET}; touch begun; sleep 600"), env={"KEY": SECRET})
        assert cell.ask("submit", "-", stdin=bobs).code == 0
        (begun,) = eventually(lambda: [*data.glob("nodes/node-0/jobs/bobs/*/run/0.1/work/begun")])
        place = begun.parent
        eventually(lambda: _process_in(place))
        script = script_of(cell.process.pid, data, place)
        assert cell.ask("submit", "-", stdin=job("anns", *shell(script))).code == 0
        watched = cell.ask("watch", "anns")
        text = cell.ask("logs", "anns/run/0").out
        assert watched.code in (0, 1), watched.err
        assert _process_in(place)
        assert (place / "left").read_text() == f"{SECRET}\n"
        assert place.stat().st_uid >= FIRST
        cell.ask("cancel", "bobs")
    parts = re.split(r"^== ([0-9]+)\n", text, flags=re.MULTILINE)
    return dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(said, attack):
    if attack.story is TRACE and not (PTRACE and shutil.which("perl")):
        pytest.skip("nothing to trace with")
    printed = said[ATTACKS.index(attack)]

    assert attack.refused in printed
    assert "GOT" not in printed
    assert SECRET not in printed
