"""Portable log files: what was written comes back, and nothing that was touched afterwards does."""

import gzip
from contextlib import suppress

import pytest
from hypothesis import strategies as st

from largesse.log.export import ExportDamaged, ExportWriter, is_export, read_export
from schemas import Header, JobCancelled, Shares
from tests.bus_stories import bytes_of
from tests.strategies import for_all

RECORDS = [
    ("cluster.log", Header("a", "jobs", 0, 3), bytes_of(JobCancelled('é " ,"content":'))),
    ("shares", None, bytes_of(Shares([]))),
    ("cluster.log", Header("a"), bytes_of(JobCancelled("b"))),
]
LINES = len(RECORDS) + 2


def written(path, records=RECORDS):
    with ExportWriter(path) as writer:
        for record in records:
            writer(*record)
    return path


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_what_was_written_comes_back(tmp_path, name):
    found = list(read_export(written(tmp_path / name)))

    assert [(each.topic, each.content, each.line) for each in found] == [
        (topic, content, number) for number, (topic, _, content) in enumerate(RECORDS, 2)
    ]
    assert [each.header for each in found] == [RECORDS[0][1], Header(""), RECORDS[2][1]]


def test_a_name_in_gz_is_compressed_and_equal_logs_are_equal_files(tmp_path):
    one, two = written(tmp_path / "one.gz"), written(tmp_path / "two.gz")

    assert one.read_bytes() == two.read_bytes()
    assert gzip.decompress(one.read_bytes()) == written(tmp_path / "plain").read_bytes()


def test_an_empty_log_is_a_whole_file(tmp_path):
    assert list(read_export(written(tmp_path / "log", []))) == []


def refusal(path):
    with pytest.raises(ExportDamaged) as caught:
        list(read_export(path))
    return caught.value


@for_all(st.data())
def test_one_byte_that_was_changed_is_refused_with_its_line(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("export") / "log")
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    line = bytes(raw[:at]).count(b"\n") + 1

    error = refusal(path)
    assert error.line == line
    assert str(error).startswith(f"{path}, line {line}: ")


@pytest.mark.parametrize("number", range(LINES))
def test_a_line_that_is_missing_is_refused(tmp_path, number):
    path = written(tmp_path / "log")
    lines = lines_of(path)
    path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))

    assert refusal(path).line == number + 1


@pytest.mark.parametrize("number", range(LINES - 1))
def test_two_lines_that_changed_places_are_refused(tmp_path, number):
    path = written(tmp_path / "log")
    lines = lines_of(path)
    lines[number], lines[number + 1] = lines[number + 1], lines[number]
    path.write_bytes(b"".join(lines))

    assert refusal(path).line == number + 1


@pytest.mark.parametrize("more", [b"\n", b"{}\n", RECORDS[1][2]])
def test_what_stands_after_the_end_is_refused(tmp_path, more):
    path = written(tmp_path / "log")
    path.write_bytes(path.read_bytes() + more)

    assert refusal(path).line == LINES + 1


def test_an_export_that_was_not_finished_is_refused(tmp_path):
    with suppress(KeyError), ExportWriter(tmp_path / "log") as writer:
        writer(*RECORDS[0])
        raise KeyError

    assert "the file ends here" in str(refusal(tmp_path / "log"))


@pytest.mark.parametrize("size", [0, 5, 40, -1, -9])
def test_a_compressed_file_that_is_cut_off_is_refused(tmp_path, size):
    path = written(tmp_path / "log.gz")
    path.write_bytes(path.read_bytes()[:size])

    refusal(path)


def test_another_file_is_no_export(tmp_path):
    (tmp_path / "log").write_bytes(b'{"job": "j"}\n')
    (tmp_path / "log.gz").write_bytes(b"no gzip at all")

    assert not is_export(tmp_path / "log")
    assert not is_export(tmp_path / "log.gz")
    assert not is_export(tmp_path / "missing")
    assert is_export(written(tmp_path / "whole.gz"))
