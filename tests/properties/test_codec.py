"""What is written is read back to the last byte, and what cannot be read is said to be so."""

from contextlib import suppress

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from largesse.log.codec import Undecodable, decode, encode, record_of, unwrap, wrap
from schemas.grants import Claim, Grants, Revocation
from schemas.registry import NEWEST
from tests.strategies import for_all, headers, records


@pytest.mark.parametrize("name", sorted(NEWEST))
@settings(max_examples=15)
@for_all(data=st.data())
def test_a_record_comes_back_as_it_was_and_is_written_alike(name, data):
    record = data.draw(records(name))
    content = encode(record)

    read = decode(content)

    assert read == record
    assert encode(read) == content


@for_all(headers(), records())
def test_content_is_cut_out_of_its_message_untouched(header, record):
    content = encode(record)

    assert unwrap(wrap(header, content)) == (header, content)


@for_all(records(), st.integers(0, 2**53))
def test_a_field_of_a_newer_writer_is_ignored(record, value):
    document = orjson.loads(encode(record))
    document["body"]["added_by_a_later_release"] = value

    assert decode(orjson.dumps(document)) == record


@for_all(records(), st.data())
def test_a_record_without_its_end_is_refused(record, data):
    content = encode(record)
    kept = data.draw(st.integers(0, len(content) - 1))

    with pytest.raises(Undecodable):
        decode(content[:kept])


@for_all(st.binary(max_size=60))
def test_no_bytes_break_the_reader(content):
    with pytest.raises(Undecodable):
        decode(content)
    with pytest.raises(Undecodable):
        unwrap(content)


@for_all(
    records(), st.sampled_from(["type", "version", "body", "seq"]), st.sampled_from([None, "x", [1], {}, True, 0, 2])
)
def test_an_envelope_that_says_something_else_never_breaks_the_reader(record, field, value):
    document = orjson.loads(encode(record))
    document[field] = value

    with suppress(Undecodable):
        decode(orjson.dumps(document))


@for_all(records())
def test_readers_of_equal_bytes_share_a_record_that_is_as_it_was_written(record):
    content = encode(record)
    first = decode(content)

    assert decode(bytes(bytearray(content))) is first
    assert encode(first) == content


REVOKED = b'"job":"j","stage":"s","first":0,"count":1,"attempt":1,"node":"n","epoch":"e","reservation":"r"'


def test_what_was_added_to_a_decision_is_written_only_where_it_says_something():
    def written(claim):
        body = Grants([], revoked=[Revocation("j", "s", 0, 1, 1, "n", "e", "r", claim)])
        content = encode(record_of(body, cell="c", seq=0, round_number=1, time=0, id_="i", cause=""))
        assert decode(content).body == body
        return content

    assert b"{%b}" % REVOKED in written(None)
    assert b'{%b,"claim":{"queue":"ads","at":"","share":5,"rooms":[]}}' % REVOKED in written(Claim("ads", "", 5))
