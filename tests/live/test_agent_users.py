"""What a task can see of the cell, and as whom it runs."""

import ast
import os
import pwd
import shutil
import subprocess

import pytest

from largesse.settings import PREFIX
from services.agent.clearing import ENDED
from services.agent.settings import read_task_user
from tests.conftest import ROOT
from tests.live.up_jobs import job, shell
from tests.live.up_process import eventually, up

SECRET = "hunter2"
USER_SPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""As a user without any privilege, whoever runs the tests."""

LOOKS = """
for place in /proc/[0-9]*; do
    cat $place/environ
done 2>/dev/null | tr '\\0' '\\n' | grep -c "PASSWORD=$LOOKED_FOR"
cat /proc/$$/environ | tr '\\0' '\\n' | grep LARGESSE_JOB
echo shim $(cat /proc/$PPID/environ 2>&1 | grep -c denied) $(readlink -v /proc/$PPID/fd/3 2>&1 | grep -c denied)
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as another user")


def may_unshare():
    """Whether this machine lets us be somebody without privileges."""
    return bool(shutil.which("unshare")) and subprocess.run([*USER_SPACE, "true"], check=False).returncode == 0


def run(cell, name, script, **stage):
    """One task to its end; returns what it printed."""
    said = cell.ask("submit", "-", stdin=job(name, *shell(script), **stage))
    assert said.code == 0, said.err
    watched = cell.ask("watch", name)
    assert watched.code == 0, watched.out + cell.ask("logs", f"{name}/run/0", "--stderr").out
    return cell.ask("logs", f"{name}/run/0").out


def test_a_task_reads_no_environment_of_the_cell_or_of_its_guardian(tmp_path):
    if not may_unshare():
        pytest.skip("no user namespaces here")
    with up(tmp_path / "data", under=USER_SPACE, PASSWORD=SECRET) as cell:
        # The pattern is put together by the shell: no process has it in its own environment.
        said = run(cell, "j", 'LOOKED_FOR="hunter"2;' + LOOKS)

        assert said.splitlines() == ["0", "LARGESSE_JOB=j", "shim 1 1"]


def test_every_service_is_private_before_it_imports_anything_else_of_ours():
    mains = [path for path in ROOT.glob("services/*/__main__.py") if "serve" in path.read_text()]
    assert len(mains) == 10
    for path in [*mains, ROOT / "services/cli/main.py"]:
        imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
        ours = [name for name in names if name and name.partition(".")[0] in ("largesse", "services", "schemas")]
        assert ours[0] == "largesse.privacy", path


@as_root
def test_tasks_run_as_another_user_who_can_write_in_their_work_folder_only(tmp_path):
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)
    script = """
id -un; id -gn; echo $HOME $USER; pwd
echo mine > kept && cat kept
echo to stderr > /dev/stderr && echo to stdout > /dev/stdout
for file in ../task.json ../result.json ../claim.json ../stop.json ../../0.2 ../../../x ../../../../../identity.json; do
    (echo forged > $file) 2>/dev/null && echo wrote $file
done
ls .. 2>/dev/null && echo listed
cat ../task.json ../stdout 2>/dev/null && echo read
cat "$(pwd)"/../../../../../../../bus/* 2>/dev/null && echo read the log
kill -9 $PPID 2>/dev/null && echo killed
grep ^Cap /proc/self/status | sort -u | cut -f 2 | sort -u
"""
    with up(tmp_path / "data", LARGESSE_TASK_USER="nobody") as cell:
        user = pwd.getpwnam("nobody")
        (tmp_path / "data" / "own").mkdir()

        said = run(cell, "j", script).splitlines()

        # The run is put away about now.
        (folder,) = eventually(lambda: [*(tmp_path / "data" / "nodes" / "node-0" / ENDED).glob("[0-9]*/j/*/run/0.1")])
        assert said[0] == "nobody"
        assert said[2] == f"{user.pw_dir} nobody"
        assert said[3].endswith(f"/{folder.parent.parent.name}/{folder.parent.name}/{folder.name}/work")
        assert said[4:6] == ["mine", "to stdout"]
        # Capabilities: none that could be used, whatever it could be given.
        assert said[6] == "0" * 16
        assert not [line for line in said if line.startswith(("wrote", "listed", "read", "killed"))]
        assert cell.ask("logs", "j/run/0", "--stderr").out == "to stderr\n"
        assert (folder / "work" / "kept").stat().st_uid == user.pw_uid
        assert (folder / "task.json").stat().st_mode & 0o777 == 0o600


@as_root
def test_a_task_of_another_user_is_stopped_with_all_that_it_started(tmp_path):
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(0o755)
    with up(tmp_path / "data", LARGESSE_TASK_USER="nobody") as cell:
        sleep = f"sleep 1234.{os.getpid()}"  # No other run of this test has it.
        cell.ask("submit", "-", stdin=job("j", *shell(f"trap '' TERM; setsid {sleep} & echo $!; {sleep}")))
        cell.until("j", lambda said: said["state"] == "running" and cell.ask("logs", "j/run/0").out)
        assert b"1234" in subprocess.run(["pgrep", "-afu", "nobody", sleep], capture_output=True, check=False).stdout

        cell.ask("cancel", "j")

        cell.until("j", lambda said: said["state"] == "cancelled" and not said.get("running"))
        cell.ask("watch", "j")
        for _ in range(600):
            found = subprocess.run(["pgrep", "-fu", "nobody", sleep], capture_output=True, check=False).stdout
            if not found:
                break
            subprocess.run(["sleep", "0.1"], check=True)
        assert found == b""


@as_root
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-such-user", "no such user"),
        ("root", "other than root"),
    ],
)
def test_a_user_that_cannot_be_is_refused_at_the_start(tmp_path, name, words):
    with (
        pytest.raises(AssertionError, match=f"LARGESSE_TASK_USER={name}: .*{words}"),
        up(tmp_path / "data", LARGESSE_TASK_USER=name),
    ):
        pass


def test_only_root_runs_tasks_as_others(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert read_task_user({}) is None
    with pytest.raises(Exception, match="only root can run tasks as another user"):
        read_task_user({f"{PREFIX}TASK_USER": "nobody"})
