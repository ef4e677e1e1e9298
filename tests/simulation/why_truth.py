"""Whether the reasons that `why` names are true: `python -m tests.simulation.why_truth --tasks 2000`.

At drawn moments of congested cells the named obstacle is removed in a what-if, and the task has to start earlier than
it did. Where it does not, further runs tell why, or the reason counts as unexplained:

behind    it starts earlier once what `why` names behind the main reason is gone, too;
others    who else waits takes what the obstacle's removal set free: with all others held back, and nobody to come, it
          starts earlier without the obstacle than with it;
siblings  other stages of its own job take it: with all other jobs held back, one of them starts earlier;
turn      room is gathered for one of those that wait, and goes to the next of them, or is lent by a pool to others that
          wait: with all others held back it starts at once, with the obstacle as well;
ordinary  without a reservation its job is one of its queue, and meets the limits there: without those, too, it starts
          earlier;
next      in the recording it starts in the next round already: nothing is earlier.
"""

import argparse
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from largesse.lifecycle.promises import active
from schemas import JobCancelled, JobChanged, Queue, RoundClosed
from schemas.edge.cluster import ClusterNode
from schemas.grants import HeldRoom
from schemas.queue_tree import upwards
from services.gateway import view
from services.gateway.view.state import NodeRow
from services.gateway.why.room import is_for
from services.gateway.why.waits import Waits
from services.replay.source import Source
from services.replay.viewing import learn, viewing
from services.simulator.drawn import Dice
from tests.simulation import congested, traces
from tests.simulation.congested import TRACES, WORKLOADS
from tests.simulation.forked import TESTER, Recording, Starts, Wanted, World

COPIES = 12
"""So many nodes are added for each that there is: enough for all that waits, also for what comes last."""
OF_TIME = ("after", "back_off", "next_round", "running", "starting")
"""These are no obstacles that anything but time removes."""


def recorded(path: Path, seed: int, jobs: int) -> tuple[Source, str]:
    """A log of the mixed workload, and its preset."""
    drawn = congested.mixed(seed, jobs)
    return congested.recorded(path, drawn, seed), drawn.preset


# ---------------------------------------------------------------- waiting tasks
@dataclass(frozen=True)
class Named:
    """A stage whose tasks wait at the moment of record `seq`, and the main reason, of the queue `limit` where it is one
    of a queue. `also`, `behind`: what is named as holding it, too, and as next, with its queue. `kept_for`: for whom
    room is gathered that it could use.
    """

    seq: int
    job: str
    stage: str
    reason: str
    text: str
    queue: str
    limit: str = ""
    kept_for: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()
    behind: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.job, self.stage


def states_at(source: Source, seqs: list[int]) -> Iterator[view.State]:
    """The gateway's view behind each of these records, which are in order."""
    hosted, wanted = viewing(source.start), iter(seqs)
    following = next(wanted, None)
    for step in source.steps():
        learn(hosted, step)
        if step.accepted.record.seq == following:
            yield hosted.state
            following = next(wanted, None)


def held_in(state: view.State) -> list[HeldRoom]:
    return [*state.kept.values(), *state.vacated.values()]


def owners(state: view.State) -> tuple[str, ...]:
    """Jobs for whose tasks room is gathered."""
    found = {}
    for held in held_in(state):
        for name, job in state.jobs.items():
            if any(asked and is_for(held, stage) for asked, stage in zip(job.asked, job.graph.stages, strict=True)):
                found[name] = True
    return tuple(found)


def named_at(state: view.State) -> list[Named]:
    waits, found = Waits(state), []
    for name, job in state.jobs.items():
        for at, stage in enumerate(job.graph.stages):
            reasons = waits.of_stage(job, at)
            if reasons:
                main, *others = reasons
                also = pairs_of(others, "also")
                found.append(
                    Named(
                        state.seq,
                        name,
                        stage.stage,
                        main["reason"],
                        main["text"],
                        job.spec.queue,
                        main["numbers"].get("queue", ""),
                        owners(state) if "kept" in (main["reason"], *(word for word, _ in also)) else (),
                        also,
                        pairs_of(others, "behind"),
                    )
                )
    return found


def pairs_of(reasons, mark: str) -> tuple[tuple[str, str], ...]:
    return tuple((row["reason"], row["numbers"].get("queue", "")) for row in reasons if row["numbers"].get(mark))


# ---------------------------------------------------------------- without the obstacle
LIMITS: dict = {
    "queue_max": {"max": {}},
    "running_limit": {"running_jobs_max": None},
    "user_running_max": {"user_running_max": None},
}
SHRUNK: dict = {
    "labels": {"labels": {}},
    "running_max": {"running_max": None},
    "spread": {"anti_affinity": None, "spread": None},
    "locality": {"prefer": {}},
}
RESERVED = ("lease", "promise_used")
ROOM = ("no_room", "gang_no_room", "no_node", "failed_there", "behind_head")


def has_lease(state: view.State, name: str) -> bool:
    """Whether a reservation promises room to a job now."""
    row = state.reservations.get(state.jobs[name].spec.reservation or "")
    return row is not None and row.state == "accepted" and any(active(row.steps, state.time))


def open_tree(queue: Queue, limits, path: str = "") -> Queue:
    """Without these limits: pairs of a reason and a queue."""
    children = [open_tree(child, limits, f"{path}/{child.name}".lstrip("/")) for child in queue.children]
    changes: dict = {}
    for word, of in limits:
        changes |= LIMITS[word] if of == path else {}
    return replace(queue, children=children, **changes)


def more_nodes(state: view.State) -> list[ClusterNode]:
    def copy_of(number: int, name: str, node: NodeRow) -> ClusterNode:
        return ClusterNode(f"more-{number}-{name}", dict(node.capacity), labels=dict(node.labels), devices=node.devices)

    return [copy_of(number, name, node) for number in range(COPIES) for name, node in state.nodes.items()]


def worlds_of(state: view.State, rows: list[Named]) -> list[tuple[World, list[Named]]]:
    """Each obstacle removed, for all that name it; what is of one job alone in worlds of their own. Where a promise is
    removed, who uses it now goes, and whom room is promised to later goes on waiting.
    """
    groups: dict[tuple, list[Named]] = {}
    for row in rows:
        if row.reason in ROOM or row.reason == "pool":
            groups.setdefault((row.reason == "pool", *row.also), []).append(row)
        elif row.reason in LIMITS:
            groups.setdefault((row.reason, row.limit, *row.also), []).append(row)
        elif row.reason == "promised":
            groups.setdefault(("promised",), []).append(row)
        elif row.reason == "kept" and row.job not in row.kept_for:
            groups.setdefault(("kept",), []).append(row)
        elif row.reason not in OF_TIME:
            groups.setdefault((row.reason, row.job, row.stage), []).append(row)
    return [(world_of(state, named[0], named[0].also), named) for named in groups.values()]


def world_of(state: view.State, row: Named, more: tuple[tuple[str, str], ...] = ()) -> World:
    """Without the obstacle of a row, and `more` of them. What a stage is asked for by was recorded under its limit: a
    job that is held and released is asked for anew.
    """
    obstacles = ((row.reason, row.limit), *more)
    words = [word for word, _ in obstacles]
    limits = [each for each in obstacles if each[0] in LIMITS]
    changes: dict = {}
    for word in words:
        changes |= SHRUNK.get(word, {})
    promised = any(word in ("promised", *RESERVED) for word in words)
    promised = promised or ("kept" in words and any(held.why == "promise" for held in held_in(state)))
    values: dict = {"reservations": "off"} if promised else {}
    reserved = [name for names in state.reserving.values() for name in names if name != row.job] if promised else []
    in_use = [name for name in reserved if "promised" in words and has_lease(state, name)]
    values |= {"classes": "off"} if "pool" in words else {}
    return World(
        fork=state.seq,
        added=more_nodes(state) if any(word in ROOM for word in words) else [],
        queues=open_tree(state.queues, limits) if limits and state.queues is not None else None,
        jobs={row.key: changes} if changes else {},
        values=values,
        said=[
            *(JobCancelled(name, TESTER) for name in in_use),
            *(JobChanged(name, hold=True, author=TESTER) for name in reserved if name not in in_use),
            *(JobCancelled(name, TESTER) for name in row.kept_for if name != row.job and "kept" in words),
            *(JobChanged(row.job, hold=hold, author=TESTER) for hold in (True, False) if "running_max" in words),
            *(JobChanged(row.job, hold=False, author=TESTER) for _ in words if "held" in words),
        ],
    )


# ---------------------------------------------------------------- the judgement
EXPLAINED = ("behind", "others", "siblings", "turn", "ordinary", "next")


@dataclass
class Verdict:
    """By workload and reason, how many were judged, start earlier, and are explained how."""

    judged: Counter[tuple[str, str]] = field(default_factory=Counter)
    earlier: Counter[tuple[str, str]] = field(default_factory=Counter)
    explained: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    exceptions: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> int:
        return self.judged.total()

    @property
    def permille(self) -> int:
        return 1_000 * self.earlier.total() // max(1, self.tasks)

    @property
    def unexplained(self) -> list[str]:
        return [text for text in self.exceptions if text.startswith("UNEXPLAINED")]

    def of(self, workload: str) -> int:
        return sum(count for (of, _), count in self.judged.items() if of == workload)

    def text(self) -> str:
        """A table by reason and workload."""
        names = list(dict.fromkeys(workload for workload, _ in self.judged))
        rows = [["", *names, "in all"]]
        for reason in sorted({reason for _, reason in self.judged}):
            pairs = [(self.earlier[name, reason], self.judged[name, reason]) for name in names]
            rows.append([reason, *map(_cell, [*pairs, _sum(pairs)])])
        sums = [
            _sum([(self.earlier[key], count) for key, count in self.judged.items() if key[0] == of]) for of in names
        ]
        rows.append(["in all", *map(_cell, [*sums, _sum(sums)])])
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        ways = Counter(dict.fromkeys(EXPLAINED, 0))
        for (_, _, way), count in self.explained.items():
            ways[way] += count
        lines.append(f"{self.permille / 10:.1f} % of {self.tasks} start earlier; the others: {dict(ways)}")
        lines.append(f"unexplained: {len(self.unexplained)}; no obstacle: {dict(sorted(self.left_out.items()))}")
        return "\n".join(lines)


def _cell(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}" if pair[1] else ""


def _sum(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(earlier for earlier, _ in pairs), sum(judged for _, judged in pairs)


def moments_of(source: Source, seed: int, count: int) -> list[int]:
    closings = [
        step.accepted.record.seq for step in source.steps() if isinstance(step.accepted.record.body, RoundClosed)
    ]
    dice = Dice(seed)
    return sorted({closings[dice.upto(len(closings) - 1, "moment", i)] for i in range(count)})


@dataclass
class Judge:
    """Of one recording: when tasks were granted there, and what became of it otherwise."""

    verdict: Verdict
    workload: str
    where: str
    recording: Recording
    granted: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    closings: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for step in self.recording.steps:
            record = step.accepted.record
            if isinstance(record.body, RoundClosed):
                self.closings.append(record.seq)
                for grant in record.body.grants:
                    self.granted.setdefault((grant.job, grant.stage), []).append((record.seq, record.time))

    def was(self, row: Named) -> int | None:
        return next((time for seq, time in self.granted.get(row.key, ()) if seq > row.seq), None)

    def next_grant(self, row: Named) -> int | None:
        """The record that granted it next."""
        return next((seq for seq, _ in self.granted.get(row.key, ()) if seq > row.seq), None)

    def next_closing(self, seq: int) -> int | None:
        """The record that closed the next round."""
        at = bisect_right(self.closings, seq)
        return self.closings[at] if at < len(self.closings) else None

    def is_earlier(self, row: Named, decided: Starts) -> bool:
        was, now = self.was(row), decided.get(row.key)
        return now is not None and (was is None or now < was)

    def at(self, state: view.State, rows: list[Named], single: int) -> None:
        """All that waits at one moment; at most `single` obstacles of one job alone."""
        self.recording.follow(state.seq)
        self.verdict.left_out.update(row.reason for row in rows if row.reason in OF_TIME)
        alone = 0
        for world, named in worlds_of(state, rows):
            alone += bool(world.jobs)
            if world.jobs and alone > single:
                continue
            decided = self.recording.tried(world, {row.key: self.was(row) for row in named})
            for row in named:
                key = self.workload, row.reason
                self.verdict.judged[key] += 1
                if self.is_earlier(row, decided):
                    self.verdict.earlier[key] += 1
                else:
                    self._explain(state, row, decided)

    def _explain(self, state: view.State, row: Named, decided: Starts) -> None:
        way = self._way(state, row)
        if way:
            self.verdict.explained[self.workload, row.reason, way] += 1
        behind = f", behind it {row.behind}" if row.behind else ""
        also = f", and also {row.also}" if row.also else ""
        self.verdict.exceptions.append(
            f"{way or 'UNEXPLAINED'}: {self.where}, record {row.seq} at {state.time}: {row.job}/{row.stage} in "
            f"{row.queue}: {row.reason}{also}{behind}: {row.text}: started at {self.was(row)}, "
            f"without it at {decided.get(row.key, 'no such time')}"
        )

    def _way(self, state: view.State, row: Named) -> str:
        """Why a task does not start earlier, shown by further runs; empty: nothing that is known."""
        if self.next_grant(row) == self.next_closing(row.seq):
            return "next"
        wanted: Wanted = {row.key: self.was(row)}
        if row.behind and self.is_earlier(
            row, self.recording.tried(world_of(state, row, (*row.also, *row.behind)), wanted)
        ):
            return "behind"
        if row.reason in RESERVED:
            limits = [(word, path) for path in upwards(row.queue) for word in LIMITS]
            if self.is_earlier(row, self.recording.tried(world_of(state, row, (*row.also, *limits)), wanted)):
                return "ordinary"
        without = replace(world_of(state, row, row.also), only=(row.job, *row.kept_for))
        beside = World(fork=state.seq, only=(row.job, *row.kept_for))
        wanted = {row.key: None}
        freed, bound = self.recording.tried(without, wanted), self.recording.tried(beside, wanted)
        now, then, was = freed.get(row.key), bound.get(row.key), self.was(row)
        if now is not None and (then is None or now < then):
            return "others"
        if row.reason in ("kept", "pool") and now is not None and now == then and (was is None or now < was):
            return "turn"
        siblings = [key for key in freed if key[0] == row.job and key != row.key]
        return "siblings" if any(freed[key] < bound.get(key, freed[key] + 1) for key in siblings) else ""


def judge(verdict: Verdict, seed: int, moments: int, single: int = 4, workload: str = "mixed", jobs: int = 60) -> None:
    """Asks about one drawn cell."""
    drawn = congested.mixed(seed, jobs) if workload == "mixed" else WORKLOADS[workload](seed)
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(congested.recorded(Path(folder) / "log", drawn, seed))
    judged = Judge(verdict, workload, f"{workload}, seed {seed} ({drawn.preset})", recording)
    source = recording.source
    for state in states_at(source, moments_of(source, seed, moments)):
        judged.at(state, named_at(state), single)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.why_truth", description=__doc__)
    parser.add_argument("--tasks", type=int, default=2_000, help="of all workloads together, alike of each")
    parser.add_argument("--workload", action="append", choices=[*WORKLOADS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moments", type=int, default=6)
    given = parser.parse_args()
    names = given.workload or [name for name in WORKLOADS if name not in TRACES or traces.are_there()]
    verdict = Verdict()
    for name in names:
        seed = given.seed
        while verdict.of(name) < given.tasks / len(names):
            told, begun, before = len(verdict.exceptions), time.monotonic(), verdict.of(name)
            judge(verdict, seed, given.moments, workload=name)
            took_s = time.monotonic() - begun
            lines = [f"{name}, seed {seed}: {verdict.of(name) - before} in {took_s:.0f} s", *verdict.exceptions[told:]]
            print("\n".join(lines), flush=True)
            seed += 1
    print(verdict.text())


if __name__ == "__main__":
    main()
