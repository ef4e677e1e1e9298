"""How wrong predictions of starts are, by workload: `python -m tests.simulation.start_truth`.

Of every job that its first round does not start, what `why` says then is compared with its start; beside it stands the
mean wait of the last jobs of its queue. At drawn moments all jobs that wait are compared with a run of the cell on from
there, too: the same cores, in virtual time, with nobody else to come, and tasks that take what they are estimated to
take, as a backfill simulation predicts starts. Errors are relative to the wait that was left. Of each stage of the
traces there is a tenth of the tasks. Each trace is also taken with limits of queues, and with pools of two classes.
"""

import argparse
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from largesse.log.export import ExportWriter
from schemas import JobAdmitted, Queue, Record, RoundClosed
from services.gateway import view
from services.gateway.why.find import why_document
from services.replay.source import Source, Step, open_source
from services.replay.viewing import learn, viewing
from services.simulator.drawn import Dice
from services.simulator.run import Options, simulate
from tests.simulation import traces
from tests.simulation.forked import Recording, World
from tests.simulation.traces import QUEUES, TREE, Jobs

LAST = 100
"""So many jobs of a queue, the last that started, make up its mean wait."""
LEAST_MS = 1_000
"""A wait that was shorter counts as this long."""
SPAN = ("earliest", "likely", "latest")
BESIDE_LEAST = 100
"""So many jobs are compared with a run on from there, if as many wait."""
MOMENTS_MAX = 400


# ---------------------------------------------------------------- workloads
def limited(nodes: int) -> Queue:
    """The queues of the traces, each with a limit of its own."""
    ads, ml, web = TREE.children
    most = {"cpu": traces.SIZES["cpu"] * nodes * 3 // 10}
    return replace(
        TREE,
        children=[replace(ads, max=most), replace(ml, running_jobs_max=3), replace(web, user_running_max=4)],
    )


POOLS: dict[str, int | str] = {
    "preset": "dress",
    "reserve_ratio_permille_min": 300,
    "reserve_ratio_permille_max": 300,
    "theta_permille": 200,
}


@dataclass(frozen=True)
class Workload:
    """Jobs, of which one in so many is taken, on so many nodes."""

    jobs: Callable[[int], Jobs]
    nodes: int
    tree: Callable[[int], Queue] = lambda _: TREE
    knobs: dict[str, int | str] = field(default_factory=dict)


PLAIN = {
    "TPC-H": Workload(lambda part: traces.carbyne("B-4.jsonl.gz", 130 // part), 5),
    "Alibaba": Workload(lambda part: traces.alibaba(600 // part), 3),
    "Facebook": Workload(lambda part: traces.carbyne("C-4.jsonl.gz", 300 // part), 6),
}
WORKLOADS = {
    **PLAIN,
    **{f"{name}, limits": replace(each, tree=limited) for name, each in PLAIN.items()},
    **{f"{name}, pools": replace(each, knobs=POOLS) for name, each in PLAIN.items()},
}


def recorded(path: Path, workload: Workload, part: int, preset: str) -> Source:
    jobs, nodes = workload.jobs(part), workload.nodes
    with ExportWriter(path) as writer:
        values: dict[str, int | str | list[int]] = {"preset": preset, "round_gap_ms": 100, **workload.knobs}
        simulate(jobs, traces.cell_of(jobs, nodes, workload.tree(nodes)), Options(values, listener=writer))
    return open_source(path)


# ---------------------------------------------------------------- predictions
@dataclass
class Said:
    """What was said of a job at `at_ms`, behind record `seq`. `mean_ms`: by the mean wait of its queue; `run_ms`: by a
    run from there on; None: nothing.
    """

    job: str
    seq: int
    at_ms: int
    earliest_ms: int | None
    likely_ms: int | None
    latest_ms: int | None
    mean_ms: int | None
    reason: str
    run_ms: int | None = None
    started_ms: int | None = None

    def error(self, said_ms: int | None) -> float | None:
        """Relative to the wait that was left."""
        if said_ms is None or self.started_ms is None:
            return None
        return abs(said_ms - self.started_ms) / max(LEAST_MS, self.started_ms - self.at_ms)

    @property
    def is_inside(self) -> bool:
        assert self.started_ms is not None
        assert self.earliest_ms is not None
        return self.earliest_ms <= self.started_ms <= (self.latest_ms or 0)


def folded(source: Source) -> Iterator[tuple[view.State, Record]]:
    """The gateway's view behind every record."""
    hosted = viewing(source.start)
    for step in source.steps():
        learn(hosted, step)
        yield hosted.state, step.accepted.record


@dataclass
class Observed:
    """`first`: of every job that waits longer than its first round, what was said then; `drawn`: of those that wait at
    moments that are looked at, what was said there for the first time, by the seq of the moment.
    """

    first: list[Said] = field(default_factory=list)
    drawn: dict[int, list[Said]] = field(default_factory=dict)
    stages: dict[str, list[str]] = field(default_factory=dict)
    """By job, the stages that could start first."""


def observed(source: Source, moments: list[int]) -> Observed:
    found = Observed()
    new: dict[str, bool] = {}
    waiting: dict[str, list[Said]] = {}
    waits: dict[str, deque[int]] = {queue: deque(maxlen=LAST) for queue in QUEUES}
    seen: dict[str, bool] = {}
    at_moments = dict.fromkeys(moments, True)
    for state, record in folded(source):
        if isinstance(record.body, JobAdmitted):
            new[record.body.spec.job] = True
        elif isinstance(record.body, RoundClosed):
            for grant in record.body.grants:
                if grant.job in new or grant.job in waiting:
                    job = state.jobs[grant.job]
                    waits[job.spec.queue].append(record.time - job.submitted_ms)
                    new.pop(grant.job, None)
                    for said in waiting.pop(grant.job, ()):
                        said.started_ms = record.time
            for name in [name for name in new if state.jobs[name].admitted <= state.opened]:
                del new[name]
                found.first.append(_said(state, name, waits))
                waiting[name] = [found.first[-1]]
            if record.seq in at_moments:
                for name in [name for name in waiting if name not in seen]:
                    seen[name] = True
                    said = _said(state, name, waits)
                    found.drawn.setdefault(record.seq, []).append(said)
                    waiting[name].append(said)
                    graph = state.jobs[name].graph
                    found.stages[name] = [graph.stages[at].stage for at in graph.roots]
    return found


def _said(state: view.State, name: str, waits: dict[str, deque[int]]) -> Said:
    job, document = state.jobs[name], why_document(state, name)
    start = document["start"] or {}
    past = waits[job.spec.queue]
    mean_ms = max(state.time, job.submitted_ms + sum(past) // len(past)) if past else None
    earliest_ms, likely_ms, latest_ms = (start.get(f"{each}_ms") for each in SPAN)
    reason = document["reasons"][0]["reason"]
    return Said(name, state.seq, state.time, earliest_ms, likely_ms, latest_ms, mean_ms, reason)


# ---------------------------------------------------------------- the cell on from here
def unknown(steps: Iterator[Step]) -> Iterator[Step]:
    """The same log, without what tasks will take."""
    for step in steps:
        record = step.accepted.record
        if isinstance(record.body, JobAdmitted):
            spec = record.body.spec
            stages = [replace(stage, durations_ms=[]) for stage in spec.stages]
            body = replace(record.body, spec=replace(spec, stages=stages))
            step = Step(replace(step.accepted, record=replace(record, body=body)), step.decisions)
        yield step


def moments_of(source: Source) -> list[int]:
    closings = [
        step.accepted.record.seq for step in source.steps() if isinstance(step.accepted.record.body, RoundClosed)
    ]
    dice = Dice(1)
    return sorted({closings[dice.upto(len(closings) - 1, "run", i)] for i in range(MOMENTS_MAX)})


def run_some(source, found):
    """Runs the cell on from drawn moments until enough jobs are compared; forgets the other moments."""
    changed = Source(source.name, lambda hear: unknown(source.read(hear)), source.shards_max)
    recording = Recording(changed, foresight=False)
    dice, jobs, taken = Dice(2), 0, []
    while found.drawn.keys() - taken and jobs < BESIDE_LEAST:
        left = [seq for seq in found.drawn if seq not in taken]
        taken.append(left[dice.upto(len(left) - 1, "moment", len(taken))])
        jobs += len(found.drawn[taken[-1]])
    for seq in sorted(taken):
        recording.follow(seq)
        wanted = {(each.job, stage): None for each in found.drawn[seq] for stage in found.stages[each.job]}
        starts = recording.tried(World(fork=seq, until=seq), wanted)
        for each in found.drawn[seq]:
            moments = [starts[each.job, stage] for stage in found.stages[each.job] if (each.job, stage) in starts]
            each.run_ms = min(moments, default=None)
    found.drawn = {seq: found.drawn[seq] for seq in sorted(taken)}


# ---------------------------------------------------------------- the table
def error_of(said: list[Said], name: str) -> str:
    found = [error for each in said if (error := each.error(getattr(each, name))) is not None]
    return f"{100 * median(found):.0f} %" if found else "-"


def inside(said: list[Said]) -> str:
    told = [each for each in said if each.likely_ms is not None and each.started_ms is not None]
    return f"{100 * sum(each.is_inside for each in told) / len(told):.0f} %" if told else "-"


def row_of(name: str, found: Observed) -> str:
    """As docs/why.md has it."""
    first = [each for each in found.first if each.started_ms is not None]
    drawn = [each for rows in found.drawn.values() for each in rows if each.run_ms is not None]
    told = sum(each.likely_ms is not None for each in first)
    cells = [name, f"{told} of {len(first)}", error_of(first, "likely_ms"), error_of(first, "mean_ms"), inside(first)]
    cells += [str(len(drawn)), error_of(drawn, "likely_ms"), error_of(drawn, "mean_ms"), error_of(drawn, "run_ms")]
    return f"| {' | '.join([*cells, inside(drawn)])} |"


def compared(folder: Path, workload: Workload, part: int, preset: str) -> Observed:
    """What is said of the jobs of a workload, and what comes of them."""
    source = recorded(folder / "log", workload, part, preset)
    steps = list(source.steps())
    source = Source(source.name, lambda hear: iter(steps), source.shards_max)
    found = observed(source, moments_of(source))
    run_some(source, found)
    return found


def main(*words: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.start_truth", description=__doc__)
    parser.add_argument("--workload", action="append", choices=[*WORKLOADS])
    parser.add_argument("--preset", default="largesse")
    parser.add_argument("--part", type=int, default=1, help="one job in so many")
    parser.add_argument("--rows", help="write what was said of each job there")
    given = parser.parse_args(words)
    if not traces.are_there():
        print("left out: the traces are not beside the project")
        return
    for name in given.workload or WORKLOADS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = compared(Path(folder), WORKLOADS[name], given.part, given.preset)
        print(row_of(name, found), f"{time.monotonic() - begun:.0f} s", flush=True)
        if given.rows:
            rows = [*found.first, *(each for rows in found.drawn.values() for each in rows)]
            with Path(given.rows).open("a") as file:
                file.writelines(json.dumps({"workload": name} | asdict(each)) + "\n" for each in rows)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
