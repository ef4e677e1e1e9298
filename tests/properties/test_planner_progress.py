"""Plans that follow their jobs over drawn histories: no other promise changes, and what is left of the terms is met."""

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from schemas import JobEnd, JobEnded
from schemas.jobs import JobSpec
from services.planner.core.decide import plan_of
from services.planner.core.progress import GROWTH_MAX
from services.planner.planning.request import atoms
from services.planner.planning.verify import fault
from tests.builders import Fact, admitted, failed, finished, stage, started
from tests.properties.test_planner_core import EVENTS, STEP_S, WINDOWS, History
from tests.unit.test_planner_progress import MINUTE, cell, flat, under

STEP = STEP_S * 1_000
TASKS = 12

BUSY = ("a", "b")
"""Reservations with jobs."""

PARTS = ("", "0", "1", "0.1")
WORK = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(BUSY), st.tuples(st.sampled_from(PARTS), st.integers(1, 12))),
    st.tuples(st.just("finish"), st.sampled_from(BUSY), st.integers(1, 12)),
    st.tuples(st.just("fail"), st.sampled_from(BUSY), st.none()),
    st.tuples(st.just("over"), st.sampled_from(BUSY), st.none()),
    st.tuples(st.just("wait"), st.integers(1, 4), st.none()),
)
REQUESTS = st.tuples(st.just("request"), st.sampled_from(BUSY), WINDOWS)
KEPT = EVENTS.filter(lambda event: event[0] != "lose")  # Repairs take long: test_planner_core.py plays them.
STEPS = st.one_of(REQUESTS, KEPT, WORK, WORK, WORK)


class Working(History):
    """Reservations with a job each, whose tasks take as long as the history has it."""

    def __init__(self):
        super().__init__()
        self.jobs = {}  # Name -> [tasks begun, tasks ended, when the last began].
        self.followed = []

    def take(self, event):
        kind, name, what = event
        job = self.jobs.get(name)
        if kind == "begin":
            part, most = what
            if job is None:
                job = self.jobs[name] = [0, 0, self.now]
                one = stage("s", TASKS, duration_ms=(1 + 2 * BUSY.index(name)) * STEP // 2, retries=100)
                self.story.then(admitted(JobSpec(f"j{name}", "", [one], reservation=name, reservation_atom=part)))
            count = min(most, TASKS - job[0])
            if count:
                self.story.then(started(f"j{name}/s", job[0], count, at=self.now))
                job[0], job[2] = job[0] + count, self.now
        elif kind == "finish" and job is not None:
            count = min(what, job[0] - job[1])
            if count:
                ran_ms = max(1, self.now - job[2])
                self.story.then(finished(f"j{name}/s", job[1], count, at=self.now, run_ms=ran_ms))
                job[1] += count
        elif kind == "fail" and job is not None and job[0] > job[1]:
            job[0] -= 1
            self.story.then(failed(f"j{name}/s", job[0], at=self.now, reason="revoked"))
        elif kind == "over" and job is not None:
            outcome = "succeeded" if job[1] == TASKS else "failed"
            self.story.then(Fact(JobEnded([JobEnd(f"j{name}", outcome)]), at=self.now))
            del self.jobs[name]
        super().take(event)

    def settle(self):
        before = {name: (each.seq, list(each.leases)) for name, each in self.story.state.promises.items()}
        for _ in range(100):
            bodies = self.story.round(self.now)
            self.story.close()
            self.story.then(*(Fact(body) for body in bodies))
            if not bodies:
                return
            for body in bodies:
                self.judge(body, before)
            before = {name: (each.seq, list(each.leases)) for name, each in self.story.state.promises.items()}
        raise AssertionError("the planner does not come to an end")

    def judge(self, body, before):
        """Where every answer is a plan that follows its job, the promises of others are as they were."""
        reasons = {answer.reservation: answer.reason for answer in body.answers}
        followed = [name for name, reason in reasons.items() if reason in ("ahead", "behind")]
        self.followed += followed
        self.broken += [name for name, reason in reasons.items() if reason == "broken"]
        if reasons and len(followed) == len(body.answers):
            assert [profile.reservation for profile in body.profiles if profile.reservation not in followed] == []
            for name, (seq, leases) in before.items():
                now = self.story.state.promises.get(name)
                if name not in followed and name not in body.gone:
                    assert (now.seq, now.leases) == (seq, leases)


def check(history):
    """Every promise meets what its terms ask for by now, inside its windows, and all are within the capacity."""
    state = history.story.state
    fresh = plan_of(state)
    for name, promise in state.promises.items():
        asked = {atom.path: atom for atom in atoms(fresh.read(promise.rdl).node())}
        plan = fresh.promised.plan(name)
        assert fault(fresh.known[name].node, plan) == "", name
        for atom, leases in plan:
            of = asked[atom.path]
            assert all(of.begin <= each.begin < each.end <= of.end for each in leases)
            total = sum((each.end - each.begin) * each.gangs for each in leases)
            assert total <= max(GROWTH_MAX * of.work, of.work + of.lease * of.gangs_most)
            if name not in history.followed:
                assert total >= of.work
    if not history.broken:
        for _, _, (used,) in fresh.book.used.runs(state.first, state.first + 1_000):
            assert used <= state.capacity.get("cpu", 0)


@for_all(st.lists(STEPS, max_size=24))
def test_a_plan_that_follows_its_jobs_meets_what_is_left_of_its_terms(events):
    history = Working()
    for event in events:
        history.take(event)
        check(history)


@for_all(st.integers(1, 4), st.integers(1, 12), st.integers(1, 3), st.data())
def test_with_exact_estimates_and_tasks_that_run_as_planned_nothing_moves(width, waves, lasts, data):
    rdl = flat(h=width, work=width * waves * lasts, window=60, lease=data.draw(st.integers(1, waves * lasts)))
    story = cell(rdl, reservation_agent=data.draw(st.sampled_from(["early", "gree", "gree-l", "default"])))
    (leases,) = story.promised.values()
    begin, end, gangs = leases[0]
    if len(leases) > 1 or (end - begin) % lasts:
        return
    before = story.plans[:]
    story.then(under(tasks=gangs * (end - begin) // lasts, lasts=lasts * MINUTE))
    first = 0
    for step in range(begin, end):
        if (step - begin) % lasts == 0:
            if first:
                story.then(finished("j/s", first - gangs, gangs, at=step * MINUTE, run_ms=lasts * MINUTE))
            story.then(started("j/s", first, gangs, at=step * MINUTE))
            first += gangs
        story.round(at=step * MINUTE)
    assert [each for each in story.plans[len(before) :] if each.answers or each.profiles] == []


@settings(max_examples=60, deadline=None)
@for_all(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2), st.integers(0, 1))
def test_while_tasks_run_late_the_plan_has_their_units_in_the_next_step(tasks, lease, estimate, begun, early):
    """Up to twice the work, where there is room."""
    work = tasks * estimate
    story = cell(flat(h=tasks, work=work, lease=min(lease, estimate), window=300))
    start = begun + 1 - early
    story.then(under(tasks=tasks, lasts=estimate * MINUTE), started("j/s", 0, tasks, at=start * MINUTE))
    for minute in range(start, 40):
        held_before = at_step(story, minute)
        story.round(at=minute * MINUTE)
        if "r" not in story.promised:
            return
        planned = sum((end - begin) * gangs for begin, end, gangs in story.promised["r"])
        if minute - start >= estimate and held_before and planned + tasks <= GROWTH_MAX * work:
            assert at_step(story, minute + 1) >= min(tasks, held_before), minute


def at_step(story, step):
    """Units that the plan has at a step."""
    return sum(gangs for begin, end, gangs in story.promised.get("r", []) if begin <= step < end)
