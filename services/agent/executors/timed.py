"""Simulated tasks: an attempt without a command, which lasts as long as its job says.

Nothing runs for it, but its folder keeps the same rules: claimed before it begins, its result left behind. It goes on
where its time stands under the next agent, and over a restart of the machine.
"""

import heapq
import time
from dataclasses import dataclass
from typing import Literal

from largesse.lifecycle.node_work import Start
from schemas import Stage
from schemas.edge.base import DURATION_MS_MAX
from schemas.quantities import QUANTITY_MAX
from services.agent import proc
from services.agent.documents import CLAIM, STOP, TASK, claim, write_json
from services.agent.executors.port import Known, Told
from services.agent.found import Task, Unsound, claim_in, result_in, stop_in, whole_in
from services.agent.local import Handle, Local, leave, mono_ms, without_result
from services.agent.outbox import Result
from services.agent.settings import NodeSettings

TIMED = "timed"


@dataclass(slots=True)
class Timer(Handle):
    """A simulated task. `fate`: how it ends if nobody stops it."""

    ends_ms: int
    fate: Result


class TimedExecutor:
    """Keeps time for all simulated tasks of a node."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._boot = proc.boot_id()
        self._timers: list[tuple[int, str]] = []

    def open(self) -> None:
        """Nothing was left running."""

    def adopt(self, local: Local, folder: int, task: Task) -> Told:
        """It has a result, goes on, or never began."""
        fate = fate_in(task)
        claim("", {}, dir_fd=folder)
        begun_ms = self._begun_ms(folder)
        result = result_in(folder)
        if result is not None:
            return Told(local, result, durable=True)
        if begun_ms is None:
            return Told(local, without_result(stop_in(folder)))
        local.handle = Timer(begun_ms + fate.run_ms, fate)
        return Told(local)

    def settle(self, known: Known) -> None:
        """Sets the timers of what goes on."""
        for local in known.values():
            if isinstance(local.handle, Timer):
                heapq.heappush(self._timers, (local.handle.ends_ms, local.key))

    def start(self, local: Local, start: Start, folder: int, about: dict[str, object]) -> Timer:
        """It begins with its claim."""
        fate = fate_of(start.stage, local.name.index)
        write_json(TASK, {**about, "run_ms": fate.run_ms, "reason": fate.reason}, dir_fd=folder)
        begun_ms, wall_ms = mono_ms(), time.time_ns() // 1_000_000
        if not claim("", {"boot": self._boot, "mono_ms": begun_ms, "wall_ms": wall_ms}, dir_fd=folder):
            raise FileExistsError
        return Timer(begun_ms + fate.run_ms, fate)

    def watch(self, local: Local, handle: Handle) -> list[Told]:
        """Sets its timer."""
        assert isinstance(handle, Timer)
        local.handle = handle
        heapq.heappush(self._timers, (handle.ends_ms, local.key))
        return [_stopped(local, handle)] if local.stopping else [Told(local)]

    def open_events(self) -> None:
        """Nothing happens but by the clock."""

    def hear(self, known: Known) -> list[Told]:
        """See `open_events`."""
        return []

    def look(self, known: Known, now_ms: int) -> list[Told]:
        """Those whose time is over."""
        told = []
        while self._timers and self._timers[0][0] <= now_ms:
            _, key = heapq.heappop(self._timers)
            local = known.get(key)
            if local is None or local.phase != "running" or not isinstance(local.handle, Timer):
                continue
            if local.handle.ends_ms <= now_ms:  # The timer may be of an earlier attempt of that name.
                told.append(Told(local, local.handle.fate))
        return told

    def look_ms(self) -> int | None:
        """When the next one ends."""
        return self._timers[0][0] if self._timers else None

    def stop(self, local: Local, grace_ms: int) -> list[Told]:
        """At once: there is nothing to wait for."""
        if isinstance(local.handle, Timer):
            return [_stopped(local, local.handle)]
        leave(self._settings.data, local, STOP, {"reason": local.stopping, "grace_ms": grace_ms})
        return []

    def release(self, local: Local) -> None:
        """Its timer goes when it rings."""

    def close(self) -> None:
        """Keeps nothing open."""

    def labels(self) -> dict[str, str]:
        """Every node can wait."""
        return {}

    def limits_text(self) -> str:
        """It uses nothing."""
        return ""

    def _begun_ms(self, folder: int) -> int | None:
        """When it began, on this boot's monotonic clock; None: it did not. Raises Unsound, OSError."""
        claimed = claim_in(folder)
        if claimed is None:
            return None
        begun_ms, wall_ms = (
            whole_in(claimed.document, CLAIM, name, 0, QUANTITY_MAX) for name in ("mono_ms", "wall_ms")
        )
        if claimed.boot == self._boot:
            return min(begun_ms, mono_ms())
        return mono_ms() - max(0, time.time_ns() // 1_000_000 - wall_ms)


def _stopped(local: Local, timer: Timer) -> Told:
    assert local.stopping is not None
    ran_ms = max(0, timer.fate.run_ms - (timer.ends_ms - mono_ms()))
    return Told(local, Result(local.stopping, run_ms=ran_ms, detail=f"stopped: {local.stopping}"))


def fate_of(stage: Stage, index: int) -> Result:
    """How a simulated task will end: by its duration, or by the stage's time-out."""
    run_ms = stage.durations_ms[index] if len(stage.durations_ms) > 1 else stage.durations_ms[0]
    if stage.timeout_ms is not None and run_ms > stage.timeout_ms:
        return _ended("timeout", stage.timeout_ms)
    return _ended(None, run_ms)


def fate_in(task: Task) -> Result:
    """The same, as it was written down at the start. Raises Unsound."""
    run_ms, reason = whole_in(task.document, TASK, "run_ms", 0, DURATION_MS_MAX), task.document.get("reason")
    if reason not in (None, "timeout"):
        raise Unsound(f"{TASK}: reason is unknown")
    return _ended("timeout" if reason else None, run_ms)


def _ended(reason: Literal["timeout"] | None, run_ms: int) -> Result:
    return Result(reason, run_ms=run_ms, detail="" if reason is None else f"ran longer than {run_ms} ms")
