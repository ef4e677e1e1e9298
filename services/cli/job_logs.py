"""`largesse logs JOB` and `JOB/STAGE`: what all tasks printed, each line behind the name of its task."""

import sys
from time import sleep

from services.cli.client import Gateway, job_path, step
from services.cli.ending import Broken, Ending, Refused, Unanswered, Wrong, note, out_json
from services.cli.printing import FOLLOW_S, Sink, Tail, document_of, output_of, print_output
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
    *,
    follow: bool,
    json: bool,
) -> None:
    """Prints what the tasks of a job, or of one of its stages, have printed. Raises as `Gateway.ask` does."""
    tasks = _tasks_of(gateway, job, stage)
    if follow:
        _follow(gateway, job, tasks, params, begin)
        return
    found, missed = [], 0
    for task in tasks:
        try:
            response = output_of(gateway, _path(job, task), params | begin)
        except Unanswered:
            raise
        except Ending as why:
            if why.code != Refused.code:  # Else it has not started, or nothing is kept of it.
                note(f"{task}: {why}")
                missed += 1
            continue
        if json:
            found.append({"task": f"{job}/{task}", **document_of(response)})
        else:
            lines = Prefixed(task, sys.stdout.buffer)
            print_output(response, lines)
            lines.close()
    if json:
        out_json({"job": job, **params, "tasks": found})
    if missed:
        raise Broken(f"the output of {plural(missed, 'task')} is not to be had")


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


def _follow(gateway: Gateway, job: str, tasks: list[str], params: dict[str, object], begin: dict[str, object]) -> None:
    if len(tasks) > FOLLOWED_MAX:
        text = f"{job} has {plural(len(tasks), 'task')}: at most {FOLLOWED_MAX} are followed at once"
        raise Wrong(f"--follow: {text}; name a stage or a task")
    lines = {task: Prefixed(task, sys.stdout.buffer) for task in tasks}
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
