"""`largesse up` in trouble: a disk that is full, a folder that lacks a file, a service that breaks at every start."""

import json
import time
from pathlib import Path

import pytest

from tests.live.up_process import GUARD_S, up
from tests.unit.cli_process import largesse

FILE_BYTES_MAX = 200 << 10


def job(name: str, *command: str) -> str:
    stage = {"stage": "run", "tasks": 1, "demand": {"cpu": "10m"}, "command": list(command)}
    return json.dumps({"job": name, "stages": [stage]})


def filled(data: Path) -> list[str]:
    """Submits jobs until the cell ends, since its journal takes no more; the names of those that it took."""
    taken: list[str] = []
    deadline = time.monotonic() + GUARD_S
    with up(data, file_bytes_max=FILE_BYTES_MAX) as cell:
        # A longer line fills the disk with fewer of them.
        many = "".join(f"# {number:04d} {'x' * 5_000}\n" for number in range(4))
        while cell.process.poll() is None and time.monotonic() < deadline:
            name = f"job-{len(taken)}"
            if cell.ask("submit", "-", stdin=job(name, "sh", "-c", f"{many}true")).code == 0:
                taken.append(name)
        out, err = cell.process.communicate(timeout=GUARD_S)

    journal = data / "bus" / "journal-000000000001.jsonl"
    assert cell.process.returncode == 3, out + err
    (told,) = [line for line in err.splitlines() if line.startswith("largesse: ")]
    assert told == (
        f"largesse: {journal}: File too large: nothing more is written, and nothing that was acknowledged is lost. "
        "Make room on this file system (or raise the limit, or replace the disk) and start again."
    )
    assert "standing_by" not in err
    return taken


def test_a_full_disk_ends_the_cell_by_name_and_what_was_acknowledged_goes_on_with_room(tmp_path):
    data = tmp_path / "data"
    taken = filled(data)
    assert len(taken) >= 3
    size = (data / "bus" / "journal-000000000001.jsonl").stat().st_size
    with pytest.raises(AssertionError, match="File too large"), up(data, file_bytes_max=size):
        pass  # No room at all: it does not start.

    with up(data) as again:
        for name in taken:
            assert again.ask("watch", name).code == 0
        assert again.end()[0] == 0

    assert largesse("replay", data, "--verify").code == 0


def test_a_folder_without_its_head_is_refused_alike_by_all_who_read_it(tmp_path):
    data = tmp_path / "data"
    with up(data) as cell:
        cell.end()
    (data / "bus" / "head.json").unlink()

    for words in (["up", "--http", 0, "--data"], ["replay"]):
        said = largesse(*words, data)
        assert (said.code, said.out) == (2, "")
        assert f"{data}/bus/head.json, line 1: this file is missing" in said.err
        assert "put it back from a copy of this folder" in said.err
