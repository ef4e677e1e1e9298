"""`largesse reserve`: requests for capacity in time, and what became of them.

A request is RDL as text, YAML or JSON (docs/reservations.md). Times of day and relative times count by this machine's
clock; the cell gets seconds of Unix time.
"""

import time
from typing import Annotated

import typer

from largesse.access import step
from schemas.reservations import WEIGHT_MAX
from services.cli.arguments import (
    Json,
    OverToo,
    Url,
    Zone,
    file_path,
    given,
    queues_named,
    series_or_reservations_named,
    use_zone,
)
from services.cli.client import Gateway, timeout_s_of
from services.cli.ending import note, out, out_json
from services.cli.plan_chart import (
    Document,
    list_reservations,
    one_reservation,
    one_series,
    reservations_in,
    series_in,
)
from services.cli.reservation_files import MARGIN_PERCENT_MAX, Wanted, owner_of, read_request, read_series
from services.cli.show import moment

reserve_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@reserve_app.callback()
def _reserve() -> None:
    """Capacity in time."""


def _name(text: str) -> str:
    return given("NAME", text)


def _path(text: str | None) -> str | None:
    return None if text is None else file_path(text)


Name = Annotated[
    str,
    typer.Argument(
        help="the reservation's name", metavar="NAME", callback=_name, autocompletion=series_or_reservations_named
    ),
]
File = Annotated[
    str | None,
    typer.Argument(
        help="the request in RDL, as text, YAML or JSON; - is standard input", metavar="[FILE]", callback=_path
    ),
]
Job = Annotated[
    str | None,
    typer.Option(
        "--job",
        help="instead of FILE: ask for what this job needs, by its graph and estimates",
        metavar="SPEC",
        callback=_path,
    ),
]
Begin = Annotated[
    str | None, typer.Option("--from", help="with --job: when it may begin  [default: now]", metavar="TIME")
]
End = Annotated[str | None, typer.Option("--by", help="with --job: when it has to be over", metavar="TIME")]
Margin = Annotated[
    int | None,
    typer.Option(
        "--margin",
        help="with --job: per cent by which tasks may take longer than estimated  [default: 0]",
        metavar="PERCENT",
        min=0,
        max=MARGIN_PERCENT_MAX,
    ),
]
Queue = Annotated[
    str | None, typer.Option("--queue", help="the queue that it serves", metavar="QUEUE", autocompletion=queues_named)
]
Weight = Annotated[
    int | None,
    typer.Option(
        "--weight",
        help="what it counts beside others where not all promises can be kept  [default: 1]",
        metavar="N",
        min=1,
        max=WEIGHT_MAX,
    ),
]
Owner = Annotated[
    str | None,
    typer.Option("--user", help="whose it is  [default: yours: LARGESSE_USER, else the context's]", metavar="NAME"),
]
ZONE_DEFAULT = "UTC"
RequestZone = Annotated[
    str | None,
    typer.Option(
        "--zone",
        help="time zone of times that name none, and of the answer  [default: UTC; the answer: this machine's]",
        metavar="ZONE",
    ),
]
Every = Annotated[
    str | None,
    typer.Option(
        "--every", help='repeat it: a cron expression like "0 6 * * 1-5", or a period like 2h, 1d', metavar="WHEN"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only ask what the answer would be")]


@reserve_app.command(short_help="Ask for capacity in time.")
def submit(
    name: Name,
    file: File = None,
    job: Job = None,
    begin: Begin = None,
    end: End = None,
    margin: Margin = None,
    queue: Queue = None,
    weight: Weight = None,
    user: Owner = None,
    zone: RequestZone = None,
    every: Every = None,
    dry_run: DryRun = False,
    print_rdl: Annotated[bool, typer.Option("--print", help="print the request in RDL, and send nothing")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Ask for capacity in time; exit code 1 where the answer is no, with what would be accepted instead.

    With --job, the request is derived from a job spec: atoms for each stage, in the order of its graph.
    With --every, a series: each occurrence becomes a reservation NAME.DATE of its own, as soon as its end lies within
    the time that can be planned. With --dry-run, the answer to its first occurrence, if
    that can be planned already.
    """
    gateway = Gateway(url, timeout_s=timeout_s_of(dry_run))
    source = Wanted(file, job, begin, end, margin, queue, weight, user).read(name, every)
    use_zone(zone)
    series = read_series(name, source, zone or ZONE_DEFAULT, every) if every is not None else None
    request = read_request(name, source, zone or ZONE_DEFAULT) if series is None else None
    if print_rdl:
        out(source.text.rstrip())
        return
    if series is not None:
        _submit_series(gateway, *series, dry_run, json)
        return
    assert request is not None
    document, places = request
    params = {"dry_run": "true"} if dry_run else {}
    with places.named():
        found = gateway.document("POST", "/v1/reservations", "state", json=document, params=params)
    _answered(places.in_answer(found), json, dry_run)


@reserve_app.command(short_help="Ask for other terms.")
def update(
    name: Name,
    file: File = None,
    job: Job = None,
    begin: Begin = None,
    end: End = None,
    margin: Margin = None,
    queue: Queue = None,
    weight: Weight = None,
    user: Owner = None,
    zone: RequestZone = None,
    dry_run: DryRun = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Ask for other terms; the old ones stay in force where the answer is no (exit code 1).

    The terms of a series stay as they are: delete it, and submit another of a new name.
    """
    gateway = Gateway(url, timeout_s=timeout_s_of(dry_run))
    use_zone(zone)
    source = Wanted(file, job, begin, end, margin, queue, weight, user).read(name)
    document, places = read_request(name, source, zone or ZONE_DEFAULT)
    params = {"dry_run": "true"} if dry_run else {}
    path = f"/v1/reservations/{step(name)}"
    with places.named():
        found = gateway.document("PUT", path, "state", json=document, params=params)
    _answered(places.in_answer(found), json, dry_run)


@reserve_app.command(short_help="Give a reservation back.")
def delete(name: Name, user: Owner = None, url: Url = None, json: Json = False) -> None:
    """Give a reservation back; jobs that run under it go on without it.

    Of a series, all occurrences that have not begun.
    """
    gateway, whose = Gateway(url), {"user": owner_of(user)}
    if any(each["series"] == name for each in series_in(gateway)):
        ended = gateway.document("DELETE", f"/v1/series/{step(name)}", "series", params=whose)
        if json:
            out_json(ended)
        else:
            out(f"{name}: deleted; occurrences that have not begun are being given back")
        return
    path = f"/v1/reservations/{step(name)}"
    found = gateway.document("DELETE", path, "state", params=whose)
    if json:
        out_json(found)
    elif found["unanswered"]:
        note(f"{name}: asked for; the planner has not answered yet")
    else:
        out(f"{name}: {found['state']}")


@reserve_app.command("list", short_help="Reservations, and what is promised to them.")
def list_all(over: OverToo = False, zone: Zone = None, url: Url = None, json: Json = False) -> None:
    """Reservations with the planner's answer, and their plan as a chart; then those that recur."""
    use_zone(zone)
    list_reservations(Gateway(url), json, over=over)


@reserve_app.command(short_help="Why a reservation is as it is, and its plan.")
def why(name: Name, zone: Zone = None, url: Url = None, json: Json = False) -> None:
    """The planner's answer to a reservation, why its promise was moved or broken, and its plan.

    Of a series, its terms, and its occurrences with the answers to them.
    """
    use_zone(zone)
    gateway = Gateway(url)
    for series in series_in(gateway):
        if series["series"] == name:
            of_it = [each for each in reservations_in(gateway) if each["series"] == name]
            if json:
                out_json({**series, "reservations": of_it})
            else:
                out(one_series(series, of_it))
            return
    found = gateway.get(f"/v1/reservations/{step(name)}", "state", "steps")
    if json:
        out_json(found)
    else:
        out(one_reservation(found, jobs=gateway.get("/v1/jobs", "jobs", reservation=name)["jobs"]))


def _answered(found: Document, json: bool, dry_run: bool) -> None:
    if json:
        out_json(found)
        _exit(found)
        return
    if found["unanswered"]:
        note(f"{found['reservation']}: asked for; the planner has not answered yet: largesse reserve why tells more")
    out(one_reservation(found, dry_run=dry_run))
    _exit(found)


def _exit(found: Document) -> None:
    """Ends with 1 where a dry run says no; where the cell does, the gateway's answer is a problem."""
    if found["answer"] is not None and not found["answer"]["accepted"]:
        raise typer.Exit(1)


def _submit_series(gateway: Gateway, document: Document, first: Document, dry_run: bool, json: bool) -> None:
    if dry_run:
        _dry_series(gateway, document, first, json)
        return
    found = gateway.document("POST", "/v1/series", "series", json=document)
    if json:
        out_json(found)
    else:
        name = document["series"]
        out(f"{name}: recurs; its first occurrence is {first['reservation']}. `largesse reserve why` tells the answers")


def _dry_series(gateway: Gateway, document: Document, first: Document, json: bool) -> None:
    """Whether the series would be taken; then the answer to its first occurrence, unless that is not due yet."""
    params = {"dry_run": "true"}
    would_be = gateway.document("POST", "/v1/series", "series", json=document, params=params)
    horizon_ms = gateway.get("/v1/config", "set")["set"]["reservation_horizon_ms"]
    begin_s, end_s = first["rdl"]["s"], first["rdl"]["e"]
    if end_s * 1_000 <= int(time.time() * 1_000) + horizon_ms:
        found = gateway.document("POST", "/v1/reservations", "state", json=first, params=params)
        _answered(found, json, dry_run=True)
        return
    due_ms = end_s * 1_000 - horizon_ms
    if json:
        occurrence = {"reservation": first["reservation"], "from_ms": begin_s * 1_000, "due_ms": due_ms}
        out_json(would_be | {"first": occurrence})
        return
    name, begins, due = first["reservation"], moment(begin_s * 1_000), moment(due_ms)
    out(f"{document['series']}: would be accepted. Its first occurrence is not due yet: {name}")
    out(f"begins at {begins}, and is requested from {due} on (knob reservation_horizon_ms)")
    out("\ndry run: nothing has been changed")
