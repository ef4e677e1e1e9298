"""Which messages of the log count: claims, tokens, dense seq, parts."""

from itertools import chain as chain_of

import pytest

from largesse.ids import chain
from largesse.log import fencing
from largesse.log.codec import encode, record_of, wrap
from largesse.log.fencing import LogOrder, advance, split
from largesse.log.reader import follow
from schemas import Header, JobCancelled, JobEnded, Position, RoundOpened, SequencerAlive, SequencerClaimed
from schemas.jobs import JobEnd


def claim(token):
    record = record_of(SequencerClaimed(token), cell="c", seq=0, round_number=0, time=0, id_=f"claim/{token}", cause="")
    return [wrap(Header(token), encode(record))]


def content(seq, body=None, time=0):
    made = body or JobCancelled(f"job-{seq}")
    return encode(record_of(made, cell="c", seq=seq, round_number=0, time=time, id_=f"c/{seq}", cause=""))


def record(token, seq, body=None, **header):
    return split(Header(token, **header), content(seq, body), id_=f"c/{seq}", seq=seq)


def large(token, seq, tail="x"):
    """A record in at least three parts."""
    return record(token, seq, JobEnded([JobEnd("j", "failed", "ü" * fencing.RECORD_BYTES_MAX + tail)]))


def read(*batches):
    """Everything that counts in these messages, and where the reader stands afterwards."""
    at = LogOrder()
    found = [advance(at, offset, message) for offset, message in enumerate(chain_of(*batches))]
    return [accepted for accepted in found if accepted is not None], at


def seqs(*batches):
    accepted, _ = read(*batches)
    return [each.record.seq for each in accepted if not isinstance(each.record.body, SequencerClaimed)]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([record("a", 1)], [], id="nobody has claimed yet"),
        pytest.param([claim("a"), record("a", 1), record("a", 2)], [1, 2], id="the claim's own count"),
        pytest.param([claim("a"), claim("b"), record("a", 1), record("b", 1)], [1], id="only the latest claim's count"),
        pytest.param([claim("a"), record("a", 1), claim("b"), record("a", 2)], [1], id="a late append after a claim"),
        pytest.param([claim("a"), record("a", 1), record("a", 3)], [1], id="what follows a gap"),
        pytest.param([claim("a"), record("a", 1), record("a", 1), record("a", 2)], [1, 2], id="a repeat"),
        pytest.param([claim("a"), record("a", 1), claim("b"), record("b", 2)], [1, 2], id="seq goes on over claims"),
        pytest.param([claim("a"), claim("b"), claim("a"), record("a", 1)], [1], id="a token may be claimed again"),
    ],
)
def test_what_counts(messages, expected):
    assert seqs(*messages) == expected


def test_void_messages_are_counted_and_leave_no_trace():
    whole, at = read(claim("a"), record("a", 1), record("b", 2), record("a", 7), record("a", 2))
    clean, undisturbed = read(claim("a"), record("a", 1), record("a", 2))

    assert at.void == 2
    assert [each.content for each in whole] == [each.content for each in clean]
    assert (at.prefix, at.seq) == (undisturbed.prefix, undisturbed.seq)


def test_the_prefix_is_a_chain_over_contents_of_records_with_a_seq():
    accepted, at = read(claim("a"), record("a", 1, offset=5), claim("b"), record("b", 2))

    expected = chain(chain(b"\0" * 32, content(1)), content(2))
    assert at.prefix == expected.hex()
    assert [each.content for each in accepted if each.record.seq] == [content(1), content(2)]


def test_positions_come_from_headers_and_from_sequencer_alive():
    alive = SequencerAlive([Position("nodes", 0, 41), Position("jobs", 0, 3)])
    _, at = read(claim("a"), record("a", 1, topic="jobs", offset=7), record("a", 2, alive))

    assert at.positions == {"jobs/0": 7, "nodes/0": 41}


def test_a_round_is_open_from_its_opening():
    body = RoundOpened(1, "00")
    opening = encode(record_of(body, cell="c", seq=1, round_number=4, time=9, id_="c/1/r4/00", cause=""))
    _, at = read(claim("a"), [wrap(Header("a"), opening)])

    assert (at.round, at.open, at.time) == (4, "c/1/r4/00", 9)


# ---------------------------------------------------------------- parts
def test_a_large_record_counts_at_its_last_part_and_comes_back_byte_for_byte():
    parts = large("a", 1)
    accepted, at = read(claim("a"), parts, record("a", 2))

    assert len(parts) > 2
    assert all(len(part) <= fencing.RECORD_BYTES_MAX for part in parts)
    assert [each.offset for each in accepted] == [0, len(parts), len(parts) + 1]
    assert accepted[1].content == content(1, JobEnded([JobEnd("j", "failed", "ü" * fencing.RECORD_BYTES_MAX + "x")]))
    assert at.seq == 2


def test_the_last_seq_rises_only_at_the_last_part():
    _, at = read(claim("a"), large("a", 1)[:-1])

    assert (at.seq, at.void) == (0, 0)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([large("a", 1)[:-1], claim("b"), large("a", 1)[-1:]], [], id="a claim between voids them"),
        pytest.param([large("a", 1)[:1], record("z", 1), large("a", 1)[1:]], [1], id="a void one between is skipped"),
        pytest.param([large("a", 1)[1:]], [], id="a first part is missing"),
        pytest.param([large("a", 1)[:1], large("a", 1)[2:]], [], id="a middle part is missing"),
        pytest.param([large("a", 1)[:2], large("a", 1)], [1], id="begun anew"),
        pytest.param([large("a", 2)], [], id="not the next seq"),
        pytest.param([large("a", 1), large("a", 1), record("a", 2)], [1, 2], id="twice"),
        pytest.param([large("a", 1)[:-1], claim("b"), record("b", 1)], [1], id="the successor uses the seq"),
    ],
)
def test_which_parts_count(messages, expected):
    assert seqs(claim("a"), *messages) == expected


def test_quotes_in_a_large_record_do_not_make_its_parts_too_large():
    body = JobEnded([JobEnd("j", "failed", '"' * fencing.RECORD_BYTES_MAX)])
    parts = split(Header("a"), content(1, body), id_="c/1", seq=1)

    assert all(len(part) < fencing.RECORD_BYTES_MAX + 500 for part in parts)
    assert read(claim("a"), parts)[1].seq == 1


def test_a_reader_that_follows_stands_where_the_one_before_it_stood():
    messages = [claim("a"), record("a", 1, topic="jobs", offset=2), large("a", 2), claim("b"), record("b", 3)]
    accepted, read_at = read(*messages)
    followed = LogOrder()
    for each in accepted:
        follow(followed, each)

    assert followed == read_at
