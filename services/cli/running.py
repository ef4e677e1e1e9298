"""`largesse run -- CMD`: one command as a job of one task, its output followed, its exit code this command's own."""

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import sleep
from typing import Any

from largesse.access import job_path, step
from services.cli import interrupts
from services.cli.client import Gateway
from services.cli.documents import checked_document, note_answered, refusals_name
from services.cli.ending import Ending, Refused, Unanswered, note, visible
from services.cli.printing import FOLLOW_S, Tail
from services.cli.show import in_zone
from services.cli.watching import ENDED_WELL

STAGE = "run"
TURNS_QUIET = 4
"""Looks at the output of a job that has not started after which it is told why."""
CANCEL_S = 20.0
"""So long may the gateway take to cancel the job after Ctrl-C."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says. `demand`: by resource, as it was written."""

    command: list[str]
    demand: dict[str, str]
    name: str | None = None
    queue: str | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    retries: int = 0
    timeout_ms: int | None = None
    user: str | None = None

    def spec(self) -> Document:
        """The job spec."""
        stage: Document = {"stage": STAGE, "tasks": 1, "demand": self.demand, "command": self.command}
        stage |= {"env": self.env} if self.env else {}
        stage |= {"retries": self.retries} if self.retries else {}
        more = {"cwd": self.cwd, "timeout_ms": self.timeout_ms}
        stage |= {name: value for name, value in more.items() if value is not None}
        said = {"job": self.name, "queue": self.queue, "user": self.user}
        return {name: value for name, value in said.items() if value is not None} | {"stages": [stage]}


def run(url: str | None, asked: Asked) -> int:
    """Runs the command and returns its exit code; what it prints goes to stdout and stderr as it comes.

    Ctrl-C cancels the job. Raises Wrong for a spec that cannot be, Refused where the cell refuses the job or it ends
    without an exit code; else as `Gateway.ask` does.
    """
    written = checked_document(asked.spec(), "jobs", "run")
    gateway = Gateway(url)
    with refusals_name("run"):
        answer = gateway.document("POST", "/v1/jobs", "job", "state", **written.request)
    note_answered("run", written, answer)
    job = str(answer["job"])
    if answer["state"] == "repeated":
        raise Refused(f"--name: job {job} is in the cell already, word for word: `largesse logs {job}/{STAGE}/0`")
    try:
        _follow(gateway, job)
        return _exit_code(gateway.document("GET", job_path(job), "state", "failures"))
    except KeyboardInterrupt:
        _cancel(gateway.url, job)
        raise


def _follow(gateway: Gateway, job: str) -> None:
    path = f"/v1/tasks/{step(job)}/{STAGE}/0/logs"
    tails = [
        Tail(gateway, path, {"stream": stream}, to, quiet=True)
        for stream, to in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer))
    ]
    for turn in count():
        if turn == TURNS_QUIET:
            _tell_why(gateway, job)
        try:
            # Both are looked at in every turn, and once more after the job has ended.
            ended = [tail.look() for tail in tails]
            if all(ended):
                return
        except Refused:
            return  # The job has ended, and nothing is kept of the task: it has not run.
        sleep(FOLLOW_S)


def _tell_why(gateway: Gateway, job: str) -> None:
    """Says on stderr why the job has not started, if it has not."""
    with suppress(Unanswered):  # The next look at the output waits for the gateway.
        document = gateway.document("GET", job_path(job), "state", "why")
        if document["state"] == "waiting" and document["why"]:
            note(f"{job}: {visible(in_zone(document['why']))}")


OWN_CODES = ("exit_code", "cannot_start")
"""Failures whose exit code is that of the command, or what a shell gives where it cannot be executed."""


def _exit_code(document: Document) -> int:
    """Of the attempt that was the last. Raises Refused where the job has ended otherwise."""
    if document["state"] == ENDED_WELL:
        return 0
    last = document["failures"][-1] if document["failures"] else None
    if document["state"] == "failed" and last is not None and last["reason"] in OWN_CODES and last["exit_code"]:
        # By a signal, for memory, or never begun: the command itself has said nothing of it.
        if last["exit_code"] > 128 or last["reason"] == "cannot_start":
            note(f"largesse: {document['job']}: {visible(last['detail'])}")
        return int(last["exit_code"])
    detail = (last or {}).get("detail") or document["detail"]
    raise Refused(f"{document['job']} {document['state']}" + (f": {visible(detail)}" if detail else ""))


def _cancel(url: str, job: str) -> None:
    """Cancels the job after Ctrl-C, and says what became of it."""
    text = f"interrupted; job {job} runs on: `largesse cancel {job}` ends it"
    with suppress(Ending):
        Gateway(url, timeout_s=CANCEL_S).ask("DELETE", job_path(job))
        text = f"interrupted; job {job} is cancelled"
    interrupts.tell(text)
