"""Follows what a simulated cell uses, and what its jobs give away and receive, from its records."""

from largesse.lifecycle.ledger import fold_ledger
from schemas import NodeLost, Record, RoundClosed, TaskFailed, TaskFinished, Vector
from services.simulator.engine import Cell
from services.simulator.usage_history import UsageHistory

_CHANGES_USE: dict[type, bool] = dict.fromkeys((RoundClosed, TaskFinished, TaskFailed, NodeLost), True)


class UsageWatch:
    """Fills a history while a cell runs. Parts are of what the cell had when the first round opened: also of nodes that
    have failed since."""

    def __init__(self, cell: Cell, history: UsageHistory) -> None:
        self._cell, self._history = cell, history
        self._capacity: Vector = {}
        self._donated: Vector = {}
        self._received: Vector = {}
        self._waited: Vector = {}

    def observe(self, record: Record) -> None:
        """A record of the log that all cores have folded."""
        if type(record.body) in _CHANGES_USE:
            kinds, capacity, held = self._kinds, self._capacity, self._cell.admission.used
            used, steps = [held.get(kind, 0) / capacity[kind] for kind in kinds], self._history.used
            if not steps.values or steps.values[-1] != used:
                steps.put(record.time, used)

    def observe_asks(self, record: Record) -> None:
        """What altruism says in a round; a job's figures are those since it was first planned."""
        accounts = self._history.accounts
        for entry in record.body.ledger:
            before = accounts.get(entry.job)
            if before is not None and before.over:
                before = None  # Its figures count already: an account that is over starts over.
            for total, now, then in (
                (self._donated, entry.donated, before.donated if before is not None else {}),
                (self._received, entry.received, before.received if before is not None else {}),
                (self._waited, entry.waited, before.waited if before is not None else {}),
            ):
                for kind in {**then, **now}:
                    total[kind] = total.get(kind, 0) + now.get(kind, 0) - then.get(kind, 0)
            fold_ledger(accounts, self._history.over, [entry])
        sums = [
            total.get(kind, 0) / self._capacity[kind]
            for total in (self._donated, self._received, self._waited)
            for kind in self._kinds
        ]
        self._history.leftover.put(record.time, sums)

    def close(self) -> None:
        """The run is over."""
        self._history.end_ms = self._cell.time
        self._history.used.close(self._cell.time)
        self._history.leftover.close(self._cell.time)

    @property
    def _kinds(self) -> list[str]:
        if not self._history.kinds:
            capacity = self._cell.admission.capacity
            self._capacity = {kind: amount for kind, amount in sorted(capacity.items()) if amount > 0}
            self._history.kinds = list(self._capacity)
        return self._history.kinds
