"""Kill campaign: `python -m tests.live.campaign [--seeds N] [--from S]`; without N as many as arm every failpoint.

A seed is one data folder: `largesse up` on it is killed with SIGKILL again and again, at named points of its code and
at random moments, while clients submit jobs and cancel some, and between two lives other messages come in. The last
life may go on until all is over; then journal and proofs tell (campaign_checks.py). In every fourth seed guardians of
tasks are killed too, and some lives end as by a power cut: with every process, and without what was not synced. A seed
fixes jobs, points and moments; what runs in between is the machine's. Seeds in a row go through all failpoints. What a
life was armed with and did not come to is armed again at its first occasion, in cells of their own with all examples.
Exit codes: 0 every seed ended well and every failpoint armed was hit; 1 not so.
"""

import argparse
import asyncio
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Outgoing
from largesse.failpoints import VARIABLE
from tests.conftest import ROOT
from tests.live import campaign_checks as checks
from tests.live.campaign_jobs import Job, drawn_jobs, example_jobs, read_proofs
from tests.live.campaign_plan import FAILPOINTS, MOMENT, drawn_plan, seeds_of
from tests.ports import free_port
from tests.unit.cli_process import COMMAND, largesse

GUARD_S = 240
"""What takes longer hangs."""
REACH_S = 12
"""So long may a life take to come to its failpoint; then it is killed where it is, and has missed it."""
REACH_AGAIN_S = 30
AGAIN = (1_000, 2_000, 3_000)
"""Seeds in which what was missed is armed again: with the examples, and with guardians left alone."""
KILLS = 6
"""Of a seed, unless told otherwise; each third is at a random moment."""
JOBS = 14
REAPED_MAX = 12
"""Guardians killed in a seed, at most."""
REAPED_ATTEMPT_MAX, POWER_CUTS_MAX = 5, 3
"""A task may be lost ten times in a row, no more: later attempts keep their guardians, and power goes seldom enough."""
PAGE = 4_096
"""A power cut keeps or loses what was not synced by pages of so many bytes."""

CLUSTER = {
    "nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "1", "memory": "1Gi"}}],
    "queues": {"name": "root", "children": [{"name": "a", "weight": 2}, {"name": "b"}, {"name": "default"}]},
}
POLICY = {"preset": "largesse", "retry_backoff_ms": 100}
PACE = {"LARGESSE_SNAPSHOT_ROUNDS": "3", "LARGESSE_WAIT_MS": "200", "LARGESSE_GAP_WAIT_MS": "2000"}


# ---------------------------------------------------------------- one cell
class Cell:
    """A data folder, and at most one process that serves it. `port` stays the same over its lives."""

    def __init__(self, folder: Path, **policy: int) -> None:
        self.folder, self.data, self.proof = folder, folder / "data", folder / "proof"
        self.data.mkdir()
        self.proof.mkdir()
        self.port = free_port()
        (folder / "cluster.json").write_text(json.dumps({**CLUSTER, "policy": {**POLICY, **policy}}))
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, failpoint: str = "") -> None:
        """A new life, that ends at the failpoint where one is given."""
        self.lives += 1
        words = ["up", "--data", self.data, "--cluster", self.folder / "cluster.json", "--http", self.port]
        with (self.folder / f"life-{self.lives}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **PACE, VARIABLE: failpoint},
            )

    def kill(self, after_s: float, gently_s: float | None = None) -> bool:
        """SIGKILL after so long; False where it had ended by its failpoint. `gently_s`: SIGTERM so long before.

        Raises AssertionError where it ended in another way.
        """
        assert self.process is not None
        over = self._has_ended(after_s)
        early = over
        if not over and gently_s is not None:
            self.process.terminate()
            over = self._has_ended(gently_s)
        if not over:
            self.process.kill()
        code = self.process.wait()
        self.process = None
        expected = (-signal.SIGKILL,) if early or gently_s is None else (-signal.SIGKILL, -signal.SIGTERM, 0)
        assert code in expected, f"life {self.lives} ended with {code}:\n{self.said()}"
        return not early

    def _has_ended(self, after_s: float) -> bool:
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(after_s)
        return self.process.poll() is not None

    def end(self) -> int:
        """Exit code after SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(GUARD_S)
        self.process = None
        return code

    def said(self) -> str:
        """What the last life printed."""
        return (self.folder / f"life-{self.lives}.log").read_text()

    def ask(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        """One request: status and document; 0 and None where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def until(self, path: str, holds: Any) -> Any:
        """The document there, once it is as asked for."""
        over = monotonic() + GUARD_S
        document = None
        while monotonic() < over:
            assert self.process is None or self.process.poll() is None, f"it ended:\n{self.said()}"
            status, document = self.ask("GET", path)
            if status == 200 and holds(document):
                return document
            sleep(0.1)
        raise AssertionError(f"{path} did not come to that: {document}\n{self.said()}")

    def processes(self) -> list[int]:
        """Everything that runs here: the cell, guardians by their arguments, tasks by their folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                place = f"{self.data}/".encode()
                words = (entry / "cmdline").read_bytes().replace(b"\0", b"/")
                if place in words or os.fsencode(f"{(entry / 'cwd').readlink()}/").startswith(place):
                    found.append(int(entry.name))
        return found

    def guardians(self) -> list[int]:
        """The shims of running attempts: their arguments name the attempt's folder, as do those of a child that has not
        become its command yet.
        """
        attempt = re.compile(re.escape(f"{self.data}/".encode()) + rb"[^\0]*/\d+\.\d+\0")
        found: dict[int, int] = {}
        for pid in self.processes():
            with suppress(OSError):
                if attempt.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return [pid for pid, parent in found.items() if parent not in found]

    def kill_all(self) -> None:
        """Ends every process that is left, at once: all are stopped first, so that no guardian sees its task die."""
        while left := self._stopped():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.wait()

    def _stopped(self) -> list[int]:
        """Every process that is left, none of which goes on or starts another one."""
        stopped: dict[int, bool] = {}
        while fresh := [pid for pid in self.processes() if pid not in stopped]:
            for pid in fresh:
                stopped[pid] = True
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        return list(stopped)


def cut_power(directory: Path, dice: random.Random) -> int:
    """Takes what nobody had synced off the end of a journal, page by page; returns how many lines went.

    Decisions of cores and dead letters are sent without a sync; whatever needs them is synced after them. synced.json
    says how far the last sync came. Of the pages behind it any may be missing, or all from one on.
    """
    path = max(directory.glob("journal-*.jsonl"), default=None)
    if path is None or not (directory / "synced.json").exists():
        return 0  # It had only just begun.
    data = path.read_bytes()
    first = int(path.stem.rpartition("-")[2])
    synced = max(json.loads((directory / name).read_bytes())["line"] for name in ("head.json", "synced.json"))
    lines = data.splitlines(keepends=True)
    kept = sum(map(len, lines[: max(0, synced - first + 1)]))
    if kept == len(data):
        return 0
    left = bytearray(data[: dice.randint(kept, len(data))])
    for page in range(kept - kept % PAGE, len(left), PAGE):
        if dice.random() < 0.3:
            begin, end = max(kept, page), min(page + PAGE, len(left))
            left[begin:end] = bytes(end - begin)
    path.write_bytes(left)
    return sum(now != before for now, before in itertools.zip_longest(bytes(left).splitlines(keepends=True), lines))


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
    """The attempt's number, with which the name of its folder ends; 0 where the guardian is gone."""
    with suppress(OSError):
        number = Path(f"/proc/{guardian}/cmdline").read_bytes().rstrip(b"\0").rpartition(b".")[2]
        return int(number or 0)
    return 0


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


# ---------------------------------------------------------------- one seed
@dataclass(slots=True)
class Outcome:
    """What a seed came to. `hit`: failpoints at which a life ended; `missed`: those that it did not come to, so that it
    was killed elsewhere; `moments`: lives killed at a random moment. `again`: how to run it once more."""

    seed: int
    again: str
    wrong: list[str] = field(default_factory=list)
    hit: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    moments: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0

    def told(self) -> str:
        """All of it, in a few lines."""
        figures = ", ".join(f"{number} {name}" for name, number in sorted(self.figures.items()))
        deaths = (
            f"{len(self.hit)} deaths at a failpoint, {self.moments} at a moment, {len(self.missed)} failpoints missed"
        )
        points = f"hit {' '.join(self.hit) or 'none'}; missed {' '.join(self.missed) or 'none'}"
        failed = ["FAILED:", *self.wrong, f"repeat: {self.again}"] if self.wrong else []
        return "\n  ".join([f"seed {self.seed}: {deaths} in {self.seconds:.0f} s; {figures}", points, *failed])


class Seed:
    """One data folder's story."""

    def __init__(self, seed: int, folder: Path, plan: list[str], jobs: int, reach_s: int) -> None:
        self.dice = random.Random(seed)
        words = f"--seeds 1 --from {seed} --jobs {jobs} --reach {reach_s} --plan {','.join(plan)}"
        self.outcome = Outcome(seed, f"python -m tests.live.campaign {words}")
        self.cell = Cell(folder, altruism_shards=self.dice.choice((1, 2)))
        self.harsh = seed % 4 == 3
        self.reaper = Reaper(self.cell, random.Random(seed))
        self.jobs = drawn_jobs(folder, self.dice, jobs) + (example_jobs(folder) if seed % 2 == 0 else [])
        self.clients = [Client(self.cell), Client(self.cell)]
        self.plan, self.reach_s = plan, reach_s

    def run(self) -> Outcome:
        """The whole story, and whether it ended well."""
        began = monotonic()
        try:
            if self.harsh:
                self.reaper.start()
            self._live()
            self._judge()
        except Exception:
            self.outcome.wrong.append(traceback.format_exc())
        finally:
            self.reaper.enough.set()
            self.cell.kill_all()
        self.outcome.seconds = monotonic() - began
        return self.outcome

    def _live(self) -> None:
        cell, chunks = self.cell, self._chunks(len(self.plan) + 1)
        for client in self.clients:
            client.start()
        for end, chunk in zip(self.plan, chunks, strict=False):
            self._die("" if end == MOMENT else end, chunk)
            if self.dice.random() < 0.5:
                asyncio.run(self._slip_in())
        self.reaper.enough.set()
        self._before_last()
        cell.start()
        for client in self.clients:
            client.give(*chunks[-1], None)
            client.join(GUARD_S)
            assert not client.is_alive(), f"a client hangs\n{cell.said()}"
            self.outcome.wrong += client.wrong
        over = ("succeeded", "failed", "cancelled", "rejected")
        cell.until("/v1/jobs", lambda said: all(job["state"] in over for job in said["jobs"]))
        cell.until("/v1/nodes", lambda said: not any(node["running"] for node in said["nodes"]))
        code = cell.end()
        if code != 0 or not cell.said().endswith("ended\n"):
            self.outcome.wrong.append(f"the last life ended with {code}:\n{cell.said()}")

    def _before_last(self) -> None:
        """What is to be put right before the life in which all is seen to its end."""

    def _chunks(self, count: int) -> list[list[Job]]:
        return [self.jobs[at::count] for at in range(count)]

    def _die(self, failpoint: str, chunk: list[Job]) -> None:
        """One life up to its end, at `service:point:n` or, without one, at a moment."""
        cell, dice, outcome = self.cell, self.dice, self.outcome
        after_s = self.reach_s if failpoint else dice.uniform(0.2, 5)
        cell.start(failpoint)
        for client in self.clients:
            client.give(*dice.sample(chunk, len(chunk)))
        gently_s = dice.uniform(0, 0.3) if not failpoint and dice.random() < 0.3 else None
        missed = cell.kill(after_s, gently_s)
        if self.harsh and dice.random() < 0.4 and outcome.figures["power cuts"] < POWER_CUTS_MAX:
            cell.kill_all()
            outcome.figures["power cuts"] += 1
            outcome.figures["lines cut"] += cut_power(cell.data / "bus", dice)
        if failpoint:
            (outcome.missed if missed else outcome.hit).append(failpoint.rpartition(":")[0])
        else:
            assert missed, f"life {cell.lives} was killed by somebody else:\n{cell.said()}"
            outcome.moments += 1

    async def _slip_in(self) -> None:
        """What others leave in the topics while nobody reads them."""
        bus = FileBus(self.cell.data / "bus")
        some = self.dice.choice(self.jobs).spec
        values = [b"{no json", b'{"cancel":"nobody"}', b'{"stages":1}', json.dumps(some).encode()]
        writer = bus.writer()
        await writer.send([Outgoing("jobs", 0, value) for value in self.dice.sample(values, 2)])
        await bus.close()

    def _judge(self) -> None:
        cell, wrong, figures = self.cell, self.outcome.wrong, self.outcome.figures
        wrong += [f"process {pid} is left" for pid in cell.processes()]
        journal = checks.read(cell.data / "bus")
        proofs, twice = read_proofs(cell.proof)
        acknowledged = {name for client in self.clients for name in client.acknowledged}
        story = checks.tell(journal)
        wrong += checks.check_log(journal) + checks.check_inputs(journal) + checks.check_rounds(journal) + story.wrong
        wrong += checks.check_proofs(story, proofs, twice, guardians_killed=self.harsh)
        wrong += checks.check_jobs(journal, self.jobs, acknowledged)
        wrong += [f"{job.name}: was never acknowledged" for job in self.jobs if job.name not in acknowledged]
        said = largesse("replay", cell.data, "--verify")
        if said.code != 0:
            wrong.append(f"replay --verify: {said.code} {said.out}{said.err}")
        figures.update(records=len(journal.log), attempts=len(story.lives), proofs=len(proofs), claims=journal.claims)
        figures.update(rounds=sum(1 for _ in journal.of("RoundClosed")), jobs=len(self.jobs))
        figures.update(f"attempts {life.end}" for life in story.lives.values())
        repeated = sum(len(contents) - 1 for contents in journal.decisions.values())
        figures["guardians killed"] = self.reaper.kills
        figures.update({"answers given again": repeated, "letters": len(journal.letters)})


def run_seed(seed: int, folder: Path, plan: list[str], *, jobs: int = JOBS, reach_s: int = REACH_S) -> Outcome:
    """One seed in an empty folder, whose lives end as planned. Nothing of it runs any more when this returns."""
    return Seed(seed, folder, plan, jobs, reach_s).run()


def run_apart(seed: int, plan: list[str], jobs: int, reach_s: int) -> Outcome:
    """The same in a folder of its own, which stays where something is wrong; says how it ended."""
    folder = Path(tempfile.mkdtemp(prefix=f"largesse-campaign-{seed}-"))
    outcome = run_seed(seed, folder, plan, jobs=jobs, reach_s=reach_s)
    print(outcome.told(), *([f"kept: {folder}"] if outcome.wrong else []), sep="\n  ", flush=True)
    if not outcome.wrong:
        shutil.rmtree(folder)
    return outcome


def never_hit(outcomes: list[Outcome]) -> list[str]:
    """Failpoints that were armed, and at which no life of any seed ended."""
    hit = {point for outcome in outcomes for point in outcome.hit}
    return sorted({point for outcome in outcomes for point in outcome.missed} - hit)


def main() -> int:
    """Runs seeds one after another; returns 1 if any of them failed, or a failpoint that was armed was never hit."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many; without it as many as arm every failpoint")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--kills", type=int, default=KILLS, help="lives of a seed that are ended")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--reach", type=int, default=REACH_S, help="seconds until a failpoint counts as missed")
    parser.add_argument("--plan", help=f"how lives end, joined by commas: service:point:n, or {MOMENT}")
    given = parser.parse_args()
    seeds = seeds_of(given.kills) if given.seeds is None else given.seeds
    began = monotonic()
    outcomes = []
    for seed in range(given.first, given.first + seeds):
        plan = given.plan.split(",") if given.plan else drawn_plan(seed, given.kills)
        outcomes.append(run_apart(seed, plan, given.jobs, given.reach))
    for seed in AGAIN:
        # Where nothing at all was hit, no other occasion helps.
        if any(outcome.hit for outcome in outcomes) and (missed := never_hit(outcomes)):
            outcomes.append(run_apart(seed, [f"{point}:1" for point in missed], given.jobs, REACH_AGAIN_S))
    return verdict(outcomes, (monotonic() - began) / 60)


def verdict(outcomes: list[Outcome], minutes: float) -> int:
    """Prints what all seeds came to; returns the exit code."""
    hit = {point for outcome in outcomes for point in outcome.hit}
    never = never_hit(outcomes)
    unarmed = sorted({*FAILPOINTS} - hit - {*never})
    failed = [outcome.seed for outcome in outcomes if outcome.wrong]
    deaths, moments = sum(len(outcome.hit) for outcome in outcomes), sum(outcome.moments for outcome in outcomes)
    print(f"{len(outcomes)} seeds in {minutes:.1f} min, {deaths} deaths at a failpoint, {moments} at a moment")
    print(f"failed: {failed or 'none'}; {len(hit)} of {len(FAILPOINTS)} failpoints hit")
    if unarmed:
        print(f"not armed: {' '.join(unarmed)}")
    if never:
        print(f"ARMED AND NEVER HIT: {' '.join(never)}")
    return 1 if failed or never else 0


if __name__ == "__main__":
    sys.exit(main())
