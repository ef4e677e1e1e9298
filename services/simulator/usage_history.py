"""What of a cell was used over time in one simulated run, and what jobs gave away and received of it.

Filled by usage_watch.py, drawn by the report. Under presets that plan jobs (`carbyne`), a job donates what it is
entitled to and does not hold, and receives what it holds beyond that: leftover, donated and used.
"""

from dataclasses import dataclass, field
from typing import cast

from largesse.lifecycle.ledger import LedgerSum, account_document, sums_by_queue
from schemas import LedgerEntry
from services.simulator.result import JobRow, UsageResult
from services.simulator.steps import Steps

_DIGITS = 4
"""Of a part of the cell in the JSON result."""


@dataclass(slots=True)
class UsageHistory:
    """`used`: by kind of resource (`kinds`), the part of the capacity that tasks hold. `leftover`: by kind what jobs
    have donated up to a time, then what they have received, then what they waited for, in seconds of the whole
    capacity; empty where jobs were not planned. Series end at `end_ms`. `accounts`: of jobs, as published last; `over`:
    by queue, the sums of those that are over.
    """

    kinds: list[str] = field(default_factory=list)
    used: Steps = field(default_factory=Steps)
    leftover: Steps = field(default_factory=Steps)
    end_ms: int = 0
    accounts: dict[str, LedgerEntry] = field(default_factory=dict)
    over: dict[str, LedgerSum] = field(default_factory=dict)

    def with_account(self, row: JobRow) -> JobRow:
        """A row of `per_job`, where jobs were planned with what this one donated, received and lost."""
        if not self.accounts:
            return row
        entry = self.accounts.get(row["job"])
        return cast("JobRow", {**row, **account_document(entry if entry is not None else LedgerSum())})

    def result(self, makespan_ms: int) -> UsageResult:
        """The part of simulate's JSON result that follows from it."""
        found: UsageResult = {
            "utilisation_over_time": {
                "times_ms": self.used.times_ms,
                "mean_ms": self.used.mean_ms,
                "used": {kind: [round(values[at], _DIGITS) for values in self.used.values] for at, kind in self._each},
            }
        }
        if self.leftover.values:
            last, of_s, count = self.leftover.values[-1], max(1, makespan_ms) / 1_000, len(self.kinds)
            found["leftover"] = {
                "donated": {kind: round(last[at] / of_s, 6) for at, kind in self._each},
                "received": {kind: round(last[count + at] / of_s, 6) for at, kind in self._each},
                "waited": {kind: round(last[2 * count + at] / of_s, 6) for at, kind in self._each},
            }
            sums = sums_by_queue(self.accounts, self.over)
            found["ledger"] = {queue: account_document(total) for queue, total in sums}
        return found

    @property
    def _each(self) -> list[tuple[int, str]]:
        return list(enumerate(self.kinds))
