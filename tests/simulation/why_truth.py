"""Whether the reasons that `why` names are true: the named obstacle is removed in a what-if from the same moment on,
and the task has to start earlier than it did. `python -m tests.simulation.why_truth --tasks 2000` asks about more.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from largesse.log.export import ExportWriter
from schemas import ConfigChanged, JobAdmitted, JobCancelled, JobChanged, Queue, RoundClosed
from schemas.edge.cluster import ClusterNode
from schemas.edge.read import read_cluster, read_workload_line
from services.gateway import view
from services.gateway.why.waits import Waits
from services.replay.source import Source, Step, open_source
from services.replay.viewing import learn, viewing
from services.replay.whatif import run as what_if
from services.replay.whatif.facts import Told
from services.replay.whatif.outcomes import Outcomes
from services.replay.whatif.run import Question
from services.simulator.drawn import Dice
from services.simulator.drawn_reservations import KNOBS, drawn_reservations
from services.simulator.run import Options, simulate

COPIES = 12
"""So many nodes are added for each that there is: enough for all that waits, also for what comes last."""
OF_TIME = ("after", "back_off", "next_round", "running", "starting")
"""These are no obstacles that anything but time removes."""
PRESETS = ("largesse", "drf", "hdrf", "carbyne", "fifo", "dress", "rayon")


# ---------------------------------------------------------------- a congested cell
def cell_of(seed):
    dice = Dice(seed)
    limits = {"max": {"cpu": str(6 + 2 * dice.upto(4, "max"))}} if dice.one_in(2, "has max") else {}
    running = {"running_jobs_max": 2 + dice.upto(3, "running")} if dice.one_in(2, "has running") else {}
    users = {"user_running_max": 3 + dice.upto(5, "users")} if dice.one_in(2, "has users") else {}
    ads = {"name": "ads", "weight": 60, **limits, "children": [{"name": "prod", "weight": 70}, {"name": "test"}]}
    ml = {"name": "ml", "weight": 40, "children": [{"name": "train", **users}, {"name": "tune", **running}]}
    nodes = [
        {
            "name": "a",
            "count": 2 + dice.upto(2, "a"),
            "labels": {"zone": "a"},
            "capacity": {"cpu": "8", "memory": "32Gi"},
        },
        {
            "name": "b",
            "count": 1 + dice.upto(2, "b"),
            "labels": {"zone": "b"},
            "capacity": {"cpu": "8", "memory": "64Gi"},
        },
        {"name": "gpu", "count": 1 + dice.upto(1, "gpu"), "capacity": {"cpu": "16", "memory": "64Gi", "gpu": "4"}},
    ]
    return {"nodes": nodes, "queues": {"name": "root", "children": [ads, ml, {"name": "default"}]}}


QUEUES = ("ads/prod", "ads/test", "ml/train", "ml/tune", "default")


def job_of(dice, i):
    stages = []
    for k in range(1 + dice.upto(2, i, "stages")):
        demand = {
            "cpu": f"{500 * (1 + dice.upto(7, i, k, 'cpu'))}m",
            "memory": f"{1 + dice.upto(11, i, k, 'memory')}Gi",
        }
        tasks = 1 + dice.upto(1 << dice.upto(4, i, k, "width"), i, k, "tasks")
        stage = {"stage": f"s{k}", "after": [f"s{k - 1}"] if k and dice.one_in(2, i, k, "after") else []}
        if dice.one_in(6, i, k, "gpu"):
            demand["gpu"] = f"{500 * (1 + dice.upto(3, i, k, 'gpus'))}m"
            tasks = min(tasks, 4)
        elif dice.one_in(4, i, k, "zone"):
            stage["labels"] = {"zone": "ab"[dice.upto(1, i, k, "which")]}
        if dice.one_in(5, i, k, "gang"):
            stage["gang"] = True
            tasks = min(tasks, 5)
        elif dice.one_in(6, i, k, "apart"):
            stage["anti_affinity"] = {"required": True}
            tasks = min(tasks, 5)
        elif dice.one_in(6, i, k, "few"):
            stage["running_max"] = 1 + dice.upto(2, i, k, "most")
        lasts_ms = 4_000 + dice.upto(40_000, i, k, "lasts")
        stage |= {"tasks": tasks, "demand": demand, "duration_ms": lasts_ms, "estimate_ms": lasts_ms}
        stages.append(stage)
    return {
        "job": f"job-{i}",
        "submit_ms": dice.upto(60_000, i, "at"),
        "queue": QUEUES[dice.upto(len(QUEUES) - 1, i, "queue")],
        "user": ("ann", "bob")[dice.upto(1, i, "user")],
        "priority": dice.upto(2, i, "priority"),
        "stages": stages,
    }


def recorded(path: Path, seed: int, jobs: int) -> tuple[Source, str]:
    dice = Dice(seed)
    preset = PRESETS[seed % len(PRESETS)]
    lines: list = [read_workload_line(job_of(dice, i)) for i in range(jobs)]
    lines += drawn_reservations(seed) if preset == "rayon" else []
    lines.sort(key=lambda each: each[0])
    with ExportWriter(path) as writer:
        simulate(
            lines, read_cluster(cell_of(seed)), Options({"preset": preset, "seed": seed, **KNOBS}, listener=writer)
        )
    return open_source(path), preset


# ---------------------------------------------------------------- waiting tasks
@dataclass(frozen=True)
class Named:
    """A stage whose tasks wait at the moment of record `seq`, and the main reason, of the queue `limit` where it is one
    of a queue. `also`, `behind`: what is named as holding it, too, and as next, with its queue.
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


def states_at(source: Source, seqs: list[int]) -> Iterator[view.State]:
    """The gateway's view behind each of these records, which are in order."""
    hosted, wanted = viewing(source.start), iter(seqs)
    following = next(wanted, None)
    for step in source.steps():
        learn(hosted, step)
        if step.accepted.record.seq == following:
            yield hosted.state
            following = next(wanted, None)


def owners(state: view.State) -> tuple[str, ...]:
    """Jobs for whose tasks room is gathered."""
    found = {}
    for held in [*state.kept.values(), *state.vacated.values()]:
        for name, job in state.jobs.items():
            for asked, stage in zip(job.asked, job.graph.stages, strict=True):
                if asked and stage.demand == held.task and (stage.tasks if stage.gang else 0) == held.gang:
                    found[name] = True
    return tuple(found)


def named_at(state: view.State) -> list[Named]:
    waits, found = Waits(state), []
    for name, job in state.jobs.items():
        for at, stage in enumerate(job.graph.stages):
            reasons = waits.of_stage(job, at)
            if reasons:
                main, *others = reasons
                row = Named(
                    state.seq,
                    name,
                    stage.stage,
                    main["reason"],
                    main["text"],
                    job.spec.queue,
                    main["numbers"].get("queue", ""),
                    owners(state) if main["reason"] == "kept" else (),
                    pairs_of(others, "also"),
                    pairs_of(others, "behind"),
                )
                found.append(row)
    return found


def pairs_of(reasons, mark: str) -> tuple[tuple[str, str], ...]:
    return tuple((row["reason"], row["numbers"].get("queue", "")) for row in reasons if row["numbers"].get(mark))


# ---------------------------------------------------------------- without the obstacle
@dataclass
class World(Question):
    """What is different: also of jobs, from their submission on, and what an operator says at the fork."""

    jobs: dict[tuple[str, str], dict] = field(default_factory=dict)
    said: list = field(default_factory=list)


class _Starts(Outcomes):
    """By job and stage, when the next of its tasks was granted."""

    def __init__(self):
        super().__init__(1_000)
        self.first: dict[tuple[str, str], int] = {}

    def observe(self, record):
        super().observe(record)
        _note_starts(self.first, record)


def _note_starts(first, record):
    if isinstance(record.body, RoundClosed):
        for grant in record.body.grants:
            first.setdefault((grant.job, grant.stage), record.time)


class _Run(what_if._Run):
    def _differ(self, cell, drive):
        super()._differ(cell, drive)
        cell.put(ConfigChanged(cell.admission.policy, None, "tester"))  # Has a round open.
        for body in self._question.said:
            if body.job in cell.admission.jobs:
                cell.put(body)

    def _go_on(self, cell, agents):
        super()._go_on(cell, agents)
        self._outcomes.first.clear()


def without(source: Source, world: World) -> dict[tuple[str, str], int]:
    """When tasks start in that world behind its fork."""
    changed = Source(source.name, lambda hear: _changed(source.read(hear), world), source.shards_max)
    outcomes, heard = _Starts(), Told()
    fork = what_if._read(changed, world, outcomes, heard)
    run = _Run(changed, world, outcomes, heard, fork)
    run.answer(None)
    return outcomes.first


def _changed(steps: Iterator[Step], world: World) -> Iterator[Step]:
    names = {name for name, _ in world.jobs}
    for step in steps:
        record = step.accepted.record
        if isinstance(record.body, JobAdmitted) and record.body.spec.job in names:
            spec = record.body.spec
            stages = [replace(each, **world.jobs.get((spec.job, each.stage), {})) for each in spec.stages]
            body = replace(record.body, spec=replace(spec, stages=stages))
            step = Step(replace(step.accepted, record=replace(record, body=body)), step.decisions)
        yield step


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
RESERVED = ("lease", "promise_used", "promised")
ROOM = ("no_room", "gang_no_room", "no_node", "failed_there", "behind_head", "pool")


def open_tree(queue: Queue, limits, path: str = "") -> Queue:
    """Without these limits: pairs of a reason and a queue."""
    children = [open_tree(child, limits, f"{path}/{child.name}".lstrip("/")) for child in queue.children]
    changes: dict = {}
    for word, of in limits:
        changes |= LIMITS[word] if of == path else {}
    return replace(queue, children=children, **changes)


def more_nodes(state: view.State) -> list[ClusterNode]:
    return [
        ClusterNode(
            name=f"more-{copy}-{name}", capacity=dict(node.capacity), labels=dict(node.labels), devices=node.devices
        )
        for copy in range(COPIES)
        for name, node in state.nodes.items()
    ]


def worlds_of(state: view.State, rows: list[Named]) -> list[tuple[World, list[Named]]]:
    """Each obstacle removed, for all that name it; what is of one job alone in worlds of their own."""
    groups: dict[tuple, list[Named]] = {}
    for row in rows:
        if row.reason in ROOM:
            groups.setdefault(("room",), []).append(row)
        elif row.reason in LIMITS:
            groups.setdefault((row.reason, row.limit, bool(row.also)), []).append(row)
        elif row.reason in RESERVED:
            groups.setdefault(("reserved",), []).append(row)
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
    return World(
        fork=state.seq,
        added=more_nodes(state) if any(word in ROOM for word in words) else [],
        queues=open_tree(state.queues, limits) if limits and state.queues is not None else None,
        jobs={(row.job, row.stage): changes} if changes else {},
        values={"reservations": "off"} if any(word in RESERVED for word in words) else {},
        said=[
            *(JobCancelled(name, "tester") for name in row.kept_for if name != row.job and "kept" in words),
            *(JobChanged(row.job, hold=hold, author="tester") for hold in (True, False) if "running_max" in words),
        ],
    )


# ---------------------------------------------------------------- the judgement
@dataclass
class Verdict:
    judged: Counter = field(default_factory=Counter)
    earlier: Counter = field(default_factory=Counter)
    left_out: Counter = field(default_factory=Counter)
    exceptions: list[str] = field(default_factory=list)
    explained: int = 0  # Of the exceptions, those that start earlier without what is named behind the main reason, too.

    @property
    def tasks(self) -> int:
        return self.judged.total()

    @property
    def permille(self) -> int:
        return 1_000 * self.earlier.total() // max(1, self.tasks)

    def text(self) -> str:
        rows = [f"{word:<18} {self.earlier[word]:>5} of {count:>5}" for word, count in sorted(self.judged.items())]
        return "\n".join(
            [f"{self.permille / 10:.1f} % of {self.tasks} start earlier", *rows, f"no obstacle: {dict(self.left_out)}"]
        )


def moments_of(source: Source, seed: int, count: int) -> list[int]:
    closings = [
        step.accepted.record.seq for step in source.steps() if isinstance(step.accepted.record.body, RoundClosed)
    ]
    dice = Dice(seed)
    return sorted({closings[dice.upto(len(closings) - 1, "moment", i)] for i in range(count)})


def judge(verdict, seed, jobs, moments, single=8):
    """Asks about one drawn cell; at most `single` obstacles of one job alone at each moment."""
    with tempfile.TemporaryDirectory() as folder:
        source, preset = recorded(Path(folder) / "log", seed, jobs)
        starts: dict[tuple[str, str], list[int]] = {}
        for step in source.steps():
            record = step.accepted.record
            if isinstance(record.body, RoundClosed):
                for grant in record.body.grants:
                    starts.setdefault((grant.job, grant.stage), []).append((record.seq, record.time))
        for state in states_at(source, moments_of(source, seed, moments)):
            rows = named_at(state)
            verdict.left_out.update(row.reason for row in rows if row.reason in OF_TIME)
            alone = 0
            for world, named in worlds_of(state, rows):
                if len(named) == 1 and not (world.added or world.queues):
                    alone += 1
                    if alone > single:
                        continue
                decided = without(source, world)
                for row in named:
                    verdict.judged[row.reason] += 1
                    if _is_earlier(row, starts, decided):
                        verdict.earlier[row.reason] += 1
                    else:
                        _explain(verdict, source, state, row, starts, decided, f"seed {seed} ({preset})")


def _is_earlier(row, starts, decided) -> bool:
    was, now = _was(row, starts), decided.get((row.job, row.stage))
    return now is not None and (was is None or now < was)


def _was(row, starts):
    return next((time for seq, time in starts.get((row.job, row.stage), ()) if seq > row.seq), None)


def _explain(verdict, source, state, row, starts, decided, where) -> None:
    behind = (*row.also, *row.behind)
    is_explained = False
    if row.behind:
        is_explained = _is_earlier(row, starts, without(source, world_of(state, row, behind)))
        verdict.explained += is_explained
    verdict.exceptions.append(
        f"{'behind ' if is_explained else 'UNEXPLAINED '}{where}, record {row.seq} at {state.time}: "
        f"{row.job}/{row.stage} in {row.queue}: {row.reason}, behind it {behind}: {row.text}: "
        f"started at {_was(row, starts)}, without it at {decided.get((row.job, row.stage))}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--moments", type=int, default=6)
    given = parser.parse_args()
    verdict, seed = Verdict(), given.seed
    while verdict.tasks < given.tasks:
        told = len(verdict.exceptions)
        judge(verdict, seed, given.jobs, given.moments)
        print("\n".join([f"seed {seed}:", *verdict.exceptions[told:], verdict.text()]), flush=True)
        seed += 1


if __name__ == "__main__":
    main()
