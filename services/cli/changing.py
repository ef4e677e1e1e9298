"""`largesse hold`, `release` and `change`: what users change of live jobs; and `rerun` of those that have ended."""

from typing import TYPE_CHECKING, Annotated

import typer

from largesse.access import job_path
from services.cli.arguments import Job, Json, Url, job_ids, jobs_named, leaves_named, stages_named
from services.cli.client import Gateway
from services.cli.ending import Ending, Refused, Unanswered, Wrong, note, out, out_json
from services.cli.live import follow_job

if TYPE_CHECKING:
    from services.cli.watching import Document

Jobs = Annotated[
    list[str], typer.Argument(help="the jobs' ids", metavar="ID...", callback=job_ids, autocompletion=jobs_named)
]
ACCEPTED = 202


def add_to(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command(short_help="Let no further task of jobs start.")(hold)
    app.command(short_help="Let tasks of held jobs start again.")(release)
    app.command(short_help="Give live jobs another priority or queue.")(change)
    app.command(short_help="Run a job that has ended again, or a part of it.")(rerun)


def hold(jobs: Jobs, url: Url = None, json: Json = False) -> None:
    """Let no further task of jobs start, until `largesse release`; tasks that run go on.

    With --json one job is one document, several are a list of them.
    """
    _change_each(Gateway(url), jobs, {"hold": True}, json=json)


def release(jobs: Jobs, url: Url = None, json: Json = False) -> None:
    """Let tasks of held jobs start again.

    With --json one job is one document, several are a list of them.
    """
    _change_each(Gateway(url), jobs, {"hold": False}, json=json)


def change(
    jobs: Jobs,
    priority: Annotated[int | None, typer.Option("--priority", help="the higher goes first", metavar="N")] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="of jobs with nothing running", metavar="PATH", autocompletion=leaves_named),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give live jobs another priority, or, while nothing of them runs, another queue.

    With --json one job is one document, several are a list of them.
    """
    asked = {"priority": priority, "queue": queue}
    patch: dict[str, object] = {field: value for field, value in asked.items() if value is not None}
    if not patch:
        raise Wrong("--priority: say what changes: --priority N, --queue PATH, or both")
    _change_each(Gateway(url), jobs, patch, json=json)


def rerun(
    job: Job,
    from_stage: Annotated[
        str | None,
        typer.Option(
            "--from-stage",
            help="only this and what comes after it; what succeeded else stays",
            metavar="S",
            autocompletion=stages_named,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--watch", "-w", help="then follow the job to its end")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Run a job that has ended again, as it was submitted, and print its id once the log has it."""
    gateway = Gateway(url)
    body = {} if from_stage is None else {"from_stage": from_stage}
    answer, status = gateway.answered("POST", f"{job_path(job)}/rerun", "job", "state", json=body)
    if status == ACCEPTED:
        note(f"{job}: asked for; the log has not answered yet: largesse get job tells more")
    if follow:
        if not json:
            out(job)
        follow_job(gateway, job, json)
    elif json:
        out_json(answer)
    else:
        out(job)


def _change_each(gateway: Gateway, jobs: list[str], patch: dict[str, object], *, json: bool) -> None:
    """One that cannot be changed does not keep the others. Raises Refused where any could not."""
    if len(jobs) == 1:
        document = _changed(gateway, jobs[0], patch)
        out_json(document) if json else out(_text(document))
        return
    done: list[Document] = []
    for job in jobs:
        try:
            document = _changed(gateway, job, patch)
        except Unanswered:
            raise
        except Ending as why:
            note(f"largesse: {job}: {why}")
            continue
        done.append(document)
        if not json:
            out(_text(document))
    if json:
        out_json(done)
    if len(done) < len(jobs):
        raise Refused(f"{len(jobs) - len(done)} of {len(jobs)} could not be changed")


def _changed(gateway: Gateway, job: str, patch: dict[str, object]) -> "Document":
    document, status = gateway.answered("PATCH", job_path(job), "state", json=patch)
    if status == ACCEPTED:
        note(f"{job}: asked for; the log has not answered yet: largesse get job tells more")
    return document


def _text(document: "Document") -> str:
    held = document.get("held")
    by = f", held by {held['by']}" if held else ""
    return f"{document['job']}: {document['state']}, priority {document['priority']}, queue {document['queue']}{by}"
