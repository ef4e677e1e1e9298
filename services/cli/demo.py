"""`largesse demo`: a whole cell on this machine, all example jobs through it, and its log decided again at the end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rich.console import Console
from rich.live import Live

from largesse.access import job_path
from services.cli.client import Gateway
from services.cli.documents import read_file
from services.cli.ending import Broken, Refused, note, out
from services.cli.hosting import BUS
from services.cli.shipping import examples_folder
from services.cli.show import span, table
from services.cli.watching import task_bar
from services.replay.source import open_source
from services.replay.verify import verify

NODES = 3
FAILING = ("fails",)
"""Examples that are meant to fail."""

SAID = "up.err"
"""In the cell's folder: its stderr."""

START_S, JOBS_S, STOP_S = 60, 600, 60
LOOK_S = 0.2
LINES_SHOWN = 6

Document = dict[str, Any]


def demo() -> None:
    """Raises Refused where a job ends as it should not, or the log is not decided again as it stands; Wrong, Broken.

    The cell's folder is kept where anything went wrong, and stderr says where.
    """
    jobs_folder = examples_folder() / "jobs"
    files = sorted(jobs_folder.glob("*.yaml"))
    if not files:
        raise Broken(f"the examples are not there: {jobs_folder} is part of every installation")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # The cell is ended with the demo, however that ends.
    data = Path(tempfile.mkdtemp(prefix="largesse-demo-"))
    try:
        with _cell(data) as gateway:
            out(f"a cell of {NODES} nodes on this machine, at {gateway.url}\n")
            jobs = [
                gateway.document("POST", "/v1/jobs", "job", **read_file(str(file), "jobs").request)["job"]
                for file in files
            ]
            _follow(gateway, jobs)
            wrong = [job for job in jobs if not _show(gateway, job)]
        out("\nthe cell has ended; its log, decided again:")
        verdict = verify(open_source(data / BUS))
        out(verdict.text().removeprefix(f"{data / BUS}: "))
        if wrong:
            raise Refused(f"not as expected: {', '.join(wrong)}")
        if not verdict.is_same:
            raise Refused("the log was not decided again in the same way")
    except Exception:
        note(f"the cell's data is kept in {data}: its log in {BUS}, what it said in {SAID}")
        raise
    except BaseException:  # Ctrl-C: nothing went wrong.
        shutil.rmtree(data, ignore_errors=True)
        raise
    shutil.rmtree(data, ignore_errors=True)
    out(f"all {len(jobs)} jobs ended as expected, and the log verified")


@contextmanager
def _cell(data: Path) -> Iterator[Gateway]:
    """`largesse up` in a process of its own, as a user would start it. Raises Broken."""
    command = [
        sys.executable,
        "-m",
        "services.cli.main",
        "up",
        "--data",
        str(data),
        "--nodes",
        str(NODES),
        "--http",
        "0",
    ]
    scratch = data / "tmp"
    scratch.mkdir()
    # Where the examples meet: a demo beside this one has a place of its own.
    env = {**os.environ, "TMPDIR": str(scratch)}
    with (data / SAID).open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--stop-tasks"], stdout=subprocess.PIPE, stderr=errors, start_new_session=True, env=env
        )
    try:
        yield Gateway(_address(process, data))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise Broken(f"the cell ended with {process.returncode}:\n{(data / SAID).read_text()}")


def _address(process: "subprocess.Popen[bytes]", data: Path) -> str:
    """What `up` says first. Raises Broken where it ends instead."""
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    if " at http" not in line:
        process.wait(START_S)
        raise Broken(f"the cell did not start:\n{(data / SAID).read_text()}")
    return line.rpartition(" at ")[2].strip()


# ---------------------------------------------------------------- while they run
def _follow(gateway: Gateway, jobs: list[str]) -> None:
    """Shows the jobs until all have ended. Raises Broken where that takes too long."""
    deadline = monotonic() + JOBS_S
    with _shown() as show:
        while monotonic() < deadline:
            documents = [gateway.get(job_path(job)) for job in jobs]
            show(documents)
            if all(document["ended_ms"] is not None for document in documents):
                return
            sleep(LOOK_S)
    raise Broken(f"the jobs had not ended after {JOBS_S} s")


@contextmanager
def _shown() -> Iterator[Callable[[list[Document]], None]]:
    """How progress is shown: drawn again on a terminal, as lines of news anywhere else."""
    if not sys.stdout.isatty():
        yield _Telling().tell
        return
    with Live(console=Console(highlight=False), auto_refresh=False) as live:

        def draw(documents: list[Document]) -> None:
            rows = [(each["job"], task_bar(each["tasks"]), _done(each), each["state"]) for each in documents]
            live.update(table(("job", "", "done", "state"), rows, kinds="klrk"), refresh=True)

        yield draw


class _Telling:
    """Remembers what was said."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def tell(self, documents: list[Document]) -> None:
        for document in documents:
            line = f"{document['job']:12} {_done(document)} {document['state']}"
            if self._said.get(document["job"]) != line:
                self._said[document["job"]] = line
                out(line)


def _done(document: Document) -> str:
    tasks = document["tasks"]
    return f"{tasks['succeeded']}/{tasks['total']}"


# ---------------------------------------------------------------- what came out
def _show(gateway: Gateway, job: str) -> bool:
    """Prints how a job ended and what it printed; False where it did not end as it should."""
    document = gateway.get(job_path(job))
    took = span(document["ended_ms"] - document["submitted_ms"])
    meant = ", as it should" if job in FAILING else ""
    out(f"\n{job}: {document['state']} after {took}{meant}")
    for failed in document["failures"]:
        task = f"{failed['stage']}/{failed['index']}"
        printed = _printed(gateway, job, task, stream="stderr", attempt=failed["attempt"])
        _indented(f"{task}, attempt {failed['attempt']}, to stderr", printed)
    ended_well = [stage["stage"] for stage in document["stages"] if stage["state"] == "succeeded"]
    if ended_well:
        task = f"{ended_well[-1]}/0"
        _indented(task, _printed(gateway, job, task, stream="stdout"))
    return bool(document["state"] == ("failed" if job in FAILING else "succeeded"))


def _printed(gateway: Gateway, job: str, task: str, **params: object) -> list[str]:
    try:
        response = gateway.ask("GET", f"/v1/tasks/{job}/{task}/logs", params=params)
    except Refused:
        return []  # Nothing is kept of a task that ran nothing.
    return response.text.splitlines()[:LINES_SHOWN]


def _indented(what: str, lines: list[str]) -> None:
    if lines:
        out(f"  {what}:\n" + "".join(f"    {line}\n" for line in lines))
