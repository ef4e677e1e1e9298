"""The schedule file: the contract's lines, and the same bytes whenever they are written."""

import gzip
import json

import pytest

from services.simulator.schedule import ScheduleWriter


def write(path):
    with ScheduleWriter(str(path)) as schedule:
        schedule.attempt('q"1', "scan", 3, 1, "n-0", 0, 900, "succeeded", "required")
        schedule.held("n-1", 5, 10, "gang", {"cpu": 1_000})


def test_a_line_an_attempt_and_a_line_a_held_room(tmp_path):
    write(tmp_path / "out.jsonl")

    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        {"job": 'q"1', "stage": "scan", "index": 3, "attempt": 1, "node": "n-0", "start_ms": 0, "end_ms": 900,
         "outcome": "succeeded", "why": "required"},
        {"held": "n-1", "from_ms": 5, "to_ms": 10, "why": "gang", "demand": {"cpu": "1"}},
    ]  # fmt: skip


def test_compressed_by_its_name_and_the_same_bytes_under_any_name(tmp_path):
    write(tmp_path / "a.jsonl.gz")
    write(tmp_path / "b.jsonl.gz")
    write(tmp_path / "c.jsonl")

    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == (tmp_path / "c.jsonl").read_bytes()


def test_a_path_that_cannot_be_written_is_said_at_once(tmp_path):
    with pytest.raises(OSError, match="missing"):
        ScheduleWriter(str(tmp_path / "missing" / "out.jsonl"))
