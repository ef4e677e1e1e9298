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
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Outgoing
from tests.live import campaign_checks as checks
from tests.live.campaign_cell import GUARD_S, Cell, cut_power
from tests.live.campaign_clients import Client, Reaper
from tests.live.campaign_jobs import Job, drawn_jobs, example_jobs, read_proofs
from tests.live.campaign_plan import FAILPOINTS, MOMENT, drawn_plan, seeds_of
from tests.unit.cli_process import largesse

REACH_S = 12
"""So long may a life take to come to its failpoint; then it is killed where it is, and has missed it."""
REACH_AGAIN_S = 30
AGAIN = (1_000, 2_000, 3_000)
"""Seeds in which what was missed is armed again: with the examples, and with guardians left alone."""
KILLS = 6
"""Of a seed, unless the command line says otherwise; each third is at a random moment."""
JOBS = 14
POWER_CUTS_MAX = 3
"""Of a seed: a task may be lost ten times in a row, no more, so power goes seldom enough."""


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

    def summary(self) -> str:
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
    print(outcome.summary(), *([f"kept: {folder}"] if outcome.wrong else []), sep="\n  ", flush=True)
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
