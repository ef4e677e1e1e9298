"""A cell of the planner alone: its requests, its promises, and what it tells."""

from schemas import Plans
from services.planner import core
from tests.builders import (
    Fact,
    configured,
    registered,
)
from tests.harness import given

MINUTE = 60_000
HOUR = 60 * MINUTE


class Cell:
    """A planner's story in which every plan that it tells comes back through the log at once."""

    def __init__(self, *facts, **knobs):
        self.story = given(core, configured(**knobs) if knobs else configured(seed=0))
        self.then(*(facts or (registered("n1", cpu=8_000, memory=16_384),)))
        self.plans = []

    def then(self, *facts):
        self.story.then(*facts)
        return self

    def round(self, at):
        bodies = self.story.round(at)
        self.story.close()
        for body in bodies:
            self.story.then(Fact(body))
        self.plans += bodies
        return bodies[0] if bodies else None

    def settle(self, at):
        """Rounds until everything is answered."""
        collected = Plans(0)
        for _ in range(10_000):
            body = self.round(at)
            collected.answers += body.answers
            collected.profiles += body.profiles
            collected.gone += body.gone
            collected.proposals += body.proposals
            if not self.story.state.waiting:
                return collected
        raise AssertionError("the planner does not come to an end")

    @property
    def promised(self):
        return {name: spans(promise.leases) for name, promise in self.story.state.promises.items()}


def spans(leases):
    return sorted((lease.begin, lease.end, lease.gangs) for lease in leases)


def answers(body):
    return {answer.reservation: answer.reason or "accepted" for answer in body.answers}


def flat(cores=1, minutes=10, window=60):
    return f"window(0, {window}m, atom(b='{cores} cpu', g=1, h=1, l={minutes}m, w={minutes}m))"


def two_nodes(**knobs):
    return Cell(registered("n1", cpu=4_000), registered("n2", cpu=4_000), **knobs)
