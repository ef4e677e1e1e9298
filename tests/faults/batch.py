"""Many seeds one after the other: what was wrong, what was met, and how fast it went."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.faults.checks import check
from tests.faults.plan import EVENTS, POINTS, RATES, Plan, draw
from tests.faults.shrink import shrink
from tests.faults.world import Report, run

PIECE = 20
"""So many seeds are given to a process at a time."""
MET = (
    *(f"bus: {kind}" for kind in RATES if kind != "reading"),
    "bus: reading failed",
    "bus: record held back",
    "bus: claim held back",
    "bus: cut off behind an append",
    *(f"fault: {kind}" for kind in EVENTS if kind != "absence"),
    *(f"point: admission {point}" for point in POINTS[0][1]),
    *(f"point: leftover {point}" for point in POINTS[1][1]),
    *(f"point: altruism {point}" for point in POINTS[1][1]),
    *(f"point: agent {point}" for point in POINTS[2][1]),
    "fencing: claims",
    "fencing: void, of an older claim",
    "fencing: void, by its seq",
    "record: NodeLost",
    "record: InputRepeated",
    "record: InputRefused",
    "lease: suspend",
    "lease: end",
    "lease: goes on",
    "adoption: runs on",
    "adoption: has ended",
    "adoption: is lost",
    "outbox: said again",
    "snapshots compared",
    "replay: rounds compared",
)
"""What a batch of some hundred seeds has to have met."""


@dataclass(slots=True)
class Batch:
    """What seeds came to. `failed`: reports of those in which something was wrong."""

    seeds: int = 0
    met: Counter[str] = field(default_factory=Counter)
    failed: list[Report] = field(default_factory=list)
    cpu_s: float = 0.0
    virtual_ms: int = 0
    records: int = 0

    def add(self, other: "Batch") -> None:
        """Takes in what other seeds came to."""
        self.seeds += other.seeds
        self.met += other.met
        self.failed += other.failed
        self.cpu_s += other.cpu_s
        self.virtual_ms += other.virtual_ms
        self.records += other.records

    def missed(self) -> list[str]:
        """What it has not met of what there is to meet."""
        return [name for name in MET if not self.met[name]]

    def text(self) -> str:
        """For people."""
        rate = int(3_600 * self.seeds / self.cpu_s) if self.cpu_s else 0
        lines = [f"{name:>44} {count}" for name, count in sorted(self.met.items())]
        lines += [f"{name:>44} never" for name in self.missed()]
        hours = self.virtual_ms / 3_600_000
        lines.append(
            f"{self.seeds} seeds, {len(self.failed)} failed; {self.records} records, {hours:.1f} virtual hours, "
            f"{self.cpu_s:.1f} s of CPU: {rate} seeds an hour on one core"
        )
        return "\n".join(lines)


def play(seeds: Iterable[int], told: Callable[[Report], None] = lambda report: None) -> Batch:
    """Plays seeds; `told` is called with each report."""
    gc.freeze()  # What is imported by now stays, and need not be looked through.
    batch, begun_s = Batch(), time.process_time()
    for seed in seeds:
        report = run(draw(seed), check=check)
        batch.seeds += 1
        batch.met += report.met
        batch.virtual_ms += report.virtual_ms
        batch.records += report.records
        if report.wrong:
            batch.failed.append(report)
        batch.cpu_s = time.process_time() - begun_s
        told(report)
    return batch


def play_beside(first: int, count: int, jobs: int, told: Callable[[Report], None] = lambda report: None) -> Batch:
    """Plays as many seeds from the first on, in `jobs` processes; `told` hears of those that failed."""
    if jobs <= 1:
        return play(range(first, first + count), told)
    pieces = [range(at, min(at + PIECE, first + count)) for at in range(first, first + count, PIECE)]
    batch = Batch()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for part in pool.map(play, pieces):
            batch.add(part)
            for report in part.failed:
                told(report)
    return batch


def smallest(report: Report) -> Plan:
    """The plan of a failed report, made smaller as long as the same rule is broken."""
    rule = report.wrong[0].rule

    def breaks(plan: Plan) -> bool:
        return any(wrong.rule == rule for wrong in run(plan, check=check).wrong)

    return shrink(report.plan, breaks)
