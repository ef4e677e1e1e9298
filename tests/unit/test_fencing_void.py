"""What strangers write to the log: token and seq come first. Without them a message is void whatever its bytes are."""

import orjson
import pytest

from largesse.log.codec import Undecodable, encode, record_of, wrap
from largesse.log.fencing import PARTS_MAX, LogOrder, advance
from schemas import Header, SequencerClaimed
from tests.unit.test_fencing import claim, content, large, read, record, seqs


def raw(header, original=None, **changes):
    """A message of any header, and the content of a record with some fields changed."""
    document = orjson.loads(content(1)) if original is None else original
    return [b'{"header":%b,"content":%b}' % (orjson.dumps(header), orjson.dumps({**document, **changes}))]


def part(token="a", of=3, **changes):
    """The first part of a record, with some fields changed."""
    document = orjson.loads(large(token, 1)[0])
    document["header"]["of"] = of
    document["piece"].update(changes)
    return [orjson.dumps(document)]


def claiming(header_token, token, **changes):
    """A claim as somebody else may write it."""
    made = record_of(SequencerClaimed(token), cell="c", seq=0, round_number=0, time=0, id_="claim", cause="")
    document = orjson.loads(encode(made)) | changes
    return [b'{"header":%b,"content":%b}' % (orjson.dumps({"token": header_token}), orjson.dumps(document))]


OTHERS = {"token": "z"}

STRANGE = [
    pytest.param([b""], id="nothing"),
    pytest.param([b"hello"], id="no JSON"),
    pytest.param([b"\xff\xfe{"], id="no text"),
    pytest.param([b"[" * 100_000], id="a deep document"),
    pytest.param([b'{"header":{},"content":{}}'], id="empty documents"),
    pytest.param([b'{"header":[],"content":[]}'], id="lists"),
    pytest.param([b'{"header":null,"content":null}'], id="nulls"),
    pytest.param(raw({"token": 5}), id="a token that is a number"),
    pytest.param(raw({"token": ["a"]}), id="a token that is a list"),
    pytest.param(raw({"token": "a", "offset": "x"}), id="a header of another type"),
    pytest.param(raw(OTHERS, type="Unheard"), id="an unknown type"),
    pytest.param(raw(OTHERS, type=["JobCancelled"]), id="a type that is a list"),
    pytest.param(raw(OTHERS, version=9), id="an unknown version"),
    pytest.param(raw(OTHERS, seq="1"), id="a seq that is a text"),
    pytest.param(raw(OTHERS, body=7), id="a body that is a number"),
    pytest.param(raw(OTHERS, body={"job": {}}), id="a body of other types"),
    pytest.param(raw({"token": ""}), id="no token at all"),
    pytest.param(raw({"token": "a"}, seq=2**63), id="a huge seq with the valid token"),
    pytest.param(raw({"token": "a"}, seq=None), id="no seq with the valid token"),
    pytest.param([raw({"token": "a"})[0][:-9]], id="the valid token on half a message"),
    pytest.param(part("z", text=7), id="a part of others with a text that is none"),
    pytest.param(part(text=7), id="a part whose text is a number"),
    pytest.param(part(seq="1"), id="a part whose seq is a text"),
    pytest.param(part(seq=None, id=None), id="a part without seq and id"),
    pytest.param(part(of=0), id="a part of none"),
    pytest.param(part(of="3"), id="a part of a text of parts"),
    pytest.param(part(of=PARTS_MAX + 1), id="a part of more parts than there are"),
    pytest.param([b'{"header":{"token":"a"},"piece":3}'], id="a part that is a number"),
    pytest.param([b'{"header":3,"piece":{"seq":1,"id":"x","text":""}}'], id="a part with a number for a header"),
    pytest.param(claiming("z", 5), id="a claim whose token is a number"),
    pytest.param(claiming("z", "y"), id="a claim with two tokens"),
    pytest.param(claiming("", ""), id="a claim without a token"),
    pytest.param(claiming("z", "z", seq=1), id="a claim with a seq"),
    pytest.param(claiming("z", "z", version="1"), id="a claim whose version is a text"),
    pytest.param(claiming("z", "z", body=[]), id="a claim whose body is a list"),
    pytest.param(claiming("z", "z", seq=[]), id="a claim whose seq is a list"),
]


@pytest.mark.parametrize("strange", STRANGE)
def test_what_has_no_valid_token_and_seq_is_void_whatever_its_bytes_are(strange):
    accepted, at = read(strange, claim("a"), strange, record("a", 1), strange, record("a", 2), strange)

    assert [each.record.seq for each in accepted] == [0, 1, 2]
    assert (at.token, at.seq) == ("a", 2)
    assert at.void >= 3, "the first part of a record may be waited for, all else is counted"


@pytest.mark.parametrize("strange", STRANGE)
def test_strange_messages_between_the_parts_of_a_record_do_not_void_them(strange):
    first, *rest = large("a", 1)

    assert seqs(claim("a"), [first], strange, rest, record("a", 2)) == [1, 2]


def test_before_the_first_claim_nothing_counts_not_even_without_a_token():
    assert seqs(record("", 1)) == []


def test_a_record_of_the_valid_writer_that_cannot_be_decoded_stops_the_reader_and_is_named():
    order = LogOrder()
    for offset, message in enumerate([*claim("a"), *record("a", 1)]):
        advance(order, offset, message)

    with pytest.raises(Undecodable, match=r"cluster\.log, offset 7, seq 2"):
        advance(order, 7, wrap(Header("a"), content(2).replace(b"JobCancelled", b"JobUnheardOf")))
