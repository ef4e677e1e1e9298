"""Commands that ask a running cell: submit, get, watch, cancel, logs, node, config."""

import re
from typing import Annotated, Any, Literal

import typer

from schemas.quantities import QUANTITY_MAX
from schemas.spelling import counted
from schemas.topics import INPUTS
from services.cli.client import Gateway, job_path, step, user
from services.cli.documents import read_config_file, read_file
from services.cli.ending import Refused, Wrong, note, out, out_json
from services.cli.printing import follow_output, output_of, print_output
from services.cli.queues import effect_text, tree_text
from services.cli.show import listed, rounded, span
from services.cli.watching import ENDED_WELL, job_text, jobs_text, watch
from services.gateway.documents import HOW

URL_TOLD = "the gateway  [default: LARGESSE_URL, else 127.0.0.1:8642]"
Url = Annotated[str | None, typer.Option("--url", help=URL_TOLD, metavar="URL")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document and nothing else")]


def _given(argument: str, text: str) -> str:
    """What was said for an argument. Raises Wrong for nothing, which is what a shell makes of an unset variable."""
    if not text:
        raise Wrong(f"{argument}: is empty: is a variable of the shell not set?")
    return text


def _node_name(text: str) -> str:
    return _given("NAME", text)


def _file_path(text: str) -> str:
    return _given("FILE", text)


def _job_id(text: str) -> str:
    """An id as it may be. Raises Wrong for none, and for a task's."""
    _given("ID", text)
    if "/" in text:
        job = text.partition("/")[0]
        raise Wrong(f"ID: {text!r} is no job's id: leave the stage and the task out" + (f": {job}" if job else ""))
    return text


Job = Annotated[str, typer.Argument(help="the job's id", metavar="ID", callback=_job_id)]
Node = Annotated[str, typer.Argument(help="the node's name", metavar="NAME", callback=_node_name)]
KEPT_FOR = {"headroom": "a large task", "gang": "a gang"}
NOW = {state: f"it is {state}" for state in ("waiting", "running")} | HOW
"""What became of a job, in words."""
State = Literal["waiting", "running", "succeeded", "failed", "cancelled", "rejected"]

get_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show what is in the cell.")
node_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Stop and resume placements on a node.")
admin_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What an operator needs when all else fails.")
config_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show and change queues and policy.")


def add_to(app: typer.Typer) -> None:
    """Adds these commands."""
    for command in (submit, watch_job, cancel, logs):
        app.command({"watch_job": "watch"}.get(command.__name__, command.__name__))(command)
    app.add_typer(get_app, name="get")
    app.add_typer(node_app, name="node")
    app.add_typer(config_app, name="config")
    app.add_typer(admin_app, name="admin")


def submit(
    file: Annotated[
        str, typer.Argument(help="a job spec in YAML or JSON; - is standard input", metavar="FILE", callback=_file_path)
    ],
    url: Url = None,
    json: Json = False,
) -> None:
    """Submit a job and print its id, once the log has it."""
    answer = Gateway(url).document("POST", "/v1/jobs", "job", "state", **read_file(file, "jobs").request)
    known = NOW.get(answer.get("job_state"), "nothing happens")
    told = {
        "repeated": f"is in the cell already, word for word: {known}",
        "unanswered": "was sent, but the log has not answered yet: largesse get job tells more",
    }.get(answer["state"])
    if told:
        note(f"{answer['job']} {told}")
    if json:
        out_json(answer)
    else:
        out(answer["job"])


def watch_job(job: Job, url: Url = None, json: Json = False) -> None:
    """Follow a job to its end; exit code 0 if it succeeds, 1 if not."""
    last = watch(Gateway(url), job, quiet=json)
    if json:
        out_json(last)
    if last["state"] != ENDED_WELL:
        raise Refused(f"{job} {last['state']}" + (f": {last['detail']}" if last["detail"] else ""))


def cancel(job: Job, url: Url = None, json: Json = False) -> None:
    """Cancel a job; its running tasks are killed."""
    document = Gateway(url).document("DELETE", job_path(job), "state")
    if json:
        out_json(document)
    else:
        out(f"{job}: {document['state']}")


def logs(
    task: Annotated[str, typer.Argument(help="which task, like count/map/0", metavar="JOB/STAGE/INDEX")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the job ends")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="what it wrote to stderr")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", help="which one  [default: the last]", min=1)] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print what a task printed."""
    match = re.fullmatch(r"([^/]+)/([^/]+)/([0-9]{1,9})", task)
    if match is None:
        raise Wrong(f"JOB/STAGE/INDEX: {task!r} names no task: write it like count/map/0")
    if follow and json:
        raise Wrong("--follow: one JSON document has an end: leave one of --follow and --json out")
    path = "/v1/tasks/" + "/".join(step(part) for part in match.groups()) + "/logs"
    params: dict[str, Any] = {"stream": "stderr" if stderr else "stdout"} | ({"attempt": attempt} if attempt else {})
    gateway = Gateway(url)
    if json:
        response = output_of(gateway, path, params)
        out_json({"task": task, **params, "output": response.content.decode(errors="replace")})
        return
    if follow:
        follow_output(gateway, path, params)
    else:
        print_output(output_of(gateway, path, params))


# ---------------------------------------------------------------- get
@get_app.command("jobs", short_help="Jobs: those that have not ended first, then ended ones.")
def get_jobs(
    state: Annotated[State | None, typer.Option("--state", help="only jobs in this state")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="only jobs of this queue and those below it")] = None,
    user: Annotated[str | None, typer.Option("--user", help="only jobs of this user")] = None,
    limit: Annotated[int, typer.Option("--limit", help="at most so many", min=1, max=10_000)] = 1_000,
    url: Url = None,
    json: Json = False,
) -> None:
    """Jobs: those that have not ended first, then ended ones, latest first."""
    found = Gateway(url).get("/v1/jobs", "jobs", state=state, queue=queue, user=user, limit=limit)["jobs"]
    if json:
        out_json(found)
        return
    out(jobs_text(found))


@get_app.command("job", short_help="One job: its stages, and why and where tasks wait and run.")
def get_job(job: Job, url: Url = None, json: Json = False) -> None:
    """One job with its stages, why tasks wait, on which nodes they run, and attempts that failed."""
    document = Gateway(url).get(job_path(job), "job", "stages")
    if json:
        out_json(document)
    else:
        out(job_text(document))


@get_app.command("queues", short_help="The queue tree: shares, jobs and limits.")
def get_queues(url: Url = None, json: Json = False) -> None:
    """The queue tree: what is guaranteed, fair, held, lent and borrowed, jobs, and limits."""
    tree = Gateway(url).get("/v1/queues", "queue")
    if json:
        out_json(tree)
    else:
        out(tree_text(tree))


@get_app.command("nodes", short_help="Nodes with what is free of what they have.")
def get_nodes(url: Url = None, json: Json = False) -> None:
    """Nodes with what is free of what they have, what of it is kept for a large task or a gang, and why a node takes no
    new tasks.
    """
    found = Gateway(url).get("/v1/nodes", "nodes")["nodes"]
    if json:
        out_json(found)
        return
    rows = [node_row(node) for node in found]
    out(listed(("node", "state", "tasks", "free"), rows, right="llr") if rows else "no nodes")


def node_row(node: dict[str, Any]) -> tuple[str, str, int, str]:
    """One node of the gateway's, as `get nodes` lists it."""
    free = ", ".join(
        f"{kind} {rounded(kind, node['free'][kind])} of {rounded(kind, amount)}"
        for kind, amount in node["capacity"].items()
    )
    if kept := node["kept"]:
        room = ", ".join(f"{kind} {rounded(kind, amount)}" for kind, amount in kept["demand"].items())
        free += f"; kept for {KEPT_FOR[kept['why']]}: {room}"
    if reason := node.get("unschedulable"):
        free += f"; takes no new tasks: {reason}"
    return node["node"], node["state"], node["running"], free


@get_app.command("reservations")
def get_reservations(url: Url = None, json: Json = False) -> None:
    """Reservations and what they were promised."""
    found = Gateway(url).get("/v1/reservations", "reservations")["reservations"]
    if json:
        out_json(found)
        return
    rows = []
    for each in found:
        spans = [f"{span(step['to_ms'] - step['from_ms'])}" for step in each["steps"]]
        rows.append((each["reservation"], each["user"], each["state"], ", ".join(spans)))
    out(listed(("reservation", "user", "state", "promised"), rows) if rows else "no reservations")


# ---------------------------------------------------------------- node and config
def _drain(name: str, what: str, url: str | None, json: bool) -> None:
    document = Gateway(url).document("POST", f"/v1/nodes/{step(name)}/{what}", "state", "running")
    if json:
        out_json(document)
    else:
        out(f"{name}: {document['state']}, {counted(document['running'], 'task')} on it")


@node_app.command("drain")
def drain(name: Node, url: Url = None, json: Json = False) -> None:
    """Stop new placements on a node; what runs there runs on."""
    _drain(name, "drain", url, json)


@node_app.command("resume")
def resume(name: Node, url: Url = None, json: Json = False) -> None:
    """Take new placements on a node again."""
    _drain(name, "resume", url, json)


@config_app.command("show")
def show_config(url: Url = None) -> None:
    """Print knobs and queues in force, as `config apply` takes them."""
    out_json(Gateway(url).get("/v1/config", "set"))


@config_app.command("apply")
def apply_config(
    file: Annotated[
        str,
        typer.Argument(
            help='"set" (knobs), "queues" (the whole tree), or both; or a cluster file',
            metavar="FILE",
            callback=_file_path,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="change nothing; show whose share would move")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Put knobs or a queue tree in force, from YAML or JSON."""
    params = {"dry_run": "true"} if dry_run else {}
    written = read_config_file(file)
    answer = Gateway(url).document("PUT", "/v1/config", "changed", params=params, **written.request)
    if json:
        out_json(answer)
    elif written.document.get("initial") and not answer["changed"]:
        out("left as it is: the cell has been configured before")
    elif dry_run:
        out(effect_text(answer))
    else:
        out("in force" if answer["changed"] else "in force already: nothing changed")
        for remark in answer["notes"]:
            note(f"note: {remark}")


@admin_app.callback()
def _admin() -> None:
    """Ways past what stops a cell."""


Folder = Annotated[str | None, typer.Option("--data", help="of a `largesse up` that does not run", metavar="DIR")]


def _one_place(data: str | None, url: str | None) -> None:
    if data is not None and url is not None:
        raise Wrong("--data: is for a cell that does not run, --url for one that does: leave one of them out")


@admin_app.command("skip-input", short_help="Have an input refused unread.")
def skip_input(
    topic: Annotated[str, typer.Argument(help=f"an input topic: {', '.join(INPUTS)}", metavar="TOPIC")],
    offset: Annotated[int, typer.Argument(help="its offset there", metavar="OFFSET", min=0, max=QUANTITY_MAX)],
    reason: Annotated[str, typer.Option("--reason", help="why, for the record", metavar="TEXT")] = "",
    data: Folder = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Have an input refused unread, over which the sequencer stops; its bytes go to `deadletter`."""
    from schemas.edge_config import SKIP_REASON_MAX

    _one_place(data, url)
    if topic not in INPUTS:
        raise Wrong(f"TOPIC: has to be one of {', '.join(INPUTS)}; is {topic}")
    if len(reason) > SKIP_REASON_MAX or not reason.isprintable():
        raise Wrong(f"--reason: has to be one line of at most {SKIP_REASON_MAX} characters")
    if data is not None:
        from services.cli.abandoning import skip

        document = skip(_given("--data", data), topic, offset, reason, user())
    else:
        params = {"reason": reason} if reason else {}
        document = Gateway(url).document("POST", f"/v1/inputs/{topic}/{offset}/skip", "skipped", params=params)
    if json:
        out_json(document)
    elif document["skipped"]:
        out(f"{topic} {offset} is skipped")
    else:
        out("asked for; the sequencer has not come to it yet, and does when it starts")


@admin_app.command("abandon-round", short_help="Give up the open round.")
def abandon_round(
    number: Annotated[int, typer.Argument(help="the round that is open", metavar="ROUND", min=1, max=QUANTITY_MAX)],
    data: Folder = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give up the open round, which a stopped service cannot answer; what waited goes to the next round."""
    _one_place(data, url)
    if data is not None:
        from services.cli.abandoning import abandon

        document = abandon(_given("--data", data), number, user())
    else:
        document = Gateway(url).document("POST", f"/v1/rounds/{number}/abandon", "abandoned")
    if json:
        out_json(document)
    elif data is not None:
        out(f"round {number} is abandoned; the next `largesse up` here goes on with what waited")
    else:
        out(f"round {number} is abandoned" if document["abandoned"] else f"asked for; round {number} is not over yet")
