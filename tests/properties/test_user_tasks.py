"""Limits on the tasks of one user that run at a time, in drawn trees, against a plain list of jobs: where room is ample
and jobs are served as they came, what runs is what the list says, whatever ends, is cancelled, held, moved or limited
otherwise. tests/properties/test_cores.py has the same limits beside everything else that may happen to a cell.
"""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from schemas import JobAdmitted, JobCancelled, JobChanged, TaskEnd, TaskFailed, TaskFailure, TaskFinished
from schemas.queue_tree import upwards
from tests.builders import config, job, node, queue, stage, tree
from tests.cells import AUTHOR, SlowCell, attempts_of
from tests.strategies import for_all

LEAVES = ("a", "in/b", "in/c")
USERS = ("", "ann", "bob")
KINDS = (500, 1_000)

most = st.none() | st.integers(1, 5)
limits = st.fixed_dictionaries(dict.fromkeys(("", "a", "in", "in/b", "in/c"), most))
events = st.one_of(
    st.tuples(
        st.just("submit"),
        st.sampled_from(LEAVES),
        st.sampled_from(USERS),
        st.lists(st.tuples(st.integers(1, 6), st.sampled_from(KINDS), st.booleans()), min_size=1, max_size=2),
    ),
    st.tuples(st.sampled_from(["finish", "finish", "finish", "fail"]), st.integers(0, 50), st.integers(1, 4)),
    st.tuples(st.sampled_from(["cancel", "hold", "release"]), st.integers(0, 20)),
    st.tuples(st.just("move"), st.integers(0, 20), st.sampled_from(LEAVES)),
    st.tuples(st.just("limit"), limits),
)
histories = st.tuples(limits, st.lists(events, max_size=25))


def tree_of(limited):
    """The queues `a`, `in/b` and `in/c` with these limits by path."""
    of = {path: {} if most is None else {"user_running_max": most} for path, most in limited.items()}
    below = queue("in", 1, queue("b", **of["in/b"]), queue("c", **of["in/c"]), **of["in"])
    return tree(queue("a", **of["a"]), below, **of[""])


@dataclass
class Part:
    """A stage of a job: so many tasks wait, so many run."""

    waits: int
    gang: bool
    runs: int = 0


@dataclass
class Listed:
    """A job in the plain list."""

    leaf: str
    user: str
    parts: list[Part]
    held: bool = False
    over: bool = False


class Plain:
    """All jobs in the order in which they came, looked through from the first one whenever anything happens."""

    def __init__(self, limited):
        self.limits, self.jobs = limited, {}

    def running(self, path, user):
        return sum(
            part.runs
            for each in self.jobs.values()
            for part in each.parts
            if each.user == user and path in upwards(each.leaf)
        )

    def places(self, each):
        left = [
            self.limits[path] - self.running(path, each.user)
            for path in upwards(each.leaf)
            if self.limits[path] is not None
        ]
        return min(left, default=1_000)

    def start(self):
        for each in self.jobs.values():
            for part in each.parts if not (each.held or each.over) else ():
                tasks = min(part.waits, max(0, self.places(each)))
                if not part.gang or tasks == part.waits:
                    part.runs, part.waits = part.runs + tasks, part.waits - tasks

    def may_be_of(self, leaf, gangs):
        return all(self.limits[path] is None or width <= self.limits[path] for path in upwards(leaf) for width in gangs)


class Both:
    """A cell under `fifo` with room for everything, and the plain list."""

    def __init__(self, limited):
        self.cell, self.plain, self.known = SlowCell(), Plain(limited), {}
        self.cell.take(config(tree_of(limited), preset="fifo", retry_backoff_ms=0), node("n1", cpu=1_000_000))
        self.cell.settle()

    def play(self, what, *given):
        getattr(self, f"_{what}")(*given)
        self.cell.settle()
        self.plain.start()
        self.check()

    def check(self):
        runs = {}
        for key, _ in attempts_of(self.cell.admission):
            name, of, _ = key.split("/")
            runs[name, of] = runs.get((name, of), 0) + 1
        found = {
            (name, f"s{at}"): part.runs
            for name, each in self.plain.jobs.items()
            for at, part in enumerate(each.parts)
            if part.runs
        }
        assert runs == found

    def _live(self, which):
        live = [name for name, each in self.plain.jobs.items() if not each.over]
        return live[which % len(live)] if live else None

    def _submit(self, leaf, user, parts):
        name = f"j{len(self.known)}"
        stages = [
            stage(f"s{at}", tasks, cpu=cpu, gang=gang, retries=1_000) for at, (tasks, cpu, gang) in enumerate(parts)
        ]
        taken = self.cell.take(replace(job(name, *stages, queue=leaf), user=user))
        self.known[name] = stages
        gangs = [tasks for tasks, _, gang in parts if gang]
        assert (isinstance(taken, JobAdmitted)) == self.plain.may_be_of(leaf, gangs)
        if isinstance(taken, JobAdmitted):
            self.plain.jobs[name] = Listed(leaf, user, [Part(tasks, gang) for tasks, _, gang in parts])

    def _ends(self, which, count):
        """Some attempts that run, as reports name them; none of a gang, of which what becomes is another test's."""
        held = attempts_of(self.cell.admission)
        for key, hold in held[which % len(held) : which % len(held) + count] if held else ():
            name, of, index = key.split("/")
            part = self.plain.jobs[name].parts[int(of[1:])]
            if not part.gang:
                yield part, (name, of, int(index), 1, hold.attempt, hold.node, hold.epoch)

    def _end_jobs(self):
        for each in self.plain.jobs.values():
            each.over = each.over or not any(part.waits or part.runs for part in each.parts)

    def _finish(self, which, count):
        for part, attempt in self._ends(which, count):
            self.cell.take(TaskFinished([TaskEnd(*attempt, [10])]))
            part.runs -= 1
        self._end_jobs()

    def _fail(self, which, count):
        for part, attempt in self._ends(which, count):
            self.cell.take(TaskFailed([TaskFailure(*attempt, "exit_code")]))
            part.runs, part.waits = part.runs - 1, part.waits + 1

    def _cancel(self, which):
        if name := self._live(which):
            self.cell.take(JobCancelled(name, AUTHOR))
            self.plain.jobs[name].over = True  # What runs of it counts until agents have ended it.

    def _hold(self, which, hold=True):
        if name := self._live(which):
            self.cell.take(JobChanged(name, hold=hold))
            self.plain.jobs[name].held = hold

    def _release(self, which):
        self._hold(which, False)

    def _move(self, which, leaf):
        if name := self._live(which):
            each = self.plain.jobs[name]
            gangs = [part.waits for part in each.parts if part.gang]
            self.cell.take(JobChanged(name, queue=leaf))
            if not any(part.runs for part in each.parts) and (each.leaf == leaf or self.plain.may_be_of(leaf, gangs)):
                each.leaf = leaf

    def _limit(self, limited):
        self.cell.take(config(tree_of(limited)))
        self.plain.limits = limited


@for_all(histories)
def test_as_many_tasks_of_a_user_run_as_a_plain_list_lets(history):
    limited, steps = history
    both = Both(limited)
    for step in steps:
        both.play(*step)
