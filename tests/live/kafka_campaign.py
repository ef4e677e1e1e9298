"""Cells of real processes on Kafka under faults: `python -m tests.live.kafka_campaign --seeds N [--from S]`.

A seed is one cell's life of about a minute on a broker that stays up: failpoints, kills at random, two admissions
started beside each other, an owner paused and woken after its standby took over; every tenth seed kills the broker too.
Then: no input lost or taken twice, no attempt started twice, every acknowledged job ended, and the log verifies.
Exit codes: 0 all seeds clean and, where there were enough of them, every point hit; 1 not so.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from largesse.log import dead_letters
from largesse.process.serve import INTERNAL
from schemas import InputRefused, JobAdmitted, JobEnded, JobRejected
from schemas.topics import DEADLETTER, LOG
from services.replay import kafka_source
from tests.kafka_broker import SCRIPT, Broker
from tests.live import campaign_checks as checks
from tests.live.campaign_jobs import marked, read_proofs
from tests.live.kafka_cell import KafkaCell, Member, free_partition
from tests.unit.cli_process import largesse

CORE_PLACES = ("consume", "decide", "publish", "snapshot")
PLACES = {
    "admission": ("consume", "judge", "append", "read_back", "close", "snapshot"),
    "fairness": CORE_PLACES,
    "altruism-0": CORE_PLACES,
    "altruism-1": CORE_PLACES,
    "leftover": CORE_PLACES,
    "estimator": CORE_PLACES,
    "planner": CORE_PLACES,
    "agent": ("consume", "publish", "task_start"),
    "gateway": ("consume", "snapshot"),
}
POINTS_A_SEED = 3


def _turns() -> list[list[str]]:
    """Every point once, a few at a time, no two of them in one service: a process has one failpoint."""
    left = {
        service: [f"{service}:{when}_{place}" for place in places for when in ("before", "after")]
        for service, places in PLACES.items()
    }
    turns = []
    while any(left.values()):
        turn: dict[str, str] = {}
        for name in sorted(left, key=lambda name: -len(left[name])):
            if left[name] and len(turn) < POINTS_A_SEED and service_of(name) not in turn:
                turn[service_of(name)] = left[name].pop(0)
        turns.append(list(turn.values()))
    return turns


def service_of(name: str) -> str:
    """The service whose processes have a failpoint of that name: a shard has the name of its own."""
    return name.rstrip("-01")


TURNS = _turns()
POINTS = [point for turn in TURNS for point in turn]
HITS = {
    "consume": (10, 60),
    "judge": (4, 40),
    "append": (4, 40),
    "read_back": (4, 40),
    "publish": (2, 10),
    "task_start": (1, 4),
}
"""At which hit a point strikes; the others within the first few."""

JOBS = 40
JOB_GAP_SECONDS = 0.6
END_SECONDS = 300
FAULT_SECONDS = 240
"""For what a fault brings about: a guard, a loaded machine takes its time."""
BROKER_KILLED_EVERY = 10


@dataclass
class Outcome:
    """What a seed came to. `wrong`: what must not have happened, in words; empty: it is clean."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    kills: int = 0
    figures: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        figures = ", ".join(f"{count} {what}" for what, count in self.figures.items())
        said = "clean" if not self.wrong else "WRONG: " + "; ".join(self.wrong)
        return f"seed {self.seed}: {said}; {self.kills} kills, at {', '.join(self.struck) or 'no point'}; {figures}"


class Seed:
    """One cell's life."""

    def __init__(self, seed: int, cell: KafkaCell, broker: Broker | None) -> None:
        self.draws = Random(seed)
        self.cell, self.broker = cell, broker
        self.outcome = Outcome(seed)
        self.proofs = cell.folder / "proofs"
        self.submitted: dict[str, str] = {}  # Job -> how it ought to end.
        self.broker_killed = False

    async def run(self) -> Outcome:
        """From the first start to the verdict."""
        cell, outcome = self.cell, self.outcome
        cell.folder.mkdir(parents=True, exist_ok=True)
        self.proofs.mkdir()
        self._arm()
        async with cell:
            cell.start(*cell.members.values())
            try:
                # On a busy machine a killed agent takes seconds to come back: its work is not to be given to others.
                knobs = {"sequencer_lease_ms": 1_000, "node_lease_ms": 60_000, "altruism_shards": 2}
                await cell.tell("config", {"set": knobs})
                await cell.until(
                    lambda: any(type(a.record.body).__name__ == "NodeRegistered" for a in cell.records), FAULT_SECONDS
                )
                await asyncio.gather(self._submit(), self._strike())
                await self._see_it_end()
            except TimeoutError:
                outcome.wrong.append("it took too long")
            drained = await cell.drain()
            self._count_deaths()
            for name, code in drained.items():
                if code != 0:
                    outcome.wrong.append(f"{name} ended with {code} when asked to (None: it did not end)")
            await self._judge()
        return outcome

    def _arm(self) -> None:
        for point in TURNS[(self.outcome.seed - 1) % len(TURNS)]:
            low, high = HITS.get(point.partition("_")[2], (1, 5))
            if point.endswith("snapshot"):
                low, high = 1, 2
            for member in self.cell.members.values():
                if member.service == service_of(point.partition(":")[0]):
                    # All copies: which of them answers nobody knows before.
                    member.failpoint = f"{point}:{self.draws.randint(low, high)}"

    # ---------------------------------------------------------------- load
    async def _submit(self) -> None:
        cell, draws = self.cell, self.draws
        for number in range(JOBS):
            job = f"j{number}"
            document, ends = self._job(job)
            self.submitted[job] = ends
            await cell.tell("jobs", document)
            odd = draws.random()
            if odd < 0.1:
                await cell.tell("jobs", document)  # A repeat: answered, and never a second job.
            elif odd < 0.2:
                await cell.tell("jobs", {"job": f"bad{number}", "stages": [{"stage": "s", "tasks": -1}]})
            elif odd < 0.25:
                await cell.tell("jobs", b"\xff not JSON")
            elif odd < 0.35:
                self.submitted[job] = "any"
                await cell.tell("jobs", {"cancel": job})
            await asyncio.sleep(draws.uniform(0, 2 * JOB_GAP_SECONDS))

    def _job(self, job: str) -> tuple[dict[str, Any], str]:
        draws = self.draws
        sleeps = ["sleep", f"{draws.uniform(0.02, 1.5):.2f}"]

        def stage(name: str, **more: Any) -> dict[str, Any]:
            tasks = {"tasks": draws.randint(1, 4), "demand": {"cpu": f"{draws.choice((250, 500, 1000))}m"}}
            return marked({"stage": name, **tasks, "command": sleeps, **more}, self.proofs)

        stages = [stage("a", gang=draws.random() < 0.2)]
        if draws.random() < 0.5:
            stages.append(stage("b", after=["a"]))
        if draws.random() < 0.1:
            fails = {"stage": "f", "tasks": 1, "demand": {"cpu": "100m"}, "command": ["false"]}
            stages.append(marked(fails, self.proofs))
            return {"job": job, "stages": stages}, "failed"
        return {"job": job, "stages": stages}, "succeeded"

    # ---------------------------------------------------------------- faults
    async def _strike(self) -> None:
        faults = [self._kill_any] * 4 + [self._kill_both_admissions, self._pause_leader, self._pause_owner]
        if self.outcome.seed % BROKER_KILLED_EVERY == 0 and self.broker is not None:
            faults.append(self._kill_broker)
        self.draws.shuffle(faults)
        for fault in faults:
            await asyncio.sleep(self.draws.uniform(0.3, 3))
            await fault()

    async def _kill_any(self) -> None:
        for member in self.draws.sample(list(self.cell.members.values()), self.draws.choice((1, 1, 2))):
            self._kill(member)

    def _kill(self, member: Member) -> None:
        self.outcome.kills += member.is_alive
        member.kill()

    async def _kill_both_admissions(self) -> None:
        """And starts them beside each other."""
        both = [member for member in self.cell.members.values() if member.service == "admission"]
        self.cell.held.clear()
        for member in both:
            self._kill(member)
        await asyncio.sleep(1)
        self.cell.held.set()

    async def _pause_leader(self) -> None:
        leader = await self._found(self.cell.leader)
        claims = len(self.cell.tokens)
        leader.send(signal.SIGSTOP)
        try:
            await self.cell.until(lambda: len(self.cell.tokens) > claims, FAULT_SECONDS)
            await asyncio.sleep(self.draws.uniform(0, 1))
        finally:
            leader.send(signal.SIGCONT)

    async def _pause_owner(self) -> None:
        service = self.draws.choice(("fairness", "altruism", "leftover"))
        owner = await self._found(lambda: self.cell.owner(service))
        owner.send(signal.SIGSTOP)
        try:
            await self._found(lambda: self.cell.owner(service, but=owner))
            await asyncio.sleep(self.draws.uniform(0, 1))
        finally:
            owner.send(signal.SIGCONT)

    async def _kill_broker(self) -> None:
        assert self.broker is not None
        await asyncio.to_thread(self.broker.kill)
        self.outcome.kills += 1
        self.broker_killed = True
        await asyncio.sleep(self.draws.uniform(0, 2))
        await asyncio.to_thread(self.broker.start)

    async def _found(self, look: Any) -> Member:
        async with asyncio.timeout(FAULT_SECONDS):
            while (member := look()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        found: Member = member
        return found

    # ---------------------------------------------------------------- the verdict
    async def _see_it_end(self) -> None:
        cell = self.cell
        try:
            await cell.until(lambda: all(job in cell.ended for job in self.submitted), END_SECONDS)
        except TimeoutError:
            left = [job for job in self.submitted if job not in cell.ended]
            self.outcome.wrong.append(f"not ended within {END_SECONDS} s: {', '.join(left)}")

    def _count_deaths(self) -> None:
        outcome = self.outcome
        for member in self.cell.members.values():
            outcome.struck += [point for point in member.struck if point not in outcome.struck]
            outcome.kills += len(member.struck)
            # Who waited in vain for a broker ends, and is started again.
            unasked = [code for code in member.own_accord if code != INTERNAL or not self.broker_killed]
            if unasked:
                outcome.wrong.append(f"{member.name} ended by itself with {unasked}")

    async def _judge(self) -> None:
        cell, outcome = self.cell, self.outcome
        outcome.wrong += await self._judge_inputs()
        outcome.wrong += self._judge_jobs() + await asyncio.to_thread(self._judge_attempts)
        said = await asyncio.to_thread(largesse, "replay", cell.url, "--verify", "--json")
        if said.code != 0:
            outcome.wrong.append(f"the log does not verify: {said.out.strip()} {said.err.strip()}")
        outcome.figures = {
            "records": len(cell.records),
            "rounds": cell.records[-1].record.round if cell.records else 0,
            "claims": len(cell.tokens),
            "jobs": len(self.submitted),
            "attempts": len(list(self.proofs.iterdir())),
        }

    async def _judge_inputs(self) -> list[str]:
        """Every message of `jobs` has its one record; no message of any topic has two; every refusal has its letter."""
        cell = self.cell
        places = Counter((a.header.topic, a.header.offset) for a in cell.records if a.header.topic)
        wrong = [
            f"{topic} offset {offset} was taken {count} times" for (topic, offset), count in places.items() if count > 1
        ]
        _, end = await cell.bus.bounds("jobs", cell.partition)
        lost = [offset for offset in range(end) if ("jobs", offset) not in places]
        if lost:
            wrong.append(f"inputs without a record: jobs {lost}")
        refused = {a.record.seq for a in cell.records if isinstance(a.record.body, InputRefused | JobRejected)}
        first, end = await cell.bus.bounds(DEADLETTER, cell.partition)
        lettered = set()
        while first < end:
            for message in await cell.bus.fetch(DEADLETTER, cell.partition, first, wait_ms=5_000):
                lettered.add(dead_letters.read_letter(message.value)["seq"])
                first = message.offset + 1
        if refused - lettered:
            wrong.append(f"refusals without a dead letter: seq {sorted(refused - lettered)}")
        return wrong

    def _judge_jobs(self) -> list[str]:
        bodies = [a.record.body for a in self.cell.records]
        admitted = Counter(body.spec.job for body in bodies if isinstance(body, JobAdmitted))
        ended = Counter(end.job for body in bodies if isinstance(body, JobEnded) for end in body.jobs)
        wrong = []
        for job, ought in self.submitted.items():
            outcome = self.cell.ended.get(job)
            if admitted[job] != 1 or ended[job] != 1:
                wrong.append(f"{job} was admitted {admitted[job]} times and ended {ended[job]} times")
            elif ought not in ("any", outcome):
                wrong.append(f"{job} ended {outcome}, not {ought}")
        return wrong

    def _judge_attempts(self) -> list[str]:
        """Who was granted what, where and when: worked out anew from the bytes alone, and compared with the proofs."""
        journal = journal_of(self.cell.url)
        story = checks.tell(journal)
        proofs, twice = read_proofs(self.proofs)
        # While a broker is away longer than a node is believed, its agents' work may be given to others.
        lenient = self.broker_killed
        wrong = story.wrong + checks.check_rounds(journal)
        return wrong + checks.check_proofs(story, proofs, twice, guardians_killed=lenient)


def journal_of(url: str) -> checks.Journal:
    """Log and decisions of a cell on Kafka, as the checks take them."""
    found = checks.Journal()
    token, seq = "", 0
    for message in kafka_source.messages(kafka_source.place_of(url)):
        content = message.value[message.value.index(checks.BETWEEN) + len(checks.BETWEEN) : -1]
        document = json.loads(message.value)
        header, record = document["header"], document["content"]
        if message.topic != LOG:
            found.decisions.setdefault(record["id"], []).append(content)
        elif record["type"] == "SequencerClaimed":
            token = header["token"]
            found.claims += 1
        elif header["token"] == token and record["seq"] == seq + 1:
            seq += 1
            found.log.append(checks.Entry(record, header, content))
        else:
            found.void += 1
    return found


async def run_seed(seed: int, address: str, folder: Path, broker: Broker | None = None) -> Outcome:
    """One seed on a broker, in a folder of its own."""
    partition = await free_partition(address)
    cell = KafkaCell(address, partition, f"seed-{seed}-{time.time_ns()}", folder / f"seed-{seed}")
    return await Seed(seed, cell, broker).run()


def main() -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.kafka_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first of them")
    asked = parser.parse_args()
    struck: set[str] = set()
    dirty = 0
    folder = Path(tempfile.mkdtemp(prefix="largesse-campaign-"))
    broker: Broker | None = None
    address = os.environ.get("LARGESSE_TEST_KAFKA", "")
    own = SCRIPT.exists()
    if not own and not address:
        parser.error(f"no broker: LARGESSE_TEST_KAFKA is not set, and there is no {SCRIPT}")
    if not own:
        print("a broker of somebody else's: it is never killed", flush=True)
    try:
        for number, seed in enumerate(range(asked.first, asked.first + asked.seeds)):
            # A broker that is to be killed has little to recover.
            if own and (number == 0 or seed % BROKER_KILLED_EVERY == 0):
                if broker is not None:
                    broker.stop()
                broker = Broker(folder / f"broker-{seed}")
                broker.start()
                address = broker.address
            outcome = asyncio.run(run_seed(seed, address, folder, broker))
            print(outcome.line(), flush=True)
            struck.update(outcome.struck)
            dirty += bool(outcome.wrong)
            if not outcome.wrong:
                shutil.rmtree(folder / f"seed-{seed}", ignore_errors=True)
    finally:
        if broker is not None:
            broker.stop()
    missed = [point for point in POINTS if point not in struck]
    print(f"{asked.seeds} seeds, {dirty} not clean; {len(struck)} of {len(POINTS)} points hit")
    if dirty:
        print(f"what they left is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    whole = asked.seeds >= 2 * len(TURNS)
    if whole and missed:
        print(f"never hit: {', '.join(missed)}")
    return 1 if dirty or (whole and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
