"""What one simulated run was worth: makespan, completion and waiting times, utilisation, Jain's index of fairness.

Fed with every change in time order; memory follows jobs and the stages that run or could, never tasks. All sums are
whole numbers: task-milliseconds, and shares in units fine enough to divide every capacity. Floats appear in `result`.

Jain's index, by the contract: windows of 60 s from 0; the jobs present for at least half of one; those with fewer than
two are skipped; x = min(1, got / min(equal, could)), got = max over resources of the integral of held / capacity, could
the same over what was runnable, equal = the integral of 1 / (jobs present); index = (sum x)^2 / (n sum x^2).
"""

from dataclasses import dataclass, field, replace
from math import lcm

from schemas.jobs import Outcome, Rejection
from schemas.quantities import Vector
from services.simulator.result import JainIndex, JobRow, Measured, RejectedJob, Spread

WINDOW_MS = 60_000
DEMANDS_KEPT = 4_096
"""So many different demands share what they take of the cell."""
_X = 1_000_000_000  # The scale of x and of an index.
_SHARE_BITS = 32  # Below a common denominator of all capacities, so that dividing by the jobs present costs nothing.


@dataclass(slots=True)
class _Use:
    """A stage's tasks; `most` is the largest of `shares`, what each takes of every kind. The integrals, in task-ms, run
    over the whole window now open as if nothing changed any more.
    """

    demand: Vector
    shares: list[int]
    most: int
    could: int = 0  # Tasks that run or could run now.
    held: int = 0
    could_sum: int = 0
    held_sum: int = 0
    spent: int = 0  # Task-ms of all time: each end counted plus, each start minus.

    def __init__(self, demand: Vector, shares: list[int], most: int) -> None:
        self.demand = demand
        self.shares = shares
        self.most = most
        self.could = 0
        self.held = 0
        self.could_sum = 0
        self.held_sum = 0
        self.spent = 0


@dataclass(slots=True)
class _Row:
    """What is reported of a job in the end; `start_ms` and `end_ms` are -1 where it has not started, or nothing of it
    has ended.
    """

    job: str
    queue: str
    job_class: str | None
    submit_ms: int
    tasks: int
    start_ms: int = -1
    end_ms: int = -1
    outcome: Outcome | None = None

    def __init__(self, job: str, queue: str, job_class: str | None, submit_ms: int, tasks: int) -> None:
        self.job = job
        self.queue = queue
        self.job_class = job_class
        self.submit_ms = submit_ms
        self.tasks = tasks
        self.start_ms = -1
        self.end_ms = -1
        self.outcome = None

    def document(self) -> JobRow:
        """A row of `per_job` (docs/simulation.md)."""
        return {
            "job": self.job,
            "queue": self.queue,
            "class": self.job_class,
            "submit_ms": self.submit_ms,
            "start_ms": None if self.start_ms < 0 else self.start_ms,
            "end_ms": None if self.end_ms < 0 or self.outcome is None else self.end_ms,
            "tasks": self.tasks,
            "outcome": self.outcome,
        }


@dataclass(slots=True)
class _Job:
    """A job from its submission to the close of the window it ends in."""

    submit_ms: int
    equal_from: int
    row: _Row
    uses: dict[str, _Use] = field(default_factory=dict)
    held: int = 0
    end_ms: int | None = None
    equal_to: int = 0
    touched: bool = True
    steady: tuple[int, int] | None = None

    def __init__(self, submit_ms: int, equal_from: int, row: _Row) -> None:
        self.submit_ms = submit_ms
        self.equal_from = equal_from
        self.row = row
        self.uses = {}
        self.held = 0
        self.end_ms = None
        self.equal_to = 0
        self.touched = True
        self.steady = None


@dataclass(slots=True)
class _Tally:
    """Jain's index over the windows that count, in 10^-9."""

    windows: int = 0
    total: int = 0
    least: int = _X
    most: int = 0

    def add(self, index: int | None, windows: int) -> None:
        if index is not None:
            self.windows += windows
            self.total += windows * index
            self.least = min(self.least, index)
            self.most = max(self.most, index)


class Metrics:
    """Measures a run on `capacity`, the sum over all nodes. Every `t` is in ms and none lies before the last one.

    A task's life: `runnable`, `started`, `ended`; one that will be tried again becomes `runnable` again. A call takes a
    few dictionary look-ups; the close of a window costs the jobs that hold something or changed in it.
    """

    def __init__(self, capacity: Vector) -> None:
        self._capacity = {name: amount for name, amount in sorted(capacity.items()) if amount > 0}
        self._unit = lcm(*self._capacity.values()) << _SHARE_BITS
        self._jobs: dict[str, _Job] = {}
        self._touched: dict[str, _Job] = {}
        self._steady: dict[tuple[int, int], int] = {}  # (got, could) of a window -> jobs that hold and do not change.
        self._rows: list[_Row] = []
        self._shares_of: dict[tuple[tuple[str, int], ...], tuple[list[int], int]] = {}
        self._rejected: list[RejectedJob] = []
        self._tasks = self._placements = 0
        self._open, self._close, self._now = 0, WINDOW_MS, 0
        self._present = 0
        self._equal = self._equal_at = self._equal_open = 0
        self._tally = _Tally()
        self._skips = False
        self._spent = dict.fromkeys(self._capacity, 0)
        self._submit_ms_first: int | None = None
        self._end_ms_last = 0

    def submitted(self, job: str, queue: str, job_class: str | None, tasks: int, t: int) -> None:
        """A job that the cell took, with all its tasks. Job names are never used twice."""
        self._move(t)
        assert job not in self._jobs, f"{job}: submitted twice"
        self._count(tasks, t)
        row = _Row(job, queue, job_class, t, tasks)
        self._rows.append(row)
        self._equal, self._equal_at = self._equal_until(t), t
        self._present += 1
        self._jobs[job] = self._touched[job] = _Job(t, self._equal, row)

    def rejected(self, job: str, reason: Rejection, tasks: int, t: int) -> None:
        """A job that the cell refused, instead of `submitted`: it counts as a job and is part of nothing else."""
        self._move(t)
        self._count(tasks, t)
        self._rejected.append({"job": job, "reason": reason})

    def runnable(self, job: str, stage: str, demand: Vector, count: int, t: int) -> None:
        """`count` tasks of a stage could run from now on: its parents have ended, or they will be tried again."""
        self._move(t)
        entry = self._jobs[job]
        if not entry.touched:
            self._touch(job, entry)
        use = entry.uses.get(stage)
        if use is None:
            use = entry.uses[stage] = _Use(demand, *self._shares(demand))
        use.could += count
        use.could_sum += count * (self._close - t)

    def started(self, job: str, stage: str, count: int, t: int) -> None:
        """Attempts of `count` runnable tasks of a stage began."""
        self._move(t)
        entry = self._jobs[job]
        if not entry.touched:
            self._touch(job, entry)
        if entry.row.start_ms < 0:
            entry.row.start_ms = t
        use = entry.uses[stage]
        use.held += count
        use.held_sum += count * (self._close - t)
        use.spent -= count * t
        entry.held += count
        self._placements += count

    def ended(self, job: str, stage: str, count: int, t: int, idle_ms: int = 0) -> None:
        """Attempts of `count` tasks of a stage ended, however they did. Until `runnable` says so they could not run.
        `idle_ms`: so much longer each took than the work in it, since its node held too much.
        """
        self._move(t)
        entry = self._jobs[job]
        if not entry.touched:
            self._touch(job, entry)
        entry.row.end_ms = self._end_ms_last = t  # Also of jobs that never end, for want of nodes that failed.
        use = entry.uses[stage]
        left_ms = count * (self._close - t)
        use.held -= count
        use.could -= count
        use.held_sum -= left_ms
        use.could_sum -= left_ms
        use.spent += count * (t - idle_ms)
        entry.held -= count

    def job_ended(self, job: str, t: int, outcome: Outcome = "succeeded") -> None:
        """The job is over and holds nothing. Its end is the end of its last attempt, where it had any."""
        self._move(t)
        entry = self._jobs.pop(job)
        assert entry.held == 0, f"{job}: ended while {entry.held} of its tasks run"
        if not entry.touched:
            self._touch(job, entry)
        for use in entry.uses.values():
            use.could_sum -= use.could * (self._close - t)
            use.could = 0
        self._equal, self._equal_at = self._equal_until(t), t
        self._present -= 1
        entry.end_ms, entry.equal_to = t, self._equal
        entry.row.outcome = outcome
        if entry.row.end_ms < 0:
            entry.row.end_ms = t
        self._end_ms_last = max(self._end_ms_last, entry.row.end_ms)

    def begin(self, t: int) -> None:
        """Measures from here on: what is over counts no more, nor what was used, nor the window that is open."""
        self._move(t)
        self._rows = [row for row in self._rows if row.outcome is None]
        self._rejected, self._placements = [], 0
        self._tasks = sum(row.tasks for row in self._rows)
        self._submit_ms_first = self._end_ms_last = t
        self._tally, self._skips = _Tally(), True
        self._spent = dict.fromkeys(self._capacity, 0)
        self._touched = {job: entry for job, entry in self._touched.items() if entry.end_ms is None}
        for entry in self._jobs.values():
            for use in entry.uses.values():
                use.spent = -use.held * t

    def result(self) -> Measured:
        """The measured part of simulate's JSON result, so far; may be asked at any time.

        `per_job` is in order of submission. Times of completion are those of jobs that have ended, times of waiting
        those of jobs that have ended after they started.
        """
        makespan_ms = max(0, self._end_ms_last - (self._submit_ms_first or 0))
        ended = [row for row in self._rows if row.outcome is not None]
        return {
            "jobs": len(self._rows) + len(self._rejected),
            "tasks": self._tasks,
            "rejected": self._rejected,
            "makespan_ms": makespan_ms,
            "jct_ms": spread([row.end_ms - row.submit_ms for row in ended]),
            "waiting_ms": spread([row.start_ms - row.submit_ms for row in ended if row.start_ms >= 0]),
            "jain": self._jain(),
            "utilisation": self._utilisation(makespan_ms),
            "placements": self._placements,
            "per_job": [row.document() for row in self._rows],
        }

    def _count(self, tasks: int, t: int) -> None:
        self._tasks += tasks
        if self._submit_ms_first is None:
            self._submit_ms_first = t

    def _shares(self, demand: Vector) -> tuple[list[int], int]:
        """What a task takes of every kind, and the largest of that; tasks alike share it."""
        key = tuple(demand.items())
        found = self._shares_of.get(key)
        if found is None:
            if len(self._shares_of) >= DEMANDS_KEPT:
                self._shares_of.clear()
            shares = [demand.get(name, 0) * (self._unit // amount) for name, amount in self._capacity.items()]
            found = self._shares_of[key] = shares, max(shares, default=0)
        return found

    def _move(self, t: int) -> None:
        assert t >= self._now, f"time goes back from {self._now} to {t} ms"
        if t >= self._close:
            self._roll(t)
        self._now = t

    def _touch(self, job: str, entry: _Job) -> None:
        entry.touched = True
        self._touched[job] = entry
        if entry.steady is not None:
            self._steady[entry.steady] -= 1
            if not self._steady[entry.steady]:
                del self._steady[entry.steady]
            entry.steady = None

    def _equal_until(self, t: int) -> int:
        return self._equal + (t - self._equal_at) * self._unit // max(1, self._present)

    def _roll(self, t: int) -> None:
        """Closes the open window, and as many after it as nothing changes in, and opens the one of `t`."""
        if not self._skips:
            self._tally.add(self._index(), 1)
        self._skips = False
        self._settle()
        unchanged = t // WINDOW_MS - self._open // WINDOW_MS - 1
        self._shift(1)
        if unchanged:
            self._tally.add(self._index(), unchanged)
            self._shift(unchanged)

    def _shift(self, windows: int) -> None:
        self._open += windows * WINDOW_MS
        self._close = self._open + WINDOW_MS
        self._equal_open = self._equal = self._equal_until(self._open)
        self._equal_at = self._open

    def _settle(self) -> None:
        """Starts the integrals of the next window with what is held and runnable now; forgets what is over."""
        steady = self._steady
        for entry in self._touched.values():
            over = None
            for stage, use in entry.uses.items():
                if use.could:
                    use.could_sum, use.held_sum = use.could * WINDOW_MS, use.held * WINDOW_MS
                else:
                    self._pay(self._spent, use)
                    over = [stage] if over is None else [*over, stage]
            for stage in over or ():
                del entry.uses[stage]
            entry.touched = False
            if entry.held:
                entry.steady = _shares(entry)
                steady[entry.steady] = steady.get(entry.steady, 0) + 1
        self._touched.clear()

    def _pay(self, spent: dict[str, int], use: _Use) -> None:
        task_ms = use.spent + use.held * self._now
        for name, amount in use.demand.items():
            if name in spent:
                spent[name] += amount * task_ms

    def _index(self) -> int | None:
        """Jain's index of the open window, in 10^-9; None where fewer than two jobs count.

        Jobs that did not change were present throughout; those that hold nothing got nothing, so their x is 0.
        """
        equal_close, opened = self._equal_until(self._close), self._open
        jobs = self._present
        total = squares = 0
        for (got, could), alike in self._steady.items():
            entitled = min(equal_close - self._equal_open, could)
            x = _X if got >= entitled > 0 else got * _X // max(1, entitled)
            total += x * alike
            squares += x * x * alike
        for entry in self._touched.values():
            end_ms, equal_to = entry.end_ms, entry.equal_to
            if end_ms is None:
                end_ms, equal_to = self._close, equal_close
                jobs -= 1  # It counts only if it has been there for long enough.
            if entry.submit_ms <= opened:
                since_ms, equal_from = opened, self._equal_open
            else:
                since_ms, equal_from = entry.submit_ms, entry.equal_from
            if 2 * (end_ms - since_ms) < WINDOW_MS:
                continue
            jobs += 1
            got, could = _shares(entry)
            entitled = min(equal_to - equal_from, could)
            x = _X if got >= entitled > 0 else got * _X // max(1, entitled)
            total += x
            squares += x * x
        if jobs < 2:
            return None
        return total * total * _X // (jobs * squares) if squares else _X

    def _jain(self) -> JainIndex:
        tally = replace(self._tally)
        if not self._present and not self._skips:  # A window that is not over for every job cannot be judged.
            tally.add(self._index(), 1)
        if not tally.windows:
            tally = _Tally(1, _X, _X, _X)
        return {
            "mean": round(tally.total / (tally.windows * _X), 6),
            "min": round(tally.least / _X, 6),
            "max": round(tally.most / _X, 6),
            "window_ms": WINDOW_MS,
        }

    def _utilisation(self, makespan_ms: int) -> dict[str, float]:
        spent = dict(self._spent)
        for entry in (self._jobs | self._touched).values():
            for use in entry.uses.values():
                self._pay(spent, use)
        return {name: round(spent[name] / (amount * max(1, makespan_ms)), 6) for name, amount in self._capacity.items()}


def _shares(entry: _Job) -> tuple[int, int]:
    """Got and could of a job in the open window: largest over the resources, in share units x ms."""
    if len(entry.uses) == 1:
        (use,) = entry.uses.values()
        return use.held_sum * use.most, use.could_sum * use.most
    uses = list(entry.uses.values())
    sums = [
        (
            sum(use.held_sum * share for use, share in zip(uses, shares, strict=True)),
            sum(use.could_sum * share for use, share in zip(uses, shares, strict=True)),
        )
        for shares in zip(*(use.shares for use in uses), strict=True)
    ]
    return max((got for got, _ in sums), default=0), max((could for _, could in sums), default=0)


def completion_times(rows: list[JobRow]) -> Spread:
    """Of the jobs that have ended, in ms."""
    return spread([row["end_ms"] - row["submit_ms"] for row in rows if row["end_ms"] is not None])


def spread(values: list[int]) -> Spread:
    """Mean and nearest-rank percentiles; zeros where there is nothing."""
    if not values:
        return {"mean": 0.0, "p50": 0, "p95": 0, "p99": 0}
    ranked = sorted(values)
    mean = round(sum(ranked) / len(ranked), 3)
    return {"mean": mean, "p50": _ranked(ranked, 50), "p95": _ranked(ranked, 95), "p99": _ranked(ranked, 99)}


def _ranked(ranked: list[int], percent: int) -> int:
    return ranked[-(-percent * len(ranked) // 100) - 1]
