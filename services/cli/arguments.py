"""Arguments and options that several commands share, and what may be said for them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, get_args

import typer

from services.cli.ending import Ending, Wrong, expect_json

URL_TEXT = "the gateway  [default: LARGESSE_URL, else the context's, else http://127.0.0.1:8642]"
COMPLETION_S = 2.0
"""So long may the gateway take to complete a name before the shell's own completion goes on without it."""


def given(argument: str, text: str) -> str:
    """What was said for an argument. Raises Wrong for nothing, which is what a shell makes of an unset variable."""
    if not text:
        raise Wrong(f"{argument}: is empty: a shell variable may not be set")
    return text


def job_id(text: str) -> str:
    """An id as it may be. Raises Wrong for none, and for a task's."""
    given("ID", text)
    if "/" in text:
        job = text.partition("/")[0]
        raise Wrong(f"ID: {text!r} is not a job's id: leave out the stage and the task" + (f": {job}" if job else ""))
    return text


def job_ids(texts: list[str] | None) -> list[str]:
    """Ids, each named once, in their order. Raises Wrong as `job_id` does."""
    return list(dict.fromkeys(map(job_id, texts or [])))


def use_zone(zone: str | None) -> None:
    """Times are shown in this zone from now on, if one is given. Raises Wrong for one that is not known."""
    if zone is None:
        return
    from services.cli.show import show_times_in
    from services.planner.rdl.times import zone_of

    try:
        show_times_in(zone_of(zone))
    except ValueError as error:
        raise Wrong(f"--zone: {error}") from None


def _node_name(text: str) -> str:
    return given("NAME", text)


def file_path(text: str) -> str:
    """A path, or `-`."""
    return given("FILE", text)


def _named(path: str, field: str, fields: str = "") -> Callable[[str], list[str]]:
    """Completes names that the gateway lists; none where it does not answer. `fields`: the list's name, by default the
    plural."""
    fields = fields or f"{field}s"

    def complete(incomplete: str) -> list[str]:
        def names() -> list[str]:
            from services.cli.client import Gateway

            documents = Gateway(timeout_s=COMPLETION_S).get(path, fields)[fields]
            return [each[field] for each in documents]

        return _offered(names, incomplete)

    return complete


def _offered(names: Callable[[], list[str]], incomplete: str) -> list[str]:
    """Those names that begin so and that a shell can take as a line: a shell that completes shows no messages."""
    try:
        return [name for name in names() if name.startswith(incomplete) and name.isprintable()]
    except (Ending, LookupError, TypeError, AttributeError):
        return []


jobs_named = _named("/v1/jobs", "job")
nodes_named = _named("/v1/nodes", "node")
reservations_named = _named("/v1/reservations", "reservation")
_series_named = _named("/v1/series", "series", "series")
INDEXES_MAX = 100
"""Tasks of a stage that are offered."""


def tasks_named(incomplete: str) -> list[str]:
    """Completes JOB, JOB/STAGE and JOB/STAGE/INDEX."""
    job, slash, rest = incomplete.partition("/")
    if not slash:
        return jobs_named(incomplete)

    def paths() -> list[str]:
        from largesse.access import job_path
        from services.cli.client import Gateway

        stages = Gateway(timeout_s=COMPLETION_S).get(job_path(job), "stages")["stages"]
        if "/" not in rest:
            return [f"{job}/{each['stage']}" for each in stages]
        return [
            f"{job}/{each['stage']}/{index}"
            for each in stages
            for index in range(min(INDEXES_MAX, each["tasks"]["total"]))
        ]

    return _offered(paths, incomplete)


def stages_named(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a stage of the job that has been named before."""

    def names() -> list[str]:
        from largesse.access import job_path
        from services.cli.client import Gateway

        # While an option is completed, the arguments before it have not been read.
        job = ctx.params["job"] or ctx.args[0]
        stages = Gateway(timeout_s=COMPLETION_S).get(job_path(job), "stages")["stages"]
        return [each["stage"] for each in stages]

    return _offered(names, incomplete)


def queues_named(incomplete: str) -> list[str]:
    """Completes paths of queues."""
    return _offered(lambda: [path for path, _ in _queues()], incomplete)


def leaves_named(incomplete: str) -> list[str]:
    """Completes paths of the queues that jobs can be in."""
    return _offered(lambda: [path for path, is_leaf in _queues() if is_leaf], incomplete)


def _queues() -> list[tuple[str, bool]]:
    """Path of each queue, and whether there is none below it."""
    from services.cli.client import Gateway

    found, todo = [], [Gateway(timeout_s=COMPLETION_S).get("/v1/queues", "queue")]
    while todo:
        tree = todo.pop(0)
        found += [(tree["queue"], not tree["children"])] if tree["queue"] else []
        todo += tree["children"]
    return found


def series_or_reservations_named(incomplete: str) -> list[str]:
    """Completes names of reservations, and of series."""
    return [*reservations_named(incomplete), *_series_named(incomplete)]


LIVE = ("waiting", "running")
STATES = (*LIVE, "succeeded", "failed", "cancelled", "rejected")
"""Of a job; the first are those of one that has not ended."""


def presets_named(incomplete: str) -> list[str]:
    """Completes a preset, also as the last of several with commas between."""
    from schemas.presets import Preset

    return _last_of(get_args(Preset), incomplete)


def states_named(incomplete: str) -> list[str]:
    """Completes a state of jobs in the same way."""
    return _last_of(STATES, incomplete)


def live_states_named(incomplete: str) -> list[str]:
    """Completes a state of jobs that have not ended in the same way."""
    return _last_of(LIVE, incomplete)


def _last_of(names: Iterable[str], incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{each}" for each in names if each.startswith(last) and each not in taken]


def states(texts: list[str] | None) -> list[str] | None:
    """States, each named once. Raises Wrong for one that there is not."""
    return _states_of(STATES, "a job", texts)


def live_states(texts: list[str] | None) -> list[str] | None:
    """States of jobs that have not ended, in the same way."""
    return _states_of(LIVE, "a job that has not ended", texts)


def _states_of(known: Sequence[str], whose: str, texts: list[str] | None) -> list[str] | None:
    named = list(dict.fromkeys(each.strip() for text in texts or [] for each in text.split(",")))
    for name in named:
        if name not in known:
            from schemas.wording import nearest

            close = nearest(name, known)
            text = f'did you mean "{close}"?' if close else f"has to be one of {', '.join(known)}"
            raise Wrong(f"--state: {name!r} is no state of {whose}: {text}")
    return named or None


def knobs_named(incomplete: str) -> list[str]:
    """Completes KEY=VALUE as far as KEY=."""
    from schemas.policy import KNOBS

    return [f"{each}=" for each in KNOBS if each.startswith(incomplete)]


Url = Annotated[str | None, typer.Option("--url", help=URL_TEXT, metavar="URL")]
UserOfJob = Annotated[
    str | None,
    typer.Option(
        "--user", help="whose job it is, if it names no user  [default: LARGESSE_USER's, else nobody's]", metavar="NAME"
    ),
]


def _states(
    text: str,
    known: Sequence[str],
    check: Callable[[list[str] | None], list[str] | None],
    complete: Callable[[str], list[str]],
) -> Any:
    """An option that takes several states, with commas between or one by one."""
    text += "; several with commas between, or repeated"
    return typer.Option("--state", help=text, metavar="|".join(known), callback=check, autocompletion=complete)


States = Annotated[list[str] | None, _states("only jobs in this state", STATES, states, states_named)]
LiveStates = Annotated[list[str] | None, _states("all jobs in this state", LIVE, live_states, live_states_named)]
OverToo = Annotated[
    bool, typer.Option("--all", help="on a terminal too, all of a series, and those that were deleted or have ended")
]
LogPath = Annotated[
    str,
    typer.Argument(
        help="a data folder of `largesse up`, an exported log, archive:STORE, or kafka[s]://HOST:PORT/CELL",
        metavar="LOG",
    ),
]
Archive = Annotated[
    str | None,
    typer.Option(
        "--archive",
        help="read this archive first, and go on in LOG, which may begin anywhere up to its end",
        metavar="STORE",
    ),
]
SideBySide = Annotated[
    int | None,
    typer.Option("--jobs", help="with --verify: verify between checkpoints, N at a time", metavar="N", min=1, max=256),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document and nothing else", callback=expect_json)]
At = Annotated[
    str | None,
    typer.Option(
        "--at", help="as it was: behind a record of the log, or at a time like 2026-11-28T14:03", metavar="SEQ|TIME"
    ),
]
Zone = Annotated[
    str | None, typer.Option("--zone", help="time zone of the times shown  [default: this machine's]", metavar="ZONE")
]
Job = Annotated[str, typer.Argument(help="the job's id", metavar="ID", callback=job_id, autocompletion=jobs_named)]
Node = Annotated[
    str, typer.Argument(help="the node's name", metavar="NAME", callback=_node_name, autocompletion=nodes_named)
]
