"""Campaign of faults beside kills: `python -m tests.live.fault_campaign [--seeds N] [--from S] [--kafka]`.

A seed is one embedded cell over several lives, each with another number of nodes. While clients submit jobs, the cell
is paused for longer than a node's lease, guardians of tasks are killed whose children live in sessions of their own,
the journal's files meet a size limit, a node's disk is full (a small tmpfs, where this is root), and the running folder
is copied. Lives end by SIGKILL, gently, by a full disk, or as by a power cut. Then: no attempt ran twice and no two
attempts of a task wrote at once, nothing acknowledged is lost, every job ended as it has to, the log and the copy
verify. With `--kafka` a seed is a cell of processes on a broker (fault_campaign_kafka.py).
Exit codes: 0 every seed ended well; 1 not so.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from largesse.bus.file.journal import has_journal
from tests.live.campaign import Outcome, Seed
from tests.live.campaign_cell import Cell, cut_power
from tests.live.campaign_clients import Reaper
from tests.live.campaign_jobs import Job, drawn_jobs
from tests.live.fault_jobs import overlaps, writing_jobs
from tests.unit.cli_process import largesse

LIVES = 5
JOBS, WRITERS = 8, 10
NODES_MAX = 3
LEASE_MS = 2_000
PAUSE_S = LEASE_MS / 1_000 + 1
REAP_S = 20
"""How long guardians are waited for, once a life serves: a loaded machine starts its first tasks late."""
ENDS = ("kill", "kill", "kill", "gentle", "full", "power")
FAULTS = ("pause", "reap", "fill", "copy", "nothing")
ROOM_BYTES = 60_000
"""So much may still be appended to the journal of a life that is to end by a full disk."""
FULL_S = 60
"""A life that is to end by a full disk takes no longer."""
DISK_BYTES = 160 << 20
"""Room enough that an agent takes tasks there (services/agent/troubles.py)."""
SMALL_NODE = "n-1"
POWER_CUTS_MAX = 2


class FaultCell(Cell):
    """A cell whose number of nodes changes from life to life. `room`: bytes that its files may grow by, or None."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, node_lease_ms=LEASE_MS)
        self.nodes = 1
        self.room: int | None = None
        self.disk = self.data / "nodes" / SMALL_NODE
        self.has_disk = False

    def start(self, failpoint: str = "") -> None:
        """A new life with `nodes` nodes."""
        document = json.loads((self.folder / "cluster.json").read_text())
        document["nodes"][0]["count"] = self.nodes
        (self.folder / "cluster.json").write_text(json.dumps(document))
        most = None if self.room is None else self.room + self._journal_bytes()

        def limit() -> None:
            if most is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

        self._begin({}, limit)

    def _journal_bytes(self) -> int:
        newest = max((self.data / "bus").glob("journal-*.jsonl"), default=None)
        return newest.stat().st_size if newest is not None else 0

    def wait_full(self) -> bool:
        """Whether the life ended by itself, for want of room, in time."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(FULL_S)
            assert code == 3, f"life {self.lives} ended with {code}:\n{self.said()}"
            assert "Make room" in self.said(), self.said()
            self.process = None
            return True
        self.kill(0)
        return False

    # ---------------------------------------------------------------- a small disk
    def mount(self) -> None:
        """Gives one node a small disk, where that is possible."""
        self.disk.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(self.disk)]
        self.has_disk = os.geteuid() == 0 and subprocess.run(words, check=False, capture_output=True).returncode == 0

    def fill(self) -> bool:
        """Leaves nothing of the small disk's room; False where there is no such disk."""
        if self.has_disk:
            with suppress(OSError), (self.disk / "ballast").open("ab") as file:  # It may be full already.
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
        return self.has_disk

    def empty(self) -> None:
        """Gives the room back."""
        (self.disk / "ballast").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Takes the small disk away."""
        if self.has_disk:
            subprocess.run(["umount", "-l", str(self.disk)], check=False, capture_output=True)
            self.has_disk = False


class FaultSeed(Seed):
    """One folder's story."""

    def __init__(self, seed: int, folder: Path, lives: int, jobs: int) -> None:
        dice = random.Random(f"faults {seed}")
        super().__init__(seed, folder, [dice.choice(ENDS) for _ in range(lives)], 0, 0)
        self.dice = dice
        self.outcome = Outcome(seed, f"python -m tests.live.fault_campaign --seeds 1 --from {seed} --lives {lives}")
        shutil.rmtree(self.cell.data)
        shutil.rmtree(self.cell.proof)
        self.cell: FaultCell = FaultCell(folder)
        self.cell.mount()
        drawn: list[Job] = drawn_jobs(folder, dice, jobs) + writing_jobs(folder, dice, jobs + jobs // 4)
        self.jobs = dice.sample(drawn, len(drawn))
        self.clients = [type(client)(self.cell) for client in self.clients]
        self.harsh = True  # Guardians are killed, so what ran may count as lost.
        self.reaper = Reaper(self.cell, random.Random(seed))
        self.copies: list[Path] = []

    def run(self) -> Outcome:
        """The whole story. The small disk is taken away in the end."""
        try:
            return super().run()
        finally:
            self.cell.unmount()

    def _die(self, failpoint: str, chunk: list[Job]) -> None:
        """One life, with a fault or two, up to its end (`failpoint`: one of ENDS)."""
        cell, dice, end = self.cell, self.dice, failpoint
        cell.nodes = dice.randint(1, NODES_MAX)
        cell.room = ROOM_BYTES if end == "full" else None
        if end == "power" and self.outcome.figures["power cuts"] >= POWER_CUTS_MAX:
            end = "kill"
        cell.start()
        for client in self.clients:
            client.give(*dice.sample(chunk, len(chunk)))
        if end == "full":
            self.outcome.figures["full journals"] += cell.wait_full()
            return
        cell.until("/readyz", bool)
        self._guardians()  # A life in which nothing runs yet has nothing to lose.
        for fault in dice.sample(FAULTS, 2):
            sleep(dice.uniform(0.5, 2.5))
            self._suffer(fault)
        sleep(dice.uniform(0.2, 2))
        cell.kill(0, dice.uniform(0.5, 3) if end == "gentle" else None)
        if end == "power":
            cell.kill_all()
            self.outcome.figures["power cuts"] += 1
            self.outcome.figures["lines cut"] += cut_power(cell.data / "bus", dice)
        if dice.random() < 0.5:
            cell.empty()

    def _suffer(self, fault: str) -> None:
        cell, figures = self.cell, self.outcome.figures
        assert cell.process is not None
        match fault:
            case "pause":
                os.kill(cell.process.pid, signal.SIGSTOP)
                sleep(PAUSE_S)
                os.kill(cell.process.pid, signal.SIGCONT)
                figures["pauses"] += 1
            case "reap":
                guardians = self._guardians()
                for pid in self.dice.sample(guardians, min(2, len(guardians))):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.reaper.kills += 1
            case "fill":
                figures["full nodes"] += cell.fill()
            case "copy":
                self._copy()

    def _guardians(self) -> list[int]:
        """Guardians of tasks; where there are none yet, those that come within REAP_S."""
        over = monotonic() + REAP_S
        while not (found := self.cell.guardians()) and monotonic() < over:
            sleep(0.1)
        return found

    def _copy(self) -> None:
        """A copy of the running folder, as a tool for backups makes it."""
        copy = self.cell.folder / f"copy-{len(self.copies)}"
        # What is gone when its turn comes is left out.
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(self.cell.data / "bus", copy)
        self.copies.append(copy)
        self.outcome.figures["copies"] += 1

    def _before_last(self) -> None:
        self.cell.nodes, self.cell.room = 2, None
        self.cell.empty()

    def _judge(self) -> None:
        wrong = self.outcome.wrong
        wrong += overlaps(self.cell.folder / "writes")
        super()._judge()
        for copy in filter(has_journal, filter(Path.exists, self.copies)):
            said = largesse("replay", copy, "--verify")
            # A copy of the first moments may have no round.
            if said.code != 0 and "no round was compared" not in said.err:
                wrong.append(f"replay --verify of a copy: {said.code} {said.out}{said.err}")


def run_seed(seed: int, folder: Path, *, lives: int = LIVES, jobs: int = JOBS) -> Outcome:
    """One seed in an empty folder. Nothing of it runs any more when this returns."""
    return FaultSeed(seed, folder, lives, jobs).run()


def main() -> int:
    """Runs seeds one after another; returns 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.fault_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--lives", type=int, default=LIVES, help="of a seed, before the last one")
    parser.add_argument("--kafka", action="store_true", help="cells of processes on a broker")
    given = parser.parse_args()
    if given.kafka:
        from tests.live import fault_campaign_kafka

        return fault_campaign_kafka.run(given.first, given.seeds)
    began, failed = monotonic(), []
    for seed in range(given.first, given.first + given.seeds):
        folder = Path(tempfile.mkdtemp(prefix=f"largesse-faults-{seed}-"))
        outcome = run_seed(seed, folder, lives=given.lives)
        print(outcome.summary(), *([f"kept: {folder}"] if outcome.wrong else []), sep="\n  ", flush=True)
        if outcome.wrong:
            failed.append(seed)
        else:
            shutil.rmtree(folder)
    print(f"{given.seeds} seeds in {(monotonic() - began) / 60:.1f} min; failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
