"""`largesse audit`: who has done what, from the log."""

from collections.abc import Iterator
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json, LogPath
from services.cli.ending import Wrong, note, out, out_json
from services.cli.moments import point_of
from services.cli.what_if_options import Texts

if TYPE_CHECKING:
    from largesse.log.deeds import Deed, Deeds
    from schemas import Record
    from services.replay.source import Source

NOBODY = "(nobody named)"
INDENT = " " * 9
"""Before what does not fit into the line of its deed on a terminal."""


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("audit", short_help="Show who has done what, from the log.")(audit_of)


def audit_of(
    log: LogPath,
    by: Annotated[Texts, typer.Option("--by", help="of this person or program; repeatable", metavar="NAME")] = None,
    area: Annotated[
        Texts,
        typer.Option(
            "--area", help="jobs, reservations, nodes, config, access, inputs or rounds; repeatable", metavar="AREA"
        ),
    ] = None,
    since: Annotated[str | None, typer.Option("--from", help="from here on", metavar="SEQ|TIME")] = None,
    until: Annotated[str | None, typer.Option("--to", help="up to here", metavar="SEQ|TIME")] = None,
    refused: Annotated[bool, typer.Option("--refused", help="only what the cell refused")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="how often each did what, and when last")] = False,
    json: Json = False,
) -> None:
    """Show who has submitted, cancelled, changed, drained, reserved or configured what, a line each: also what was
    refused. A changed config is shown by what it makes otherwise. (--json: a document a line.)
    """
    wanted = Wanted(tuple(by or ()), tuple(area or ()), refused)
    audit(log, wanted, since=since, until=until, summary=summary, json=json)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deeds: of any of these people and areas; empty: of all. `refused`: those alone that the cell refused."""

    by: tuple[str, ...]
    areas: tuple[str, ...]
    refused: bool

    def has(self, deed: "Deed") -> bool:
        """Whether a deed is one of them. Who is named as its user counts as who sent it does."""
        return (
            (not self.by or deed.author in self.by or deed.user in self.by)
            and (not self.areas or deed.area in self.areas)
            and (deed.is_refused or not self.refused)
        )


def audit(log: str, wanted: Wanted, *, since: str | None, until: str | None, summary: bool, json: bool) -> None:
    """Prints the deeds that are wanted, a line each, or with `summary` how many by person and kind. Raises Wrong."""
    from largesse.log.deeds import AREAS, Deeds
    from services.cli.progress import progress_of
    from services.cli.replaying import begins_text, reading, source_of, watched

    for area in wanted.areas:
        if area not in AREAS:
            raise Wrong(f"--area: {area!r} is none of {', '.join(AREAS)}")
    first, last = point_of("--from", since), point_of("--to", until)
    source, deeds, found = source_of(log), Deeds(), 0
    counts: dict[tuple[str, str, str], list[int]] = {}
    if source.start is not None and (since is None or first.is_before(source.start.seq + 1, source.start.time)):
        note(begins_text(source.start))
    with reading(), progress_of("reading", "records") as tell:
        for record in _records(watched(source, tell), deeds):
            deed = deeds.of(record)
            if last.is_before(record.seq, record.time):
                break
            if deed is None or not wanted.has(deed) or not first.is_reached_by(record.seq, record.time):
                continue
            found += 1
            if summary:
                of_one = counts.setdefault((deed.author or NOBODY, deed.area, deed.verb), [0, 0, 0])
                of_one[deed.is_refused] += 1
                of_one[2] = deed.time
            elif json:
                out(dumps(deed.document()))
            else:
                out(_line(deed))
    if summary:
        _summarize(counts, json)
    elif not found:
        note("nobody did anything of the kind in this log")


def _records(source: "Source", deeds: "Deeds") -> "Iterator[Record]":
    """The records of a log; what a bundle tells of before its begin only makes known what was in force."""
    for record in source.start.before if source.start is not None else ():
        deeds.of(record)
    for step in source.steps():
        yield step.accepted.record


def _line(deed: "Deed") -> str:
    from services.cli.show import folded, moment, on_terminal, plain

    who = (deed.author or NOBODY) + (f" for {deed.user}" if deed.user else "")
    refused = " REFUSED" if deed.is_refused else ""
    line = plain(f"{deed.seq:>8} {moment(deed.time)}  {who}  {deed.verb}{refused}  {deed.text}").rstrip()
    return "\n".join(folded(line, INDENT)) if on_terminal() else line


def _summarize(counts: dict[tuple[str, str, str], list[int]], json: bool) -> None:
    from services.cli.show import NUMBER, drawing, moment

    rows = sorted(counts.items())
    if json:
        names = ("author", "area", "verb", "done", "refused", "last_ms")
        out_json([dict(zip(names, (*what, *numbers), strict=True)) for what, numbers in rows])
        return
    drawn = [(*what, done, refused, moment(last_ms)) for what, (done, refused, last_ms) in rows]
    heads = ("who", "what", "", "done", "refused", "last")
    out(drawing()(heads, drawn, kinds=f"kkk{NUMBER}{NUMBER}k"))
