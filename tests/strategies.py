"""Hypothesis strategies for records of every type, and the histories that properties run over.

`bodies()` follows the dataclasses, so a new body or field is drawn without a line here.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from schemas.envelope import Header, Record
from schemas.quantities import QUANTITY_MAX
from schemas.registry import NEWEST

for_all = given
"""Hypothesis' `given` under a name that leaves ours free."""

AWKWARD = ('"', "\\", ',"content":', '{"header":', "é", "\u2028", "\U0001f600", "\x00", "a/b", "", "null")
LENGTH_MAX = 4

texts = st.one_of(st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
wholes = st.integers(-QUANTITY_MAX, QUANTITY_MAX)


def bodies(name: str | None = None) -> SearchStrategy[Any]:
    """Bodies of one type, or of any."""
    names = [name] if name else sorted(NEWEST)
    return st.sampled_from(names).flatmap(lambda kind: _values(NEWEST[kind].model))


@st.composite
def records(draw: Callable[[SearchStrategy[Any]], Any], name: str | None = None) -> Record:
    """Whole records around bodies of one type, or of any."""
    body = draw(bodies(name))
    kind = type(body).__name__
    seq, round_number, time = draw(st.tuples(wholes, wholes, wholes))
    cell, id_, cause = draw(st.tuples(texts, texts, texts))
    return Record(kind, NEWEST[kind].version, cell, seq, round_number, time, id_, cause, body)


def headers() -> SearchStrategy[Header]:
    """Headers as a sequencer writes them, and stranger ones."""
    return _values(Header)


@cache
def _values(hint: Any) -> SearchStrategy[Any]:
    """Values of one type hint. Recursive models end where their lists are drawn empty."""
    origin, inner = get_origin(hint), get_args(hint)
    simple = {int: wholes, str: texts, bool: st.booleans(), NoneType: st.none()}
    if hint in simple:
        return simple[hint]
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of([_values(part) for part in inner])
    if origin is list:
        return st.lists(st.deferred(lambda: _values(inner[0])), max_size=LENGTH_MAX)
    if origin is dict:
        return st.dictionaries(_values(inner[0]), _values(inner[1]), max_size=LENGTH_MAX)
    assert isinstance(hint, type), f"no strategy for {hint}"
    assert is_dataclass(hint), f"no strategy for {hint}"
    hints = get_type_hints(hint)
    return st.builds(hint, **{field.name: _values(hints[field.name]) for field in fields(hint)})
