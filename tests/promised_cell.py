"""Cells in which the test is the planner: what is promised, and what becomes of tasks beside it."""

from dataclasses import replace

from schemas import PlanProfile, Plans, PlanStep, ReservationRequested
from schemas.plans import AtomOrder
from tests.builders import config, job, node, stage, tree
from tests.cells import SlowCell

GRACE = 1_000
HOUR = 3_600_000


def step(from_ms, to_ms, units, *, cpu=1_000, memory=1_024, gang=1, atom="0"):
    """A lease of units of one core and 1 GiB where nothing else is said."""
    unit = {"cpu": cpu, "memory": memory}
    return PlanStep(from_ms, to_ms, {kind: units * amount for kind, amount in unit.items()}, unit, units, gang, atom)


class PlannedCell(SlowCell):
    """A cell in which the test is the planner."""

    def __init__(self):
        super().__init__()
        del self.states["planner"]

    def _ask(self, name, *asked):
        return [] if name == "planner" else super()._ask(name, *asked)


def cell(*jobs, nodes=None, queues=("a", "b"), **knobs):
    """A cell; one node of four cores where no nodes are given."""
    story = PlannedCell()
    story.take(
        config(tree(*queues) if queues else None, seed=1, **{"preset": "hdrf", "revoke_grace_ms": GRACE, **knobs})
    )
    story.take(*(nodes or [node("n1")]))
    story.settle()
    story.take(*jobs)
    return story


def promise(story, *steps, name="r", queue="a", order=(), gone=()):
    """The planner has accepted a reservation with these leases."""
    if not story.bodies_in_log("ReservationRequested"):
        story.put(ReservationRequested(name, "", "{}", "tester", queue))
    after = max([0, *[record.seq for record in story.records if record.type == "Plans"]])
    profiles = [PlanProfile(name, queue, list(steps), [AtomOrder(*each) for each in order])] if steps else []
    story.put(Plans(after, [], profiles, list(gone)))
    return story


def reserved(name, *stages, queue="a", part="", reservation="r"):
    spec = job(name, *stages, queue=queue)
    spec.reservation, spec.reservation_atom = reservation, part
    return spec


def lasting(name, *stages, **said):
    """A job that may start where it is taken back for sure."""
    return job(name, *stages, revocable="always", **said)


def why(grants):
    """What each grant was given for: (job, tasks, why, whether revocable), in order."""
    return [(grant.job, grant.count, grant.why, grant.revocable) for grant in grants]


def taken_back(story):
    """All that closings have taken back, as (job, stage, first, tasks, node)."""
    return [
        (r.job, r.stage, r.first, r.count, r.node) for body in story.bodies_in_log("RoundClosed") for r in body.revoked
    ]


def advance(story, time):
    """Rounds at every moment at which one is due, up to a time."""
    while (due := story.next_ms()) is not None and due <= time:
        story.at(max(due, story.time)).settle()
    story.at(time)
    return story.settle()


def give_back(story):
    """Agents end what closings have taken back."""
    for record in list(story.records):
        if record.type == "RoundClosed":
            for item in record.body.revoked:
                story.fail(item, reason="revoked")


def unestimated(name, **given):
    """A job of which nothing is known before a task has ended."""
    return job(name, replace(stage(**given), estimate_ms=0))
