"""Texts for people, and rows for programs: tables without frames on a terminal, tabs between columns in a pipe.

On a terminal they fit its width, from NARROWEST columns on. A name or a state is never folded: a table that has no room
for one is written as blocks, a line a value. rich is imported where a table is drawn: a pipe needs none.
"""

import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any

from services.cli.ending import styled, visible

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table
    from rich.text import Text

NARROWEST = 40
WIDTH_PIPED = 100
"""Columns of a text that no terminal shows."""

TEXT_COLUMNS = 12
"""So wide may every foldable column beside a name be before that name has to stand on a line of its own."""
TEXT_COLUMNS_LEAST = 8
"""A table whose foldable columns would be narrower is written as blocks."""
REMARK_COLUMNS = 40
"""A remark that is longer, and has less room beside its row, stands below it."""
REMARK_LINES = 2
"""Lines that a remark below its row may take; what is left of it is cut off."""
NAME_COLUMNS = 20
"""So wide may the names of rows be that stand before columns of numbers; longer ones are folded."""

Draw = Callable[..., str]
"""`listed` or `tabbed`."""

_WHOLE = "\ue000"  # Drawn for a text that is never folded. It is not printable: no text from outside holds it.
WHOLE = object()
"""A cell whose text is put in once the table is drawn, however long it is."""

FOLDED, NUMBER, KEPT = "l", "r", "k"
"""How a column is written: text that may be folded; a number, to the right; a name or a state, to the left. Only the
first is ever folded."""

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


def on_terminal() -> bool:
    """Whether a person reads stdout as it comes; else a program does, a row a line."""
    return sys.stdout.isatty()


def width() -> int:
    """Columns to write in: the terminal's, or COLUMNS, or WIDTH_PIPED."""
    return max(NARROWEST, shutil.get_terminal_size((WIDTH_PIPED, 24)).columns)


def rendered(what: object, whole: Sequence[str] = ()) -> str:
    """A table or text as it goes to stdout: with colours on a terminal only. `whole`: texts of its WHOLE cells."""
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=width(), force_terminal=on_terminal(), highlight=False)
    console.print(what)
    texts = [plain(text) for text in reversed(whole)]
    drawn = styled(file.getvalue()).splitlines()
    lines = (line.replace(_WHOLE, texts.pop()) if _WHOLE in line else line for line in drawn)
    return "".join(line.rstrip() + "\n" for line in lines)


def tabbed(heads: Sequence[str], rows: Sequence[Sequence[object]], *, kinds: str = "") -> str:
    """Rows for programs: a line each, tabs between columns, heads first where there are any. Nothing is folded or left
    out, and no cell holds a tab or a line's end. `kinds` changes nothing: it is there to be called as `listed` is.
    """
    lines = [heads, *rows] if any(heads) else rows
    return "".join("\t".join(map(plain, line)) + "\n" for line in lines)


def drawing() -> Draw:
    """How rows go to stdout: `listed` on a terminal, `tabbed` elsewhere."""
    return listed if on_terminal() else tabbed


def remarked(heads: Sequence[str], rows: Sequence[Sequence[object]], *, kinds: str) -> str:
    """As `listed`, with a remark in the last column; without room there each stands below its row, cut."""
    *widths, longest = [max([cells(heads[i]), *(cells(row[i]) for row in rows)]) for i in range(len(heads))]
    if min(longest, REMARK_COLUMNS) <= width() - sum(2 + each for each in widths):
        return listed(heads, rows, kinds=kinds)
    remarks = [plain(row[-1]) for row in rows]
    return listed(heads[:-1], [row[:-1] for row in rows], kinds=kinds[:-1], remarks=remarks)


def listed(heads: Sequence[str], rows: Sequence[Sequence[Any]], *, kinds: str = "", remarks: Sequence[str] = ()) -> str:
    """A table of named rows for a terminal. `kinds`: of the columns, by place; FOLDED where it says nothing. `remarks`:
    texts below the rows, by place.

    A name which leaves the rest no room has a line of its own, above its row; where what is kept whole, or the head
    of the names, has no room beside the other columns either, every row is a block.
    """
    widths = [max([cells(heads[i]), *(cells(row[i]) for row in rows)]) for i in range(len(heads))]
    below = [_below(remark) for remark in remarks or [""] * len(rows)]

    def left(for_text: int) -> int:
        others = enumerate(widths[1:], 1)
        # A head is never folded: a foldable column is at least as wide.
        return width() - sum(
            2 + (min(w, max(for_text, cells(heads[i]))) if kinds[i : i + 1] in ("", FOLDED) else w) for i, w in others
        )

    if left(TEXT_COLUMNS_LEAST) < max(1, cells(heads[0])):
        blocks = [[*_block(heads, row, kinds), *lines] for row, lines in zip(rows, below, strict=True)]
        return "".join(line + "\n" for block in blocks for line in block)
    rest = max(left(TEXT_COLUMNS), 1)
    long: list[str] = []
    drawn: list[Sequence[object]] = []
    for row, lines in zip(rows, below, strict=True):
        if cells(row[0]) > rest:
            long.append(row[0])
            drawn += [(WHOLE,), ("", *row[1:])]
        else:
            drawn.append(row)
        long += lines
        drawn += [(WHOLE,)] * len(lines)
    return rendered(table(heads, drawn, kinds=KEPT + kinds[1:]), long)


def _block(heads: Sequence[str], row: Sequence[object], kinds: str) -> list[str]:
    """A row as its name and, below it, a line for each other value; only what may be folded is, between words."""
    lines = [plain(row[0])]
    for i in range(1, len(row)):
        if (text := plain(row[i])) != "":
            line = f"  {heads[i]}: {text}" if heads[i] else f"  {text}"
            lines += folded(line, "    ") if kinds[i : i + 1] in ("", FOLDED) else [line]
    return lines


def _below(remark: str) -> list[str]:
    """A remark as the lines below its row, REMARK_LINES at most; none where it is empty."""
    lines = list(folded(f"  {remark}", "  ")) if remark else []
    if len(lines) > REMARK_LINES:
        rest = " ".join(line.strip() for line in lines[REMARK_LINES - 1 :])
        lines[REMARK_LINES - 1 :] = [f"  {rest}"]
    return [_cut(line) for line in lines]


def _cut(line: str) -> str:
    """A line that fits; an ellipsis stands for what does not."""
    if cells(line) <= width():
        return line
    line = line[: width()]
    while cells(line) >= width():
        line = line[:-1]
    return line.rstrip() + "…"


def folded(text: str, indent: str) -> Iterator[str]:
    """A text in lines that fit, broken between words; a word that does not fit stands on a line of its own."""
    room, line = width(), ""
    for word in re.split(r"(?<=\S) ", text):
        if line and cells(f"{line} {word}") > room:
            yield line
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    yield line


def described(rows: Sequence[tuple[str, object]]) -> str:
    """Names and values; the first value is one that people copy, and is never folded."""
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
                kinds=FOLDED + NUMBER * len(block),
            )
        )
        for block in blocks
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, kinds: str = "", gap: int = 2) -> "Table":
    """Columns by their heads. `kinds`: of the columns, by place; text that does not fit is folded, heads, and what is
    NUMBER or KEPT, never.

    `gap`: columns of the terminal between two of the table.
    """
    from rich.table import Table

    drawn = Table(box=None, padding=(0, gap, 0, 0), show_header=any(heads), header_style="bold", pad_edge=False)
    for i, head in enumerate(heads):
        kind = kinds[i : i + 1] or FOLDED
        aligned: JustifyMethod = "right" if kind == NUMBER else "left"
        kept = kind != FOLDED
        least = max([len(head), *(cells(row[i]) for row in rows if kept and i < len(row) and row[i] is not WHOLE)])
        drawn.add_column(head, justify=aligned, overflow="fold", no_wrap=kept, min_width=least)
    for row in rows:
        # What stands first is a name, and never a state: a job may be called "failed".
        drawn.add_row(*(_cell(value, coloured=i > 0) for i, value in enumerate(row)))
    return drawn


def _cell(value: object, *, coloured: bool) -> "Text":
    from rich.text import Text

    if value is WHOLE:
        return Text(_WHOLE)
    return Text(plain(value), style=_COLOURS.get(str(value), "") if coloured else "")


def cells(value: object) -> int:
    """Columns of the terminal that a value takes."""
    from rich.cells import cell_len

    return cell_len(plain(value))


def plain(value: object) -> str:
    """A value as a text that controls nothing: names come from outside, and are text, never markup."""
    return "" if value is None else visible(str(value))


def plural(count: int, what: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`. As in `schemas.wording`, whose package takes long to import."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def span(ms: float) -> str:
    """A length of time, short: `850 ms`, `35.7 s`, `12.3 min`, `5.1 h`, `3.2 d`."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    for unit, length_ms, below in (("s", 1_000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if ms < below * length_ms:
            return f"{ms / length_ms:.1f} {unit}"
    return f"{ms / 86_400_000:.1f} d"


_zone: ContextVar[tzinfo | None] = ContextVar("zone", default=None)


def show_times_in(zone: tzinfo | None) -> None:
    """From now on `moment` writes times in this zone; None: in this machine's."""
    _zone.set(zone)


def moment(moment_ms: int) -> str:
    """A moment with its time zone: `2026-11-23 14:05:00 CET`."""
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).astimezone(_zone.get()).strftime("%Y-%m-%d %H:%M:%S %Z")


_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def in_zone(text: str) -> str:
    """A text of the gateway, which says times in UTC, with each as `moment` writes it."""
    return _MOMENT.sub(lambda match: moment(int(datetime.fromisoformat(match[0]).timestamp()) * 1_000), text)


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{100 * share:.1f} %"


_MIB = {"Mi": 0, "Gi": 10, "Ti": 20}  # As powers of 2.
_BYTES = re.compile(r"([0-9]+)(Mi|Gi|Ti)")


@cache
def rounded(quantity: str) -> str:
    """A quantity of a gateway's document, short: bytes in their largest unit, `"7680Mi"` is `7.5Gi`, with two digits
    behind the point at most. Rounds down. What `schemas.quantities.rounded_text` writes, from the exact text.
    """
    match = _BYTES.fullmatch(quantity)
    if match is None:
        return quantity
    mib = int(match[1]) << _MIB[match[2]]
    for suffix, shift in (("Ti", 20), ("Gi", 10)):
        if mib >> shift:
            whole, hundredths = divmod(mib * 100 >> shift, 100)
            return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".") + suffix
    return f"{mib}Mi"
