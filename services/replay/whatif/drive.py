"""A cell that decides again what a recording decided, in virtual time, told the same from outside."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobChanged,
    JobRejected,
    JobRerun,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
)
from services.admission.core.after_jobs import RELEASES
from services.admission.core.judge import lose
from services.replay.whatif.facts import Fact, NodeFails
from services.replay.whatif.outcomes import Outcomes
from services.simulator.cluster import SimCluster
from services.simulator.drive import Drive
from services.simulator.engine import Cell

IDLE_ROUNDS_MAX = 200
"""With nothing to come and nothing that runs, what has not started after this many rounds never will."""

Change = Callable[[object], object | None]
"""What a fact is in the other world; None: it does not happen there."""


class WhatIfDrive(Drive):
    """Virtual time from fact to fact. `change` says what each fact is in this world. `admitted`: seqs, in the
    recording, of the submissions that the cell took, in order."""

    def __init__(
        self,
        cell: Cell,
        agents: SimCluster,
        facts: Iterator[tuple[int, Fact]],
        outcomes: Outcomes,
        change: Change,
        told: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(cell, agents, [], None)
        self.admitted: list[int] = []
        self._outcomes, self._change, self._told = outcomes, change, told
        self._busy_round = 0  # The last one at which something ran, or was still to come.
        self.arrivals = groupby(facts, key=lambda fact: fact[0])
        self.arrival = next(self.arrivals, None)

    def _next_ms(self) -> int | None:
        if self.arrival is not None or self.agents.next_end_ms() is not None or self.agents.has_ends:
            self._busy_round = self.cell.rounds
        elif self.cell.rounds - self._busy_round > IDLE_ROUNDS_MAX:
            return None
        return super()._next_ms()

    def _submit(self, body: object) -> None:
        assert isinstance(body, Fact)
        if self._told is not None and body.seq:
            self._told(body.seq)
        changed = self._change(body.body)
        if changed is not None:
            self._happen(body.seq, changed)

    def _happen(self, seq: int, body: object) -> None:
        cell = self.cell
        match body:
            case JobAdmitted(run=run) if run > 1:
                self._take_job(seq, JobRerun(body.submitted, body.from_stage), body.author)
            case JobAdmitted():
                self._take_job(seq, body.submitted, body.author)
            case JobRejected():
                self._take_job(seq, body.spec, body.author)
            case JobChanged(author=author) if author == RELEASES:
                pass  # The cell releases by itself what comes after other jobs.
            case ConfigChanged():
                cell.put(body)
            case NodeFails(node=node):
                if self._is_up(node):
                    self._report_ends()
                    self.agents.fail(node, cell.time)
            case NodeLost(node):
                self.lose_node(node, left=body.left)
            case NodeRegistered():
                self._register(body)
            case NodeReported(node):
                if self._is_up(node):
                    cell.take(replace(body, epoch=cell.admission.nodes[node].epoch), body.author)
            case NodeDrained(node) | NodeRemoved(node):
                if node in cell.admission.nodes:
                    cell.take(body, body.author)
            case _:
                cell.take(body, str(getattr(body, "author", "unknown")))

    def _take_job(self, seq: int, given: object, author: str) -> None:
        record = self.cell.take(given, author)
        if record is not None and isinstance(record.body, JobAdmitted):
            self.admitted.append(seq)
            self._outcomes.admitted(record.body.spec.job, seq)

    def _is_up(self, node: str) -> bool:
        """Whether the cell has the node, and its machine runs."""
        known = self.cell.admission.nodes.get(node)
        return known is not None and not known.lost and not self.agents.is_down(node)

    def begin(self) -> None:
        """What is left of the moment of the fork: what agents have to say, and what is due where nothing more comes."""
        cell, agents = self.cell, self.agents
        self._report()
        agents.end_until(cell.time)
        if cell.time >= cell.earliest_opening_ms():
            self._report_ends()
        if self.arrival is None or self.arrival[0] > cell.time:
            while cell.settle() is not None or agents.reports:
                self._report()

    def lose_node(self, node: str, *, left: bool) -> None:
        """The cell finds a node lost, if it has it."""
        known = self.cell.admission.nodes.get(node)
        if known is None or known.lost:
            return
        self._report_ends()
        self.agents.fail(node, self.cell.time)
        body = lose(self.cell.admission, node, left=left)
        assert body is not None
        self.cell.put(body)
        self._report()

    def _report_ends(self) -> None:
        """What has ended by now was heard of before the node fell silent."""
        self.agents.report_ends()
        self._report()

    def _register(self, body: NodeRegistered) -> None:
        """An agent that starts again finds what runs there; a machine that does has nothing left."""
        if self._is_up(body.node) and self.cell.admission.nodes[body.node].holds:
            epoch = self.cell.admission.nodes[body.node].epoch
            same = NodeReported(body.node, epoch, body.capacity, body.labels, body.devices, body.author)
            self.cell.take(replace(same, unschedulable=body.unschedulable), body.author)
            return
        plain = replace(body, attempts=[], lost=[], spare=[], parts=0)
        self.cell.take(plain, body.author)
        self._report()
