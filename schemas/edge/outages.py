"""Lines of an outage file: nodes of a simulated cell that are down for a time."""

from typing import Annotated

from pydantic import Field

from schemas.edge.base import Input, Malformed, Name, Whole, validated


class OneNodeInput(Input):
    """One node is down in [from_ms, to_ms), or for good."""

    node: Name
    from_ms: Whole
    to_ms: Whole | None = None


class SomeNodesInput(Input):
    """So many of a thousand nodes, drawn by the seed, are down in [from_ms, to_ms), or for good."""

    nodes_permille: Annotated[int, Field(ge=1, le=1000)]
    from_ms: Whole
    to_ms: Whole | None = None


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
        raise Malformed("to_ms", "has to be after from_ms; without it the node does not come back")
    return line
