"""Requests for reservations as users write them: read and checked before anything is sent, and their places named where
the cell refuses a part of one.
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.edge.read import Malformed, read_input
from services.cli.client import user
from services.cli.ending import Ending, Wrong
from services.cli.plan_chart import Document
from services.cli.show import in_zone

if TYPE_CHECKING:
    from services.planner.rdl.faults import Spot
    from services.planner.rdl.times import Clock

_PATH = re.compile(r"\b(rdl(?:\.[a-z0-9_-]+|\[[0-9]+\])+):")
"""How the cell names a part of a request."""


def read_series(name: str, file: str, queue: str | None, zone: str, every: str) -> tuple[Document, Document]:
    """A series as the gateway takes it, and the request of its first occurrence. Raises Wrong."""
    from schemas.edge.reservations import MOMENT_S_MAX, occurrence_name
    from services.planner.rdl.recurrence import occurrence, occurrences, series_of, when_of

    rdl, known, _ = _rdl(file, zone)
    try:
        when = when_of(every)
        window, start_s = series_of(rdl, when, known)
        at = next(iter(occurrences(str(when), start_s, known.now_s + 1, zone)), MOMENT_S_MAX + 1)
    except ValueError as error:
        raise Wrong(f"--every: {error}") from None
    if at > MOMENT_S_MAX:
        raise Wrong(f'--every: "{every}" never comes')
    terms = {"user": user()} | ({"queue": queue} if queue is not None else {})
    series: Document = {
        "series": name,
        "every": when,
        "zone": zone,
        "start_s": start_s,
    }
    series |= {"rdl": window, **terms}
    _check("series", series, file)
    return series, {"reservation": occurrence_name(name, at), "rdl": occurrence(window, at), **terms}


class Places:
    """Where the parts of a request stand in its file, for answers of the cell that name them by their path."""

    def __init__(self, file: str, spots: "dict[str, Spot]") -> None:
        self._file, self._spots = file, spots

    def placed(self, text: str) -> str:
        """`rdl.of[1].b.gpu: ...` with file, line and column instead of the path, and times as tables show them."""

        def place(match: re.Match[str]) -> str:
            spot = self._spots.get(match[1])
            if spot is None:
                return match[0]
            return f"{_shown(self._file)}: line {spot.line}, column {spot.column}: {match[1].rpartition('.')[2]}:"

        return _PATH.sub(place, in_zone(text))

    @contextmanager
    def named(self) -> Iterator[None]:
        """Around a request: endings name places. Raises what was raised within."""
        try:
            yield
        except Ending as ending:
            ending.args = (self.placed(str(ending)),)
            raise

    def in_answer(self, found: Document) -> Document:
        """The answer of a dry run, which may be no."""
        answer = found["answer"]
        return found if answer is None else found | {"answer": answer | {"detail": self.placed(answer["detail"])}}


def read_request(name: str, file: str, queue: str | None, zone: str) -> tuple[Document, Places]:
    """A request as the gateway takes it. Raises Wrong, which names the argument, or file, line and column."""
    rdl, _, spots = _rdl(file, zone)
    document: Document = {"reservation": name, "user": user(), "rdl": rdl}
    if queue is not None:
        document["queue"] = queue
    _check("request", document, file)
    return document, Places(file, spots)


def _check(form: str, document: Document, file: str) -> None:
    """Raises Wrong, which names the argument or the file."""
    try:
        read_input("reservations", {form: document}, "")
    except Malformed as fault:
        field = fault.field.removeprefix(f"{form}.")
        arguments = {"reservation": "NAME", "series": "NAME", "queue": "--queue", "every": "--every", "zone": "--zone"}
        argument = arguments.get(field)
        place = argument or (f"{_shown(file)}: {field}" if field else _shown(file))
        raise Wrong(f"{place}: {fault.reason}") from None


def _rdl(file: str, zone: str) -> tuple[object, "Clock", "dict[str, Spot]"]:
    """The request, the clock by which its times were read, and where its parts stand. Raises Wrong."""
    from services.planner.rdl.document import read_located
    from services.planner.rdl.faults import BadDocument
    from services.planner.rdl.times import clock

    try:
        known = clock(now_s=int(time.time()), zone=zone)
    except ValueError as error:
        raise Wrong(f"--zone: {error}") from None
    try:
        rdl, spots = read_located(_text(file), known)
        return rdl, known, spots
    except BadDocument as fault:
        raise Wrong(f"{_shown(file)}: {fault}") from None


def _text(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return text.removeprefix("\ufeff")  # A byte order mark, which some editors write.
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Wrong(f"{_shown(file)}: is no text in UTF-8") from None


def _shown(file: str) -> str:
    return "standard input" if file == "-" else file
