"""What a shim keeps of a stream, and how it is found again: by its last lines, and by when it was printed."""

import asyncio
import os
from dataclasses import replace

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.task_output import Piece, Wanted, cut_of, cut_text
from services.agent.streams import SPACE_MS, SPACE_PARTS, TIMES, Output, space_ms
from services.agent.task_output import read_piece
from services.gateway.http.agents.output import printed, tail_of
from tests.unit.test_agent_folders import attempt

WANTED = Wanted("j", "map", 0)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("age_ms", "apart_ms"),
    [
        pytest.param(0, SPACE_MS, id="at first a second"),
        pytest.param(HOUR_MS, SPACE_MS, id="a second for an hour"),
        pytest.param(10 * HOUR_MS, 10 * SPACE_MS, id="then a fixed part of the time since the first"),
    ],
)
def test_times_are_noted_ever_more_seldom(age_ms, apart_ms):
    assert space_ms(5_000, 5_000 + age_ms) == apart_ms


def test_a_week_of_output_has_a_small_index():
    now_ms = noted = 0
    while now_ms < 7 * 24 * HOUR_MS:
        now_ms += space_ms(0, now_ms)
        noted += 1

    assert noted < 7 * SPACE_PARTS


def kept(tmp_path, monkeypatch, chunks, bytes_max):
    """A stream's files after these chunks: (the time, the bytes)."""
    folder = attempt(tmp_path)
    monkeypatch.chdir(folder)
    ours, theirs = os.pipe()
    output = Output(ours, "stdout", bytes_max)
    for at_ms, chunk in chunks:
        output._note(at_ms)
        os.write(theirs, chunk)
        output._next_ms = 1 << 62  # The machine's clock notes nothing: the story's does.
        output.pump()
        output._next_ms = at_ms + space_ms(output._first_ms, at_ms)
    os.close(theirs)
    output.pump()
    return folder


STORY = [(10_000, b"one\n"), (10_500, b"two\n"), (20_000, b"three\n"), (90_000, b"four\n")]


def since(tmp_path, since_ms, **more):
    piece = read_piece(tmp_path, replace(WANTED, since_ms=since_ms, **more))
    return piece.asked, piece.data


@pytest.mark.parametrize(
    ("since_ms", "shown"),
    [
        pytest.param(0, b"one\ntwo\nthree\nfour\n", id="from the beginning"),
        pytest.param(10_900, b"one\ntwo\nthree\nfour\n", id="what may have been printed then is shown, too"),
        pytest.param(11_000, b"three\nfour\n", id="a second later it was over"),
        pytest.param(60_000, b"four\n", id="a pause"),
        pytest.param(90_500, b"four\n", id="the last"),
        pytest.param(200_000, b"", id="nothing since"),
    ],
)
def test_what_was_printed_since_a_time_begins_where_it_does(tmp_path, monkeypatch, since_ms, shown):
    kept(tmp_path, monkeypatch, STORY, 1 << 20)

    asked, data = since(tmp_path, since_ms)

    assert (asked, data) == (19 - len(shown), shown)
    assert read_piece(tmp_path, WANTED).asked is None


def test_an_index_of_times_that_a_task_has_spoilt_shows_more_and_never_fails(tmp_path, monkeypatch):
    folder = kept(tmp_path, monkeypatch, STORY, 1 << 20)
    (folder / f"stdout{TIMES}").write_bytes(b"\xff x\n\n5 -3\n99999999999999999999 1\n")
    assert since(tmp_path, 60_000) == (0, b"one\ntwo\nthree\nfour\n")

    (folder / f"stdout{TIMES}").unlink()
    (folder / f"stdout{TIMES}").mkdir()
    assert since(tmp_path, 60_000) == (0, b"one\ntwo\nthree\nfour\n")


def test_a_cut_is_told_with_its_place(tmp_path, monkeypatch):
    chunks = [(i * 10, b"line %3d\n" % i) for i in range(100)]
    kept(tmp_path, monkeypatch, chunks, 360)

    piece = read_piece(tmp_path, WANTED)

    assert piece.cut is not None
    first, end = piece.cut
    assert (first, piece.end) == (180, 900)
    assert piece.end - end <= 180
    assert cut_of(cut_text(piece.cut)) == piece.cut
    assert read_piece(tmp_path, replace(WANTED, stream="stderr")).cut is None


@pytest.mark.parametrize("text", ["", "1", "-", "a-b", "1-2-3"])
def test_no_cut_is_read_from_something_else(text):
    assert cut_of(text) is None


def tailed(text, lines, cut=None, piece_bytes=7):
    """The last lines as the gateway shows them, where agents answer in small pieces."""

    async def read(wanted):
        at = min(wanted.offset, len(text))
        if cut is not None and cut[0] <= at < cut[1]:
            at = cut[1]
        end = min(at + piece_bytes, cut[0] if cut is not None and at < cut[0] else len(text))
        return Piece(1, at, len(text), text[at:end], cut)

    async def story():
        wanted = await tail_of(read, WANTED, lines, step=piece_bytes)
        return b"".join([part async for part in printed(read, wanted, await read(wanted))])

    return asyncio.run(story())


@for_all(st.lists(st.text("ab", max_size=9), max_size=12), st.booleans(), st.integers(1, 14), st.integers(1, 20))
def test_the_last_lines_are_those_of_the_whole(lines, ended, count, piece_bytes):
    text = "\n".join(lines).encode() + (b"\n" if ended and lines else b"")

    assert tailed(text, count, piece_bytes=piece_bytes) == b"".join(text.splitlines(keepends=True)[-count:])


def test_the_last_lines_reach_over_what_was_not_kept():
    text = b"a\nb\nc\nd\ne\nf\n"

    assert tailed(text, 1, cut=(4, 8)) == b"f\n"
    assert tailed(text, 2, cut=(4, 8)) == b"\n[4 bytes were not kept]\ne\nf\n", "one line, as far as is known"
    assert tailed(text, 3, cut=(4, 8)) == b"b\n\n[4 bytes were not kept]\ne\nf\n"


def test_the_last_lines_of_nothing_are_nothing():
    assert tailed(b"", 3) == b""
