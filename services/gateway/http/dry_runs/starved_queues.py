"""Finds queues that get nothing while queues with guarantees claim theirs."""

from collections.abc import Iterator
from fractions import Fraction

from schemas import Queue, Vector
from schemas.edge.queues import claims_of
from schemas.queue_tree import below


def left_nothing(tree: Queue, capacity: Vector) -> Iterator[tuple[str, str]]:
    """(Path, resource) of the first queues downwards for whom guarantees of their siblings leave none of a resource of
    the cell, if all ask for as much as they can have.
    """
    for resource in claims_of(tree, ""):
        if have := capacity.get(resource, 0):
            yield from _below(tree, "", resource, Fraction(have))


def _below(queue: Queue, path: str, resource: str, share: Fraction) -> Iterator[tuple[str, str]]:
    """`share`: of the resource, what the queue can count on."""
    claims = {child.name: Fraction(claims_of(child, "").get(resource, 0)) for child in queue.children}
    if not any(claims.values()):
        return
    left, weights = share, sum([child.weight for child in queue.children])
    for child in sorted(queue.children, key=lambda child: -claims[child.name] / child.weight):
        if claims[child.name] * weights <= left * child.weight:
            break
        left, weights = max(Fraction(0), left - claims[child.name]), weights - child.weight
    for child in queue.children:
        here, by_weight = below(path, child.name), left * child.weight / weights if weights else Fraction(0)
        if claims[child.name] or by_weight:
            yield from _below(child, here, resource, max(claims[child.name], by_weight))
        elif child.max.get(resource) != 0:
            yield here, resource
