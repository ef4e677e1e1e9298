"""Fairness as a filter, asked what another config would do: what every queue is entitled to before and after.

One question as JSON on stdin, the answer as JSON on stdout; exit 2 with one line on stderr if it is malformed. The core
itself answers: it folds a cell with so much capacity, held and asked for, and decides one round that writes
everything. So whatever it does, this says, too.
"""

import json
import sys
from dataclasses import replace

from largesse.core import OpenRound
from schemas import (
    ConfigChanged,
    Grant,
    JobAdmitted,
    JobEnded,
    JobSpec,
    NodeRegistered,
    Plans,
    Policy,
    Queue,
    Record,
    RoundClosed,
    RoundOpened,
    Shares,
    Stage,
    Vector,
)
from schemas.edge.base import Input, Malformed, Whole
from schemas.edge.config import knobs_of
from schemas.edge.queues import QueueInput, tree_of
from schemas.edge.validated import validated
from schemas.jobs import JobEnd
from schemas.knobs import with_knobs
from schemas.plans import PlanProfile, PlanStep
from services.fairness import core

NODE, EPOCH = "cell", "1"
STORY_MS = 1
"""When the cell ends: all that happens in it happens at 0."""

Amounts = dict[str, Whole]


class Tasks(Input):
    """Tasks of one leaf that ask for the same, each for `demand` in base units: so many run, so many could start; of
    jobs that are over, so many still hold something. `user`: whose they are, where that counts.
    """

    demand: Amounts
    user: str = ""
    running: Whole = 0
    waiting: Whole = 0
    over: Whole = 0


class Side(Input):
    """A config, and the tasks that there are under it, by leaf. `set`: knobs of the policy."""

    set: dict[str, object] = {}
    queues: QueueInput | None = None
    tasks: dict[str, list[Tasks]] = {}


class Question(Input):
    """A cell with two configs. `capacity`: of its `nodes` together, in base units; `promised`: what of that is promised
    to reservations now, in so many units."""

    capacity: Amounts
    nodes: Whole = 1
    promised: Amounts = {}
    promised_units: Whole = 0
    before: Side
    after: Side


Answer = dict[str, dict[str, dict[str, int]]]
"""`before` and `after`: queue path -> `guaranteed`, `fair`, `allocated`, `lent`, `borrowed` in 10^-9 of the cell, those
that fairness tells of.
"""


def main() -> int:
    """Reads stdin, writes stdout. Returns the exit code."""
    try:
        answer = effect(json.load(sys.stdin))
    except (Malformed, ValueError, RecursionError) as error:
        print(f"cannot answer this: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer, ensure_ascii=False))
    return 0


def effect(document: object) -> Answer:
    """The answer to a question as parsed from JSON. Raises Malformed."""
    asked = validated(Question, document)
    sides = {"before": asked.before, "after": asked.after}
    return {when: _shares(asked, side, when) for when, side in sides.items()}


def _shares(asked: Question, side: Side, field: str) -> dict[str, dict[str, int]]:
    tree = tree_of(side.queues, f"{field}.queues") if side.queues is not None else None
    policy = with_knobs(Policy(), knobs_of(side.set, f"{field}.set"))
    shares = _decided(asked, side, policy, tree)
    found = {
        share.queue: {
            "guaranteed": share.guaranteed,
            "fair": share.fair,
            "allocated": share.allocated,
            "lent": share.lent,
            "borrowed": share.borrowed,
        }
        for share in shares.queues
    }
    for level in shares.levels:  # A level is published to the last digit, also where it is small.
        found.setdefault(level.queue, {})["fair"] = level.target
    return found


def _decided(asked: Question, side: Side, policy: Policy, tree: Queue | None) -> Shares:
    """What the core says of a cell in which all tasks of a leaf (and a user) that ask for the same are two jobs: one of
    those that are over, one of the others.
    """
    story = _Story()
    story.put(ConfigChanged(policy, _without_running_limits(tree) if tree is not None else None))
    for number in range(asked.nodes if asked.capacity else 0):
        # Where nodes count for anything but their sum, each has as many places.
        amounts = asked.capacity if number == 0 else dict.fromkeys(asked.capacity, 0)
        story.put(NodeRegistered(f"{NODE}-{number}", EPOCH, dict(sorted(amounts.items()))))
    if any(asked.promised.values()):
        promised = PlanStep(0, STORY_MS, _sorted(asked.promised), units=asked.promised_units)
        story.put(Plans(0, profiles=[PlanProfile("promised", "", [promised])]))
    grants, over = [], []
    for leaf, alike in sorted(side.tasks.items()):
        for tasks in alike:
            if tasks.running + tasks.waiting:
                grants.append(story.job(leaf, tasks.demand, tasks.running, tasks.waiting, tasks.user))
            if tasks.over:
                grants.append(story.job(leaf, tasks.demand, tasks.over, 0, tasks.user))
                over.append(JobEnd(grants[-1].job, "cancelled"))
    story.open(1)
    story.put(RoundClosed([grant for grant in grants if grant.count], [], [], None, []))
    story.put(JobEnded(over))
    (shares,) = core.decide(story.state, story.open(1 + policy.keyframe_rounds))
    return shares


def _sorted(vector: Vector) -> Vector:
    return {kind: amount for kind, amount in sorted(vector.items()) if amount}


def _without_running_limits(queue: Queue) -> Queue:
    """Jobs that are held back do not ask; the one job of a leaf represents those that do."""
    return replace(queue, children=[_without_running_limits(child) for child in queue.children], running_jobs_max=None)


class _Story:
    """A log that only the core hears."""

    def __init__(self) -> None:
        self.state = core.start()
        self.seq = self._round = 0

    def put(self, body: object) -> Record:
        self.seq += 1
        record = Record(type(body).__name__, 1, "default", self.seq, self._round, 0, f"default/{self.seq}", "", body)
        if type(body) in core.FOLDS:
            core.fold(self.state, record)
        return record

    def job(self, leaf: str, demand: Vector, running: int, waiting: int, user: str) -> Grant:
        """A job of tasks that are alike. Returns the grant of those that run."""
        name, stage = f"j{self.seq}", Stage("s", running + waiting, _sorted(demand))
        self.put(JobAdmitted(JobSpec(name, leaf, [stage], user=user), 0))
        return Grant(name, "s", 0, running, 1, f"{NODE}-0", EPOCH)

    def open(self, number: int) -> OpenRound:
        self._round = number
        return OpenRound(self.put(RoundOpened(1, "")))
