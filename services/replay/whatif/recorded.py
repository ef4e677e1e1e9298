"""What a recorded log was worth, by the same measures as a simulated run (services/simulator/metrics.py)."""

from dataclasses import dataclass, field, replace

from largesse.lifecycle.job_classes import class_name
from largesse.lifecycle.job_life import succeed
from largesse.lifecycle.task_facts import SpareEnd, facts_of, run_ms_of
from schemas import (
    ConfigChanged,
    Grant,
    JobAdmitted,
    JobEnded,
    JobRejected,
    NodeLost,
    NodeRegistered,
    Policy,
    Record,
    RoundClosed,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from services.simulator.attempts import SimJob, live_job, more_after, note_failed
from services.simulator.cluster import AUTHOR as SIMULATOR
from services.simulator.metrics import Metrics, completion_times
from services.simulator.result import Measured

Attempt = tuple[str, int, int]
"""Stage, index and number of an attempt."""


@dataclass(slots=True)
class Running:
    """An attempt that holds its place. `grant`: the one that started it, perhaps with others, and its `number` among
    all. `begun`: the log has its start."""

    grant: Grant
    start_ms: int
    number: int
    begun: bool = False


@dataclass(slots=True)
class RecordedRuns:
    """Follows the attempts of a log. `seqs`: of the admissions, in order; `jobs`: those that have not ended; `running`:
    by job, their attempts. As in a simulation an attempt runs from its grant on.
    """

    metrics: Metrics
    seqs: list[int] = field(default_factory=list)
    jobs: dict[str, SimJob] = field(default_factory=dict)
    running: dict[str, dict[Attempt, Running]] = field(default_factory=dict)
    _grants: int = 0
    _policy: Policy = field(default_factory=Policy)
    _simulated: dict[str, bool] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)  # By live job, its place in `seqs`.
    _end_ms: dict[int, int] = field(default_factory=dict)  # By that place, when the last attempt had ended.

    def result(self) -> Measured:
        """What the log was worth so far."""
        measured = self.metrics.result()
        for place, row in enumerate(measured["per_job"]):
            if row["outcome"] is not None and place in self._end_ms:
                row["end_ms"] = self._end_ms[place]
        return {**measured, "jct_ms": completion_times(measured["per_job"])}

    def begin(self, time: int) -> None:
        """What is over by now counts no more."""
        self.metrics.begin(time)
        places = list(self._rows.values())
        self._rows = {job: at for at, job in enumerate(self._rows)}
        self.seqs = [self.seqs[place] for place in places]
        self._end_ms = {at: self._end_ms[place] for at, place in enumerate(places) if place in self._end_ms}

    def living(self) -> list[int]:
        """The seqs of the admissions of jobs that have not ended."""
        return [self.seqs[place] for place in self._rows.values()]

    def unsaid(self) -> list[TaskRange]:
        """What was granted and has not begun, as far as the log says."""
        found: list[TaskRange] = []
        for run, indexes in self.in_order():
            if run.begun:
                continue
            grant = run.grant
            for index in indexes:
                last = found[-1] if found and index != indexes[0] else None
                if last is not None and last.first + last.count == index:
                    last.count += 1
                else:
                    place = grant.attempt, grant.node, grant.epoch
                    found.append(TaskRange(grant.job, grant.stage, index, 1, *place))
        return found

    def in_order(self) -> list[tuple[Running, list[int]]]:
        """What runs, grant by grant in the order in which it was started, with the indexes of its tasks."""
        found: dict[int, tuple[Running, list[int]]] = {}
        for running in self.running.values():
            for (_, index, _), run in running.items():
                found.setdefault(run.number, (run, []))[1].append(index)
        return [(run, sorted(indexes)) for _, (run, indexes) in sorted(found.items())]

    def observe(self, record: Record) -> None:
        """One record of the log."""
        body = record.body
        if isinstance(body, RoundClosed):
            for grant in body.grants:
                self._start(grant, record.time)
        elif isinstance(body, TaskStarted | TaskFinished | TaskFailed | NodeLost | NodeRegistered):
            if isinstance(body, NodeRegistered):
                self._simulated[body.node] = body.author == SIMULATOR
            for fact in facts_of(body):
                if isinstance(fact, TaskEnd | TaskFailure | SpareEnd):
                    self._end(fact, record.time)
                else:
                    self._adopt(fact)
        elif isinstance(body, JobAdmitted):
            self._rows[body.spec.job] = len(self.seqs)
            self.seqs.append(record.seq)
            self._admit(body, record.time)
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                for stage, _, _ in self.running.pop(end.job, {}):
                    self.metrics.ended(end.job, stage, 1, record.time)
                    self._end_ms[self._rows[end.job]] = record.time
                del self.jobs[end.job], self._rows[end.job]
                self.metrics.job_ended(end.job, record.time, end.outcome)
        elif isinstance(body, JobRejected):
            self.metrics.rejected(
                body.spec.job, body.reason, sum(stage.tasks for stage in body.spec.stages), record.time
            )
        elif isinstance(body, ConfigChanged):
            self._policy = body.policy or self._policy

    def _admit(self, body: JobAdmitted, time: int) -> None:
        name = body.spec.job
        job = self.jobs[name] = live_job(body)
        named = class_name(self._policy, body.job_class)
        self.metrics.submitted(name, body.spec.queue, named, sum(job.graph.tasks), time)
        self._let_start(job, name, job.graph.roots, time)

    def _let_start(self, job: SimJob, name: str, ready: "list[int] | tuple[int, ...]", time: int) -> None:
        for at in ready:
            stage = job.graph.stages[at]
            self.metrics.runnable(name, stage.stage, stage.demand, stage.width, time)

    def _start(self, grant: Grant, time: int) -> None:
        job = self.jobs[grant.job]
        if grant.why == "speculative":
            demand = job.graph.stages[job.graph.position[grant.stage]].demand
            self.metrics.runnable(grant.job, grant.stage, demand, grant.count, time)
        self.metrics.started(grant.job, grant.stage, grant.count, time)
        self._grants += 1
        running = self.running.setdefault(grant.job, {})
        for index in range(grant.first, grant.first + grant.count):
            running[grant.stage, index, grant.attempt] = Running(grant, time, self._grants)

    def _adopt(self, fact: TaskRange) -> None:
        """Attempts have begun, or an agent that has started again goes on with them, under another epoch."""
        running = self.running.get(fact.job, {})
        for index in range(fact.first, fact.first + fact.count):
            if (known := running.get((fact.stage, index, fact.attempt))) is not None:
                known.begun = True
                if known.grant.epoch != fact.epoch:
                    known.grant = replace(known.grant, epoch=fact.epoch)

    def _end(self, fact: TaskEnd | TaskFailure | SpareEnd, time: int) -> None:
        job, name, stage = self.jobs.get(fact.job), fact.job, fact.stage
        if job is None:
            return  # It has ended before, and its attempts with it.
        running = self.running.get(name, {})
        is_exact = self._simulated.get(fact.node, False)
        for place, index in enumerate(range(fact.first, fact.first + fact.count)):
            ended = running.pop((stage, index, fact.attempt), None)
            if ended is not None:
                self.metrics.ended(name, stage, 1, time)
                # A simulation tells of ends a little later, and when they were.
                took_ms = run_ms_of(fact, place) if is_exact else None
                end_ms = ended.start_ms + took_ms if took_ms else time
                self._end_ms[self._rows[name]] = max(end_ms, self._end_ms.get(self._rows[name], 0))
        at = job.graph.position[stage]
        demand = job.graph.stages[at].demand
        if isinstance(fact, TaskEnd):
            self._let_start(job, name, succeed(job, at, fact.count, fact.attempt) or [], time)
            if more := more_after(job, at, fact.count):
                self.metrics.runnable(name, stage, demand, more, time)
        elif isinstance(fact, TaskFailure):
            back, ready = note_failed(job, at, fact)
            self._let_start(job, name, ready, time)
            self.metrics.runnable(name, stage, demand, back, time)
