"""Texts for people: tables without frames, spans of time, shares. They fit 60 columns and need no terminal."""

import io
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from schemas.quantities import parse_quantity, rounded_text

NARROWEST = 40
WIDTH_PIPED = 100
"""Columns of a text that no terminal shows."""

TEXT_COLUMNS = 12
"""So wide may every column of text beside a name be before that name has to stand on a line of its own."""
NAME_COLUMNS = 20
"""So wide may the names of rows be that stand before columns of numbers; longer ones are folded."""

_WHOLE = "\ue000"  # Drawn for a text that is never folded. It is not printable: no text from outside holds it.
WHOLE = object()
"""A cell whose text is put in once the table is drawn, however long it is."""

_COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "failed": "red",
    "rejected": "red",
    "lost": "red",
    "draining": "yellow",
    "unschedulable": "yellow",
    "cancelled": "yellow",
}


def width() -> int:
    """Columns to write in: the terminal's, or COLUMNS, or WIDTH_PIPED."""
    return max(NARROWEST, shutil.get_terminal_size((WIDTH_PIPED, 24)).columns)


def rendered(what: Any, whole: Sequence[str] = ()) -> str:
    """A table or text as it goes to stdout: with colours on a terminal only. `whole`: texts of its WHOLE cells."""
    file = io.StringIO()
    console = Console(file=file, width=width(), force_terminal=sys.stdout.isatty(), highlight=False)
    console.print(what)
    told = [_plain(text) for text in reversed(whole)]
    lines = (line.replace(_WHOLE, told.pop()) if _WHOLE in line else line for line in file.getvalue().splitlines())
    return "".join(line.rstrip() + "\n" for line in lines)


def listed(heads: Sequence[str], rows: Sequence[Sequence[Any]], *, right: str = "") -> str:
    """A table by names that somebody will want to copy: a name which leaves the rest no room has a line of its own,
    above its row."""
    rest = width()
    for i in range(1, len(heads)):
        widest = max([len(heads[i]), *(cell_len(_plain(row[i])) for row in rows)])
        rest -= 2 + (widest if right[i : i + 1] == "r" else min(widest, TEXT_COLUMNS))
    rest = max(rest, TEXT_COLUMNS)
    long: list[str] = []
    drawn: list[Sequence[Any]] = []
    for row in rows:
        if cell_len(row[0]) > rest:
            long.append(row[0])
            drawn += [(WHOLE,), ("", *row[1:])]
        else:
            drawn.append(row)
    return rendered(table(heads, drawn, right=right), long)


def described(rows: Sequence[tuple[str, Any]]) -> str:
    """Names and values; the first value is one that somebody will want to copy, and is never folded."""
    (name, value), *others = rows
    return rendered(table(("", ""), [(name, WHOLE), *others]), [str(value)])


def in_blocks(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of numbers behind the names of their rows, in blocks of as many columns as fit, one below the other."""
    widths = [max([len(head), *(len(row[i]) for row in rows)]) for i, head in enumerate(heads)]
    room = width() - min(widths[0], NAME_COLUMNS)
    blocks: list[list[int]] = [[]]
    for i in range(1, len(heads)):
        if blocks[-1] and sum(2 + widths[k] for k in (*blocks[-1], i)) > room:
            blocks.append([])
        blocks[-1].append(i)
    return "\n".join(
        rendered(
            table(
                ("", *(heads[i] for i in block)),
                [(row[0], *(row[i] for i in block)) for row in rows],
                right="l" + "r" * len(block),
            )
        )
        for block in blocks
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]], *, right: str = "", gap: int = 2) -> Table:
    """Columns by their heads; an "r" at a column's place in `right` aligns it right. Text that does not fit is folded;
    heads, and what is aligned right, which is numbers, never.

    `gap`: columns of the terminal between two of the table.
    """
    drawn = Table(box=None, padding=(0, gap, 0, 0), show_header=any(heads), header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        aligned: JustifyMethod = "right" if right[i : i + 1] == "r" else "left"
        number = aligned == "right"
        least = max([len(head), *(cell_len(_plain(row[i])) for row in rows if number and i < len(row))])
        drawn.add_column(head, justify=aligned, overflow="fold", no_wrap=number, min_width=least)
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    return drawn


def _cell(value: Any) -> Text:
    if value is WHOLE:
        return Text(_WHOLE)
    return Text(_plain(value), style=_COLOURS.get(str(value), ""))


def _plain(value: Any) -> str:
    # Names come from outside: they are text, never markup, and control nothing.
    return "" if value is None else "".join(c if c.isprintable() else "?" for c in str(value))


def span(ms: float) -> str:
    """A length of time, short: `850 ms`, `35.7 s`, `12.3 min`, `5.1 h`, `3.2 d`."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    for unit, length_ms, below in (("s", 1_000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if ms < below * length_ms:
            return f"{ms / length_ms:.1f} {unit}"
    return f"{ms / 86_400_000:.1f} d"


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{100 * share:.1f} %"


def rounded(resource: str, quantity: str) -> str:
    """A quantity of a gateway's document, short: `"7680Mi"` is `7.5Gi`. Rounds down."""
    return rounded_text(resource, parse_quantity(resource, quantity, round_up=False))
