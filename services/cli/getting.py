"""`largesse get`: what is in a cell. On a terminal a table that fits it, in a pipe a row a line with tabs between."""

from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal
from time import time
from typing import Annotated, Any

import typer

from largesse.access import job_path
from services.cli.arguments import At, Job, Json, OverToo, States, Url, Zone, queues_named, use_zone
from services.cli.classes import HEADS, KINDS, about_pools, class_rows
from services.cli.client import Gateway
from services.cli.ending import Wrong, note, out, out_json
from services.cli.groups import Group
from services.cli.show import Draw, drawing, listed, moment, on_terminal, rounded, span

KEPT_FOR = {"headroom": "a large task", "gang": "a gang"}
NO_ACCOUNTS = "no accounts: only the presets carbyne and carbyne-dag keep them"

get_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Show what is in the cell.")


JOBS_MOST = 1_000


@get_app.command("jobs", short_help="Jobs: those that have not ended first, then ended ones.")
def get_jobs(
    state: States = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="only jobs of this queue and those below it", autocompletion=queues_named),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="only jobs of this user")] = None,
    job_class: Annotated[str | None, typer.Option("--class", help="only jobs of this class")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="only jobs submitted or ended since: 90s, 10m, 2h, 1d, or a time", metavar="WHEN"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help=f"the most jobs to show  [default: {JOBS_MOST}]", min=1, max=10_000)
    ] = None,
    follow: Annotated[bool, typer.Option("--watch", "-w", help="show them again and again, until Ctrl-C")] = False,
    at: At = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Jobs: those that have not ended first, then ended ones, latest first.

    A terminal shows the last few that have ended, where no option says which jobs. With --watch it shows the list as it
    is; a pipe gets a row for each job that has changed.
    """
    from services.cli.job_lists import ENDED_SHOWN, jobs_text, listing, watch_jobs

    if follow and json:
        raise Wrong("--watch: one JSON document has an end: leave one of --watch and --json out")
    if follow and at is not None:
        raise Wrong("--watch: the past does not change: leave one of --watch and --at out")
    wanted: dict[str, object] = {
        "state": state,
        "queue": queue,
        "user": user,
        "class": job_class,
        "limit": JOBS_MOST if limit is None else limit,
    }
    ended_most = ENDED_SHOWN if state is None and since is None and limit is None else None
    if since is not None:
        from services.cli.printing import since_ms

        wanted["since_ms"] = since_ms(since)
    gateway = Gateway(url, at=at)
    if follow:
        watch_jobs(lambda: listing(gateway, wanted), ended_most)
    found = listing(gateway, wanted)
    if queue and not found:
        from services.cli.cancelling import not_in_tree

        if missing := not_in_tree(gateway, queue):
            note(missing)
    if json:
        out_json(gateway.dated("jobs", found))
        return
    out(jobs_text(found, drawing(), ended_most, now_ms=gateway.moment_ms()))


@get_app.command("job", short_help="One job: its stages, where tasks run, why others wait.")
def get_job(job: Job, at: At = None, url: Url = None, json: Json = False) -> None:
    """One job with its stages, why tasks wait, on which nodes they run, and attempts that failed."""
    gateway = Gateway(url, at=at)
    document = gateway.get(job_path(job), "job", "stages")
    if json:
        out_json(document)
    else:
        gateway.moment_ms()
        from services.cli.watching import job_text

        out(job_text(document, drawing()))


@get_app.command("queues", short_help="The queue tree: shares, jobs and limits.")
def get_queues(at: At = None, url: Url = None, json: Json = False) -> None:
    """The queue tree: what is guaranteed, fair, held, lent and borrowed, jobs, and limits.

    Guaranteed is what a queue can count on now, by its weight or by what the config guarantees it; the latter stands
    among its limits.
    """
    gateway = Gateway(url, at=at)
    tree = gateway.get("/v1/queues", "queue")
    if json:
        out_json(tree)
    else:
        gateway.moment_ms()
        from services.cli.queues import tree_rows, tree_text

        out(tree_text(tree) if on_terminal() else tree_rows(tree))


@get_app.command("nodes", short_help="Nodes with their state and free capacity.")
def get_nodes(at: At = None, url: Url = None, json: Json = False) -> None:
    """Nodes with their state and free capacity, room that is held for a large task or a gang, why a node takes no new
    tasks, how long ago it was last heard, and whether that was by a bridge, over MQTT.
    """
    gateway = Gateway(url, at=at)
    found = gateway.get("/v1/nodes", "nodes")["nodes"]
    if json:
        out_json(gateway.dated("nodes", found))
        return
    now_ms = gateway.moment_ms()
    each = sorted(found, key=lambda node: numbered(node["node"]))
    rows = [(*node_row(node, now_ms), heard_text(node, now_ms)) for node in each]
    _draw(drawing(), ("node", "state", "tasks", "free", "heard"), rows, "kkrlk", "no nodes")


def _draw(draw: Draw, heads: Sequence[str], rows: Sequence[Sequence[object]], kinds: str, none: str) -> None:
    """Rows as `draw` wants them; without any, a terminal shows `none`, and a pipe gets the heads alone."""
    out(none if not rows and draw is listed else draw(heads, rows, kinds=kinds))


JOBS_SHOWN = 3
"""Of a node where attempts fail one after another, so many jobs are named, those that failed last."""


def numbered(name: str) -> tuple[str, int, str]:
    """Sorts `n-2` before `n-10`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name


DEVICES_SHOWN = 3
"""Of the devices of a node that are out."""


def out_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The devices of a node of the gateway's that are out."""
    return [device for device in node.get("devices", {}).get("gpu", []) if device.get("out")]


def node_row(node: dict[str, Any], now_ms: float | None = None) -> tuple[str, str, int, str]:
    """One node of the gateway's, as `get nodes` lists it. `now_ms`: when it was so; None: now."""
    now_ms = time() * 1_000 if now_ms is None else now_ms
    amounts = [
        f"{kind} {rounded(node['free'][kind])} of {rounded(amount)}" for kind, amount in node["capacity"].items()
    ]
    said = [", ".join(amounts)] if amounts and node["state"] != "left" else []  # What has left has nothing free.
    if labels := node.get("labels"):
        said.append("labels " + ", ".join(f"{key}={value}" for key, value in sorted(labels.items())))
    if kept := node["kept"]:
        room = ", ".join(f"{kind} {rounded(amount)}" for kind, amount in kept["demand"].items())
        said.append(f"kept for {KEPT_FOR[kept['why']]}: {room}")
    if reason := node.get("unschedulable"):
        said.append(f"takes no new tasks: {reason}")
    for device in out_of(node)[:DEVICES_SHOWN]:
        said.append(f"GPU {device['index']} is out: {device['out']}")
    if len(out_of(node)) > DEVICES_SHOWN:
        said.append(f"{len(out_of(node)) - DEVICES_SHOWN} more GPUs are out")
    if failing := node.get("failing"):
        names = failing["jobs"]
        some = ", ".join(names[-JOBS_SHOWN:]) + (f" and {len(names) - JOBS_SHOWN} more" * (len(names) > JOBS_SHOWN))
        said.append(f"placed last until {moment(failing['until_ms'])}: tasks of {some} failed there in a row")
    if drain := node.get("drain"):
        said.append(f"drained by {drain['author']}" + (f": {drain['reason']}" if drain["reason"] else ""))
        if (until_ms := drain["until_ms"]) is not None:
            text = "what ran there was ended" if until_ms <= now_ms else "what runs there is ended"
            said.append(f"{text} at {moment(until_ms)}")
    return node["node"], node["state"], node["running"], "; ".join(said)


def heard_text(node: dict[str, object], now_ms: float) -> str:
    """How long ago a node was heard, and by which way where that is not the bus itself; empty: not known."""
    heard_ms = node.get("heard_ms")
    if not isinstance(heard_ms, int):
        return ""
    ago = span(max(0, now_ms - heard_ms))
    return f"{ago} by bridge" if node.get("reached") == "bridge" else ago


@get_app.command("classes", short_help="Classes of jobs: pools, what they hold, forecasts.")
def get_classes(at: At = None, url: Url = None, json: Json = False) -> None:
    """Classes of jobs: the pool of each, what its tasks hold and are forecast to give back, and how far forecasts were
    off. `--json` also has the pools over time.
    """
    gateway = Gateway(url, at=at)
    found = gateway.get("/v1/classes", "classes")
    if json:
        out_json(found)
        return
    gateway.moment_ms()
    _draw(drawing(), HEADS, class_rows(found), KINDS, "no classes")
    if on_terminal() and (more := about_pools(found)):
        out("\n" + more)


@get_app.command("ledger", short_help="What queues and jobs have given away and received.")
def get_ledger(
    jobs: Annotated[bool, typer.Option("--jobs", help="a row for each job, the latest first")] = False,
    at: At = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """What queues (with --jobs: jobs) have given away of their shares, received beyond them, and waited for within them
    with tasks that had to start, in resource-time: 120 of cpu is 120 cores for a second; and how much later jobs ended
    than by their own plans.
    """
    gateway = Gateway(url, at=at)
    found = gateway.get("/v1/ledger", "queues", "jobs")
    if json:
        out_json(found)
        return
    gateway.moment_ms()
    rows = [
        (
            each["job"] if jobs else each["queue"],
            *[_resource_time(each[side]) for side in ("donated", "received", "waited")],
            span(each["lost_ms"]),
        )
        for each in found["jobs" if jobs else "queues"]
    ]
    _draw(drawing(), ("job" if jobs else "queue", "donated", "received", "waited", "lost"), rows, "klllr", NO_ACCOUNTS)
    if not rows and not on_terminal():
        note(NO_ACCOUNTS)


def _resource_time(amounts: dict[str, str]) -> str:
    return ", ".join(_over_time(kind, amount) for kind, amount in amounts.items())


def _over_time(kind: str, amount: str) -> str:
    """`5.04 core-s`, `memory 7.5Gi-s`, `gpu 3-s`: rounded down, as `rounded` does."""
    if kind != "cpu":
        return f"{kind} {rounded(amount)}-s"
    cores = Decimal(amount.removesuffix("m")) / (1_000 if amount.endswith("m") else 1)
    return f"{cores.quantize(Decimal('0.01'), ROUND_DOWN).normalize():f} core-s"


@get_app.command("reservations", short_help="Reservations, and what is promised to them.")
def get_reservations(
    over: OverToo = False, zone: Zone = None, at: At = None, url: Url = None, json: Json = False
) -> None:
    """Reservations with the planner's answer, and their plan as a chart: the higher a bar, the more is promised."""
    use_zone(zone)
    from services.cli.plan_chart import list_reservations

    list_reservations(Gateway(url, at=at), json, over=over)
