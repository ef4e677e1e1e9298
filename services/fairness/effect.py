"""Fairness as a filter, asked what another config would do: what every queue is entitled to before and after.

One question as JSON on stdin, the answer as JSON on stdout; exit 2 with one line on stderr if it is malformed. The core
itself answers: it is told of a cell with so much capacity, held and asked for, and decides one round that writes
everything. So whatever it does, this says, too.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from largesse.core import OpenRound
from schemas import (
    ConfigChanged,
    Grant,
    JobAdmitted,
    JobSpec,
    NodeRegistered,
    Policy,
    Queue,
    Record,
    RoundClosed,
    RoundOpened,
    Shares,
    Stage,
    TaskRange,
    TaskStarted,
    Vector,
)
from schemas.edge_base import Input, Malformed, Whole, validated
from schemas.edge_config import knobs_of
from schemas.edge_queues import QueueInput, tree_of
from services.fairness import core

NODE, EPOCH = "cell", "1"

PARTS = 100
"""What a leaf waits for counts as so many tasks, for policies that hand out whole ones."""

Amounts = dict[str, Whole]


class Side(Input):
    """A config, and what jobs could use under it. `set`: knobs of the policy; `demand`: by leaf, in base units, all
    that its jobs run or could start.
    """

    set: dict[str, Any] = {}
    queues: QueueInput | None = None
    demand: dict[str, Amounts] = {}


class Question(Input):
    """A cell with two configs. `held`: by leaf, what its tasks hold of `capacity`, in base units."""

    capacity: Amounts
    held: dict[str, Amounts] = {}
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


def effect(document: Any) -> Answer:
    """The answer to a question as parsed from JSON. Raises Malformed."""
    asked = validated(Question, document)
    sides = {"before": asked.before, "after": asked.after}
    return {when: _shares(asked.capacity, asked.held, side, when) for when, side in sides.items()}


def _shares(capacity: Vector, held: Mapping[str, Vector], side: Side, field: str) -> dict[str, dict[str, int]]:
    tree = tree_of(side.queues, f"{field}.queues") if side.queues is not None else None
    knobs: dict[str, Any] = dict(knobs_of(side.set, f"{field}.set"))
    told = _decided(capacity, held, side.demand, replace(Policy(), **knobs), tree)
    found = {
        share.queue: {
            "guaranteed": share.guaranteed,
            "fair": share.fair,
            "allocated": share.allocated,
            "lent": share.lent,
            "borrowed": share.borrowed,
        }
        for share in told.queues
    }
    for level in told.levels:  # A level is told to the last digit, also where it is small.
        found.setdefault(level.queue, {})["fair"] = level.target
    return found


def _decided(
    capacity: Vector, held: Mapping[str, Vector], demand: Mapping[str, Vector], policy: Policy, tree: Queue | None
) -> Shares:
    """What the core says of a cell where each leaf has one job: a task that runs, and some that wait for the rest."""
    story = _Story()
    story.put(ConfigChanged(policy, _without_gates(tree) if tree is not None else None))
    story.put(NodeRegistered(NODE, EPOCH, _sorted(capacity)))
    grants = []
    for number, leaf in enumerate(sorted(demand)):
        asks = demand[leaf]
        # What is held for a job that has ended is none of what its leaf asks for.
        has = {kind: min(amount, asks.get(kind, 0)) for kind, amount in held.get(leaf, {}).items()}
        rest = {kind: amount - has.get(kind, 0) for kind, amount in asks.items()}
        part = {kind: amount // PARTS for kind, amount in rest.items()}
        last = {kind: amount - PARTS * part[kind] for kind, amount in rest.items()}
        stages = [
            Stage(name, tasks, _sorted(vector))
            for name, tasks, vector in (("runs", 1, has), ("waits", PARTS, part), ("last", 1, last))
        ]
        stages = [stage for stage in stages if stage.demand]
        if stages:
            story.put(JobAdmitted(JobSpec(f"j{number}", leaf, stages), "small"))
        if any(has.values()):
            grants.append(Grant(f"j{number}", "runs", 0, 1, 1, NODE, EPOCH))
    story.open(1)
    story.put(RoundClosed(grants, [], [], None, []))
    if grants:
        story.put(TaskStarted([TaskRange(each.job, each.stage, 0, 1, 1, NODE, EPOCH) for each in grants]))
    (told,) = core.decide(story.state, story.open(1 + policy.keyframe_rounds))
    return told


def _sorted(vector: Vector) -> Vector:
    return {kind: amount for kind, amount in sorted(vector.items()) if amount}


def _without_gates(queue: Queue) -> Queue:
    """Who stands before a gate does not ask; the one job of a leaf stands for those that do."""
    return replace(queue, children=[_without_gates(child) for child in queue.children], running_jobs_max=None)


class _Story:
    """A log that only the core hears."""

    def __init__(self) -> None:
        self.state = core.start()
        self._seq = self._round = 0

    def put(self, body: Any) -> Record:
        self._seq += 1
        record = Record(type(body).__name__, 1, "default", self._seq, self._round, 0, f"default/{self._seq}", "", body)
        if type(body) in core.FOLDS:
            core.fold(self.state, record)
        return record

    def open(self, number: int) -> OpenRound:
        self._round = number
        return OpenRound(self.put(RoundOpened(1, "")))
