"""A node's lease and what follows its loss as a model: one task on one node, another node that it may be given to.

Who is silent is decided by the real `Leases`, what a shim does by the real `Hold`; the clock goes in tenths of a lease.
`Rules` can leave out what keeps two attempts from running at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from unittest.mock import patch

from services.admission.node_leases import Leases
from services.agent import lease_file
from services.agent.lease_file import ELSEWHERE, END, RUN, SUSPEND_PARTS, Hold

TICK_MS = 100
LEASE = 10
NODE = "n0"


@dataclass(frozen=True, slots=True)
class Rules:
    """`from_sending`: an agent counts its lease from when it spoke. `whole`: the sequencer waits for a whole lease.
    `takeover`: a new sequencer gives all a lease. `drops`: what the log has given away is ended. `renews`: an agent
    that was not heard for long registers its node again before anything goes on."""

    from_sending: bool = True
    whole: bool = True
    takeover: bool = True
    drops: bool = True
    renews: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """All times are how many ticks ago something was, at most a lease. `sure`: from when on the agent counts its lease;
    `beat`: when it was last alive; `flying`: when the word was sent that is on its way, `unheard` that has come without
    its agent having heard so, None: there is none. `heard`: when the sequencer heard of the node. `agent`: whether it
    runs, and is not paused. `shim`: runs, suspended or ended. `over`: the agent was not heard for long, so the node has
    to be registered again. `other`: the task runs elsewhere."""

    sure: int = 0
    beat: int = 0
    flying: int | None = None
    unheard: int | None = None
    heard: int = 0
    agent: bool = True
    shim: str = "runs"
    lost: bool = False
    over: bool = False
    other: bool = False


class NodeLease:
    """Steps and law of the model."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def law(self, node: Node) -> str:
        """What is broken; empty: nothing."""
        return "two attempts of a task run at a time" if node.other and node.shim == "runs" else ""

    def steps(self, node: Node) -> Iterator[tuple[str, Node]]:
        """All that may happen next. Where time passes the shim looks: it does so more often than once in a tick."""
        yield "a tick", self._ticked(node)
        if not node.agent:
            yield "the agent goes on", self._looks(replace(node, agent=True, beat=0))
        else:
            yield from self._of_agent(node)
        if node.flying is not None:
            yield "the word is lost", replace(node, flying=None)
            if node.unheard is None:
                heard = node.heard if node.lost else 0
                yield "the word comes", replace(node, flying=None, unheard=node.flying, heard=heard)
        if not node.lost:
            if self._is_silent(node):
                yield "the node is lost", replace(node, lost=True)
            yield "another leads", replace(node, heard=0 if self.rules.takeover else LEASE)
        elif not node.other:
            yield "the task begins elsewhere", replace(node, other=True)

    def _ticked(self, node: Node) -> Node:
        later = replace(
            node,
            sure=min(node.sure + 1, LEASE),
            beat=0 if node.agent else min(node.beat + 1, LEASE),
            flying=None if node.flying is None else min(node.flying + 1, LEASE),
            unheard=None if node.unheard is None else min(node.unheard + 1, LEASE),
            heard=min(node.heard + 1, LEASE),
        )
        return self._looks(later)

    def _of_agent(self, node: Node) -> Iterator[tuple[str, Node]]:
        yield "the agent is paused", replace(node, agent=False)
        if node.flying is None and not node.over:
            yield "the agent speaks", replace(node, flying=0)
        if node.unheard is not None:
            sure = min(node.sure, node.unheard if self.rules.from_sending else 0)
            rest = replace(node, unheard=None)
            yield "the agent hears that it came", rest if node.over else self._looks(replace(rest, sure=sure))
        if node.over or node.lost:
            yield "the node is registered again", self._registered(node)

    def _registered(self, node: Node) -> Node:
        """The log has it again: what it has given away meanwhile is ended, the rest goes on. Words of before count no
        more, since they have another epoch."""
        after = replace(node, over=False, sure=0, beat=0, flying=None, unheard=None)
        if not node.lost:
            return self._looks(replace(after, heard=0))
        return self._looks(replace(after, shim="ended" if self.rules.drops else node.shim))

    def _is_silent(self, node: Node) -> bool:
        return _silent(node.heard, LEASE if self.rules.whole else LEASE // 2)

    def _looks(self, node: Node) -> Node:
        """What its shim makes of it."""
        if node.shim == "ended":
            return node
        left = LEASE - node.sure
        if node.agent and self.rules.renews and left <= LEASE // SUSPEND_PARTS:
            node = replace(node, over=True)
        return replace(node, shim={RUN: "runs", END: "ended"}.get(_look(node.beat, left), "suspended"))


@lru_cache(None)
def _silent(heard: int, lease: int) -> bool:
    """Whether the real `Leases` have run out."""
    leases = Leases()
    leases.renew(NODE, 0)
    return bool(leases.silent(heard * TICK_MS, lease * TICK_MS))


@lru_cache(None)
def _look(silent: int, left: int) -> str:
    """The real `Hold`, as an agent's file would have it."""
    at_ms = 1_000_000
    said = at_ms - silent * TICK_MS, at_ms + left * TICK_MS, LEASE * TICK_MS, ELSEWHERE
    with patch.object(lease_file, "mono_ms", lambda: at_ms - 10 * LEASE * TICK_MS):
        hold = Hold(0)
    hold._looked_ms = at_ms
    with (
        patch.object(lease_file, "mono_ms", lambda: at_ms),
        patch.object(lease_file, "boot_ms", lambda: at_ms),
        patch.object(lease_file, "read", lambda file: said),
    ):
        return hold.look()
