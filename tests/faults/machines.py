"""Machines of a simulated cell: clocks that are read by whatever runs there, and that faults can set."""

from collections.abc import Callable
from dataclasses import dataclass, field

EPOCH_MS = 1_700_000_000_000
UP_MS = 3_600_000
"""A machine has been up for so long where its story begins."""


@dataclass(slots=True)
class Machine:
    """One computer. `now_us`: the time of the simulation. `ahead_ms`: by how much its wall clock is wrong. `booted_us`:
    when it was started, `boots`: how often."""

    name: str
    now_us: Callable[[], int]
    ahead_ms: int = 0
    booted_us: int = -UP_MS * 1_000
    boots: int = 1
    shims: dict[str, object] = field(default_factory=dict)

    @property
    def boot(self) -> str:
        """Its boot id."""
        return f"{self.name}-boot-{self.boots}"

    def steady_ns(self) -> int:
        """Its monotonic clock. It never sleeps, so the clock that counts time asleep is the same."""
        return (self.now_us() - self.booted_us) * 1_000

    def steady_ms(self) -> int:
        return (self.now_us() - self.booted_us) // 1_000

    def wall_ms(self) -> int:
        """Its wall clock."""
        return EPOCH_MS + self.now_us() // 1_000 + self.ahead_ms

    def reboot(self) -> None:
        """It begins from nothing but its disk."""
        self.boots += 1
        self.booted_us = self.now_us()
