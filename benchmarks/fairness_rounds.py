"""What a round costs in fairness when one of many leaf queues asks for something else, in CPU time.

The core alone: facts, opening, decision and closing are made, encoded, hashed and folded. All leaves together ask for
about twice the cell; each round one leaf's job ends and another one comes. Flat trees and four levels, plain, with a
maximum on every tenth group (`maxima`), or with another policy below it (`policies`). Medians and the longest round,
with changes tolerated as by default (levels follow once a second) and with every change followed at once. The first two
rounds are shown by themselves: the first fills the tree, and in the second all guarantees count as broken at once,
since nothing ever starts here.
Run it with `make bench`, or `python -m benchmarks.fairness_rounds [--quick]` for the small sizes.
"""

import hashlib
import sys
import time
from random import Random
from statistics import median

from largesse.core import OpenRound
from largesse.log import codec
from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobEnded,
    JobSpec,
    NodeRegistered,
    Policy,
    Queue,
    Record,
    RoundClosed,
    RoundOpened,
    Stage,
)
from schemas.jobs import JobEnd
from schemas.queue_tree import walk
from services.fairness import core
from services.simulator.run import uncollected

KINDS = ("cpu", "memory", "network")
CAPACITY = 10**9
ROUNDS = 20


def main() -> None:
    """Prints one table."""
    sizes = (1, 100, 1_000) if "--quick" in sys.argv else (1, 100, 1_000, 10_000)
    print(f"{'':>23} | {'':>21} | {'levels follow in time':^21} | {'levels follow at once':^21} |")
    print(f"{'leaves':>7} {'depth':>5} {'limits':>9} | {'first':>10} {'second':>10} ", end="")
    print(f"| {'median':>10} {'longest':>10} ", end="")
    print(f"| {'median':>10} {'longest':>10} | levels told")
    for leaves in sizes:
        for depth, limits in ((1, ""), (4, ""), (8, ""), (4, "maxima"), (4, "policies")):
            begins, costs, _ = measured(leaves, depth, limits, Policy().demand_tolerance_permille)
            _, strict, published = measured(leaves, depth, limits, 0)
            opening = " ".join([f"{each * 1e3:>7.1f} ms" for each in begins])
            shown = " | ".join(f"{median(each) * 1e3:>7.1f} ms {max(each) * 1e3:>7.1f} ms" for each in (costs, strict))
            print(f"{leaves:>7} {depth:>5} {limits:>9} | {opening} | {shown} | {published}", flush=True)


def measured(leaves: int, depth: int, limits: str, tolerance_permille: int) -> tuple[list[float], list[float], int]:
    """CPU seconds of the first two rounds and of those that follow; levels published in one of these."""
    draw = Random(1)
    tree = queues(leaves, depth, draw, limits)
    paths = [path for path, queue in walk(tree) if not queue.children]
    log, live, costs, published = _Log(), {}, [], []
    policy = Policy(preset="hdrf", keyframe_rounds=10**9, demand_tolerance_permille=tolerance_permille)
    log.put(ConfigChanged(policy, tree))
    log.put(NodeRegistered("n", "e", dict.fromkeys(KINDS, CAPACITY)))
    for path in paths:
        live[path] = log.job(path, leaves, draw)
    with uncollected():
        began = time.process_time()
        log.round()
        costs.append(time.process_time() - began)
        for _ in range(ROUNDS + 1):
            path = draw.choice(paths)
            began = time.process_time()
            before, live[path] = live[path], log.job(path, leaves, draw)
            log.put(JobEnded([JobEnd(before, "cancelled")]))
            published.append(log.round())
            costs.append(time.process_time() - began)
    return costs[:2], costs[2:], sorted(published[1:])[ROUNDS // 2]


def queues(leaves: int, depth: int, draw: Random, limits: str) -> Queue:
    """A tree of so many leaves, each inner queue with as many children as its depth makes even."""
    level = [Queue(f"l{at}", draw.randint(1, 5)) for at in range(leaves)]
    fan = max(2, round(leaves ** (1 / depth)))
    for number in range(depth - 1):
        if len(level) <= fan:
            break
        groups = [level[at : at + fan] for at in range(0, len(level), fan)]
        level = [Queue(f"g{number}-{at}", draw.randint(1, 5), children=group) for at, group in enumerate(groups)]
        for queue in level[::10] if number == 0 else ():
            if limits == "maxima":
                queue.max = {"cpu": CAPACITY // (2 * len(level))}
            elif limits == "policies":
                queue.policy = "drf"
    return Queue("root", children=level)


class _Log:
    """A log that only fairness hears."""

    def __init__(self) -> None:
        self.state = core.start()
        self._seq = self._round = self._jobs = 0

    def put(self, body: object) -> Record:
        self._seq += 1
        record = codec.record_of(
            body,
            cell="default",
            seq=self._seq,
            round_number=self._round,
            time=100 * self._round,
            id_=f"default/{self._seq}",
            cause="",
        )
        if type(body) in core.FOLDS:
            core.fold(self.state, record)
        return record

    def job(self, leaf: str, leaves: int, draw: Random) -> str:
        """A job that asks for up to four times an equal part of the cell. Returns its name."""
        self._jobs += 1
        demand = {kind: draw.randint(1, 2_000) for kind in KINDS if draw.random() < 0.75} or {KINDS[0]: 1}
        tasks = max(1, int(draw.random() * 4 * CAPACITY / leaves / max(demand.values())))
        spec = JobSpec(f"j{self._jobs}", leaf, [Stage("s", tasks, demand)])
        self.put(JobAdmitted(spec, 0))
        return spec.job

    def round(self) -> int:
        """One round. Returns how many levels were published."""
        self._round += 1
        opened = self.put(RoundOpened(1, ""))
        (shares,) = core.decide(self.state, OpenRound(opened))
        hashlib.sha256(codec.encode(self.put(shares))).hexdigest()
        self.put(RoundClosed([], [], [], None, []))
        return len(shares.levels)


if __name__ == "__main__":
    main()
