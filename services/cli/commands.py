"""Every command of `largesse`. Each imports what it needs itself, so that none waits for what another needs."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from services.cli import archiving, auditing, changing, contexts, doctoring, hindsight, live
from services.cli.arguments import Archive, At, Json, LogPath, SideBySide, Url, knobs_named, presets_named, tasks_named
from services.cli.client import Gateway
from services.cli.context_commands import context_app
from services.cli.ending import Wrong, out, out_json
from services.cli.getting import get_app
from services.cli.groups import Group
from services.cli.late import ImportGroup, add_groups, late
from services.cli.operating import config_app, node_app
from services.cli.show import plural
from services.cli.what_if_options import (
    AddedNodes,
    From,
    OtherPresets,
    OtherQueues,
    RemovedNodes,
    Said,
    Seeds,
    Slower,
    Texts,
    To,
    WithoutJobs,
    WithoutUsers,
)

if TYPE_CHECKING:
    from schemas import JobRejected


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A scheduler for shared clusters: run a cell, submit and follow jobs, simulate workloads.",
)


live.add_to(app)
changing.add_to(app)
hindsight.add_to(app)
auditing.add_to(app)
doctoring.add_to(app)
archiving.add_to(app)
app.add_typer(get_app, name="get")
app.add_typer(node_app, name="node")
app.add_typer(config_app, name="config")
app.add_typer(context_app, name="context")
add_groups(app)
app.add_typer(
    late(
        ImportGroup,
        "Make a workload file from a trace or from another system's jobs, on standard output.",
    ),
    name="import",
)


def _option(
    *names: str,
    text: str,
    metavar: str | None = None,
    hidden: bool = False,
    complete: Callable[[str], list[str]] | None = None,
) -> object:
    return typer.Option(*names, help=text, metavar=metavar, hidden=hidden, autocompletion=complete)


def _version(asked: bool) -> None:
    if asked:
        from largesse.release import VERSION
        from services.cli.shipping import build_text

        out(f"largesse {VERSION} ({build_text()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="print version, commit, and whether the cores are compiled",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
    context: Annotated[
        str | None, _option("--context", text="the gateway to ask, of the config file", metavar="NAME")
    ] = None,
    cell: Annotated[
        str | None, _option("--cell", text="which cell of the gateway  [default: the context's]", metavar="NAME")
    ] = None,
) -> None:
    """Takes what stands before the command."""
    contexts.asked.set(context)
    contexts.asked_cell.set(cell)


Workload = Annotated[str, _option("--workload", text="jobs, one a line; - is standard input", metavar="FILE")]
ClusterPath = Annotated[str, _option("--cluster", text="nodes, queues and policy, in YAML or JSON", metavar="FILE")]
Preset = Annotated[
    str | None,
    _option("--preset", text="the policy  [default: the cluster file's]", metavar="NAME", complete=presets_named),
]
Presets = Annotated[
    str,
    _option("--presets", text="policies to compare, like drf,largesse", metavar="A,B,...", complete=presets_named),
]
Settings = Annotated[
    list[str] | None,
    _option("--set", text="set a policy knob; repeatable", metavar="KEY=VALUE", complete=knobs_named),
]
Seed = Annotated[int | None, _option("--seed", text="seed of every random draw  [default: 0]")]
Log = Annotated[str | None, _option("--log", text="write the log here, for `largesse replay`", metavar="OUT")]
OutagesPath = Annotated[
    str | None, _option("--outages", text="nodes that fail, come back or are slow, one a line", metavar="FILE")
]
ReservationsPath = Annotated[
    str | None,
    _option("--reservations", text="requests, series and the jobs under them, one a line", metavar="FILE"),
]
Schedule = Annotated[
    str | None,
    _option("--schedule", text="write every attempt and all room held on purpose here, one a line", metavar="OUT"),
]


@app.command(short_help="Run a workload on a cluster in virtual time.")
def simulate(
    workload: Workload,
    cluster: ClusterPath,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    outages: OutagesPath = None,
    reservations: ReservationsPath = None,
    schedule: Schedule = None,
    log: Log = None,
    force: Annotated[bool, _option("--force", text="overwrite an existing log")] = False,
    json: Json = False,
) -> None:
    """Run a workload on a cluster in virtual time; exit code 1 where no job could be admitted."""
    from services.cli.simulating import Asked, check_admitted, check_new, inputs_of, run_one, summary, values_of

    if log is not None and not force:
        check_new(log)
    asked = Asked(workload, cluster, settings or [], seed, outages, reservations)
    values = values_of(asked, preset)
    refused: list[JobRejected] = []
    result = run_one(inputs_of(asked), values, schedule, log, refused)
    if json:
        out_json(result)
    else:
        out(summary(result, refused))
    check_admitted(result)


@app.command(short_help="Run one workload under several policies, side by side.")
def compare(
    presets: Presets,
    workload: Workload,
    cluster: ClusterPath,
    settings: Settings = None,
    seed: Seed = None,
    outages: OutagesPath = None,
    reservations: ReservationsPath = None,
    report: Annotated[
        str | None, _option("--report", text="write an HTML report with charts into this folder", metavar="DIR")
    ] = None,
    json: Json = False,
) -> None:
    """Run one workload under several policies, side by side; exit code 1 where none could admit a job."""
    from services.cli.simulating import Asked, check_admitted, compare_presets, comparison

    names = [name.strip() for name in presets.split(",")]
    if len(names) != len(set(names)):
        raise Wrong("--presets: names one twice")
    asked = Asked(workload, cluster, settings or [], seed, outages, reservations)
    results = compare_presets(asked, names, report)
    if json:
        out_json({"presets": results})
    else:
        out(comparison(results))
    check_admitted(*results.values())


@app.command(short_help="Run a cell on this machine until Ctrl-C.")
def up(
    data: Annotated[str, _option("--data", text="folder for the cell's data", metavar="DIR")] = "largesse-data",
    nodes: Annotated[
        int | None, _option("--nodes", text="divide this machine into N nodes  [default: 1]", metavar="N")
    ] = None,
    cluster: Annotated[
        str | None, _option("--cluster", text="nodes, queues and policy from a YAML or JSON file", metavar="FILE")
    ] = None,
    http: Annotated[int, typer.Option("--http", help="the gateway's port; 0: any free one", min=0, max=65_535)] = 8642,
    stop_tasks: Annotated[bool, _option("--stop-tasks", text="end running tasks when the cell stops")] = False,
    archive: Annotated[
        str | None, _option("--archive", text="keep its log there, as `largesse archive keep` does", metavar="STORE")
    ] = None,
    verbose: Annotated[bool, _option("--verbose", text="log every round")] = False,
) -> None:
    """Run a cell on this machine until Ctrl-C: every service, local agents, and the gateway.

    Of the environment it reads LARGESSE_USER, LARGESSE_HTTP_HOSTS, LARGESSE_LOG_FORMAT, the paces (LARGESSE_WAIT_MS
    and others), and for its agents LARGESSE_TASK_USER, LARGESSE_NODE_CGROUP and others: docs/settings.md has all. What
    an option says instead (LARGESSE_HTTP, LARGESSE_NODE, LARGESSE_NODE_OFFER ...) is refused.
    """
    from services.cli import upping
    from services.cli.client import user

    upping.up(upping.Asked(data, nodes, cluster, http, user(), not stop_tasks, verbose, archive))


@app.command(short_help="Print the completion script for a shell.")
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="the shell", metavar="bash|zsh|fish")],
) -> None:
    """Print the completion script for a shell; `--install-completion` puts it in the place for the one that runs."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    out(get_completion_script(prog_name="largesse", complete_var="_LARGESSE_COMPLETE", shell=shell))


@app.command(short_help="Write the examples into a folder.")
def examples(
    folder: Annotated[str, typer.Argument(help="a new folder", metavar="DIR")] = "examples",
) -> None:
    """Write the example jobs, queues, clusters and workloads into a folder."""
    from services.cli.shipping import write_examples

    out(f"examples in {write_examples(folder)}")


@app.command(short_help="Run the example jobs on a cell of its own; verify its log.")
def demo() -> None:
    """Run the example jobs on a cell of its own on this machine, and verify its log."""
    from services.cli import demo as demonstration

    demonstration.demo()


WhatIf = Annotated[
    bool, _option("--what-if", text="decide the log again under what is said below, and show both side by side")
]
LogOut = Annotated[str | None, _option("--log", text="write the log of the other world here", metavar="OUT")]


@app.command(short_help="Read a recorded log; --verify decides it again, --what-if otherwise.")
def replay(
    log: LogPath,
    verify: Annotated[
        bool, _option("--verify", text="decide every round again and compare; exit code 1 if they differ")
    ] = False,
    across_rules: Annotated[
        bool, _option("--across-rules", text="with --verify: decide rounds of other rules with these, too")
    ] = False,
    jobs: SideBySide = None,
    until: Annotated[int | None, typer.Option("--until", help="only up to this record", metavar="SEQ", min=1)] = None,
    what_if: WhatIf = False,
    preset: OtherPresets = None,
    settings: Settings = None,
    queues: OtherQueues = None,
    add_nodes: AddedNodes = None,
    remove_node: RemovedNodes = None,
    without_job: WithoutJobs = None,
    without_user: WithoutUsers = None,
    slower: Slower = None,
    since: From = None,
    to: To = None,
    seeds: Seeds = None,
    log_out: LogOut = None,
    archive: Archive = None,
    json: Json = False,
) -> None:
    """Read a recorded log and show the state that it leads to; --verify decides every round again and compares.

    --what-if decides it otherwise: what came from outside stays as it was, how long commands ran and which failed
    included, and every decision is made again, in virtual time, under what is different.
    """
    from services.cli import replaying

    said = Said(preset, settings or [], queues, add_nodes or [], remove_node or [])
    said.without_jobs, said.without_users = without_job or [], without_user or []
    said.slower, said.since, said.until, said.seeds = slower, since, to, seeds
    said.log_out = log_out
    if not what_if and (option := said.first()):
        raise Wrong(f"{option}: goes with --what-if")
    if across_rules and not verify:
        raise Wrong("--across-rules: goes with --verify")
    if jobs is not None and not verify:
        raise Wrong("--jobs: goes with --verify")
    if what_if and (verify or until is not None):
        raise Wrong(f"--what-if: cannot be combined with {'--verify' if verify else '--until: write --to'}")
    log = replaying.behind(archive, log)
    if what_if:
        from services.cli import what_if as asking

        asking.what_if(log, said, json=json)
        return
    if verify:
        spans = None
        if jobs is not None:
            from services.cli.verifying import verified

            spans = partial(verified, log, until, across_rules, jobs)
        replaying.replay_and_verify(log, until=until, json=json, across_rules=across_rules, spans=spans)
    else:
        replaying.replay(log, until=until, json=json)


@app.command(short_help="Show the last records of a log, or those from a point on.")
def tail(
    log: LogPath,
    last: Annotated[
        int | None, typer.Option("--last", help="how many records  [default: 20]", metavar="N", min=1, max=1_000_000)
    ] = None,
    since: Annotated[str | None, _option("--from", text="all from here on", metavar="SEQ|TIME")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what is appended, until Ctrl-C")] = False,
    types: Annotated[Texts, _option("--type", text="like JobEnded; repeatable", metavar="TYPE")] = None,
    job: Annotated[Texts, _option("--job", text="that speak of this job; repeatable", metavar="ID")] = None,
    node: Annotated[Texts, _option("--node", text="that speak of this node; repeatable", metavar="NAME")] = None,
    queue: Annotated[
        Texts, _option("--queue", text="of jobs in this queue or below it; repeatable", metavar="PATH")
    ] = None,
    user: Annotated[Texts, _option("--user", text="of jobs of this user; repeatable", metavar="NAME")] = None,
    reservation: Annotated[
        Texts, _option("--reservation", text="that speak of this reservation; repeatable", metavar="NAME")
    ] = None,
    archive: Archive = None,
    json: Json = False,
) -> None:
    """Show the last records of a log, or all from a point on, a line each (--json: whole), with --follow also those to
    come. Records that only say that time goes on are left out, unless --type asks for them.
    """
    from largesse.log.record_lines import WantedRecords
    from services.cli.replaying import behind
    from services.cli.tailing import tail as show

    wanted = WantedRecords(types or [], job or [], node or [], queue or [], user or [], reservation or [])
    show(behind(archive, log), wanted, last=last, since=since, follow=follow, json=json)


@app.command("top", short_help="The cell at a glance: queues, what waits for what, nodes.")
def top_of(
    once: Annotated[bool, _option("--once", text="print it once, as in a pipe")] = False,
    at: At = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """The cell at a glance, drawn every 2 seconds: queues with what they hold and are due, what waits for what, jobs of
    a queue, nodes. Keys sort and go into a queue. In a pipe, with --once, --at or --json it is printed once.
    """
    from services.cli.top import top

    top(Gateway(url, at=at), once=once or at is not None, json=json)


@app.command(short_help="Say why a job waits, runs or ended; also of queues, nodes, reservations.")
def why(
    name: Annotated[
        str,
        typer.Argument(
            help="JOB[/STAGE[/INDEX]], or the name of a reservation, a queue or a node",
            metavar="ID",
            autocompletion=tasks_named,
        ),
    ],
    kind: Annotated[
        Literal["job", "reservation", "queue", "node"] | None,
        typer.Option("--kind", help="what ID names, where there are several of that name", metavar="KIND"),
    ] = None,
    log: Annotated[
        str | None, _option("--log", text="ask a recorded log, as `replay` reads them, not the cell", metavar="LOG")
    ] = None,
    archive: Archive = None,
    at: At = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Say why: the main reason first, then others, with the numbers behind them and what would remove each.

    Of a job that waits, also when it will start, by what is expected of what runs; of one that runs or has ended, what
    its time went to; of a queue, why it has more or less than others; of a node, why nothing new starts there.
    """
    from services.cli.replaying import behind
    from services.cli.why import Asked
    from services.cli.why import why as explain

    if archive is not None and log is None:
        raise Wrong("--archive: goes with --log")
    log = behind(archive, log) if log is not None else None
    explain(Asked(name, kind, log, at), url, json=json)


@app.command(short_help="Show where two logs part, and what followed.")
def diff(
    first: LogPath,
    second: Annotated[str, typer.Argument(help="the log to compare it with", metavar="LOG")],
    json: Json = False,
) -> None:
    """Show the first record in which two logs differ, the first round that started other tasks, and the jobs that went
    another way. The exit code is 1 where they differ.
    """
    from services.cli import replaying

    replaying.diff(first, second, json=json)


@app.command()
def export(
    log: LogPath,
    target: Annotated[str, typer.Argument(help="the file to write; .gz compresses it", metavar="OUT")],
    force: Annotated[bool, _option("--force", text="overwrite an existing file")] = False,
    archive: Archive = None,
    json: Json = False,
) -> None:
    """Write a log as one portable file."""
    from services.cli import replaying

    records = replaying.export(replaying.behind(archive, log), target, force=force)
    if json:
        out_json({"log": log, "records": records, "export": target})
    else:
        out(f"{plural(records, 'record')} (log and decisions) in {target}")


@app.command(short_help="Write a slice of a log as one file that replays by itself.")
def bundle(
    log: LogPath,
    target: Annotated[str, typer.Argument(help="the file to write; .gz compresses it", metavar="OUT")],
    since: Annotated[
        str | None, _option("--from", text="where it begins  [default: the start]", metavar="SEQ|TIME")
    ] = None,
    to: Annotated[str | None, _option("--to", text="where it ends  [default: the end]", metavar="SEQ|TIME")] = None,
    redact: Annotated[bool, _option("--redact", text="with other names, and without commands and texts")] = False,
    names: Annotated[
        str | None, _option("--map", text="with --redact: write here which name stands for which", metavar="FILE")
    ] = None,
    force: Annotated[bool, _option("--force", text="overwrite an existing file")] = False,
    archive: Archive = None,
    json: Json = False,
) -> None:
    """Write a slice of a log as one file: its records and decisions, with the states of all cores where it begins.

    It opens as a log does, here or elsewhere: with replay, tail, diff, bisect and bundle.
    """
    from services.cli.bundling import Asked
    from services.cli.bundling import bundle as write
    from services.cli.replaying import behind

    write(behind(archive, log), target, Asked(since, to, redact, names, force), json=json)


@app.command(short_help="Open a recorded log, a bundle, or results of compare, in a browser.")
def view(
    log: LogPath,
    port: Annotated[int, typer.Option("--port", help="the port; 0: any free one", min=0, max=65_535)] = 8643,
    archive: Archive = None,
) -> None:
    """Open a recorded log or a bundle in a browser: the same page and the same API as a cell's, at any moment of the
    log, and without the cell. Nothing can be changed. The log is read into memory.

    Or open what compare, replay --what-if or whatif printed with --json on the same page: a file that ends in .json, or
    the folder of a report.
    """
    from services.cli.replaying import behind
    from services.cli.viewing import view_log

    view_log(behind(archive, log), port=port)


@app.command(short_help="Find the first record of a log after which something holds.")
def bisect(
    log: LogPath,
    expression: Annotated[
        str, typer.Argument(help="""like 'queue("ads").held < queue("ads").due for 60s'""", metavar="EXPRESSION")
    ],
    every: Annotated[bool, _option("--all", text="list every span in which it holds")] = False,
    archive: Archive = None,
    json: Json = False,
) -> None:
    """Find the first record of a log after which something holds, like 'job("x").waiting > 10m', 'pending() > 1000' or
    'node("n").used > node("n").capacity'. The exit code is 1 where it never does.
    """
    from services.cli.bisecting import bisect as find
    from services.cli.replaying import behind

    find(behind(archive, log), expression, every=every, json=json)
