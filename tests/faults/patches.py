"""What the product reaches for beside its bus, put in the hands of a simulation for as long as it runs.

Where a module reads a clock or draws a token by itself, its name for `time` or `secrets` means the simulation's. Which
machine's clock is read follows from the process that asks.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog

from largesse import clocks, failpoints
from largesse.bus.file.lock import DirectoryHeld
from services.agent import folders, lease_file, local, reporter
from services.agent.clearing import clear
from services.agent.executors.port import Executor
from services.agent.executors.process import PROCESS as COMMANDS
from services.agent.executors.timed import TIMED, TimedExecutor
from services.agent.folders import Kept
from services.agent.keeping import BEAT_MS, BEAT_MS_MIN, BEAT_PARTS, Holding
from services.agent.machine import Machine as AgentMachine
from services.agent.outbox import Outbox
from services.agent.settings import NodeSettings
from services.gateway import follow, heard
from tests.faults.loop import PROCESS, Process, VirtualLoop
from tests.faults.shims import Runs, ShimExecutor

NS = 1_000_000


def _wall_ns() -> int:
    return PROCESS.get().machine.wall_ms() * NS


def _steady_ns(*_: object) -> int:
    return PROCESS.get().machine.steady_ns()


CLOCKS = SimpleNamespace(
    monotonic_ns=_steady_ns, clock_gettime_ns=_steady_ns, time_ns=_wall_ns, CLOCK_BOOTTIME=7, CLOCK_MONOTONIC=1
)


@contextmanager
def in_hand(
    dice: random.Random, at_point: Callable[[str, str], None], met: Counter[str], said: Any = None
) -> Iterator[None]:
    """Clocks, tokens, failpoints and lines of the log are the simulation's. `met`: counts what outboxes say again.
    `said`: is given each line, or there are none."""
    tokens = SimpleNamespace(token_hex=lambda count: f"{dice.getrandbits(8 * count):0{2 * count}x}")
    replaced: list[tuple[Any, str, Any]] = [
        *((module, "time", CLOCKS) for module in (local, lease_file, clocks, heard)),
        (folders, "secrets", tokens),
        (follow, "monotonic", lambda: _steady_ns() / 1e9),
        (reporter, "FOLDER_MAX", 0),  # The path of a data folder is another one each time.
        (failpoints, "_armed", object()),
        (Outbox, "again", _counted(Outbox.again, met)),
        (failpoints, "_pass", lambda armed, service, point: at_point(service, point)),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    spoke = structlog.get_config()
    structlog.configure(
        processors=[said or _drop], wrapper_class=structlog.make_filtering_bound_logger(0 if said else 50)
    )
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        structlog.configure(**spoke)


def _counted(again: Callable[[Outbox, int], None], met: Counter[str]) -> Callable[[Outbox, int], None]:
    def said_again(outbox: Outbox, now_ms: int) -> None:
        met["outbox: said again"] += len(outbox.unreported)
        again(outbox, now_ms)

    return said_again


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


# ---------------------------------------------------------------- of an agent
class Heart:
    """Says that the agent lives, as the thread of keeping.py does."""

    def __init__(self, loop: VirtualLoop, process: Process) -> None:
        self.lock = nullcontext()
        self._holdings: list[Holding] = []
        self._loop, self._process = loop, process

    def add(self, holding: Holding) -> None:
        self._holdings.append(holding)
        if len(self._holdings) == 1:
            self._beat()

    def drop(self, holding: Holding) -> None:
        self._holdings.remove(holding)

    def _beat(self) -> None:
        if not self._holdings or self._process.is_dead:
            return
        for holding in self._holdings:
            holding.write()
        pause_ms = min(min(BEAT_MS, holding.lease_ms // BEAT_PARTS) for holding in self._holdings)
        self._loop.call_later(max(BEAT_MS_MIN, pause_ms) / 1_000, self._beat)


class Lock:
    """Of one data folder; a dead holder has let it go."""

    def __init__(self, held: dict[Path, Process], folder: Path) -> None:
        holder = held.get(folder)
        if holder is not None and not holder.is_dead:
            raise DirectoryHeld(folder, None)
        self._held, self._folder = held, folder
        held[folder] = PROCESS.get()

    def release(self) -> None:
        self._held.pop(self._folder, None)


def machine_of(
    loop: VirtualLoop, process: Process, guardians: Process, runs: Runs, locks: dict[Path, Process]
) -> AgentMachine:
    """What an agent uses of its machine."""
    heart: Any = Heart(loop, process)

    def executors(settings: NodeSettings, hold: str | None) -> dict[str, Executor]:
        return {COMMANDS: ShimExecutor(settings, hold, runs, guardians), TIMED: TimedExecutor(settings)}

    async def put_away(data: Path, names: list[str], kept: Kept, now_ms: int) -> dict[str, Any]:
        limits = {"age_ms": kept.age_ms, "bytes": kept.bytes, "runs": kept.runs, "inodes": kept.inodes}
        return clear(data, names, {**limits, "free_bytes": 0}, now_ms)

    return AgentMachine(
        lock=lambda folder: Lock(locks, folder),
        hold=lambda data, lease_ms, *, alone: Holding(data, lease_ms, alone=alone, heart=heart),
        executors=executors,
        put_away=put_away,
        short_of=lambda data, room: "",
        probe=lambda data, room: "",
    )
