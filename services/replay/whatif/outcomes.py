"""What tasks came to in a recorded log, and so what they come to when the log is decided again.

A command fails or succeeds by itself in the same order as in the recording: the first attempt that nobody cuts short
ends as the first such attempt did, after the same time, and so on. What ended attempts from outside (a lost node, a
revocation, a gang that starts over) belongs to the decisions of the recording and is not repeated.
"""

from array import array
from dataclasses import dataclass, field

from largesse.lifecycle.job_life import COUNTED
from largesse.lifecycle.task_facts import TaskFact, facts_of, run_ms_of
from schemas import (
    ConfigChanged,
    Grant,
    JobAdmitted,
    JobEnded,
    NodeLost,
    NodeRegistered,
    Record,
    RoundClosed,
    Stage,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
)
from schemas.presets import PRESETS
from schemas.tasks import Failure
from services.simulator.attempts import stretch_of
from services.simulator.cluster import AUTHOR as SIMULATOR

DELAYS_KEPT = 100_000
"""How late starts and reports were is kept of this many tasks."""
GOES_ON = 2
"""What was cut short would have run this many times as long, at least: as long again as it had."""
_UNKNOWN = -1

Task = tuple[int, str, int]
"""Seq of its job's admission, stage and index."""


@dataclass(slots=True)
class _Stage:
    """By index, how long the task held its place until it succeeded, in ms; _UNKNOWN where it never did."""

    lasts_ms: "array[int]"
    total_ms: int = 0
    known: int = 0


@dataclass(slots=True)
class Outcomes:
    """Told of every record of the recording by `learn`, then of what is decided again by `admitted` and `observe`.

    `guessed`: attempts whose end the recording does not tell; they take what other tasks of their stage took, or else
    their estimate, or else GOES_ON times the longest that one of their stage had run, and at least GOES_ON times what
    they had run themselves, and succeed. `slower_permille`: of recorded times.
    `shared`: nodes were, at some time, so that tasks ran slower than they would have alone.
    `delays_ms`: what starts and reports took beside the run of each task, of at most DELAYS_KEPT tasks.
    """

    slower_permille: int = 1_000
    guessed: int = 0
    shared: bool = False
    delays_ms: "array[int]" = field(default_factory=lambda: array("q"))
    _recorded: dict[str, int] = field(default_factory=dict)  # By live job of the recording, its seq.
    _since: dict[str, dict[tuple[str, int, int], tuple[int, str]]] = field(default_factory=dict)
    _simulated: dict[str, bool] = field(default_factory=dict)  # Nodes whose tasks are simulated: nothing is late there.
    _stages: dict[tuple[int, str], _Stage] = field(default_factory=dict)
    _cut_ms: dict[Task, int] = field(default_factory=dict)
    _longest_ms: dict[tuple[int, str], int] = field(default_factory=dict)  # What was cut short in each stage.
    _failures: dict[Task, list[tuple[int, Failure]]] = field(default_factory=dict)
    _decided: dict[str, int] = field(default_factory=dict)
    _failed: dict[Task, int] = field(default_factory=dict)

    # ---------------------------------------------------------------- the recording
    def learn(self, record: Record) -> None:
        """One record of the recording, in order."""
        body = record.body
        if isinstance(body, RoundClosed):
            for grant in body.grants:
                self._start(grant, record.time)
        elif isinstance(body, TaskFinished | TaskFailed | NodeLost | NodeRegistered):
            if isinstance(body, NodeRegistered):
                self._simulated[body.node] = body.author == SIMULATOR
            for fact in facts_of(body):
                self._end(fact, record.time)
        elif isinstance(body, ConfigChanged) and body.policy is not None:
            self.shared |= PRESETS[body.policy.preset].counts_slots
        elif isinstance(body, JobAdmitted):
            self._recorded[body.spec.job] = record.seq
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                seq = self._recorded.pop(end.job)
                for (stage, index, _), (since_ms, _) in self._since.pop(end.job, {}).items():
                    self._cut((seq, stage, index), record.time - since_ms)

    def _start(self, grant: Grant, time: int) -> None:
        started = self._since.setdefault(grant.job, {})
        for index in range(grant.first, grant.first + grant.count):
            started[grant.stage, index, grant.attempt] = time, grant.node

    def _end(self, fact: TaskFact, time: int) -> None:
        started = self._since.get(fact.job)
        if started is None or not isinstance(fact, TaskEnd | TaskFailure):
            return
        seq, reason = self._recorded[fact.job], fact.reason if isinstance(fact, TaskFailure) else None
        for place, index in enumerate(range(fact.first, fact.first + fact.count)):
            since = started.pop((fact.stage, index, fact.attempt), None)
            if since is None:
                continue
            run_ms = run_ms_of(fact, place) or 0
            held_ms = time - since[0]
            is_late = not (self._simulated.get(since[1]) and fact.run_ms)
            lasts_ms = max(held_ms, run_ms) if is_late else run_ms
            task = seq, fact.stage, index
            if reason is None:
                if is_late and len(self.delays_ms) < DELAYS_KEPT:
                    self.delays_ms.append(lasts_ms - run_ms)
                self._succeed(task, lasts_ms)
            elif reason in COUNTED:
                self._failures.setdefault(task, []).append((lasts_ms, reason))
            else:
                self._cut(task, run_ms)

    def ends(self, time: int) -> None:
        """The recording is over: what runs then had run for so long at least."""
        for job, started in self._since.items():
            for (stage, index, _), (since_ms, _) in started.items():
                self._cut((self._recorded[job], stage, index), time - since_ms)
        self._since.clear()

    def _cut(self, task: Task, run_ms: int) -> None:
        """An attempt was cut short by then."""
        self._cut_ms[task] = max(self._cut_ms.get(task, 0), run_ms)
        stage = task[0], task[1]
        self._longest_ms[stage] = max(self._longest_ms.get(stage, 0), run_ms)

    def _succeed(self, task: Task, lasts_ms: int) -> None:
        seq, name, index = task
        stage = self._stages.setdefault((seq, name), _Stage(array("q")))
        while len(stage.lasts_ms) <= index:
            stage.lasts_ms.append(_UNKNOWN)
        if stage.lasts_ms[index] == _UNKNOWN:
            stage.known += 1
        else:
            stage.total_ms -= stage.lasts_ms[index]  # It succeeded before, in an attempt of its gang that was broken.
        stage.lasts_ms[index] = lasts_ms
        stage.total_ms += lasts_ms
        self._cut_ms.pop(task, None)

    def forks(self) -> None:
        """Both worlds share what was learned so far: how late tasks were is counted behind it."""
        del self.delays_ms[:]

    # ---------------------------------------------------------------- what is decided again
    def admitted(self, job: str, seq: int) -> None:
        """The job of that name is, from now on, the one that the record `seq` of the recording admitted or refused."""
        self._decided[job] = seq

    def observe(self, record: Record) -> None:
        """One record of what is decided again: behind attempts that failed by themselves come the next ones."""
        if not isinstance(record.body, TaskFailed | NodeRegistered):
            return
        for fact in facts_of(record.body):
            if isinstance(fact, TaskFailure) and fact.reason in COUNTED and fact.job in self._decided:
                for index in range(fact.first, fact.first + fact.count):
                    task = self._decided[fact.job], fact.stage, index
                    self._failed[task] = self._failed.get(task, 0) + 1

    def of(self, job: str, stage: Stage, index: int) -> tuple[int, Failure | None]:
        """How long the next attempt of a task takes if nobody cuts it short, in ms, and how it fails; None: it
        succeeds."""
        lasts_ms, failure = self._of((self._decided[job], stage.stage, index), stage)
        return max(1, -(-lasts_ms * self.slower_permille // 1_000)), failure

    def _of(self, task: Task, stage: Stage) -> tuple[int, Failure | None]:
        if self.shared and stage.durations_ms:  # They slow each other here as they did there.
            return _own_ms(stage, task[2]), None
        failures, before = self._failures.get(task, ()), self._failed.get(task, 0)
        if before < len(failures):
            return failures[before]
        seq, name, index = task
        known = self._stages.get((seq, name))
        if known is not None and index < len(known.lasts_ms) and known.lasts_ms[index] != _UNKNOWN:
            return known.lasts_ms[index], None
        if stage.durations_ms:
            true, estimated = stretch_of(stage)
            return _in_time(-(-_own_ms(stage, index) * true // estimated), stage)
        self.guessed += 1
        if known is not None and known.known:
            lasts_ms = known.total_ms // known.known
        else:
            lasts_ms = stage.estimate_ms or GOES_ON * self._longest_ms.get((seq, name), 0)
        return _in_time(max(lasts_ms, GOES_ON * self._cut_ms.get(task, 0)), stage)


def _own_ms(stage: Stage, index: int) -> int:
    """What a simulated task takes on a node that has all it uses."""
    return stage.durations_ms[index] if len(stage.durations_ms) > 1 else stage.durations_ms[0]


def _in_time(lasts_ms: int, stage: Stage) -> tuple[int, Failure | None]:
    if stage.timeout_ms is not None and lasts_ms > stage.timeout_ms:
        return stage.timeout_ms, "timeout"
    return lasts_ms, None
