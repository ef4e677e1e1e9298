"""What a job that asks for labels which no node has was most likely to say."""

from collections.abc import Mapping, Sequence

from largesse.lifecycle.queue_rules import listed
from schemas.wording import nearest
from services.gateway.view.state import State


def label_hint(state: State, field: str, labels: Sequence[Mapping[str, str]]) -> str:
    """For a job that was refused for `field`: the labels that nodes have, and the nearest of them. `labels`: of its
    stages. Empty where labels are not why it was refused.
    """
    wanted = next((each for i, each in enumerate(labels) if field == f"stages[{i}].labels"), None)
    if wanted is None:
        return ""
    there: dict[str, dict[str, bool]] = {}
    for node in state.nodes.values():
        for key, value in node.labels.items():
            there.setdefault(key, {})[value] = True
    if not there:
        return "; no node has any label"
    known = [f"{key}={value}" for key in sorted(there) for value in sorted(there[key])]
    return f"; there is {listed(known)}{_meant(there, wanted)}"


def _meant(there: Mapping[str, Mapping[str, bool]], wanted: Mapping[str, str]) -> str:
    """The first label of those wanted that no node has, as it is most likely meant."""
    for key, value in sorted(wanted.items()):
        near = key if key in there else nearest(key, there)
        if near is None:
            continue
        meant = value if value in there[near] else nearest(value, there[near])
        if (near, meant) == (key, value):
            continue
        text = near if meant is None else f"{near}={meant}"
        if text != key:
            return f'; did you mean "{text}"?'
    return ""
