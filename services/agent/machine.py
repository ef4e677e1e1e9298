"""What an agent uses of its machine beside clocks and folders, as one object: a simulation brings another one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from largesse.bus.file.lock import DirectoryLock
from services.agent.devices.found import Found, find_devices
from services.agent.executors.choice import executors_of
from services.agent.executors.port import Executor
from services.agent.keeping import Holding
from services.agent.runs import PutAway, put_away
from services.agent.settings import NodeSettings
from services.agent.troubles import Room, probe, short_of


class Lock(Protocol):
    """Keeps other agents from a data folder."""

    def release(self) -> None:
        """Lets the next one in."""


class Holder(Protocol):
    """See keeping.py."""

    until_ms: int
    lease_ms: int

    def put_off(self, until_ms: int, lease_ms: int) -> None:
        """The cell gives the work to nobody else until then."""

    def keep(self) -> None:
        """The cell ends with this agent."""

    def close(self) -> None:
        """Says nothing more."""


class Hold(Protocol):
    """Begins to say that the agent of a data folder lives."""

    def __call__(self, data: Path, lease_ms: int, *, alone: bool) -> Holder:
        """Raises OSError."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The real one, but for what is given. `put_away` moves what ended jobs left, in a process of its own; `short_of`
    says what the disk has too little of, `probe` what a start would fail of. `find_devices` asks for GPUs.
    """

    lock: Callable[[Path], Lock] = DirectoryLock
    hold: Hold = Holding
    executors: Callable[[NodeSettings, str | None], dict[str, Executor]] = executors_of
    put_away: PutAway = put_away
    short_of: Callable[[Path, Room], str] = short_of
    probe: Callable[[Path, Room], str] = probe
    find_devices: Callable[[], Found] = find_devices
