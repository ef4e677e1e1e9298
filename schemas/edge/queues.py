"""The queue tree as people write it: weights, policies, limits and who may submit, read strictly and written back.

`tree_of` and `tree_document` are each other's inverse on every tree that the edge takes.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from schemas.edge.base import (
    NAME_MAX,
    QUEUE_TEXT_PATTERN,
    TEXT_PATTERN,
    Amounts,
    Input,
    Malformed,
    at_key,
    shown,
    vector_of,
)
from schemas.edge.jobs import QUEUE_DEPTH_MAX, SEGMENT_MAX
from schemas.edge.unit_traps import amount_warnings
from schemas.quantities import MILLIONTHS, QUANTITY_MAX, Vector, quantity_text, quantity_texts
from schemas.queue_tree import QUEUE_DEFAULT
from schemas.queues import Queue
from schemas.sharing import LIST_POLICIES, SharingName

QUEUES_MAX = 10_000
WEIGHT_MAX = 1_000_000
RUNNING_JOBS_MAX = 1_000_000
"""The most that `running_jobs_max` and `user_jobs_max` may say: as many jobs as a cell holds."""
USER_RUNNING_MAX = 10_000_000
"""The most that `user_running_max` may say: as many tasks as a cell takes unless its knobs say more."""
SUBMITTERS_MAX = 1_000
"""Users that one queue may name."""

LEAF_POLICIES = ("drf", *LIST_POLICIES)
"""Policies that order jobs. All others share out among queues."""


_RATIO = re.compile("([0-9]{1,12})/([0-9]{1,12})")


def weight_millionths(weight: Any) -> int:
    """A weight as whole millionths. Takes a JSON number in any form; one with a fraction counts by its decimal text. A
    text like `1/3` is rounded to the nearest millionth.

    Raises ValueError with what is allowed.
    """
    if isinstance(weight, str) and (parts := _RATIO.fullmatch(weight)) is not None and int(parts[2]):
        rounded = round(Fraction(int(parts[1]), int(parts[2])) * MILLIONTHS)
        if 0 < rounded <= WEIGHT_MAX * MILLIONTHS:
            return rounded
    exact = Fraction(0)
    if not isinstance(weight, (bool, str)):
        try:
            exact = Fraction(str(weight)) if isinstance(weight, float) else Fraction(weight)
        except (TypeError, ValueError, OverflowError):
            exact = Fraction(0)
    millionths = exact * MILLIONTHS
    if not 0 < exact <= WEIGHT_MAX or millionths.denominator != 1:
        raise ValueError(
            f"has to be a number above 0 and at most {WEIGHT_MAX}, with at most 6 decimals, or a fraction like"
            f' "1/3", is {shown(weight)}'
        )
    return millionths.numerator


Weight = Annotated[
    int,
    PlainValidator(weight_millionths),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": WEIGHT_MAX},
                {"type": "string", "pattern": "^[0-9]{1,12}/[0-9]{1,12}$"},
            ]
        }
    ),
]
Submitter = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=TEXT_PATTERN)]


class QueueInput(Input):
    """A queue and those below it. `weight` counts against its siblings'; a leaf has no children and holds jobs.

    `policy` holds for all below it, too; a leaf's orders jobs: fifo, fair, drf, sjf, srtf, tetris, tetris-fair,
    priority. `guaranteed` and `max`: by resource, what the queue may claim before weights count, and never goes beyond.
    `running_jobs_max`: so many of its jobs run at once. `submitters`: users who may submit; none named: those of the
    queue above it. `altruism_permille`: in so many of a thousand plans its jobs give away what they do not need now.
    `user_jobs_max`: one user may have so many live jobs in it and below it. `user_running_max`: so many tasks of one
    user run there at a time; the others wait.
    """

    name: Annotated[str, Field(min_length=1, max_length=SEGMENT_MAX, pattern=QUEUE_TEXT_PATTERN)]
    weight: Annotated[Weight, Field(validate_default=True)] = 1
    children: Annotated[list["QueueInput"], Field(max_length=QUEUES_MAX)] = []
    policy: SharingName | None = None
    guaranteed: Amounts = {}
    max: Amounts = {}
    running_jobs_max: Annotated[int, Field(ge=1, le=RUNNING_JOBS_MAX)] | None = None
    submitters: Annotated[list[Submitter], Field(max_length=SUBMITTERS_MAX)] = []
    altruism_permille: Annotated[int, Field(ge=0, le=1_000)] | None = None
    user_jobs_max: Annotated[int, Field(ge=1, le=RUNNING_JOBS_MAX)] | None = None
    user_running_max: Annotated[int, Field(ge=1, le=USER_RUNNING_MAX)] | None = None


def tree_of(root: QueueInput, parent: str) -> Queue:
    """The queue tree. Raises Malformed under `parent`."""
    if root.name != "root":
        raise Malformed(
            f"{parent}.name", f'the top of the tree is "root", with the queues as its children, not {shown(root.name)}'
        )
    # A cell adds `default` by itself: a tree that it prints may have that one more.
    queues_left = [QUEUES_MAX + any(child.name == QUEUE_DEFAULT for child in root.children)]
    tree = _queue_of(root, parent, 0, queues_left)
    for i, child in enumerate(tree.children):
        if child.name == "root":
            raise Malformed(f"{parent}.children[{i}].name", '"root" is the top of the tree: choose another name')
    claims_of(tree, parent)
    return tree


def tree_document(queue: Queue) -> dict[str, object]:
    """The tree as `tree_of` takes it back. Limits that a queue has not got are left out."""
    document: dict[str, object] = {
        "name": queue.name,
        "weight": weight_number(queue.weight),
        "children": [tree_document(child) for child in queue.children],
    }
    if queue.policy:
        document["policy"] = queue.policy
    for name, vector in (("guaranteed", queue.guaranteed), ("max", queue.max)):
        if vector:
            document[name] = quantity_texts(vector)
    if queue.running_jobs_max is not None:
        document["running_jobs_max"] = queue.running_jobs_max
    if queue.user_jobs_max is not None:
        document["user_jobs_max"] = queue.user_jobs_max
    if queue.user_running_max is not None:
        document["user_running_max"] = queue.user_running_max
    if queue.submitters:
        document["submitters"] = list(queue.submitters)
    if queue.altruism_permille is not None:
        document["altruism_permille"] = queue.altruism_permille
    return document


def weight_number(millionths: int) -> int | float:
    """A weight as people write it. A float's shortest text has the six decimals."""
    return millionths // MILLIONTHS if millionths % MILLIONTHS == 0 else millionths / MILLIONTHS


def queue_warnings(field: str, queue: Mapping[str, Any]) -> list[str]:
    """What a tree that was read without fault says and yet most likely does not mean."""
    warnings = []
    for limit in ("guaranteed", "max"):
        warnings += amount_warnings(f"{field}.{limit}", queue.get(limit) or {}, cores_max=QUANTITY_MAX)
    if queue.get("submitters") == []:
        text = "is empty, which is as if it were left out: those of the queue above may submit, or everybody"
        warnings.append(f"{field}.submitters: {text}")
    for i, child in enumerate(queue.get("children") or []):
        warnings += queue_warnings(f"{field}.children[{i}]", child)
    return warnings


def claims_of(queue: Queue, parent: str) -> Vector:
    """What is guaranteed to a queue, or where it says nothing of a resource, to those below it together.

    Raises Malformed under `parent` where a guarantee could never hold: more below than at the queue, or more than its
    maximum.
    """
    together: Vector = {}
    for i, child in enumerate(queue.children):
        for resource, amount in claims_of(child, f"{parent}.children[{i}]").items():
            together[resource] = together.get(resource, 0) + amount
    for resource, amount in queue.guaranteed.items():
        if together.get(resource, 0) > amount:
            below = quantity_text(resource, together[resource])
            text = f"is {quantity_text(resource, amount)}, but the queues below {shown(queue.name)} are guaranteed"
            raise Malformed(f"{parent}.guaranteed.{at_key(resource)}", f"{text} {below} together")
    claims = together | queue.guaranteed
    for resource, amount in sorted(claims.items()):
        if resource in queue.max and amount > queue.max[resource]:
            most = quantity_text(resource, queue.max[resource])
            if resource in queue.guaranteed:
                text = f"is {quantity_text(resource, amount)}, above the queue's max of {most}"
                raise Malformed(f"{parent}.guaranteed.{at_key(resource)}", text)
            text = f"is {most}, but the queues below {shown(queue.name)} are guaranteed"
            raise Malformed(f"{parent}.max.{at_key(resource)}", f"{text} {quantity_text(resource, amount)} together")
    return claims


def _queue_of(queue: QueueInput, parent: str, depth: int, queues_left: list[int]) -> Queue:
    if "/" in queue.name:
        raise Malformed(f"{parent}.name", f'may hold no "/": nest queues as children, {shown(queue.name)} is a path')
    if depth > QUEUE_DEPTH_MAX:
        raise Malformed(parent, f"is too deep: at most {QUEUE_DEPTH_MAX} levels below root")
    queues_left[0] -= 1
    if queues_left[0] < 0:
        raise Malformed(parent, f"is one too many: a tree has at most {QUEUES_MAX} queues")
    children = []
    names: dict[str, int] = {}
    for i, child in enumerate(queue.children):
        if (first := names.setdefault(child.name, i)) != i:
            raise Malformed(
                f"{parent}.children[{i}].name", f"{shown(child.name)} is the name of children[{first}] already"
            )
        children.append(_queue_of(child, f"{parent}.children[{i}]", depth + 1, queues_left))
    if queue.policy is not None and not children and queue.policy not in LEAF_POLICIES:
        orders = ", ".join(LEAF_POLICIES)
        raise Malformed(
            f"{parent}.policy",
            f"shares out among queues, and {shown(queue.name)} has none below it: write one of {orders}",
        )
    users: dict[str, int] = {}
    for i, user in enumerate(queue.submitters):
        if (first := users.setdefault(user, i)) != i:
            raise Malformed(f"{parent}.submitters[{i}]", f"{shown(user)} is named in submitters[{first}] already")
    return Queue(
        queue.name,
        queue.weight,
        children,
        queue.policy or "",
        _amounts(queue.guaranteed, f"{parent}.guaranteed"),
        # A maximum of nothing is a limit, too; nothing guaranteed is no guarantee.
        dict.fromkeys(sorted(queue.max), 0) | _amounts(queue.max, f"{parent}.max"),
        queue.running_jobs_max,
        list(queue.submitters),
        queue.altruism_permille,
        queue.user_jobs_max,
        queue.user_running_max,
    )


def _amounts(amounts: Mapping[str, object], field: str) -> Vector:
    """Both limits are parts of the cell's capacity, and round as it does. Raises Malformed under `field`."""
    try:
        return vector_of(amounts, round_up=False)
    except Malformed as fault:
        raise fault.under(field) from None
