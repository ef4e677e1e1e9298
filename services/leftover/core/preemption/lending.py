"""What may be taken back in a round: what has run long enough for queues that hold more than they are guaranteed."""

from typing import Final

from largesse.lifecycle.task_keys import in_job, parts_of
from schemas.presets import PRESETS
from schemas.quantities import SHARE_UNITS
from services.leftover.core.board import leaf_at, stage_of
from services.leftover.core.preemption.ending import is_ending
from services.leftover.core.reservations.revocable import device_shares
from services.leftover.core.round import Round
from services.leftover.core.state import Allocation
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.preemption.holdings import Holdings
from services.leftover.placement.preemption.taking import Claimed, Loan, LoanPart, Taking
from services.leftover.placement.promised import Space, by_position

_NO_SPARED: Final = list[str]()


def share_of(table: NodeTable, held: Allocation) -> int:
    """The dominant share of what an attempt holds, rounded up."""
    share, total = 0, table.total
    for p, amount in table.pairs(held.demand):
        if p >= 0 and total[p]:
            share = max(share, -(-amount * SHARE_UNITS // total[p]))
    return share


class Lending:
    """What may be taken back in a round. `ending`: nodes where attempts end; `ripe_ms`: when the next of those that are
    too young is old enough.
    """

    def __init__(self, round_: Round, rooms: list[Claimed]) -> None:
        state, board = round_.state, round_.board
        self._round, self._rooms = round_, rooms
        self.ripe_ms: int | None = None
        self.ending: dict[int, bool] = {}
        self.loans: dict[int, list[Loan]] = {}
        flat = not PRESETS[state.policy.preset].has_levels_for_claims
        self.holdings = Holdings(round_.table.total, board.buckets.leaves.values(), state.takings, flat=flat)
        for room in rooms:
            self.holdings.change(room.leaf, room.task.pairs, 1)
        self._gone: dict[str, bool] = {}  # What the round has taken back before.
        for item in round_.revoked:
            for index in range(item.first, item.first + item.count):
                self._gone[f"{item.node}/{item.job}/{item.stage}/{index}"] = True
        self._find()

    def _find(self) -> None:
        """Finds the loans, by node."""
        state, table = self._round.state, self._round.table
        running: list[tuple[int, str, Allocation]] = []
        for name, on_node in state.held.items():
            number = table.find(name)
            for key, held in on_node.items():
                if self._is_ending(name, key, held):
                    if number is not None:
                        self.ending[number] = True
                    self.holdings.change(leaf_at(state, held.queue), table.pairs(held.demand), -1)
                elif number is not None:
                    running.append((number, key, held))
        gives: dict[str, bool] = {}
        found: dict[str, Loan | None] = {}
        for number, key, held in running:
            leaf = leaf_at(state, held.queue)
            if leaf not in gives:
                gives[leaf] = self.holdings.gives(leaf)
            if gives[leaf] and held.job not in state.reserving:
                self._lend(number, key, held, leaf, found)
        for loan in found.values():
            if loan is not None and self._is_whole(loan):
                for number in {part.node: True for part in loan.parts}:
                    self.loans.setdefault(number, []).append(loan)

    def _is_ending(self, node: str, key: str, held: Allocation) -> bool:
        return is_ending(self._round.state, node, key, held) or f"{node}/{key}" in self._gone

    def _lend(self, number: int, key: str, held: Allocation, leaf: str, found: dict[str, Loan | None]) -> None:
        """An attempt that may be taken back by itself is a loan; what is of a gang comes into that of the gang."""
        state, table, now_ms = self._round.state, self._round.table, self._round.now_ms
        gang = stage_of(state.jobs[held.job], held.stage).gang
        name = f"{held.job}/{held.stage}" if gang else key
        ripe_ms = held.start_ms + state.policy.preempt_min_run_ms
        is_copied = bool(state.copied) and in_job(key) in state.copied.get(held.job, {})
        if is_copied or ripe_ms > now_ms:
            if ripe_ms > now_ms and (self.ripe_ms is None or ripe_ms < self.ripe_ms):
                self.ripe_ms = ripe_ms
            found[name] = None
            return
        loan = found.get(name) if gang else None
        if loan is None:
            if name in found:
                return  # Another of the gang is too young, or has a copy.
            loan = found[name] = Loan(name, leaf, list[str]())
        share = share_of(table, held)
        node = table.node(number)
        loan.parts.append(
            LoanPart(number, f"{node.name}/{key}", table.pairs(held.demand), by_position(node, device_shares(held)))
        )
        loan.share += share
        loan.lost += share * (now_ms - held.start_ms)
        loan.spared += state.spared.get(key, _NO_SPARED)

    def _is_whole(self, loan: Loan) -> bool:
        """Whether none of the gang has ended, if it is one: else what has been done would have to be done again."""
        job, stage, _ = parts_of(loan.parts[0].key.partition("/")[2])
        of = stage_of(self._round.state.jobs[job], stage)
        return not of.gang or len(loan.parts) == of.tasks

    def taking(self) -> Taking:
        """Where room for claims is to be found."""
        state, now_ms = self._round.state, self._round.now_ms
        since_ms = now_ms - state.policy.preempt_window_ms
        spent = sum([each[1] for each in state.taken if each[0] > since_ms])
        rate = state.policy.preempt_rate_permille * (SHARE_UNITS // 1_000) - spent
        return Taking(self._round.table, self.holdings, self._space_of, self.ending, self.loans, rate)

    def _space_of(self, number: int) -> Space:
        """What is free on a node once all that is ending there has ended, beside the rooms that are claimed already."""
        state, table = self._round.state, self._round.table
        node = table.node(number)
        space = Space(list(node.free), list(node.devices))
        for key, held in state.held.get(node.name, {}).items():
            if self._is_ending(node.name, key, held):
                space.add(table.pairs(held.demand), by_position(node, device_shares(held)))
        for room in self._rooms:
            if room.node == number:  # It is shut, but for its devices.
                space.add(room.task.pairs, [])
                space.take(room.task)
        return space
