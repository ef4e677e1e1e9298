"""`largesse cell routes`: jobs that named no cell, from the router's log: where they are, and why they went there."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json
from services.cli.cells import Bus, asked, cell_app
from services.cli.ending import Refused, Wrong, note, out, out_json

if TYPE_CHECKING:
    from largesse.bus.port import Bus as AnyBus
    from largesse.log.fencing import Accepted
    from schemas.routes import CellLoad
    from services.gateway.routed import RouteRow
    from services.router.checking import Checked

STATES = ("waiting", "sent", "taken", "moving", "ended", "declined")
PPM_OF_PERCENT = 10_000
Found = dict[str, "RouteRow"]


@cell_app.command("routes", short_help="Show where jobs went that named no cell.")
def routes(
    job: Annotated[str | None, typer.Argument(help="one job; left out: all", metavar="[JOB]")] = None,
    state: Annotated[str | None, typer.Option("--state", help=f"only those: {', '.join(STATES)}", metavar="S")] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="what the router was sent and did not take, and why")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="decide everything in the router's log again, and compare")
    ] = False,
    bus: Bus = None,
    json: Json = False,
) -> None:
    """Jobs that named no cell: where each is, and why it went there.

    With --verify every decision in the router's log is made again from the records before it; exit code 1 where one
    differs. With --refused messages of the topic router.jobs are shown that the router has refused.
    """
    if state is not None and state not in STATES:
        raise Wrong(f"--state: has to be one of {', '.join(STATES)}, not {state!r}")
    found, checked, letters = asked(bus, lambda _, each: _read(each))
    if refused:
        _tell_refused([each for each in letters if job is None or each.job == job], json)
        return
    if verify:
        from services.cli.router_replaying import tell_verified

        tell_verified(checked, json)
        return
    rows = {name: row for name, row in found.items() if job in (None, name) and state in (None, row.state)}
    if job is not None and not rows:
        raise Refused(f'job "{job}" is not in the router\'s log' + (f", or is not {state}" if state else ""))
    if json:
        out_json([_document(name, row) for name, row in rows.items()])
    else:
        _show(rows)


def _tell_refused(letters: "list[Letter]", json: bool) -> None:
    from services.cli.show import drawing, moment

    if json:
        out_json([asdict(each) for each in letters])
        return
    rows = [
        (str(each.offset), moment(each.time_ms), each.author, each.job, each.field, each.reason) for each in letters
    ]
    out(drawing()(("offset", "when", "sender", "job", "field", "why"), rows, kinds="rlkkkl"))
    if not rows:
        note("the router has refused nothing")


def _show(rows: Found) -> None:
    from services.cli.show import drawing

    table = [(name, row.state, row.cell, row.why, _loads(row.loads), _rest(row)) for name, row in rows.items()]
    out(drawing()(("job", "state", "cell", "why", "loads", ""), table, kinds="kklkll"))
    if not rows:
        note("no job named no cell")


def _rest(row: "RouteRow") -> str:
    if row.to:
        return f"moves to {row.to}"
    if row.outcome:
        return row.outcome
    return "; ".join(f"{each.cell}: {each.detail}" for each in row.problems) if not row.cell else ""


def _loads(loads: "list[CellLoad]") -> str:
    return ", ".join(f"{each.cell} {min(each.cell_ppm, each.queue_ppm) // PPM_OF_PERCENT}%" for each in loads)


def _document(name: str, row: "RouteRow") -> dict[str, object]:
    return {"job": name, **asdict(row)}


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that was refused. `job`: the name that it is about, where it said one and was well formed."""

    offset: int
    time_ms: int
    author: str
    job: str
    field: str
    reason: str


def letter_of(accepted: "Accepted") -> Letter | None:
    """The refusal that a record of the router's log is, or None."""
    from schemas import InputRefused, JobRejected

    body, offset, time = accepted.record.body, accepted.header.offset, accepted.record.time
    if isinstance(body, JobRejected):
        return Letter(offset, time, body.author, body.spec.job, body.field, body.detail)
    return Letter(offset, time, body.author, "", body.field, body.reason) if isinstance(body, InputRefused) else None


async def _read(bus: "AnyBus") -> "tuple[Found, Checked, list[Letter]]":
    from largesse.log.reader import LogReader
    from schemas.topics import ROUTER_LOG
    from services.gateway.routed import Routed
    from services.router.checking import check

    rows, reader, records = Routed(bus, 0), LogReader(bus, topic=ROUTER_LOG), []
    letters: list[Letter] = []
    end = (await bus.bounds(ROUTER_LOG, 0))[1]
    while reader.offset < end:
        for accepted in await reader.read():
            rows.take(accepted)
            if accepted.record.seq:
                records.append(accepted.record)
                letters += [each for each in (letter_of(accepted),) if each is not None]
    return rows.rows, check(records), letters
