"""How wrong predictions of starts are, by workload: `python -m tests.simulation.start_truth --runs 20`.

Of every job that its first round does not start, what `why` says then is compared with its start. Beside it stand the
mean wait of the last jobs of its queue, and a run of the cell on from that moment: the same cores, in virtual time,
with nobody else to come, and tasks that take what they are estimated to take. Errors are relative to the wait that was
left. Of each stage of the traces there is a tenth of the tasks.
"""

import argparse
import json
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median

from largesse.log.export import ExportWriter
from schemas import JobAdmitted, JobSpec, Queue, Record, RoundClosed
from schemas.edge.read import Cluster, ClusterNode, read_workload_line
from services.gateway import view
from services.gateway.why.find import why_document
from services.replay.source import Source, Step, open_source
from services.replay.viewing import learn, viewing
from services.replay.whatif import run as what_if
from services.replay.whatif.facts import Told
from services.simulator.drawn import Dice
from services.simulator.run import Options, simulate
from services.simulator.workloads import alibaba_dag
from services.simulator.workloads.files import read_lines
from tests.simulation.why_truth import _Starts

SHARED = Path(__file__).parents[3] / "shared" / "traces"
LAST = 100
"""So many jobs of a queue, the last that started, make up its mean wait."""
LEAST_MS = 1_000
"""A wait that was shorter counts as this long."""
SPAN = ("earliest", "likely", "latest")
QUEUES = ("ads", "ml", "web")
TREE = Queue("root", children=[Queue(name, weight=weight) for name, weight in zip(QUEUES, (3, 2, 1), strict=True)])

Jobs = list[tuple[int, JobSpec]]


# ---------------------------------------------------------------- workloads
def in_queues(jobs: Jobs) -> Jobs:
    """The same jobs, dealt to three queues."""
    return [(at_ms, replace(spec, queue=QUEUES[i % len(QUEUES)])) for i, (at_ms, spec) in enumerate(jobs)]


def thinner(spec: JobSpec) -> JobSpec:
    """The same job with a tenth of the tasks of each stage."""
    stages = []
    for stage in spec.stages:
        lasts_ms = stage.durations_ms[::10] if len(stage.durations_ms) > 1 else stage.durations_ms
        stages.append(replace(stage, tasks=-(-stage.tasks // 10), durations_ms=lasts_ms))
    return replace(spec, stages=stages)


def ready(name: str, count: int) -> Jobs:
    lines = islice(read_lines(str(SHARED / "carbyne" / name)), count)
    jobs = [read_workload_line(json.loads(line)) for _, line in lines]
    return in_queues([(at_ms, thinner(spec)) for at_ms, spec in jobs])


def alibaba(count: int) -> Jobs:
    path = str(SHARED / "alibaba-dag-2018" / "alibaba2018_random_a.jsonl.gz")
    jobs = [read_workload_line(line) for line in islice(alibaba_dag.convert(path), count)]
    return in_queues([(at_ms, thinner(spec)) for at_ms, spec in jobs])


def cell_of(jobs: Jobs, nodes: int) -> Cluster:
    sizes = {"cpu": 20_000, "memory": 128 * 1_024, "disk_io": 4_000, "network": 10_000}
    kinds = {kind for _, spec in jobs for stage in spec.stages for kind in stage.demand}
    return Cluster([ClusterNode(f"m-{i}", {kind: sizes[kind] for kind in sorted(kinds)}) for i in range(nodes)], TREE)


WORKLOADS = {
    "TPC-H": (lambda part: ready("B-4.jsonl.gz", 120 // part), 5),
    "Alibaba": (lambda part: alibaba(600 // part), 4),
    "Facebook": (lambda part: ready("C-4.jsonl.gz", 600 // part), 6),
}


def recorded(path: Path, jobs: Jobs, nodes: int, preset: str) -> Source:
    with ExportWriter(path) as writer:
        simulate(jobs, cell_of(jobs, nodes), Options({"preset": preset, "round_gap_ms": 100}, listener=writer))
    return open_source(path)


# ---------------------------------------------------------------- predictions
@dataclass
class Said:
    """What was said of a job at `at_ms`, behind record `seq`, when its first round had not started it. `mean_ms`: by
    the mean wait of its queue; `run_ms`: by a run from there on; None: nothing.
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


def predictions(source: Source) -> list[Said]:
    """Of every job that waits longer than its first round."""
    found: list[Said] = []
    new: dict[str, bool] = {}
    waiting: dict[str, Said | None] = {}
    waits: dict[str, deque[int]] = {queue: deque(maxlen=LAST) for queue in QUEUES}
    for state, record in folded(source):
        if isinstance(record.body, JobAdmitted):
            new[record.body.spec.job] = True
        elif isinstance(record.body, RoundClosed):
            for name in [name for name in new if name in state.jobs]:
                job = state.jobs[name]
                if job.admitted > state.opened:
                    continue
                del new[name]
                if any(job.starting) or any(job.running) or job.started_ms is not None:
                    waits[job.spec.queue].append(record.time - job.submitted_ms)
                    continue
                document = why_document(state, name)
                start = document["start"] or {}
                past = waits[job.spec.queue]
                mean_ms = max(record.time, job.submitted_ms + sum(past) // len(past)) if past else None
                earliest_ms, likely_ms, latest_ms = (start.get(f"{each}_ms") for each in SPAN)
                reason = document["reasons"][0]["reason"]
                waiting[name] = Said(name, record.seq, record.time, earliest_ms, likely_ms, latest_ms, mean_ms, reason)
            for grant in record.body.grants:
                said = waiting.pop(grant.job, None)
                if said is not None:
                    job = state.jobs[grant.job]
                    waits[job.spec.queue].append(record.time - job.submitted_ms)
                    said.started_ms = record.time
                    found.append(said)
    return found


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


class _Run(what_if._Run):
    def _go_on(self, cell, agents):
        super()._go_on(cell, agents)
        self._outcomes.first.clear()


def run_on(source: Source, seq: int) -> dict[str, int]:
    """When jobs start if nobody else comes."""
    changed = Source(source.name, lambda hear: unknown(source.read(hear)), source.shards_max)
    question, outcomes, heard = what_if.Question(fork=seq, until=seq), _Starts(), Told()
    fork = what_if._read(changed, question, outcomes, heard)
    run = _Run(changed, question, outcomes, heard, fork)
    run.answer(None)
    first: dict[str, int] = {}
    for (job, _), at_ms in outcomes.first.items():
        first.setdefault(job, at_ms)
    return first


def run_some(source: Source, said: list[Said], runs: int) -> None:
    """Runs the cell on from drawn moments of those."""
    seqs = sorted({each.seq for each in said})
    dice = Dice(1)
    drawn = {seqs[dice.upto(len(seqs) - 1, "run", i)] for i in range(runs)} if seqs else set()
    for seq in sorted(drawn):
        starts = run_on(source, seq)
        for each in said:
            if each.seq == seq:
                each.run_ms = starts.get(each.job)


# ---------------------------------------------------------------- the table
def errors_of(said: list[Said], name: str) -> str:
    found = [error for each in said if (error := each.error(getattr(each, name))) is not None]
    return f"{100 * median(found):.0f} % of {len(found)}" if found else "-"


def main(*words: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.start_truth", description=__doc__)
    parser.add_argument("--workload", choices=[*WORKLOADS])
    parser.add_argument("--preset", default="largesse")
    parser.add_argument("--part", type=int, default=1, help="one job in so many")
    parser.add_argument("--runs", type=int, default=20, help="from so many moments the cell is run on")
    parser.add_argument("--rows", help="write what was said of each job there")
    given = parser.parse_args(words)
    if not SHARED.is_dir():
        print("left out: the traces are not beside the project")
        return
    for name in [given.workload] if given.workload else WORKLOADS:
        make, nodes = WORKLOADS[name]
        begun = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            source = recorded(Path(folder) / "log", make(given.part), nodes, given.preset)
            recorded_s = time.process_time() - begun
            said = predictions(source)
            said_s = time.process_time() - begun - recorded_s
            run_some(source, said, given.runs)
        told = [each for each in said if each.likely_ms is not None]
        inside = sum(each.is_inside for each in told)
        run = [each for each in said if each.run_ms is not None]
        print(f"{name}: {len(said)} jobs waited; {len(told)} told, {inside} inside;", end=" ")
        print(f"likely {errors_of(said, 'likely_ms')}, mean wait {errors_of(said, 'mean_ms')};", end=" ")
        print(f"of those from which the cell was run on: likely {errors_of(run, 'likely_ms')},", end=" ")
        print(f"mean {errors_of(run, 'mean_ms')}, run {errors_of(run, 'run_ms')}", flush=True)
        print(f"CPU s: {recorded_s:.0f}, {said_s:.0f}, {time.process_time() - begun - recorded_s - said_s:.0f}")
        if given.rows:
            Path(given.rows).write_text("".join(json.dumps(asdict(each)) + "\n" for each in said))


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
