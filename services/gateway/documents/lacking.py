"""The numbers behind "no room": what the nodes lack, for whom some of it is kept, and what a job's queue holds of the
cell beside its share. Nodes are added up for one request.
"""

from typing import Final, NamedTuple

from largesse.lifecycle.slots import counted_capacity, counted_demand, slots_of
from schemas import HeldRoom, Stage, Vector
from schemas.placement_rules import class_key
from schemas.quantities import SHARE_UNITS, SLOTS, rounded_text, tasks_on_devices
from schemas.wording import plural
from services.gateway.documents.promised_waits import moment
from services.gateway.documents.queues import held_shares
from services.gateway.view.state import NodeRow, State, stage_class_key

NODES_NAMED_MAX: Final = 3
_WHOLE: Final = 1 << 20


class _Lack(NamedTuple):
    """What one node lacks for a task: of how many kinds of resources, and of the worst of them which part of what is
    asked for (in 2^-20). `order`: of the node, by registration; `text`: what is free of what is asked for.
    """

    kinds: int
    part: int
    order: int
    node: str
    text: str


class Lacking:
    """Answers about one state of the view, which must not change while this is in use."""

    def __init__(self, state: State) -> None:
        self._state = state

    def text(self, queue: str, stage: Stage) -> str:
        """What is to be said after the plain reason of a stage whose tasks find no room; empty: nothing."""
        parts = [self._gang(stage) if stage.gang else self._nearest(stage), *self._kept(stage), self._share(queue)]
        return "".join([f"; {part}" for part in parts if part])

    # ------------------------------------------------------------ nodes
    def _gang(self, stage: Stage) -> str:
        room = sum([self._tasks_on(node, stage) for node in self._state.nodes.values()])
        return f"room is free for {min(room, stage.tasks - 1)} of them" if room else "room is free for none of them"

    def _nearest(self, stage: Stage) -> str:
        """The node that lacks least."""
        found = [lack for order, name in enumerate(self._state.nodes) if (lack := self._lack(order, name, stage))]
        if not found:
            return ""
        least = min(found)
        if least.part == _WHOLE:
            return f"{plural(len(found), 'node')} could run it and {'is' if len(found) == 1 else 'are'} full"
        return f"{least.node} comes nearest, with {least.text}" if least.kinds else ""

    def _lack(self, order: int, name: str, stage: Stage) -> _Lack | None:
        """None: the node could not run such a task if it were empty, or takes none."""
        node = self._state.nodes[name]
        if not _is_open(node, stage):
            return None
        demand, capacity = counted_demand(self._state.policy, stage.demand), self._capacity(node)
        free, lacks = self._free(node), []
        for kind, amount in sorted(demand.items()):
            if capacity.get(kind, 0) < amount:
                return None
            have = max(0, free.get(kind, 0))
            if have < amount:
                lacks.append(((amount - have) * _WHOLE // amount, kind, have, amount))
        texts = [
            f"{kind} {rounded_text(kind, have)} of {rounded_text(kind, amount)} free" for _, kind, have, amount in lacks
        ]
        return _Lack(len(lacks), max([part for part, *_ in lacks], default=0), order, name, " and ".join(texts))

    def _tasks_on(self, node: NodeRow, stage: Stage) -> int:
        """How many tasks of a stage have room on a node; of fractions of GPUs perhaps fewer."""
        if not _is_open(node, stage):
            return 0
        free = self._free(node)
        demand = {kind: amount for kind, amount in counted_demand(self._state.policy, stage.demand).items() if amount}
        room = min([stage.tasks, *[max(0, free.get(kind, 0)) // amount for kind, amount in demand.items()]])
        return tasks_on_devices(demand.get("gpu", 0), [device.milli for device in node.devices], room)

    def _capacity(self, node: NodeRow) -> Vector:
        return counted_capacity(self._state.policy, node.capacity)

    def _free(self, node: NodeRow) -> Vector:
        used = {SLOTS: node.holds} if slots_of(self._state.policy) else node.used
        return {kind: amount - used.get(kind, 0) for kind, amount in self._capacity(node).items()}

    # ------------------------------------------------------------ room that is kept
    def _kept(self, stage: Stage) -> list[str]:
        """Where room is gathered for the class, and where it is kept for another that has a right to it."""
        own: dict[str, HeldRoom] = {}
        others: dict[str, HeldRoom] = {}
        for name, held in self._state.kept.items():
            if _is_for(held, stage):
                own[name] = held
            elif self._tasks_on(self._state.nodes[name], stage):
                others[name] = held
        texts = []
        if own:
            text = f"room for it is gathered on {_named(list(own))}"
            known = [held.complete_ms for held in own.values() if held.complete_ms is not None]
            texts.append(text + complete_text(max(known), self._state.time) if len(known) == len(own) else text)
        if others:
            name, held = next(iter(others.items()))
            texts.append(f"room on {_named(list(others))} is kept for {self._owner(held)}")
        return texts

    def _owner(self, held: HeldRoom) -> str:
        """Of the jobs that wait for room that is kept, the first that was admitted."""
        key = _key(held)
        for name, job in self._state.jobs.items():
            for asked, stage in zip(job.asked, job.graph.stages, strict=True):
                if asked and stage.demand == held.task and stage_class_key(job.spec, stage) == key:
                    return f"{name}/{stage.stage}"
        return "others"

    # ------------------------------------------------------------ shares
    def _share(self, queue: str) -> str:
        share = self._state.shares.get(queue)
        if share is None:
            return ""
        held = held_shares(self._state, [queue])[queue]
        text = f"queue {queue} holds {_percent(held)} % of the cell, and its fair share is {_percent(share.fair)} %"
        if share.fair >= share.guaranteed:
            return text
        return f"{text} until it can use the {_percent(share.guaranteed)} % that are guaranteed"


def _key(held: HeldRoom) -> str:
    return class_key(held.task, held.labels, held.prefer, held.gang, held.rules)


def _is_for(held: HeldRoom, stage: Stage) -> bool:
    gang = stage.tasks if stage.gang else 0
    return (held.task, held.labels, held.gang) == (stage.demand, stage.labels, gang)


def _is_open(node: NodeRow, stage: Stage) -> bool:
    closed = node.lost or node.draining or node.unschedulable
    return not closed and all(node.labels.get(key) == value for key, value in stage.labels.items())


def _named(nodes: list[str]) -> str:
    more = len(nodes) - NODES_NAMED_MAX
    return ", ".join(nodes[:NODES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _percent(share: int) -> str:
    """A part of the cell in per cent, with one digit, rounded to the nearest."""
    tenths = (share * 2_000 // SHARE_UNITS + 1) // 2
    return f"{tenths // 10}.{tenths % 10}" if tenths % 10 else str(tenths // 10)


def complete_text(complete_ms: int | None, now_ms: int) -> str:
    """When room that is gathered is expected to be complete, to stand behind what says where it is."""
    if complete_ms is None:
        return ""
    if complete_ms < now_ms:
        return f", which was expected to be complete at {moment(complete_ms)}: tasks there run longer than expected"
    return f", complete at about {moment(complete_ms)}"
