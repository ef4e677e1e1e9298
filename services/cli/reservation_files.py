"""Requests for reservations as users write them: read and checked before anything is sent, and their places named where
the cell refuses a part of one.
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.edge.read import Malformed, read_input
from schemas.jobs import JobSpec
from services.cli.client import user
from services.cli.contexts import checked_user
from services.cli.ending import Ending, Wrong, note
from services.cli.plan_chart import Document
from services.cli.show import in_zone

if TYPE_CHECKING:
    from services.planner.rdl.faults import Spot
    from services.planner.rdl.times import Clock

MARGIN_PERCENT_MAX = 1_000

_PATH = re.compile(r"\b(rdl(?:\.[a-z0-9_-]+|\[[0-9]+\])+):")
"""How the cell names a part of a request."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request is made of: the file that has it in RDL, or the job that it is for and its window."""

    file: str | None = None
    job: str | None = None
    begin: str | None = None
    end: str | None = None
    margin_percent: int | None = None
    queue: str | None = None
    weight: int | None = None
    user: str | None = None

    @property
    def owner(self) -> str:
        """Whose it is. Raises Wrong as `owner_of` does."""
        return owner_of(self.user)

    def read(self, name: str, every: str | None = None) -> "Source":
        """The request in RDL; notes say what the job lacks to run under it. Raises Wrong."""
        alone = [option for option, value in (("--from", self.begin), ("--by", self.end)) if value is not None]
        alone += ["--margin"] if self.margin_percent is not None else []
        if self.job is None:
            if self.file is None:
                raise Wrong("FILE: is missing: write the file of the request, or --job SPEC --by TIME")
            if alone:
                raise Wrong(f"{alone[0]}: needs --job: a request in RDL says its window itself")
            return Source(self.file, _text(self.file), self.queue, self.owner, weight=self.weight)
        if self.file is not None:
            raise Wrong("--job: FILE is given too: a request is read from one of them")
        if self.end is None:
            raise Wrong("--by: is missing: write when the job has to be over, like --by 06:00 or --by +2h")
        return _for_job(name, self, every)


@dataclass(frozen=True, slots=True)
class Source:
    """A request in RDL as text. `job`: the file that it was derived from, where it was."""

    file: str
    text: str
    queue: str | None
    owner: str
    job: bool = False
    weight: int | None = None

    def terms(self) -> Document:
        """Who asks, for which queue, and with what weight, where these are said."""
        said = {"queue": self.queue, "weight": self.weight}
        return {"user": self.owner} | {name: value for name, value in said.items() if value is not None}


def owner_of(option: str | None) -> str:
    """Whose a reservation is: whom --user names, else who asks. Raises Wrong for an option that names nobody."""
    return user() if option is None else checked_user(option, "--user")


def _for_job(name: str, wanted: Wanted, every: str | None) -> Source:
    """The request for the capacity that a job needs. Raises Wrong."""
    from schemas.edge.jobs import read_job as spec_of
    from services.cli.documents import read_job
    from services.planner.rdl.of_job import request_text

    assert wanted.job is not None and wanted.end is not None
    written = read_job(wanted.job, user)
    job = spec_of(written.document, "")
    assert isinstance(job, JobSpec)
    if job.user and job.user != wanted.owner:
        text = f'the reservation would be of "{wanted.owner}", whose jobs alone may use it: write --user {job.user}'
        raise Wrong(f'{_shown(wanted.job)}: user: is "{job.user}"; {text}')
    # By a cron expression the times of a window are durations since each occurrence.
    begin = wanted.begin or ("0" if every is not None and " " in every.strip() else "+0s")
    try:
        text = request_text(job, begin, wanted.end, wanted.margin_percent or 0)
    except ValueError as error:
        raise Wrong(f"{_shown(wanted.job)}: {error}") from None
    if job.reservation != name:
        note(f"{_shown(wanted.job)}: the job runs under it only with `reservation: {name}`")
    queue = wanted.queue if wanted.queue is not None or not written.document.get("queue") else job.queue
    return Source(wanted.job, text, queue, wanted.owner, job=True, weight=wanted.weight)


def read_series(name: str, source: Source, zone: str, every: str) -> tuple[Document, Document]:
    """A series as the gateway takes it, and the request of its first occurrence. Raises Wrong."""
    from schemas.edge.reservations import MOMENT_S_MAX, occurrence_name
    from services.planner.rdl.recurrence import occurrence, occurrences, series_of, when_of

    rdl, known, _ = _rdl(source, zone)
    try:
        when = when_of(every)
        window, start_s = series_of(rdl, when, known)
        at = next(iter(occurrences(str(when), start_s, known.now_s + 1, zone)), MOMENT_S_MAX + 1)
    except ValueError as error:
        raise Wrong(f"--every: {error}") from None
    if at > MOMENT_S_MAX:
        raise Wrong(f'--every: "{every}" never comes')
    terms = source.terms()
    series: Document = {
        "series": name,
        "every": when,
        "zone": zone,
        "start_s": start_s,
    }
    series |= {"rdl": window, **terms}
    _check("series", series, source.file)
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


def read_request(name: str, source: Source, zone: str) -> tuple[Document, Places]:
    """A request as the gateway takes it. Raises Wrong, which names the argument, or file, line and column."""
    rdl, _, spots = _rdl(source, zone)
    document: Document = {"reservation": name, "rdl": rdl, **source.terms()}
    _check("request", document, source.file)
    return document, Places(source.file, {} if source.job else spots)


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


def _rdl(source: Source, zone: str) -> tuple[object, "Clock", "dict[str, Spot]"]:
    """The request, the clock by which its times were read, and where its parts stand. Raises Wrong."""
    from services.planner.rdl.document import read_located
    from services.planner.rdl.faults import BadDocument
    from services.planner.rdl.times import clock

    try:
        known = clock(now_s=int(time.time()), zone=zone)
    except ValueError as error:
        raise Wrong(f"--zone: {error}") from None
    try:
        rdl, spots = read_located(source.text, known)
        return rdl, known, spots
    except BadDocument as fault:
        if source.job and fault.spot.line == 1:
            raise Wrong(f"--from, --by: {fault.reason}") from None
        # Of a request that was derived from a job nobody has seen the lines.
        raise Wrong(f"{_shown(source.file)}: {fault.reason if source.job else fault}") from None


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
