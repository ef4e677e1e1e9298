"""Bytes from outside: what is no JSON, or JSON that two readers would read differently, is refused and located."""

import json
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from schemas.edge.base import FIELD_MAX, REASON_MAX, Malformed
from schemas.edge.strict_json import DEPTH_MAX, INPUT_BYTES_MAX, loads, loads_exact
from schemas.quantities import QUANTITY_MAX
from tests.strategies import for_all


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        pytest.param(b'{"a": {"b": [1, {"c": 1, "c": 2}]}}', "a.b[1].c", "is given twice", id="a key twice"),
        pytest.param(b'{"a b": 1, "a b": 1}', '["a b"]', "is given twice", id="an odd key twice"),
        pytest.param(b'{"a": 1, "\\u0061": 1}', "a", "is given twice", id="a key twice, once in disguise"),
        pytest.param(b'{"a": [1, NaN]}', "a[1]", "is NaN", id="not a number"),
        pytest.param(b'{"a": -Infinity}', "a", "is -Infinity", id="infinity"),
        pytest.param(
            b'{"a": 9007199254740992}', "a", "go up to 9007199254740991 (2^53 - 1)", id="a number that readers round"
        ),
        pytest.param(b'{"a": -9007199254740992}', "a", "is too large", id="a negative one"),
        pytest.param(b'[{"a": ' + b"9" * 5_000 + b"}]", "[0].a", "is too large", id="five thousand digits"),
        pytest.param(b'{"a": 1e400}', "a", "has too large an exponent", id="a huge exponent"),
        pytest.param(b'{"a": 1E-31}', "a", "has too large an exponent", id="a tiny one"),
        pytest.param(b'{"a": 1e' + b"9" * 30 + b"}", "a", "has too large an exponent", id="an absurd exponent"),
        pytest.param(b'{"a": 0.' + b"1" * 50 + b"}", "a", "has too many digits", id="too many decimals"),
        pytest.param(b'{"a": "\\ud800"}', "a", "holds half a character", id="a lone surrogate"),
        pytest.param(b'{"a": ["\\udc00\\ud800"]}', "a[0]", "holds half a character", id="surrogates in wrong order"),
        pytest.param(b'{"a": {"\\ud800": 1}}', "a", "has a key with half a character", id="half a key"),
        pytest.param(b'{"a": "\xff"}', "", "is not valid UTF-8 at byte 7", id="no UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', "", "is not valid UTF-8", id="a surrogate as bytes"),
        pytest.param(b'{"a": 1} x', "", "is no JSON: Extra data at line 1 column 10", id="something behind it"),
        pytest.param(b'{"a": 1}{}', "", "is no JSON: Extra data", id="a second document"),
        pytest.param(b'{"a": 1,}', "", "is no JSON", id="a comma too many"),
        pytest.param(b"{'a': 1}", "", "is no JSON", id="single quotes"),
        pytest.param(b'{"a": 01}', "", "is no JSON", id="a leading zero"),
        pytest.param(b'{"a": "b\nc"}', "", "is no JSON", id="a line break in a string"),
        pytest.param(b"\xef\xbb\xbf{}", "", "is no JSON", id="a byte order mark"),
        pytest.param(b"", "", "is empty", id="nothing"),
        pytest.param(b"[" * 100_000, "", "is nested too deep: at most 32 levels", id="a hundred thousand brackets"),
        pytest.param(b'{"a":' * 100_000, "", "is nested too deep", id="as many braces"),
        pytest.param(b'["\\"[", ' + b"[" * 40, "", "is nested too deep", id="depth behind an escaped quote"),
    ],
)
def test_what_is_refused_and_where(data, field, reason):
    with pytest.raises(Malformed) as refusal:
        loads(data)

    assert refusal.value.field == field
    assert reason in refusal.value.reason


@pytest.mark.parametrize(
    ("data", "document"),
    [
        pytest.param(b'{"a": [1, -2, true, null]}', {"a": [1, -2, True, None]}, id="what JSON has"),
        pytest.param(b"9007199254740991", QUANTITY_MAX, id="the largest whole number"),
        pytest.param(b'"9007199254740992"', "9007199254740992", id="digits in a string are text"),
        pytest.param(b"1.50", Decimal("1.50"), id="a fraction keeps its digits"),
        pytest.param(b"[1e3, 12345678901234567.5]", [Decimal(1000), Decimal("12345678901234567.5")], id="no float"),
        pytest.param(b'"\\ud83d\\ude00"', "\U0001f600", id="a character in two halves"),
        pytest.param('"\U0001f600"'.encode(), "\U0001f600", id="the same as it is"),
        pytest.param(b' \n{"a":1}\t', {"a": 1}, id="spaces around"),
        pytest.param(b'"' + b"[" * 100 + b'"', "[" * 100, id="brackets in a string open nothing"),
        pytest.param(b'["\\\\", "[[[["]' + b" " * 40, ["\\", "[[[["], id="a string that ends in a backslash"),
        pytest.param(b"[" + b"[],{}," * 50 + b"1]", [*[[], {}] * 50, 1], id="many brackets side by side"),
    ],
)
def test_what_is_taken(data, document):
    read = loads(data)

    assert read == document
    assert type(read) is type(document)


def test_depth_is_taken_up_to_the_limit():
    assert loads(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    assert loads(b"[" * 40 + b"]" * 40, depth_max=40)
    with pytest.raises(Malformed, match="nested too deep"):
        loads(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1))


def test_size_is_taken_up_to_the_limit():
    data = b'"' + b"x" * (INPUT_BYTES_MAX - 2) + b'"'

    assert len(loads(data)) == INPUT_BYTES_MAX - 2
    assert loads(data + b" ", size_max=INPUT_BYTES_MAX + 1)
    with pytest.raises(Malformed, match=f"is too large: at most {INPUT_BYTES_MAX} bytes, has {INPUT_BYTES_MAX + 1}"):
        loads(data + b" ")


def test_the_first_of_several_faults_is_named():
    with pytest.raises(Malformed) as refusal:
        loads(b'{"a": [{"x": 1, "x": 2}, NaN], "b": NaN}')

    assert refusal.value.field == "a[0].x"


def test_a_refusal_of_a_monstrous_key_stays_short_and_on_one_line():
    key = b"k\\n" * 10_000

    with pytest.raises(Malformed) as refusal:
        loads(b'{"a": {"' + key + b'": {"b": NaN}}}')

    assert len(refusal.value.field) <= FIELD_MAX
    assert str(refusal.value).isprintable()


def test_a_malformed_input_cuts_what_it_says():
    fault = Malformed("f" * 1_000, "r\n" * 1_000).under("stages[0]")

    assert len(fault.field) == FIELD_MAX
    assert len(fault.reason) == REASON_MAX
    assert "\n" not in str(fault)


@for_all(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\u0dD81eE.-truefalsn', max_size=60).map(str.encode))
def test_no_bytes_do_more_than_be_refused(data):
    with suppress(Malformed):
        loads(data)


whole_documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-QUANTITY_MAX, QUANTITY_MAX)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('abü[]{}"\\', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@for_all(whole_documents, st.booleans())
def test_a_document_comes_back_as_it_was_written(document, ascii_only):
    assert loads(json.dumps(document, ensure_ascii=ascii_only).encode()) == document


# ---------------------------------------------------------------- offline problems
@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ('{"input": {"capacity": [1, NaN]}}', "input.capacity[1]", "is NaN, which is no number in JSON"),
        ('{"input": {"leaf": -Infinity}}', "input.leaf", "is -Infinity, which is no number in JSON"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "a.b", "is given twice: remove one of them"),
        ('{"a": 1e999}', "a", "has too large an exponent: at most 99, is 1e999"),
    ],
)
def test_a_problem_names_the_field_of_what_is_wrong(text, field, reason):
    with pytest.raises(Malformed) as refused:
        loads_exact(text)
    assert (refused.value.field, refused.value.reason) == (field, reason)


def test_numbers_of_a_problem_are_exact_and_of_any_size():
    assert loads_exact("[0.1, 1e20, 123456789012345678901]") == [Fraction(1, 10), 10**20, 123456789012345678901]
