"""A simulated cluster: virtual nodes under one virtual agent, in virtual time. No task runs; its end is known when it
starts.

It sees what an agent sees (closings, job ends, failures in the log) and answers with what an agent reports, one batch
an instant. True durations and demands are here; the scheduler is told estimates. Once the preset is `slots`, nodes may
hold more than they have, and tasks there run slower (shared_nodes.py).
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from largesse.lifecycle.job_classes import class_name
from largesse.lifecycle.job_life import succeed
from largesse.lifecycle.task_facts import facts_of
from schemas import (
    ConfigChanged,
    Grant,
    HeldRoom,
    JobAdmitted,
    JobEnded,
    JobRejected,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    Record,
    Revocation,
    RoundClosed,
    Stage,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.presets import PRESETS
from schemas.quantities import Vector
from schemas.tasks import Failure
from services.simulator.attempts import Run, SimJob, live_job, more_after, note_failed, peak_of, stretch_of
from services.simulator.copies import Copies
from services.simulator.metrics import Metrics
from services.simulator.schedule import AttemptOutcome, Schedule
from services.simulator.shared_nodes import SharedNodes
from services.simulator.slow_nodes import SlowNodes

AUTHOR = "simulator"
_NUMBER_BITS: Final = 32  # Runs of one simulation are numbered with so many: with a time, they fit a machine word.
_NUMBER_MASK: Final = 0xFFFF_FFFF
_OUTCOMES: dict[Failure, AttemptOutcome] = {
    "killed": "killed",
    "gang": "killed",
    "lost": "lost",
    "revoked": "revoked",
    "superseded": "superseded",
}


class SimCluster:
    """The agents' side of a simulated cell. `reports`: what is to be reported to the sequencer now."""

    def __init__(
        self,
        metrics: Metrics,
        schedule: Schedule | None = None,
        refused: Callable[[JobRejected], None] | None = None,
    ) -> None:
        self.metrics = metrics
        self.schedule = schedule
        self._refused = refused
        self.reports: list[object] = []
        self.jobs: dict[str, SimJob] = {}
        self._ends: list[int] = []  # A heap: when a run ends, in ms, and below _NUMBER_BITS its number.
        self._live: dict[int, Run] = {}
        self._held: dict[tuple[str, str], tuple[int, HeldRoom]] = {}  # By node, and for whom.
        self._runs = 0
        self._shared: SharedNodes[Run] | None = None
        self._capacity: dict[str, Vector] = {}
        self._down: dict[str, dict[int, Run]] = {}  # By node that has failed: what does not go on there.
        self.lost = 0
        """Attempts that ended with their node."""
        self.copies = Copies()
        self.slow: SlowNodes | None = None
        self._policy = Policy()
        self._good: list[TaskEnd] = []
        self._bad: list[TaskFailure] = []
        self._react = {
            JobAdmitted: self._admitted,
            JobRejected: self._rejected,
            JobEnded: self._job_ended,
            RoundClosed: self._closed,
            TaskFailed: self._failed,
            ConfigChanged: self._config,
            NodeLost: self._node_lost,
            NodeRegistered: self._node,
            NodeReported: self._node,
        }

    def next_end_ms(self) -> int | None:
        """When the next attempts end by themselves."""
        end_ms = self._next_set_ms()
        shared_ms = self._shared.next_ms() if self._shared is not None else None
        return shared_ms if end_ms is None or (shared_ms is not None and shared_ms <= end_ms) else end_ms

    def _next_set_ms(self) -> int | None:
        """Of the ends whose time is set: where nodes are shared, those by which tasks have run for too long."""
        ends = self._ends
        while ends and ends[0] & _NUMBER_MASK not in self._live:
            heappop(ends)
        return ends[0] >> _NUMBER_BITS if ends else None

    def _end_at(self, time: int, run: Run) -> None:
        heappush(self._ends, time << _NUMBER_BITS | run.number)

    def observe(self, record: Record) -> None:
        """Reacts to a record of the log, as an agent would."""
        react = self._react.get(type(record.body))
        if react is not None:
            react(record)

    def observe_held(self, record: Record) -> None:
        """Room of nodes is kept free, or no longer, from the round's opening on."""
        for held in record.body.held:
            key = held.node, held.why if held.why in ("promise", "locality") else ""
            before = self._held.pop(key, None)
            if before is not None:
                self._write_held(before, record.time)
            if held.demand:
                self._held[key] = record.time, held

    def close_held(self, time: int) -> None:
        """The run is over."""
        for since in self._held.values():
            self._write_held(since, time)
        self._held = {}

    def _write_held(self, since: tuple[int, HeldRoom], time: int) -> None:
        from_ms, held = since
        if self.schedule is not None and time > from_ms:
            self.schedule.held(held.node, from_ms, time, held.why, held.demand)

    def fail(self, node: str, time: int) -> None:
        """A node's machine stops: nothing there ends or begins, nor reports, until it registers again."""
        stopped = self._down.setdefault(node, {})
        for run in [run for run in self._live.values() if run.grant.node == node]:
            stopped[run.number] = self._live.pop(run.number)
            if self._shared is not None:
                self._shared.stop(node, run.number, time)

    def end_until(self, time: int) -> None:
        """Attempts whose time has come end, each at its own time; `report_ends` tells the sequencer."""
        if self._shared is not None:
            self._end_shared(self._shared, time)
            return
        ends = self._ends
        while ends and ends[0] >> _NUMBER_BITS <= time:
            end = heappop(ends)
            run = self._live.get(end & _NUMBER_MASK)
            if run is not None:
                self._end(run, end >> _NUMBER_BITS)

    def _end_shared(self, shared: SharedNodes[Run], time: int) -> None:
        while (end_ms := self.next_end_ms()) is not None and end_ms <= time:
            if shared.next_ms() == end_ms:
                for _, run in shared.take_due(end_ms):
                    self._end(run, end_ms)
            else:
                run = self._live[heappop(self._ends) & _NUMBER_MASK]
                run.failure = "revoked" if run.revoked else "timeout"
                self._end(run, end_ms)

    def _end(self, run: Run, end_ms: int) -> None:
        if run.failure is not None:
            self._bad.append(self._fail(run, end_ms, run.failure))
            return
        grant, count, took_ms = run.grant, run.count, [end_ms - run.start_ms]
        name, named = grant.job, grant.stage
        ended = TaskEnd(name, named, run.first, count, grant.attempt, grant.node, grant.epoch, took_ms)
        self._good.append(ended)
        job = self._finish(run, name, named, end_ms, "succeeded")
        if job.copied is not None:
            self._supersede(job, run, end_ms)
        at = job.graph.position[named]
        if self._policy.demands == "history":  # Nobody reads it else.
            ended.peak = peak_of(job.stages[at])
        self._let_start(job, name, succeed(job, at, count, grant.attempt) or [], end_ms)
        if more := more_after(job, at, count):
            self.metrics.runnable(name, named, job.graph.stages[at].demand, more, end_ms)

    def _let_start(self, job: SimJob, name: str, ready: list[int], time: int) -> None:
        for at in ready:
            stage = job.graph.stages[at]
            self.metrics.runnable(name, stage.stage, stage.demand, stage.width, time)

    def _supersede(self, job: SimJob, won: Run, time: int) -> None:
        """Tasks have succeeded: other attempts of them end."""
        stage = won.grant.stage
        for index in range(won.first, won.first + won.count):
            if (stage, index) in (job.copied or {}):
                for run in job.runs():
                    is_same = run.grant.stage == stage and run.first <= index < run.first + run.count
                    if is_same and run.grant.node not in self._down:
                        self._bad.append(self._fail(self._part(run, index, index + 1), time, "superseded"))

    def report_ends(self) -> None:
        """What has ended since the last report, in one batch of successes and one of failures."""
        if self._good:
            self.reports.append(TaskFinished(self._good))
            self._good = []
        if self._bad:
            self.reports.append(TaskFailed(self._bad))
            self._bad = []

    @property
    def has_ends(self) -> bool:
        """Whether ends wait to be reported."""
        return bool(self._good or self._bad)

    # ------------------------------------------------------------ what the log says
    def _config(self, record: Record) -> None:
        """From the first time that places count, nodes are shared, and remain so: they may hold too much for long."""
        body: ConfigChanged = record.body
        self._policy = body.policy or self._policy
        if self._shared is not None or body.policy is None or not PRESETS[body.policy.preset].counts_slots:
            return
        self._shared = nodes = SharedNodes[Run]()
        for name, capacity in self._capacity.items():
            nodes.set_capacity(name, capacity, record.time)
        ends, self._ends = sorted(self._ends), []
        for end in ends:
            run = self._live.get(end & _NUMBER_MASK)
            if run is not None:
                job = self.jobs[run.grant.job]
                stage = job.stages[job.graph.position[run.grant.stage]]
                cut_ms = 1 if run.failure is not None else 0  # It had more to do than it was let.
                run.failure = None
                self._share(nodes, run, stage, (end >> _NUMBER_BITS) - record.time + cut_ms, record.time)

    def _node(self, record: Record) -> None:
        body: NodeRegistered | NodeReported = record.body
        self._capacity[body.node] = body.capacity
        if body.node in self._down:
            assert isinstance(body, NodeRegistered), f"{body.node}: a node that is down reports"
            self._lose(body, record.time)
            del self._down[body.node]
        if self._shared is not None:
            self._shared.set_capacity(body.node, body.capacity, record.time)

    def _node_lost(self, record: Record) -> None:
        self._lose(record.body, record.time)

    def _lose(self, body: NodeLost | NodeRegistered, time: int) -> None:
        """What a failed node held has ended, by the record of this time; its tasks could run again."""
        for run in list(self._down[body.node].values()):
            self.lost += self._fail(run, time, "lost").count
        self._try_again([fact for fact in facts_of(body) if isinstance(fact, TaskFailure)], time)

    def _admitted(self, record: Record) -> None:
        body: JobAdmitted = record.body
        spec = body.spec
        job = self.jobs[spec.job] = live_job(body)
        graph = job.graph
        tasks = sum(graph.tasks)
        self.metrics.submitted(spec.job, spec.queue, class_name(self._policy, body.job_class), tasks, record.time)
        for at in graph.roots:
            stage = graph.stages[at]
            self.metrics.runnable(spec.job, stage.stage, stage.demand, stage.width, record.time)

    def _rejected(self, record: Record) -> None:
        body: JobRejected = record.body
        tasks = sum(stage.tasks for stage in body.spec.stages)
        self.metrics.rejected(body.spec.job, body.reason, tasks, record.time)
        if self._refused is not None:
            self._refused(body)

    def _closed(self, record: Record) -> None:
        body: RoundClosed = record.body
        started = []
        time = record.time
        for grant in body.grants:
            job, stage, first, count, node = grant.job, grant.stage, grant.first, grant.count, grant.node
            if node not in self._down:
                started.append(TaskRange(job, stage, first, count, grant.attempt, node, grant.epoch))
            self._start(grant, job, stage, first, count, node, time)
        if started:
            self.reports.append(TaskStarted(started))
        for item in body.revoked:
            self._take_back(item, time)

    def _take_back(self, item: Revocation, time: int) -> None:
        """Attempts have `revoke_grace_ms` to end by themselves, then they are killed."""
        job = self.jobs.get(item.job)
        for run in job.runs() if job is not None and item.node not in self._down else []:
            grant = run.grant
            if (grant.stage, grant.attempt, grant.node) == (item.stage, item.attempt, item.node):
                until_ms = time if grant.why == "speculative" else time + self._policy.revoke_grace_ms
                first, end = max(run.first, item.first), min(run.first + run.count, item.first + item.count)
                if first < end and self._shared is not None:
                    self._end_at(until_ms, run)  # Tasks that share a node are not told apart: they end as they began.
                    run.revoked = True
                elif first < end:
                    self._cut(self._part(run, first, end), until_ms)

    def _cut(self, run: Run, until_ms: int) -> None:
        if run.start_ms + run.run_ms > until_ms:
            run.run_ms, run.failure = until_ms - run.start_ms, "revoked"
            self._end_at(until_ms, run)

    def _part(self, run: Run, first: int, end: int) -> Run:
        """Tasks `first` .. `end - 1` of a run as a run of their own; those before and behind go on as before."""
        pieces = ((run.first, first), (first, end), (end, run.first + run.count))
        parts = [run]
        for begin, behind in pieces:
            if begin == behind or (begin, behind) == (run.first, run.first + run.count):
                continue
            self._runs += 1
            part = Run(run.grant, begin, behind - begin, run.start_ms, run.run_ms, self._runs)
            part.failure = run.failure
            parts.append(part)
        if len(parts) > 1:
            running = self.jobs[run.grant.job].running
            assert running is not None
            del self._live[run.number], running[run.number]
            for part in parts[1:]:
                self._live[part.number] = running[part.number] = part
                self._end_at(part.start_ms + part.run_ms, part)
        return next(part for part in reversed(parts) if part.first == first)

    def _start(self, grant: Grant, name: str, named: str, first: int, count: int, node: str, time: int) -> None:
        """Tasks of the stage `named` of a job begin on a node, as a grant says."""
        job = self.jobs[name]
        at = job.graph.position[named]
        stage = job.stages[at]
        durations, (true, estimated) = stage.durations_ms, stretch_of(stage)
        if grant.why == "speculative":
            job.copied = {**(job.copied or {}), (named, first): True}
            self.copies.started += 1
            self.metrics.runnable(name, named, stage.demand, count, time)
        self.metrics.started(name, named, count, time)
        timeout_ms, end = stage.timeout_ms, first + count
        while first < end:  # Neighbours that last equally long end as one.
            last = end
            if len(durations) > 1:
                lasts_ms = durations[first]
                last = first + 1
                while last < end and durations[last] == lasts_ms:
                    last += 1
            else:
                lasts_ms = durations[0] if durations else stage.estimate_ms
            self._runs += 1
            run = Run(grant, first, last - first, time, lasts_ms, self._runs)
            if job.running is None:
                job.running = {}
            job.running[run.number] = run
            if node in self._down:
                self._down[node][run.number] = run
                first = last
                continue
            self._live[run.number] = run
            if self._shared is None:
                if true != estimated:
                    run.run_ms = -(-lasts_ms * true // estimated)
                if self.slow is not None:
                    run.run_ms = self.slow.lasts_ms(node, time, run.run_ms)
                if timeout_ms is not None and run.run_ms > timeout_ms:
                    run.run_ms, run.failure = timeout_ms, "timeout"
                self._end_at(time + run.run_ms, run)
            else:
                self._share(self._shared, run, stage, lasts_ms, time)
            first = last

    def _share(self, nodes: SharedNodes[Run], run: Run, stage: Stage, work_ms: int, time: int) -> None:
        """Tasks with so much work left run as fast as their node lets them; nothing keeps them below what they use."""
        demand = {**stage.demand, **stage.true_demand}
        nodes.start(run.grant.node, run, run.number, demand, run.count, work_ms, time)
        if stage.timeout_ms is not None:
            self._end_at(run.start_ms + stage.timeout_ms, run)

    def _failed(self, record: Record) -> None:
        self._try_again([fact for fact in facts_of(record.body) if isinstance(fact, TaskFailure)], record.time)

    def _try_again(self, items: list[TaskFailure], time: int) -> None:
        """Tasks that will be tried again could run again; what still runs of a broken gang is stopped."""
        bad: list[TaskFailure] = []
        for item in items:
            job = self.jobs.get(item.job)
            if job is None:
                continue
            at = job.graph.position[item.stage]
            stage = job.graph.stages[at]
            back, ready = note_failed(job, at, item)
            self._let_start(job, item.job, ready, time)
            if stage.gang and item.reason != "gang":
                for run in [r for r in job.runs() if r.grant.stage == item.stage and r.grant.node not in self._down]:
                    bad.append(self._fail(run, time, "gang"))
            self.metrics.runnable(item.job, item.stage, stage.demand, back, time)
        if bad:
            self.reports.append(TaskFailed(bad))

    def _job_ended(self, record: Record) -> None:
        bad: list[TaskFailure] = []
        for end in record.body.jobs:
            job = self.jobs[end.job]
            for run in job.runs():
                failure = self._fail(run, record.time, "killed")
                if run.grant.node not in self._down:
                    bad.append(failure)
            del self.jobs[end.job]
            self.metrics.job_ended(end.job, record.time, end.outcome)
        if bad:
            self.reports.append(TaskFailed(bad))

    # ------------------------------------------------------------ ends
    def _fail(self, run: Run, time: int, reason: Failure) -> TaskFailure:
        grant = run.grant
        self._finish(run, grant.job, grant.stage, time, _OUTCOMES.get(reason, "failed"))
        place = (grant.job, grant.stage, run.first, run.count, grant.attempt, grant.node, grant.epoch)
        return TaskFailure(*place, reason, run_ms=[time - run.start_ms])

    def _finish(self, run: Run, name: str, stage: str, time: int, outcome: AttemptOutcome) -> SimJob:
        grant, number = run.grant, run.number
        job = self.jobs[name]
        running = job.running
        assert running is not None, f"{name}: nothing of it runs"
        del running[number]
        if number in self._live:
            del self._live[number]
        else:
            del self._down[grant.node][number]
        if not running:
            job.running = None
        idle_ms = 0
        if self._shared is not None:
            self._shared.stop(grant.node, number, time)
            idle_ms = max(0, time - run.start_ms - run.run_ms) if outcome == "succeeded" else 0
        self.metrics.ended(name, stage, run.count, time, idle_ms)
        if job.copied is not None:
            self.copies.note_end(job, run, outcome, time)
        if self.schedule is not None:
            for index in range(run.first, run.first + run.count):
                self.schedule.attempt(
                    name, stage, index, grant.attempt, grant.node, run.start_ms, time, outcome, grant.why
                )
        return job
