"""`largesse logs JOB` and `JOB/STAGE`: what all tasks printed, each line behind the name of its task."""

from base64 import b64decode
from collections.abc import Iterator
from itertools import groupby
from time import sleep

from largesse.access import job_path, step
from services.cli.client import Gateway, Row
from services.cli.ending import Broken, Refused, Wrong, note, out_json, pipe, visible
from services.cli.printing import FOLLOW_S, Sink, Tail
from services.cli.show import plural

FOLLOWED_MAX = 100
"""So many tasks are followed at once: each is asked for again and again."""


class Prefixed:
    """Writes whole lines behind a name; what has no end yet waits until it has one, or for `close`."""

    def __init__(self, name: str, to: Sink) -> None:
        self._name, self._to = f"{name}: ".encode(), to
        self._begun = b""

    def write(self, data: bytes, /) -> None:
        """Takes bytes."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._to.write(b"".join(self._name + line + b"\n" for line in lines))

    def flush(self) -> None:
        """Passes whole lines on."""
        self._to.flush()

    def close(self) -> None:
        """Ends the last line."""
        if self._begun:
            self.write(b"\n")
        self.flush()


def print_logs(
    gateway: Gateway,
    job: str,
    stage: str | None,
    params: dict[str, object],
    begin: dict[str, object],
    to: Sink,
    *,
    follow: bool,
    json: bool,
) -> None:
    """Prints what the tasks of a job, or of one of its stages, have printed. Raises as `Gateway.ask` does."""
    if follow:
        _follow(gateway, job, _tasks_of(gateway, job, stage), params, begin, to)
        return
    wanted = params | begin | ({} if stage is None else {"stage": stage})
    rows = gateway.rows(f"{job_path(job)}/logs", **wanted)
    found, missed = (_collected(job, rows), 0) if json else ([], _printed(rows, to))
    if json:
        missed = sum("problem" in each for each in found)
        out_json({"job": job, **params, "tasks": [each for each in found if "problem" not in each]})
    if missed:
        raise Broken(f"the output of {plural(missed, 'task')} is not to be had")


def _printed(rows: Iterator[Row], to: Sink) -> int:
    """Prints pieces as they come, each line behind its task's name. Returns of how many tasks something is missing."""
    missed = 0
    for task, pieces in groupby(rows, _task):
        lines = Prefixed(task, to)
        for each in pieces:
            if "problem" in each:
                _note_problem(task, each)
                missed += 1
                continue
            with pipe():
                lines.write(_data(each))
                lines.flush()
        with pipe():
            lines.close()
    return missed


def _collected(job: str, rows: Iterator[Row]) -> list[Row]:
    """A document for each task, as `logs --json` has it of one; one with a `problem` where it cannot be had."""
    found: list[Row] = []
    for task, pieces in groupby(rows, _task):
        each, *others = pieces
        broken = [piece for piece in (each, *others) if "problem" in piece]
        if broken:
            _note_problem(task, broken[0])
            found.append({"task": f"{job}/{task}", "problem": broken[0]["problem"]})
            continue
        cut = each.get("cut")
        text = b"".join(map(_data, (each, *others))).decode(errors="replace")
        cuts = [{"at": cut[0], "bytes": cut[1] - cut[0]}] if cut else []
        found.append({"task": f"{job}/{task}", "output": text, "printed_bytes": each["end"], "cuts": cuts})
    return found


def _task(row: Row) -> str:
    return f"{row['stage']}/{row['index']}"


def _data(row: Row) -> bytes:
    if "output" in row:
        return str(row["output"]).encode()
    return b64decode(row["output_base64"])


def _note_problem(task: str, row: Row) -> None:
    note(f"{task}: {visible(str(row['problem']['detail']))}")


def _tasks_of(gateway: Gateway, job: str, stage: str | None) -> list[str]:
    """Its tasks as STAGE/INDEX, in order. Raises Refused for a stage that it has not got."""
    stages = gateway.document("GET", job_path(job), "stages")["stages"]
    if stage is not None and stage not in [each["stage"] for each in stages]:
        raise Refused(f'job "{job}" has no stage "{stage}"; it has {", ".join(each["stage"] for each in stages)}')
    return [
        f"{each['stage']}/{index}"
        for each in stages
        if stage in (None, each["stage"])
        for index in range(each["tasks"]["total"])
    ]


def _path(job: str, task: str) -> str:
    stage, _, index = task.rpartition("/")
    return f"/v1/tasks/{step(job)}/{step(stage)}/{index}/logs"


def _follow(
    gateway: Gateway, job: str, tasks: list[str], params: dict[str, object], begin: dict[str, object], to: Sink
) -> None:
    if len(tasks) > FOLLOWED_MAX:
        text = f"{job} has {plural(len(tasks), 'task')}: at most {FOLLOWED_MAX} are followed at once"
        raise Wrong(f"--follow: {text}; name a stage or a task")
    lines = {task: Prefixed(task, to) for task in tasks}
    tails = {task: Tail(gateway, _path(job, task), params, lines[task], begin=begin, quiet=True) for task in tasks}
    while tails:
        for task in list(tails):
            try:
                ended = tails[task].look()
            except Refused:
                ended = True  # The job has ended, and nothing is kept of this task.
            if ended:
                del tails[task]
                lines[task].close()
        if tails:
            sleep(FOLLOW_S)
