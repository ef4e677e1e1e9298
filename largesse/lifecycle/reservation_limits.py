"""What a cell does not take of reservations and series, and why: the same where a request is judged and where a dry run
says what would become of it.
"""

from collections.abc import Iterable, Mapping

from largesse.lifecycle.queue_rules import named
from schemas import Policy, Vector
from schemas.edge.strict_json import loads
from schemas.presets import PRESETS
from schemas.quantities import parse_quantity, quantity_text
from schemas.queue_tree import upwards

RESERVATIONS_MAX = 100_000
"""Reservations of a cell that are promised, or not answered yet. One more is refused."""

SERIES_MAX = 1_000
"""Series of a cell. One more is refused."""

SERIES_USER_MAX = 100
"""Series of a user. One more is refused."""

USER_BYTES_MAX = 1024 * 1024
"""What the terms of a user's reservations may take together, as canonical JSON: about 15,000 atoms. Plans take a few
times as much. A request beyond it is refused."""

_NO_PROMISES = (
    'under the preset "{}" no capacity can be promised: nodes hold more than they have, and tasks run as slowly as'
    " that makes them; choose another preset"
)


def policy_problem(policy: Policy) -> str:
    """Why nothing can be promised under a policy; empty if it can."""
    return "" if PRESETS[policy.preset].has_reservations else _NO_PROMISES.format(policy.preset)


def reservation_problem(live: int) -> str:
    """Why a cell with this number of reservations, promised or not answered, takes no other; empty if it does."""
    if live < RESERVATIONS_MAX:
        return ""
    return f"the cell holds {RESERVATIONS_MAX} reservations; wait for some to end"


def size_problem(user: str, held: int, more: int) -> str:
    """Why a user whose reservations have terms of `held` bytes may not have `more`; empty if it may."""
    if held + more <= USER_BYTES_MAX:
        return ""
    return (
        f'the reservations of user "{user}" would have terms of {(held + more) // 1024:,} KiB together, and a user may '
        f"have {USER_BYTES_MAX // 1024:,} KiB: ask for fewer atoms (one with a larger h and w takes the place of many "
        "alike), or give others back"
    )


def series_problem(users: Iterable[str], user: str) -> tuple[str, str] | None:
    """Why a user may not have another series in a cell with series of these users: field and reason; None if it may."""
    every = list(users)
    if len(every) >= SERIES_MAX:
        return "series", f"the cell holds {SERIES_MAX} series; delete one first"
    if every.count(user) >= SERIES_USER_MAX:
        return "user", f'user "{user}" has {SERIES_USER_MAX} series; delete one first'
    return None


def ceiling_problem(ceilings: Mapping[str, Vector], queue: str, rdl: str) -> str:
    """Why no occurrence of a series can ever be promised to a queue: an atom that has to be served has more in its
    gang than the queue, or one above it, may have. Empty if that is not so.
    """
    mine = [(path, ceilings[path]) for path in upwards(queue) if path in ceilings]
    return _above(loads(rdl.encode()), mine) if mine else ""


def _above(rdl: object, ceilings: list[tuple[str, Vector]]) -> str:
    """Of an `any` it takes all branches, of all else one."""
    assert isinstance(rdl, dict)
    if rdl["op"] == "window":
        return _above(rdl["of"], ceilings)
    if rdl["op"] != "atom":
        found = [_above(branch, ceilings) for branch in rdl["of"]]
        if rdl["op"] == "any":
            return found[0] if all(found) else ""
        return next((text for text in found if text), "")
    for path, most in ceilings:
        for kind, text in rdl["b"].items():
            amount = parse_quantity(kind, text, round_up=True) * rdl["g"]
            if amount > most.get(kind, amount):
                have = quantity_text(kind, most[kind])
                asked = f"{rdl['g']} units at a time (g) come to {kind} {quantity_text(kind, amount)}"
                return f"{asked}, and {named(path)} has a max of {have}: ask for fewer at a time, or raise max"
    return ""


def series_unchanged(name: str) -> str:
    """Why the terms of a series are not changed, and what to do instead."""
    return (
        f'"{name}" is a series, whose terms cannot be changed: delete it (largesse reserve delete {name}, or'
        f" DELETE /v1/series/{name}), and submit another of a new name; each of its occurrences can be updated by"
        " its own name"
    )


def series_undeleted(name: str) -> str:
    """Why a series is not deleted as a reservation is, and what to do instead."""
    how = f"largesse reserve delete {name}, or DELETE /v1/series/{name}"
    return f'"{name}" is a series, not a reservation: delete it with {how}'


def other_terms(reservation: str) -> str:
    """A request under the name of a reservation whose terms are not these."""
    return (
        f'"{reservation}" names a reservation with other terms (times like +1h count from the moment of each request); '
        "update it, delete it, or choose a new name"
    )
