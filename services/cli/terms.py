"""The terms of a reservation in a few words: its window, and what it asks for as RDL writes it."""

from services.cli.show import moment
from services.cli.watching import Document

ATOMS_SHOWN_MAX = 6
"""A request with more is no help in a terminal; --json has all of it."""
_LENGTHS = ((3_600, "h"), (60, "m"), (1, "s"))


def terms(rdl: Document | None, *, recurs: bool = False) -> list[tuple[str, object]]:
    """Rows that say what was asked for. `recurs`: times of the window count from each occurrence of a series."""
    if rdl is None:  # An older gateway does not tell.
        return []
    rows: list[tuple[str, object]] = []
    if rdl.get("op") == "window":
        begin, end = rdl["s"], rdl["e"]
        if recurs:
            rows.append(("window", f"{_length(begin)} to {_length(end)} after each occurrence begins"))
        else:
            rows.append(("window", f"{moment(begin * 1_000)} to {moment(end * 1_000)}"))
        rdl = rdl["of"]
    atoms = _atoms(rdl)
    rows.append(("asks for", _written(rdl) if atoms <= ATOMS_SHOWN_MAX else f"{atoms:,} atoms, all in --json"))
    return rows


def _inner(rdl: Document) -> list[Document]:
    inner = rdl["of"]
    return inner if isinstance(inner, list) else [inner]


def _atoms(rdl: Document) -> int:
    return 1 if rdl["op"] == "atom" else sum(_atoms(each) for each in _inner(rdl))


def _written(rdl: Document) -> str:
    """RDL on one line."""
    if rdl["op"] == "atom":
        unit = ", ".join(f"{amount} {kind}" for kind, amount in rdl["b"].items())
        return f'atom(b="{unit}", g={rdl["g"]}, h={rdl["h"]}, l={_length(rdl["l"])}, w={_length(rdl["w"])})'
    times = [_length(rdl["s"]), _length(rdl["e"])] if rdl["op"] == "window" else []
    return f"{rdl['op']}({', '.join([*times, *map(_written, _inner(rdl))])})"


def _length(seconds: int) -> str:
    """A length of time as RDL writes it: `90m`, `2h`, `45s`; 0 as it is."""
    return next((f"{seconds // unit}{suffix}" for unit, suffix in _LENGTHS if seconds and seconds % unit == 0), "0")
