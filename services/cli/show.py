"""Texts for people: tables without frames, spans of time, shares. They fit 60 columns and need no terminal."""

import io
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

NARROWEST = 40
WIDTH_PIPED = 100
"""Columns of a text that no terminal shows."""

_COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "failed": "red",
    "rejected": "red",
    "lost": "red",
    "draining": "yellow",
    "cancelled": "yellow",
}


def width() -> int:
    """Columns to write in: the terminal's, or COLUMNS, or WIDTH_PIPED."""
    return max(NARROWEST, shutil.get_terminal_size((WIDTH_PIPED, 24)).columns)


def rendered(what: Any) -> str:
    """A table or text as it goes to stdout: with colours on a terminal only."""
    file = io.StringIO()
    console = Console(file=file, width=width(), force_terminal=sys.stdout.isatty(), highlight=False)
    console.print(what)
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]], *, right: str = "", gap: int = 2) -> Table:
    """Columns by their heads; an "r" at a column's place in `right` aligns it right. What does not fit is folded.

    `gap`: columns of the terminal between two of the table.
    """
    drawn = Table(box=None, padding=(0, gap, 0, 0), show_header=any(heads), header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        aligned: JustifyMethod = "right" if right[i : i + 1] == "r" else "left"
        drawn.add_column(head, justify=aligned, overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    return drawn


def _cell(value: Any) -> Text:
    # Names come from outside: they are text, never markup, and control nothing.
    text = "" if value is None else str(value)
    return Text("".join(c if c.isprintable() else "?" for c in text), style=_COLOURS.get(text, ""))


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
