"""Which of the faults that a test has armed is due: shared by the bus and the MQTT broker in memory."""

from collections.abc import Callable
from typing import Protocol, TypeVar


class Armed(Protocol):
    """A fault. `skip`: how many sends that it is meant for it still lets pass."""

    skip: int


ArmedT = TypeVar("ArmedT", bound=Armed)


def take_due(faults: list[ArmedT], is_meant: Callable[[ArmedT], bool]) -> ArmedT | None:
    """Counts one send against all faults that are meant for it, and takes out the first that lets it pass no more."""
    due: ArmedT | None = None
    for fault in filter(is_meant, faults):
        if fault.skip > 0:
            fault.skip -= 1
        elif due is None:
            due = fault
    if due is not None:
        faults.remove(due)
    return due
