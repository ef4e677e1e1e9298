"""Commands: each runs under a shim (shim.py), a process that outlives the agent and leaves the attempt's result.

Shims come from a fork server (forks.py), are held to what their tasks asked for by control groups (cgroups.py), and say
on a pipe that a command has begun or ended. What the pipe did not say the kernel is asked. An attempt whose shim did
not end of its own accord is over only when no process of it is left (processes.py).
"""

import errno
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from largesse.lifecycle.node_work import Start
from services.agent import proc, processes
from services.agent.cgroup_trees import NoCgroups
from services.agent.cgroups import Groups, open_groups
from services.agent.documents import CHILD, STOP, TASK, Spoilt, Way, claim, open_folder, write_json
from services.agent.executors.port import LOOK_MS, Known, Told, of_kind
from services.agent.forks import Forks, guard_in
from services.agent.found import Task, Unsound, result_in, stop_in
from services.agent.local import Handle, Local, forestall, leave, mono_ms, tampered, without_result
from services.agent.outbox import Result
from services.agent.settings import NodeSettings
from services.agent.starting import limits_of, task_of

PROCESS = "process"

FORCE_MS = 15_000
"""A shim that is not done so long after the grace is killed itself."""
SWEEP_MS = 10_000
"""What is stuck in the kernel for longer after SIGKILL is left behind, and its attempt's detail says so."""
SWEEP_PAUSE_MS = 20
SHIM_END_MS = 1_000
"""At a start, shims that have left a result are given so long, all together, to be gone."""
LOOK_AGAIN_MS = 50
"""From look to look where processes are being ended."""
EVENT_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Guarded(Handle):
    """An attempt under a shim. `ticks`: the shim's start time. `spawned`: it was started by this process. `done`: it
    ended of its own accord, and so has ended everything. `force_ms`: when patience with it ends. `outcome`: the
    attempt's result, once nothing of it is left, for which is waited until `sweep_ms`.
    """

    pid: int | None = None
    ticks: int | None = None
    spawned: bool = False
    done: bool = False
    force_ms: int | None = None
    outcome: Result | None = None
    sweep_ms: int = 0


class ProcessExecutor:
    """The shims of one node. `hold`: the file by which they know how long their tasks may run on (lease_file.py); None:
    without end. `events`: the pipe on which they say `started KEY` and `ended KEY`: tasks have no way to it. `leaving`:
    those that guard nothing we know of, to be reaped when they end.
    `kind`: of the attempts that are its own.
    """

    kind = PROCESS

    def __init__(self, settings: NodeSettings, hold: str | None) -> None:
        self.node = processes.node_key(settings.data)
        self.forks = Forks(settings.data)
        self.groups = Groups()
        self.events: tuple[int, int] | None = None
        self.leaving: dict[int, bool] = {}
        self._settings, self._data, self._hold = settings, settings.data, hold
        self._boot = proc.boot_id()
        self._patient_ms = 0
        self._look_ms = 0
        self._unread = b""

    def key(self, local: Local) -> str:
        """What every process of the attempt carries."""
        return self.node + "/".join(local.parts(self._data))

    # ---------------------------------------------------------------- finding again
    def open(self) -> None:
        """What loses its shim comes to this process from here on."""
        processes.take_in_orphans()
        self._patient_ms = mono_ms() + SHIM_END_MS

    def adopt(self, local: Local, folder: int, task: Task) -> Told:
        """Its shim lives, or what it has left says how it ended."""
        # A shim that was spawned and has not claimed yet may not begin any more: it was never reported.
        claim("", {}, dir_fd=folder)
        guard = guard_in(folder)
        if guard is not None and guard.boot == self._boot:
            while processes.is_shim(guard.pid, guard.ticks, self.key(local)):
                if result_in(folder) is None or mono_ms() >= self._patient_ms:
                    local.handle = Guarded(guard.pid, guard.ticks)
                    return Told(local)
                time.sleep(SWEEP_PAUSE_MS / 1_000)  # It has written its result, and is about to be gone.
        result = result_in(folder)
        if result is not None:
            return Told(local, result, durable=True)
        return Told(local, without_result(stop_in(folder)))

    def settle(self, known: Known) -> None:
        """Ends processes of attempts that do not run on, whatever their folders say by now, and opens the groups."""
        running = self._running(known)
        self._end_strays(running)
        try:
            self.groups = open_groups(self._settings.cgroup, self.node)
        except NoCgroups as fault:
            raise OSError(errno.EINVAL, f"LARGESSE_NODE_CGROUP: {fault}") from None
        self.groups.sweep(running)

    def _running(self, known: Known) -> dict[str, int]:
        """Shims by the keys of their attempts, also of other executors that have shims."""
        guarded = [(self.key(local), local.handle) for local in known.values() if isinstance(local.handle, Guarded)]
        return {key: shim.pid for key, shim in guarded if shim.pid is not None}

    def _end_strays(self, running: dict[str, int]) -> None:
        """`running`: the shims that may run on, by key."""
        over_ms = mono_ms() + SWEEP_MS
        while mono_ms() < over_ms:
            table = processes.seen()
            carried = processes.carriers(table, self.node)
            strays = processes.family(table, [pid for key in carried if key not in running for pid in carried[key]])
            strays -= processes.family(table, running.values())
            if not strays:
                return
            processes.end(strays)
            time.sleep(SWEEP_PAUSE_MS / 1_000)

    # ---------------------------------------------------------------- starting
    def start(self, local: Local, start: Start, folder: int, about: dict[str, object]) -> Guarded:
        """Spawns its shim, which claims the attempt before it begins the command."""
        key = self.key(local)
        groups = self.groups.make(key, limits_of(start, self._settings))
        task = about | task_of(start, self._settings, key, local.folder, groups) | {"hold": self._hold}
        write_json(TASK, task, dir_fd=folder)
        events = self.events[1] if self.events is not None else None
        return Guarded(*self.forks.spawn(local.folder, key, events), spawned=True)

    def watch(self, local: Local, handle: Handle) -> list[Told]:
        """It may have ended by now: the pipe was quicker."""
        assert isinstance(handle, Guarded)
        assert handle.pid is not None
        shim = _shim(local)
        shim.pid, shim.ticks, shim.spawned = handle.pid, handle.ticks, True
        self.leaving.pop(handle.pid, None)
        if local.phase == "ended":
            self.leaving[handle.pid] = True
        elif local.stopping:
            self._signal(local, signal.SIGTERM)
        return []

    # ---------------------------------------------------------------- watching
    def open_events(self) -> int:
        """Makes the pipe; returns its end to read from."""
        self.events = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        return self.events[0]

    def hear(self, known: Known) -> list[Told]:
        """What shims said on the pipe."""
        if self.events is None:
            return []
        with suppress(BlockingIOError):
            self._unread += os.read(self.events[0], EVENT_BYTES_MAX)
        *lines, self._unread = self._unread.split(b"\n")
        told, way = list[Told](), Way(self._data)
        for line in lines:
            what, _, key = line.decode(errors="replace").partition(" ")
            local = known.get(key)
            if local is None or local.phase == "ended" or local.executor != self.kind:
                continue
            if what == "ended":
                _shim(local).done = True
                told += self._conclude(local, way)
            elif what == "started" and local.phase == "starting":
                local.unsaid = True
                told.append(Told(local))
        way.close()
        return told

    def look(self, known: Known, now_ms: int) -> list[Told]:
        """Asks the kernel about every shim."""
        self.leaving = {pid: True for pid in self.leaving if processes.status_of(pid) is None}
        self.groups.remove_left()
        told = []
        guarded = _guarded(known, self.kind)
        for local, shim in guarded:
            if shim.pid is None or shim.outcome is not None:
                continue
            if proc.start_ticks(shim.pid) != shim.ticks or shim.ticks is None:
                shim.done = shim.done or processes.status_of(shim.pid) == processes.SHIM_DONE
                told += self._conclude(local)
            elif processes.has_moved_on(shim.pid, self.key(local)):
                shim.done = True
                told += self._conclude(local)
            elif shim.force_ms is not None and now_ms >= shim.force_ms:
                self._signal(local, signal.SIGKILL)
            elif local.phase == "starting" and (local.folder / CHILD).is_file():
                told.append(Told(local))
        swept = [(local, shim) for local, shim in guarded if shim.outcome is not None]
        over = self._sweep(swept, now_ms)
        self._look_ms = now_ms + (LOOK_AGAIN_MS if len(over) < len(swept) else LOOK_MS)
        return told + over

    def look_ms(self) -> int:
        """Again after a while; soon where processes are being ended."""
        return self._look_ms

    # ---------------------------------------------------------------- ending
    def stop(self, local: Local, grace_ms: int) -> list[Told]:
        """Its shim is told, which tells the command. Both are killed where that does not do. What has not begun never
        does: by the time its shim claims it, the cell may have given its task to others.
        """
        # On a full disk the shim hears less, and stops all the same.
        leave(self._data, local, STOP, {"reason": local.stopping, "grace_ms": grace_ms})
        if local.phase == "starting":
            forestall(self._data, local)
        _shim(local).force_ms = mono_ms() + grace_ms + FORCE_MS
        self._signal(local, signal.SIGTERM)
        return []

    def release(self, local: Local) -> None:
        """Its shim is reaped when it ends; its groups go."""
        pid = _shim(local).pid
        if pid is not None and processes.status_of(pid) is None:
            self.leaving[pid] = True
        self.groups.remove(self.key(local))

    def close(self) -> None:
        """Ends the fork server and closes the pipe."""
        self.forks.close()
        for end in self.events or ():
            os.close(end)
        self.events = None
        self.groups.close()

    def labels(self) -> dict[str, str]:
        """Every node runs commands."""
        return {}

    def limits_text(self) -> str:
        """As the control groups have it."""
        return self.groups.limits_text(self._settings.cpu_limit, self._settings.memory_limit)

    def _conclude(self, local: Local, way: Way | None = None) -> list[Told]:
        """The shim has ended: what it left behind says how; if it left nothing, the attempt is lost. Tells it if that
        is all; where the shim was killed, what it started has to be ended first.
        """
        shim, parts = _shim(local), local.parts(self._data)
        if shim.outcome is not None:
            return []
        try:
            folder = way.open(*parts) if way is not None else open_folder(self._data, *parts)
            try:
                result = result_in(folder)
                outcome = result or without_result(local.stopping or stop_in(folder))
            finally:
                os.close(folder)
        except (Unsound, Spoilt, FileNotFoundError) as fault:
            result, outcome = None, without_result(local.stopping) if local.stopping else tampered(fault)
        except OSError:
            return []  # Of this process or the disk: the next look tries again.
        if shim.done and result is not None:
            return [Told(local, result, durable=True)]
        shim.outcome, shim.sweep_ms = outcome, mono_ms() + SWEEP_MS
        return []

    def _sweep(self, swept: list[tuple[Local, Guarded]], now_ms: int) -> list[Told]:
        """Ends what killed shims have left; tells of those of which nothing is left. One walk over all processes serves
        all of them.
        """
        if not swept:
            return []
        with processes.spawning:
            table = processes.seen()
            since = [shim.ticks for _, shim in swept if shim.spawned and shim.ticks is not None]
            loose = processes.family(table, processes.orphans(table, min(since)) if since else ())
        carried = processes.carriers(table, self.node)
        told = []
        for local, shim in swept:
            assert shim.outcome is not None
            left = processes.family(table, carried.get(self.key(local), ()))
            left |= loose if shim.spawned else set()
            processes.end(left)
            elsewhere = self._left_elsewhere(local)
            if not left and not elsewhere:
                told.append(Told(local, shim.outcome))
            elif now_ms >= shim.sweep_ms:
                what = f"{len(left)} of its processes" if left else elsewhere
                told.append(
                    Told(local, replace(shim.outcome, detail=f"{shim.outcome.detail}; {what} could not be ended"))
                )
        return told

    def _left_elsewhere(self, local: Local) -> str:
        """What else than processes of this machine is left of an attempt whose shim was killed, and is being ended;
        empty: nothing.
        """
        return ""

    def _signal(self, local: Local, number: signal.Signals) -> None:
        """To its shim, if that still guards it."""
        shim = _shim(local)
        if shim.pid is None or shim.ticks is None:
            return
        with processes.spawning:
            if proc.start_ticks(shim.pid) == shim.ticks and not processes.has_moved_on(shim.pid, self.key(local)):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(shim.pid, number)


def _shim(local: Local) -> Guarded:
    """What is kept of an attempt, also before its shim is known: it may be stopped, or have ended, by then."""
    if local.handle is None:
        local.handle = Guarded()
    assert isinstance(local.handle, Guarded)
    return local.handle


def _guarded(known: Known, kind: str) -> list[tuple[Local, Guarded]]:
    """The attempts of a kind that have not ended, with what is kept of them."""
    return [(local, _shim(local)) for local in of_kind(known.values(), kind)]
