"""What a simulated world keeps of its services and of what became of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.faults.broker import SimulatedBus
from tests.faults.loop import Process
from tests.faults.machines import Machine


@dataclass(slots=True)
class Wrong:
    """What must not be, and when it was seen."""

    at_ms: int
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail} (at {self.at_ms} ms)"


@dataclass(slots=True)
class Acked:
    """An input that the bus has acknowledged."""

    topic: str
    offset: int
    value: bytes
    job: str


@dataclass(slots=True)
class Service:
    """One program that is kept running. `busy`: is started when it ends; `life`: how often it was started."""

    name: str
    machine: Machine
    begin: Callable[[SimulatedBus], Awaitable[None]]
    life: int = 0
    process: Process | None = None
    bus: SimulatedBus | None = None
    shell: Any = None
    due: bool = False

    @property
    def runs(self) -> bool:
        """Whether there is a process of it."""
        return self.process is not None and not self.process.is_dead
