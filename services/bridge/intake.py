"""What nodes say over MQTT, judged before any of it reaches the bus.

Pure. Only what an agent may say, and of its own node, gets through; whether it is true is for the sequencer to judge.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from largesse.mqtt.parts import Gathering, dumps
from largesse.mqtt.port import PAYLOAD_BYTES_MAX
from largesse.mqtt.topics import node_of
from schemas.edge.base import Malformed
from schemas.edge.mqtt import NodeUp, NodeUpMessage, read_up
from schemas.edge.strict_json import INPUT_BYTES_MAX

T = TypeVar("T")

FORMS = {"nodes": ("register", "known", "report", "leave"), "tasks": ("started", "finished", "failed")}
"""What agents say on each topic; the rest of what these take is for operators."""
NODES_MAX = 100_000
"""Nodes whose last report is remembered, whether or not the cell knows them."""

Reason = Literal["topic", "size", "malformed", "name", "form", "number", "flood", "handed", "busy"]


class Refusal(Exception):
    """Why a message was not taken: a word for the metric, and a sentence."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Said:
    """A whole report of a node. `values`: topic and message, for the bus."""

    node: str
    epoch: str
    number: int
    values: list[tuple[str, bytes]]


class Intake:
    """Judges for one cell."""

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._gathering: dict[str, Gathering[NodeUp]] = {}
        self._taken: dict[str, tuple[str, int]] = {}

    def take(self, topic: str, payload: bytes) -> Said | None:
        """The report that a message makes whole; None: parts of it are still to come. Raises Refusal."""
        node = node_of(topic, self._cell)
        if node is None:
            raise Refusal("topic", "no node of this cell speaks there")
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise Refusal("size", f"has {len(payload)} bytes; {PAYLOAD_BYTES_MAX} at most are taken")
        gathering = self._gathering.pop(node, None)
        try:
            part = read_up(payload)
            if part.cell != self._cell or part.node != node:
                raise Refusal("name", f"names node {part.node} of cell {part.cell} on the topic of node {node}")
            if part.parts > 1:
                gathering = gathering or Gathering[NodeUp]()
                whole = gathering.take(part)
            else:
                whole, gathering = part, None
        except Malformed as fault:
            raise Refusal("malformed", str(fault)) from None
        finally:
            if gathering is not None:
                self._gathering[node] = gathering
                _bound(self._gathering)
        if whole is None:
            return None
        self._gathering.pop(node, None)
        epoch, number = self._taken.get(node, ("", 0))
        if whole.epoch == epoch and whole.number < number:
            raise Refusal("number", f"is number {whole.number} behind {number}")
        return Said(node, whole.epoch, whole.number, [_value(message, node) for message in whole.messages or []])

    def has_taken(self, said: Said) -> bool:
        """Whether the bus has this report: it is only to be answered again."""
        return self._taken.get(said.node) == (said.epoch, said.number)

    def taken(self, said: Said) -> None:
        """The bus has it."""
        self._taken.pop(said.node, None)
        self._taken[said.node] = said.epoch, said.number
        _bound(self._taken)


def _bound(by_node: dict[str, T]) -> None:
    while len(by_node) > NODES_MAX:
        del by_node[next(iter(by_node))]


def _value(message: NodeUpMessage, node: str) -> tuple[str, bytes]:
    """Raises Refusal for what an agent of this node does not say."""
    for form, said in message.document.items():
        if form not in FORMS[message.topic]:
            raise Refusal("form", f"{form!r:.50} is not for agents to say on {message.topic}")
        items = said.get("items", [said]) if isinstance(said, dict) else None
        if not isinstance(items, list):
            raise Refusal("form", f"{form} is neither of one node nor of items")
        for item in items:
            if not isinstance(item, dict) or item.get("node") != node:
                raise Refusal("name", f"{form} is not of node {node}")
    value = dumps(message.document)
    if len(value) > INPUT_BYTES_MAX:
        raise Refusal("size", f"a message of {len(value)} bytes; {INPUT_BYTES_MAX} at most are taken")
    return message.topic, value
