"""What is installed: a wheel has the examples and everything that the command needs; `--version` says what runs."""

import subprocess
import sys
import zipfile

import pytest

from tests.conftest import ROOT
from tests.unit.cli_here import largesse


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_examples_are_written_into_a_new_folder_and_never_over_another(tmp_path):
    first = largesse("examples", tmp_path / "mine")
    second = largesse("examples", tmp_path / "mine")

    assert first.out == f"examples in {tmp_path / 'mine'}\n"
    assert files_below(tmp_path / "mine") == files_below(ROOT / "examples")
    assert (second.code, second.err) == (2, f"largesse: {tmp_path / 'mine'} already exists: name another folder\n")


def test_the_version_says_which_code_runs():
    said = largesse("--version").out

    assert said.startswith("largesse 0.1.0 (")
    assert said.endswith((", cores interpreted)\n", ", cores compiled)\n"))


@pytest.mark.slow
def test_a_wheel_has_the_examples_and_needs_no_extra(tmp_path):
    # Of a copy: a build leaves folders behind.
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("this is no git checkout: nothing says which files belong to the project")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "schemas/published/")):
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(tmp_path / "copy")], check=True)
    (wheel,) = tmp_path.glob("largesse-0.1.0-py3-none-any.whl")

    with zipfile.ZipFile(wheel) as archive:
        shipped = "services/cli/shipped/"
        names = sorted(name.removeprefix(shipped) for name in archive.namelist() if name.startswith(shipped))
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        needed = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")]
    assert names == files_below(ROOT / "examples")
    assert [line for line in needed if line.startswith("Requires-Dist: typer") and "extra" not in line]
