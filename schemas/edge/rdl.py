"""The terms of a reservation as a record keeps them."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.edge.base import (
    Amounts,
    Input,
    Malformed,
    Whole,
    asked_for,
)
from schemas.quantities import QUANTITY_MAX, quantity_texts

RDL_ATOMS_MAX = 1_000

RDL_DEPTH_MAX = 12

RDL_BRANCHES_MAX = 1_000

RDL_TEXT_MAX = 256 * 1024  # Characters of a request in canonical form.

UNITS_MAX = 10_000_000

Positive = Annotated[int, Field(ge=1, le=QUANTITY_MAX)]

Units = Annotated[int, Field(ge=1, le=UNITS_MAX)]


class Atom(Input):
    """Units of one shape, `g` to `h` in parallel, in leases of at least `l` seconds, `w` unit-seconds in all."""

    op: Literal["atom"]
    b: Amounts
    g: Units
    h: Units
    l: Positive  # noqa: E741  The letter is RDL's.
    w: Positive


class Window(Input):
    """What it holds lies in `[s, e)`, in seconds."""

    op: Literal["window"]
    s: Whole
    e: Whole
    of: "Rdl"


class Several(Input):
    """All of the branches, or exactly one (`any`). `order`: each ends before the next starts; `order_no_gap`: and the
    next starts at once."""

    op: Literal["all", "any", "order", "order_no_gap"]
    of: Annotated[list["Rdl"], Field(min_length=1, max_length=RDL_BRANCHES_MAX)]


Rdl = Annotated[Atom | Window | Several, Field(discriminator="op")]
"""A request; which form it has is said by its `op`."""

_CANONICAL: TypeAdapter[object] = TypeAdapter(object)


def rdl_text(rdl: Atom | Window | Several, parent: str) -> str:
    """Canonical JSON: exact quantities, resources and keys in order. Raises Malformed under `parent`."""
    text: str = _CANONICAL.dump_json(_plain(rdl, parent, 1, [RDL_ATOMS_MAX])).decode()
    if len(text) > RDL_TEXT_MAX:
        raise Malformed(parent, f"is too long: at most {RDL_TEXT_MAX} characters, has {len(text)}")
    return text


def _plain(rdl: Atom | Window | Several, path: str, depth: int, atoms_left: list[int]) -> dict[str, object]:
    if depth > RDL_DEPTH_MAX:
        raise Malformed(path, f"is nested too deep: at most {RDL_DEPTH_MAX} levels")
    match rdl:
        case Atom():
            atoms_left[0] -= 1
            if atoms_left[0] < 0:
                raise Malformed(path, f"is one atom too many: a request has at most {RDL_ATOMS_MAX}")
            if rdl.g > rdl.h:
                raise Malformed(f"{path}.g", f"is {rdl.g}, more than h, the most units in parallel ({rdl.h})")
            return {
                "op": "atom",
                "b": quantity_texts(asked_for(rdl.b, f"{path}.b", "a unit")),
                "g": rdl.g,
                "h": rdl.h,
                "l": rdl.l,
                "w": rdl.w,
            }
        case Window():
            if rdl.s >= rdl.e:
                raise Malformed(f"{path}.e", f"is {rdl.e}: a window has to end after its start ({rdl.s})")
            return {"op": "window", "s": rdl.s, "e": rdl.e, "of": _plain(rdl.of, f"{path}.of", depth + 1, atoms_left)}
        case Several():
            branches = [_plain(branch, f"{path}.of[{i}]", depth + 1, atoms_left) for i, branch in enumerate(rdl.of)]
            return {"op": rdl.op, "of": branches}
