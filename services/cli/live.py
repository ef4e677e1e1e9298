"""Commands that submit jobs to a running cell and follow them: submit, run, watch, cancel, logs."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from largesse.access import step
from services.cli.arguments import (
    Job,
    Json,
    LiveStates,
    Url,
    UserOfJob,
    file_path,
    job_ids,
    jobs_named,
    leaves_named,
    queues_named,
    tasks_named,
)
from services.cli.client import Gateway, Row, job_user, timeout_s_of
from services.cli.client import user as asker
from services.cli.ending import Refused, Wrong, note, out, out_json, visible

HOW = {
    "waiting": "it is waiting",
    "running": "it is running",
    "succeeded": "it succeeded",
    "failed": "it failed",
    "cancelled": "it was cancelled",
    "rejected": "it was refused",
}
"""What became of a job, in words."""


def add_to(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command(short_help="Submit a job and print its id.")(submit)
    # What stands behind the command to run is its own, also where it looks like an option.
    app.command(short_help="Run one command as a job, and follow it.", context_settings=COMMAND_LINE)(run)
    app.command("watch", short_help="Follow a job to its end.")(watch_job)
    app.command(short_help="Cancel jobs, by id or all that a filter finds.")(cancel)
    app.command(short_help="Print what a task, or each task of a job, printed.")(logs)
    app.command(short_help="List or fetch the files that tasks have left.")(results)


COMMAND_LINE = {"allow_interspersed_args": False}


def submit(
    file: Annotated[
        str, typer.Argument(help="a job spec in YAML or JSON; - is standard input", metavar="FILE", callback=file_path)
    ],
    follow: Annotated[
        bool, typer.Option("--watch", "-w", help="then follow the job to its end, as watch does")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="its id, in place of that in the file: for a job that runs every day", metavar="ID"
        ),
    ] = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="run it again: it has ended here, and is as it was submitted then")
    ] = False,
    from_stage: Annotated[
        str | None,
        typer.Option("--from-stage", help="with --rerun: only this and what comes after it", metavar="S"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="submit nothing; say what would become of it, and where it would start")
    ] = False,
    said: Annotated[
        list[str] | None,
        typer.Option("--set", help="the value of a parameter that the file declares", metavar="NAME=VALUE"),
    ] = None,
    user: UserOfJob = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Submit a job and print its id, once the log has it.

    A job that names no user is submitted as that of --user, LARGESSE_USER or the context, else without one; but one
    that names a reservation as your account's: only its owner's jobs may use a reservation.
    """
    from services.cli.documents import note_answered, read_job, refusals_name

    gateway = Gateway(url, timeout_s=timeout_s_of(dry_run))
    if dry_run and follow:
        raise Wrong("--dry-run: submits nothing that --watch could follow: leave one of them out")
    instead = _instead(name, from_stage, rerun=rerun)
    written = read_job(file, asker, job_user(user), instead, said or ())
    params = {"dry_run": "true"} if dry_run else {}
    with refusals_name(file):
        answer = gateway.document("POST", "/v1/jobs", "job", "state", params=params, **written.request)
    note_answered(file, written, answer)
    if dry_run:
        _tell_trial(answer, json, written.data if written.in_full else None)
        return
    _tell_known(answer, follow, json)
    if follow:
        if not json:
            out(answer["job"])
        follow_job(gateway, answer["job"], json)
    elif json:
        out_json(answer)
    else:
        out(answer["job"])


def _instead(name: str | None, from_stage: str | None, *, rerun: bool) -> dict[str, object]:
    """What stands in place of the fields of the file. Raises Wrong."""
    if from_stage is not None and not rerun:
        raise Wrong("--from-stage: is of a job that runs again: give --rerun, too")
    instead: dict[str, object] = {} if name is None else {"job": name}
    return instead | {"rerun": True, "from_stage": from_stage} if rerun else instead


def _tell_trial(answer: Row, json: bool, spec: bytes | None) -> None:
    """What would become of a job. `spec`: what its file stands for, where that says it in short."""
    from services.cli.trying import shown, with_spec

    if json:
        out_json(answer if spec is None else with_spec(answer, spec))
    else:
        out(shown(answer, spec))
    if answer.get("reservation"):
        note(f"{answer['job']} would be bound to {answer['reservation']}")


def _tell_known(answer: dict[str, Any], follow: bool, json: bool) -> None:
    """Notes what became of a submission beside its id. Raises Refused where it does not run again."""
    known = HOW.get(str(answer.get("job_state")), "nothing happens")
    over = answer["state"] == "repeated" and answer.get("job_state") in ("failed", "cancelled")
    if over and not follow:
        if json:
            out_json(answer)
        again_text = "--rerun, or largesse rerun, runs it again"
        raise Refused(f"{answer['job']} is known here, word for word, and does not run again: {known}; {again_text}")
    outcome = {
        "repeated": f"is in the cell already, word for word: {known}",
        "unanswered": "was sent, but the log has not answered yet: largesse get job tells more",
    }.get(answer["state"])
    if outcome:
        note(f"{answer['job']} {outcome}")
    if "loads" in answer:
        note(f"{answer['job']} {_where(answer)}")
    if answer.get("reservation"):
        note(f"{answer['job']} is bound to {answer['reservation']}")


def _where(answer: Row) -> str:
    """Where the router has sent a job."""
    if answer["state"] == "ended":
        return f"is known to the router, word for word, and has ended: {HOW.get(str(answer['outcome']), 'it is over')}"
    if answer["cell"] is None:
        text = "; ".join(f"{each['cell']}: {each['detail']}" for each in answer["problems"])
        return f"waits for a cell that could run it now{f' ({text})' if text else ''}"
    is_there = "is in" if answer["state"] == "taken" else "was sent to"
    return f"{is_there} cell {answer['cell']}"


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` texts. Raises Wrong for another form, and for a key that is given twice."""
    found: dict[str, str] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Wrong(f"{option}: {text!r} is not a pair: write KEY=VALUE")
        if key in found:
            raise Wrong(f"{option}: {key} is given twice: remove one of them")
        found[key] = value
    return found


def run(
    command: Annotated[list[str], typer.Argument(help="the command and its arguments, behind --", metavar="CMD...")],
    cpu: Annotated[str, typer.Option("--cpu", help="cores, like 1, 0.5 or 500m", metavar="QUANTITY")] = "1",
    memory: Annotated[str, typer.Option("--memory", help="bytes, like 512Mi or 2Gi", metavar="QUANTITY")] = "256Mi",
    gpu: Annotated[str | None, typer.Option("--gpu", help="GPUs, like 1 or 0.5", metavar="QUANTITY")] = None,
    demand: Annotated[
        list[str] | None, typer.Option("--demand", help="of any other resource; repeatable", metavar="NAME=QUANTITY")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="the job's id  [default: the cell makes one]")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="the job's queue  [default: default]", autocompletion=leaves_named)
    ] = None,
    cwd: Annotated[
        str | None, typer.Option("--cwd", help="where it runs  [default: an empty folder]", metavar="DIR")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="a variable of its environment; repeatable", metavar="NAME=VALUE")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", help="how often to try again after a failure", min=0)] = 0,
    timeout_s: Annotated[
        int | None, typer.Option("--timeout", help="fail it after so many seconds", metavar="S", min=1)
    ] = None,
    user: UserOfJob = None,
    url: Url = None,
) -> None:
    """Run one command as a job of one task and follow what it prints; the exit code is the command's.

    Ctrl-C cancels the job. The exit code of a command that a signal ends is 128 plus the signal's number. It is
    127 where the command was not found and 126 where it could not be executed. It is 1, with a message, where the job
    was refused or cancelled, or its time was over.
    """
    from services.cli import running

    amounts = {"cpu": cpu, "memory": memory} | ({"gpu": gpu} if gpu is not None else {})
    for resource, amount in _pairs("--demand", demand).items():
        if resource in ("cpu", "memory", "gpu"):
            raise Wrong(f"--demand: {resource} has an option of its own: --{resource} {amount}")
        amounts[resource] = amount
    timeout_ms = None if timeout_s is None else timeout_s * 1_000
    asked = running.Asked(command, amounts, name, queue, cwd, _pairs("--env", env), retries, timeout_ms, job_user(user))
    raise typer.Exit(running.run(url, asked))


def watch_job(job: Job, url: Url = None, json: Json = False) -> None:
    """Follow a job to its end; exit code 0 if it succeeds, 1 if not."""
    follow_job(Gateway(url), job, json)


def follow_job(gateway: Gateway, job: str, json: bool) -> None:
    """Follows a job to its end. Raises Refused where that is no success."""
    from services.cli.watching import ENDED_WELL, watch

    last = watch(gateway, job, quiet=json)
    if json:
        out_json(last)
    if last["state"] != ENDED_WELL:
        raise Refused(f"{job} {last['state']}" + (f": {visible(last['detail'])}" if last["detail"] else ""))


def cancel(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(help="the jobs' ids", metavar="ID...", callback=job_ids, autocompletion=jobs_named),
    ] = None,
    state: LiveStates = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="all jobs of this queue and those below it", autocompletion=queues_named),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="all jobs of this user")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="cancel nothing; show which jobs would be")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Cancel jobs, by id or all that match every filter given; their running tasks are killed.

    With --json one job that is named is one document, all else a list of them.
    """
    from services.cli import cancelling

    which = cancelling.Filter(state, queue, user)
    cancelling.cancel(Gateway(url), jobs or [], which, dry_run=dry_run, json=json)


def _task(text: str) -> re.Match[str]:
    match = re.fullmatch(r"([^/]+)(?:/([^/]+)(?:/([0-9]{1,9}))?)?", text)
    if match is None:
        raise Wrong(f"JOB/STAGE/INDEX: {text!r} is not a task: write it like count/map/0")
    return match


def logs(
    task: Annotated[
        str,
        typer.Argument(
            help="a job, a stage, or a task: count, count/map or count/map/0",
            metavar="JOB[/STAGE[/INDEX]]",
            autocompletion=tasks_named,
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="continue until the job ends")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="its standard error instead of its standard output")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", help="which one  [default: the last]", min=1)] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", help="the last so many lines", metavar="N", min=1)] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="what was printed since: 90s, 10m, 2h, 1d, or a time", metavar="WHEN")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="on a terminal too, byte for byte: let the output control it")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print the output of a task, or of all tasks of a job or stage, each line after the task's name.

    Where a node did not keep all of a long output, a line in brackets says so, with --json a list `cuts`. Times are
    those of the task's node, recorded every second, and less often after the first hour. On a terminal control
    characters are written as text, like \\x1b, unless --raw is given; a pipe or a file gets the output as it is.
    """
    from services.cli import job_logs
    from services.cli.printing import document_of, follow_output, output_of, print_output, since_ms, sink_of

    match = _task(task)
    if follow and json:
        raise Wrong("--follow: one JSON document has an end: leave one of --follow and --json out")
    params: dict[str, object] = {"stream": "stderr" if stderr else "stdout"} | ({"attempt": attempt} if attempt else {})
    begin: dict[str, object] = {}
    if tail:
        begin["tail"] = tail
    if since is not None:
        begin["since_ms"] = since_ms(since)
    gateway = Gateway(url)
    if match[3] is None:
        if attempt:
            raise Wrong("--attempt: name one task, like count/map/0")
        job_logs.print_logs(gateway, match[1], match[2], params, begin, sink_of(raw), follow=follow, json=json)
        return
    path = "/v1/tasks/" + "/".join(step(part) for part in match.groups()) + "/logs"
    if json:
        out_json({"task": task, **params, **document_of(output_of(gateway, path, params | begin))})
    elif follow:
        follow_output(gateway, path, params, sink_of(raw), begin)
    else:
        print_output(output_of(gateway, path, params | begin), sink_of(raw))


def results(
    task: Annotated[
        str,
        typer.Argument(
            help="a job, a stage, or a task: count, count/map or count/map/0",
            metavar="JOB[/STAGE[/INDEX]]",
            autocompletion=tasks_named,
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(help="where they go; left out, they are only listed", metavar="DIR")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace files of DIR that are other ones")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List the files that tasks have left in their results folders, or fetch them to DIR/STAGE/INDEX.

    A file that DIR has already, with the same size and time, is not fetched again; another one is in the way, unless
    --overwrite replaces it. Of a task that was tried several times these are the files of its last attempt.
    """
    from services.cli.results import fetch_results, list_results

    if overwrite and folder is None:
        raise Wrong("--overwrite: only with DIR, the folder that files go to")
    match, gateway = _task(task), Gateway(url)
    which = match[1], match[2], None if match[3] is None else int(match[3])
    if folder is None:
        list_results(gateway, *which, json=json)
    else:
        fetch_results(gateway, *which, folder, overwrite=overwrite, json=json)
