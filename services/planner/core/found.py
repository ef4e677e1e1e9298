"""What a search over the promises of a cell has found, which holds once the log says it."""

from dataclasses import dataclass
from itertools import compress
from operator import is_not

from services.planner.core.waiting import Follow, Proposal, Request, Restore
from services.planner.planning.answers import AcceptedRequest, Answer
from services.planner.planning.request import Lease, Plan
from services.planner.planning.residual import Known, joined

Asked = Request | Proposal | Follow | Restore


@dataclass(slots=True)
class Promises:
    """All promises: `held`, what can still move; `known`, requests as they were accepted and what began of them."""

    held: dict[str, AcceptedRequest]
    known: dict[str, Known]

    def plan(self, name: str) -> Plan:
        """All leases of a promise."""
        held = self.held.get(name)
        return joined(self.known[name].begun, held.plan if held is not None else [])

    def changed_since(self, before: "Promises") -> list[str]:
        """Promises that are others, or gone, or new, in order of their names. Told by identity, as promises are
        replaced and never changed; in C, since a loop over a thousand would cost more than an answer.
        """
        known, held = self.known, self.held
        found = sorted(before.known.keys() - known.keys())
        found += compress(known, map(is_not, known.values(), map(before.known.get, known)))
        found += compress(known, map(is_not, map(held.get, known), map(before.held.get, known)))
        return sorted(dict.fromkeys(found))

    def leases(self, name: str) -> list[tuple[str, list[Lease]]]:
        """The same by the paths of the atoms, which may be known in a smaller or a larger window."""
        return sorted((atom.path, leases) for atom, leases in self.plan(name))


@dataclass(slots=True)
class Found:
    """What became of one request (`asked`), or of a repair (None), and what it has `broken`. `work`: what it took,
    `before`: but for its last step. `after`: all promises then, `entries`: of the book's journal. `touched`: the only
    promises that may have changed; None: any may. `lack`: what made a repair necessary.
    """

    asked: Asked | None
    answer: Answer
    broken: list[str]
    work: int
    before: int
    after: Promises
    entries: int
    touched: list[str] | None = None
    lack: "Lack | None" = None

    def changed_since(self, before: Promises) -> list[str]:
        """Promises that are others than before it, in order of their names; some may be as they were."""
        return self.after.changed_since(before) if self.touched is None else sorted(self.touched)


@dataclass(slots=True, frozen=True)
class Lack:
    """From a step on more is promised than there is: of a resource, by its position; None: it does not fit on nodes."""

    step: int
    resource: int | None


def reservation_of(asked: Asked | None) -> str | None:
    """Which promise it is about; None where that is no particular one."""
    return None if asked is None or isinstance(asked, Proposal) else asked.reservation
