"""Lines of an outage file: nodes of a simulated cell that are down, or slow, for a time."""

from typing import Annotated

from pydantic import Field

from schemas.edge.base import Input, Malformed, Name, Whole
from schemas.edge.validated import validated

SLOW_PERMILLE_MAX = 1_000_000
"""A thousand times as long as elsewhere."""

SlowPermille = Annotated[int, Field(gt=1_000, le=SLOW_PERMILLE_MAX)] | None


class OneNodeInput(Input):
    """One node is down in [from_ms, to_ms), or for good. With `slow_permille` it is not down: tasks that start there in
    that time take so much longer (2000: twice as long)."""

    node: Name
    from_ms: Whole
    to_ms: Whole | None = None
    slow_permille: SlowPermille = None


class SomeNodesInput(Input):
    """So many of a thousand nodes, drawn by the seed, are down in [from_ms, to_ms), or for good; or slow, as above."""

    nodes_permille: Annotated[int, Field(ge=1, le=1000)]
    from_ms: Whole
    to_ms: Whole | None = None
    slow_permille: SlowPermille = None


class RandomInput(Input):
    """Every node is up and down by turns until `until_ms`, both for exponentially distributed times."""

    mean_up_ms: Annotated[int, Field(ge=1)]
    mean_down_ms: Annotated[int, Field(ge=1)]
    until_ms: Whole


OutageInput = OneNodeInput | SomeNodesInput | RandomInput


def read_outage_line(document: object) -> OutageInput:
    """One line; what it names says of which kind it is. Raises Malformed."""
    if isinstance(document, dict) and "mean_up_ms" in document:
        return validated(RandomInput, document)
    line: SomeNodesInput | OneNodeInput
    if isinstance(document, dict) and "nodes_permille" in document:
        line = validated(SomeNodesInput, document)
    else:
        line = validated(OneNodeInput, document)
    if line.to_ms is not None and line.to_ms <= line.from_ms:
        raise Malformed("to_ms", "has to be after from_ms; without it the node stays as it is")
    return line
