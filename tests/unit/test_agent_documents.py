"""Documents between an agent and its shims: claimed once, written whole, on any file system; copied by any tool."""

import errno
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from services.agent.attempts import Attempts
from services.agent.documents import CLAIM, Spoilt, Way, claim, read_json, write_json
from services.agent.folders import take_identity
from services.agent.settings import NodeSettings
from tests.conftest import ROOT

LINK_CALLS = {"x86_64": (86, 265), "aarch64": (37,)}
"""Numbers of link() and linkat()."""

WITHOUT_LINKS = """
import ctypes, os, struct, sys
calls, number = [int(word) for word in sys.argv[1].split(",")], int(sys.argv[2])
rules = [(0x20, 0, 0, 0), *((0x15, len(calls) - at, 0, call) for at, call in enumerate(calls)), (0x6, 0, 0, 0x7fff0000)]
rules += [(0x6, 0, 0, 0x00050000 | number)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
try:
    os.link("/etc/passwd", "x")
except OSError as error:
    assert error.errno == number
else:
    raise AssertionError("links can be made")
from services.agent.documents import claim
print(claim(sys.argv[3], {"pid": 1}), claim(sys.argv[3], {"pid": 2}))
"""
"""Claims twice where the kernel refuses links (a seccomp filter), as file systems without them do."""


@pytest.mark.skipif(platform.machine() not in LINK_CALLS, reason="numbers of system calls are not known here")
@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_an_attempt_is_claimed_once_where_there_are_no_links(tmp_path, number):
    calls = ",".join(str(call) for call in LINK_CALLS[platform.machine()])
    command = [sys.executable, "-c", WITHOUT_LINKS, calls, str(number), str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)

    assert (done.stdout, done.stderr) == ("True False\n", "")
    assert read_json(tmp_path / CLAIM) == {"pid": 1}
    assert [path.name for path in tmp_path.iterdir()] == [CLAIM]


def test_half_a_claim_is_a_claim(tmp_path):
    (tmp_path / CLAIM).write_bytes(b'{"pid": 1, "sta')

    assert not claim(tmp_path, {"pid": 2})
    assert read_json(tmp_path / CLAIM) is None


def test_what_lies_in_a_drafts_place_is_not_written_through(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("kept")
    for name in ("a.json", CLAIM):
        (tmp_path / f"{name}.{os.getpid()}.tmp").symlink_to(outside)

    write_json(tmp_path / "a.json", {"a": 1})
    assert claim(tmp_path, {})

    assert outside.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", CLAIM, "outside"]


def test_an_agents_folder_holds_nothing_that_a_backup_stumbles_over(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    take_identity(data)
    table = Attempts(NodeSettings("n", data, cgroup="off"))
    table.scan()
    table.open_events()
    try:
        shutil.copytree(data, tmp_path / "copy")
        with tarfile.open(tmp_path / "backup.tar", "w") as backup:
            backup.add(data)
        subprocess.run(["cp", "-r", data, tmp_path / "copied"], check=True, timeout=240)
        assert all(path.is_file() or path.is_dir() for path in data.rglob("*"))
    finally:
        table.close()


@pytest.fixture
def way(tmp_path):
    opened = Way(tmp_path)
    yield opened
    opened.close()


def made(way, *parts):
    """What lies in a folder that is made, or made on the way to another."""
    folder = way.open(*parts, mode=0o700)
    try:
        os.close(os.open("here", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    finally:
        os.close(folder)


def test_folders_are_opened_by_one_way_as_each_by_its_own(tmp_path, way):
    for parts in (("jobs", "j", "0"), ("jobs", "j", "1"), ("jobs", "k", "0"), ("jobs", "j", "2")):
        made(way, *parts)
        assert (tmp_path.joinpath(*parts) / "here").exists()

    with pytest.raises(FileExistsError):
        way.open("jobs", "j", "2", mode=0o700)
    with pytest.raises(FileNotFoundError):
        way.open("jobs", "j", "3")


def test_a_way_that_has_been_removed_is_made_again(tmp_path, way):
    made(way, "jobs", "j", "0")
    shutil.rmtree(tmp_path / "jobs" / "j")

    made(way, "jobs", "j", "1")

    assert [path.name for path in (tmp_path / "jobs" / "j").iterdir()] == ["1"]


@pytest.mark.parametrize("place", ["jobs/j", "jobs/j/0"])
def test_no_link_is_followed_on_the_way(tmp_path, way, place):
    made(way, "jobs", "j", "0")
    way.close()
    moved = tmp_path / place
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Spoilt):
        way.open("jobs", "j", "0")


def test_a_way_keeps_one_descriptor_open_and_then_none(tmp_path, way):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for index in range(3):
        made(way, "jobs", "j", str(index))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1

    way.close()

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_document_that_grows_while_it_is_read_is_whole_or_none(tmp_path, monkeypatch):
    (tmp_path / "d.json").write_text('{"a": 1}')
    really = os.fstat

    def fstat(file):
        about = really(file)
        with (tmp_path / "d.json").open("a") as more:
            more.write(" " * 100_000)
        return about

    monkeypatch.setattr(os, "fstat", fstat)

    assert read_json(tmp_path / "d.json") == {"a": 1}
    assert read_json(tmp_path / "d.json", most=150_000) is None
