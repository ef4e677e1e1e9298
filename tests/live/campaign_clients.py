"""Who acts on a campaign's cell from outside: clients that submit and cancel jobs, and one who kills guardians."""

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.live.campaign_cell import GUARD_S, Cell
from tests.live.campaign_jobs import Job

REAPED_MAX = 12
"""Guardians killed in a seed, at most."""
REAPED_ATTEMPT_MAX = 5
"""A task may be lost ten times in a row, no more: later attempts keep their guardians."""


class Reaper(threading.Thread):
    """Kills a guardian now and then, until it is told that it is enough."""

    def __init__(self, cell: Cell, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.cell, self.dice, self.enough, self.kills = cell, dice, threading.Event(), 0

    def run(self) -> None:
        while self.kills < REAPED_MAX and not self.enough.wait(self.dice.uniform(0.2, 1)):
            if guardians := [pid for pid in self.cell.guardians() if _attempt_of(pid) <= REAPED_ATTEMPT_MAX]:
                with suppress(ProcessLookupError):
                    os.kill(self.dice.choice(guardians), signal.SIGKILL)
                    self.kills += 1


def _attempt_of(guardian: int) -> int:
    """The attempt's number, with which the name of its folder ends; beyond all where it guards none, or is gone."""
    with suppress(OSError):
        words = Path(f"/proc/{guardian}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if len(words) > 2 and (number := words[1].rpartition(b".")[2]).isdigit():
            return int(number)
    return REAPED_ATTEMPT_MAX + 1


class Client(threading.Thread):
    """Submits jobs, each until the cell says that it has it, and cancels the endless ones. Ends with its last job."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(daemon=True)
        self.cell = cell
        self.jobs: list[Job | None] = []
        self.news = threading.Condition()
        self.acknowledged: list[str] = []
        self.wrong: list[str] = []

    def give(self, *jobs: Job | None) -> None:
        """More jobs; None is the last one."""
        with self.news:
            self.jobs += jobs
            self.news.notify()

    def run(self) -> None:
        while True:
            with self.news:
                while not self.jobs:
                    self.news.wait()
                job = self.jobs.pop(0)
            if job is None:
                return
            self._submit(job)
            if job.outcome == "cancelled":
                self._cancel(job)

    def _submit(self, job: Job) -> None:
        if self._repeat("POST", "/v1/jobs", job.spec, (200, 201)):
            self.acknowledged.append(job.name)

    def _cancel(self, job: Job) -> None:
        sleep(len(job.name) % 5 / 5)
        self._repeat("DELETE", f"/v1/jobs/{job.name}", None, (200, 202, 409))

    def _repeat(self, method: str, path: str, document: Any, good: tuple[int, ...]) -> bool:
        over = monotonic() + GUARD_S
        status, said = self.cell.ask(method, path, document)
        while status not in good and status in (0, 202, 503) and monotonic() < over:
            sleep(0.05)
            status, said = self.cell.ask(method, path, document)
        if status not in good:
            self.wrong.append(f"{method} {path}: {status} {said}")
        return status in good
