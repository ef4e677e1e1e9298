"""Attempts on this machine: started once, watched, stopped, found again after a restart.

A command runs under a shim (shim.py), a process that outlives this one; a simulated task is only timed, but its folder
keeps the same rules: claimed before it begins, its result left behind. What happened is returned to the caller, who
reports it.

What lies in an attempt's folder is not trusted (found.py): what is not right there makes that attempt `lost`. An
attempt whose shim did not end of its own accord is over only when no process of it is left (processes.py).
"""

import errno
import heapq
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from largesse import failpoints
from services.agent import proc, processes
from services.agent.cgroup_trees import NoCgroups
from services.agent.cgroups import Groups, open_groups
from services.agent.core import Start
from services.agent.documents import CHILD, RESULT, STOP, TASK, Spoilt, Way, claim, open_folder, write_json
from services.agent.folders import OVER, attempt_folder, run_name
from services.agent.forks import Forks
from services.agent.found import (
    AttemptFolder,
    Guarded,
    StopReason,
    Timed,
    Unsound,
    claim_in,
    places,
    result_in,
    stop_in,
    task_in,
)
from services.agent.local import Launched, Local, document_of, key_of, mono_ms, spoilt, tampered, without_result
from services.agent.outbox import Name, Result
from services.agent.settings import NodeSettings
from services.agent.starting import fate_of, limits_of, task_of
from services.agent.troubles import failed_start

FORCE_MS = 15_000
"""A shim that is not done so long after the grace is killed itself."""
SWEEP_MS = 10_000
"""What is stuck in the kernel for longer after SIGKILL is left behind, and its attempt's detail says so."""
SWEEP_PAUSE_MS = 20
SHIM_END_MS = 1_000
"""At a start, shims that have left a result are given so long, all together, to be gone."""
LOOK_MS, LOOK_AGAIN_MS = 1_000, 50
"""From look to look; where processes are being ended."""
EVENT_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Attempts:
    """All of one node. `leaving`: shims that guard nothing we know of, to be reaped when they end. `events`: the
    pipe on which shims say `started KEY` and `ended KEY`: tasks have no way to it. `hold`: the file by which shims know
    how long their tasks may run on (holding.py); None: without end. `found`: folders of attempts that were there when
    this agent began: any other that is in the way of a start was made by a task.
    """

    settings: NodeSettings
    boot: str = field(default_factory=proc.boot_id)
    by_key: dict[str, Local] = field(default_factory=dict)
    timers: list[tuple[int, str]] = field(default_factory=list)
    leaving: dict[int, bool] = field(default_factory=dict)
    events: tuple[int, int] | None = None
    unread: bytes = b""
    node: str = ""
    patient_ms: int = 0
    hold: str | None = None
    groups: Groups = field(default_factory=Groups)
    found: dict[Path, bool] = field(default_factory=dict)
    forks: Forks = field(init=False)

    def __post_init__(self) -> None:
        self.node = processes.node_key(self.settings.data)
        self.forks = Forks(self.settings.data)

    def open_events(self) -> int:
        """Makes the pipe of events; returns its end to read from, without waiting. Raises OSError."""
        self.events = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        return self.events[0]

    def close(self) -> None:
        """Starts and hears nothing more. What runs goes on."""
        self.forks.close()
        for end in self.events or ():
            os.close(end)
        self.events = None

    # ---------------------------------------------------------------- starting
    def prepare(self, starts: Iterable[Start]) -> list[tuple[Local, Start]]:
        """Room in the table for attempts that are about to be launched."""
        prepared = []
        for start in starts:
            held = start.held
            name = Name(held.job, held.stage, held.index, held.attempt)
            run = run_name(held.run, held.epoch)
            folder = attempt_folder(self.settings.data, held.job, run, held.stage, held.index, held.attempt)
            local = self.by_key[start.key] = Local(start.key, name, held.run, folder)
            prepared.append((local, start))
        return prepared

    def launch(self, prepared: list[tuple[Local, Start]]) -> list[Launched]:
        """Starts them. Blocks, and touches no table: made for another thread. What cannot start says why."""
        launched = []
        way = Way(self.settings.data)
        for local, start in prepared:
            failpoints.hit("agent", "before_task_start")
            try:
                launched.append(self._launch(local, start, way))
            except FileExistsError:
                result = Result("lost", detail="it has been started before, and nothing is known of its end")
                if local.folder not in self.found:
                    result = Result("cannot_start", detail="a task of the job has made a folder in its place")
                launched.append(Launched(local, result=result))
            except Spoilt as error:
                launched.append(Launched(local, result=spoilt(error)))
            except OSError as error:
                # Nothing of the job's own is looked at before its shim runs, so it does not count against its retries.
                result = Result("lost", detail=f"the agent could not start it: {error.strerror or error}")
                launched.append(Launched(local, result=result, trouble=failed_start(error)))
            failpoints.hit("agent", "after_task_start")
        way.close()
        return launched

    def launched(self, outcomes: list[Launched]) -> list[Local]:
        """Enters what `launch` did; returns the attempts that began or ended by it."""
        changed = []
        for outcome in outcomes:
            local = outcome.local
            local.pid, local.ticks, local.spawned = outcome.pid, outcome.ticks, outcome.pid is not None
            if local.pid is not None:
                self.leaving.pop(local.pid, None)
            if outcome.result is not None:
                # What was started before has a folder with a story of its own.
                changed += self._end(local, outcome.result, durable=outcome.result.reason == "lost")
            elif outcome.ends_ms is not None:
                assert outcome.fate is not None
                self._time(local, outcome.ends_ms, outcome.fate)
                heapq.heappush(self.timers, (outcome.ends_ms, local.key))
                changed.append(local)
            elif local.phase == "ended" and local.pid is not None:
                self.leaving[local.pid] = True  # It was quicker than we.
            elif local.stopping:
                self._signal(local, signal.SIGTERM)
        return changed

    def _launch(self, local: Local, start: Start, way: Way) -> Launched:
        stage = start.stage
        ids = {"key": local.key, "job": local.name.job, "stage": local.name.stage, "index": local.name.index}
        task = {**ids, "attempt": local.name.attempt, "admitted": local.admitted}
        folder = way.open(*self._parts(local), mode=0o700 if self.settings.task_user is None else 0o711)
        try:
            if stage.command:
                key = self._key(local)
                groups = self.groups.make(key, limits_of(start, self.settings))
                task |= {**task_of(start, self.settings, key, local.folder, groups), "hold": self.hold}
                write_json(TASK, task, dir_fd=folder)
                pid, ticks = self.forks.spawn(local.folder, key, self.events[1] if self.events is not None else None)
                return Launched(local, pid, ticks)
            fate = fate_of(stage, local.name.index)
            write_json(TASK, {**task, "run_ms": fate.run_ms, "reason": fate.reason}, dir_fd=folder)
            begun_ms, wall_ms = mono_ms(), time.time_ns() // 1_000_000
            if not claim("", {"boot": self.boot, "mono_ms": begun_ms, "wall_ms": wall_ms}, dir_fd=folder):
                raise FileExistsError
            return Launched(local, ends_ms=begun_ms + fate.run_ms, fate=fate)
        finally:
            os.close(folder)

    def _parts(self, local: Local) -> list[str]:
        """Names on the way to the attempt's folder."""
        local.inner = local.inner or str(local.folder)[len(str(self.settings.data)) + 1 :]
        return local.inner.split("/")

    def _key(self, local: Local) -> str:
        return self.node + "/".join(self._parts(local))

    # ---------------------------------------------------------------- finding again
    def scan(self) -> None:
        """Finds what an earlier agent left: runs on, has ended, or is lost. Ends whatever processes of its attempts
        belong to none that runs on. Blocks. Raises OSError.
        """
        processes.take_in_orphans()
        self.patient_ms = mono_ms() + SHIM_END_MS
        if self.settings.task_user is not None:
            self.settings.data.chmod(0o711)  # Tasks have to get through it to their work folders.
        for place in places(self.settings.data):
            self.found[place.folder] = True
            if (place.folder.parents[1] / OVER).exists():
                continue  # Its job has ended, and nothing of it was left when that was written.
            local = self._find(place)
            known = self.by_key.get(local.key) if local is not None else None
            # Two folders for one attempt: one of them is forged. A living shim is not.
            if local is not None and (known is None or (known.phase == "ended" and local.phase == "running")):
                self.by_key[local.key] = local
        for local in self.by_key.values():
            if local.ends_ms is not None:
                heapq.heappush(self.timers, (local.ends_ms, local.key))
        self._end_strays()
        self._open_groups()

    def _open_groups(self) -> None:
        """Raises OSError where the settings name a control group that cannot be used."""
        try:
            self.groups = open_groups(self.settings.cgroup, self.node)
        except NoCgroups as fault:
            raise OSError(errno.EINVAL, f"LARGESSE_NODE_CGROUP: {fault}") from None
        self.groups.sweep(self._key(local) for local in self.by_key.values() if local.pid is not None)

    def _find(self, place: AttemptFolder) -> Local | None:
        """The attempt in a folder; None where nothing could start there, or it cannot be told which attempt it is."""
        name = place.name()
        try:
            folder = place.open()
            try:
                task = task_in(place, folder)
                if task is None:
                    return None  # The agent died before anything could start here.
                name = task.name
                local = Local(key_of(name), name, place.admitted, place.folder)
                self._look_into(local, folder, task.fate)
            finally:
                os.close(folder)
        except Unsound as fault:
            if name is None:
                return None  # The log calls it lost by the registration that does not name it.
            local = Local(key_of(name), name, place.admitted, place.folder)
            self._end(local, tampered(fault))
        return local

    def _look_into(self, local: Local, folder: int, fate: Result | None) -> None:
        """What became of an attempt by its documents. Raises Unsound, OSError."""
        # A shim that was spawned and has not claimed yet may not begin any more: it was never reported.
        claim("", {}, dir_fd=folder)
        claimed = claim_in(folder)
        if isinstance(claimed, Guarded) and claimed.boot == self.boot and fate is None:
            while processes.is_shim(claimed.pid, claimed.ticks, self._key(local)):
                if result_in(folder) is None or mono_ms() >= self.patient_ms:
                    local.phase, local.pid, local.ticks = "running", claimed.pid, claimed.ticks
                    return
                time.sleep(SWEEP_PAUSE_MS / 1_000)  # It has written its result, and is about to be gone.
        result = result_in(folder)
        if result is not None:
            self._end(local, result, durable=True)
        elif isinstance(claimed, Timed) and fate is not None:
            self._time(local, self._begun_ms(claimed) + fate.run_ms, fate)
        else:
            self._end(local, without_result(stop_in(folder)))

    def _begun_ms(self, claimed: Timed) -> int:
        """When a simulated task began, on this boot's monotonic clock."""
        if claimed.boot == self.boot:
            return min(claimed.mono_ms, mono_ms())
        return mono_ms() - max(0, time.time_ns() // 1_000_000 - claimed.wall_ms)

    def _end_strays(self) -> None:
        """Ends processes of attempts that do not run on, whatever their folders say by now."""
        running = {self._key(local): local.pid for local in self.by_key.values() if local.pid is not None}
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

    # ---------------------------------------------------------------- watching
    def hear(self, events: int) -> list[Local]:
        """Reads what shims said on the pipe; returns the attempts that began or ended."""
        with suppress(BlockingIOError):
            self.unread += os.read(events, EVENT_BYTES_MAX)
        *lines, self.unread = self.unread.split(b"\n")
        changed, way = list[Local](), Way(self.settings.data)
        for line in lines:
            what, _, key = line.decode(errors="replace").partition(" ")
            local = self.by_key.get(key)
            if local is None or local.phase == "ended":
                continue
            if what == "ended":
                local.done = True
                changed += self._conclude(local, way)
            elif what == "started" and local.phase == "starting":
                local.phase, local.unsaid = "running", True
                changed.append(local)
        way.close()
        return changed

    def look(self, now_ms: int) -> list[Local]:
        """Asks the kernel about every shim, for what the pipe did not say; returns the attempts that began or ended."""
        self.leaving = {pid: True for pid in self.leaving if processes.status_of(pid) is None}
        self.groups.remove_left()
        changed = []
        for local in [local for local in self.by_key.values() if local.pid is not None and local.phase != "ended"]:
            assert local.pid is not None
            if local.outcome is not None:
                continue
            if proc.start_ticks(local.pid) != local.ticks or local.ticks is None:
                local.done = local.done or processes.status_of(local.pid) == processes.SHIM_DONE
                changed += self._conclude(local)
            elif processes.has_moved_on(local.pid, self._key(local)):
                local.done = True
                changed += self._conclude(local)
            elif local.force_ms is not None and now_ms >= local.force_ms:
                self._signal(local, signal.SIGKILL)
            elif local.phase == "starting" and (local.folder / CHILD).is_file():
                local.phase = "running"
                changed.append(local)
        return changed + self._sweep(now_ms)

    def look_again_ms(self, now_ms: int) -> int:
        """When to look the next time."""
        return now_ms + (LOOK_AGAIN_MS if self._swept() else LOOK_MS)

    def ring(self, now_ms: int) -> list[Local]:
        """Simulated tasks whose time is over."""
        changed = []
        while self.timers and self.timers[0][0] <= now_ms:
            _, key = heapq.heappop(self.timers)
            local = self.by_key.get(key)
            if local is not None and local.phase == "running" and local.ends_ms is not None:
                assert local.fate is not None
                changed += self._end(local, local.fate)
        return changed

    def ring_ms(self) -> int | None:
        """When the next simulated task ends."""
        return self.timers[0][0] if self.timers else None

    @property
    def alive(self) -> int:
        """How many have not ended."""
        return sum(local.phase != "ended" for local in self.by_key.values())

    def forget(self, key: str) -> None:
        """The log has its end, and it has ended here."""
        self.by_key.pop(key, None)

    # ---------------------------------------------------------------- stopping
    def stop(self, local: Local, reason: StopReason, grace_ms: int) -> list[Local]:
        """Asks an attempt to end within the grace; returns it if that was all it took."""
        if local.phase == "ended" or local.stopping:
            return []
        local.stopping = reason
        if local.waits:
            return self._end(local, Result(reason, detail=f"stopped before it began: {reason}"))
        if local.ends_ms is not None:
            assert local.fate is not None
            ran_ms = max(0, local.fate.run_ms - (local.ends_ms - mono_ms()))
            return self._end(local, Result(reason, run_ms=ran_ms, detail=f"stopped: {reason}"))
        # On a full disk the shim hears less, and stops all the same.
        self._write(local, STOP, {"reason": reason, "grace_ms": grace_ms})
        local.force_ms = mono_ms() + grace_ms + FORCE_MS
        self._signal(local, signal.SIGTERM)
        return []

    # ---------------------------------------------------------------- ending
    def _conclude(self, local: Local, way: Way | None = None) -> list[Local]:
        """The shim has ended: what it left behind says how; if it left nothing, the attempt is lost. Returns it if that
        is all; where the shim was killed, what it started has to be ended first.
        """
        if local.outcome is not None:
            return []
        try:
            parts = self._parts(local)
            folder = way.open(*parts) if way is not None else open_folder(self.settings.data, *parts)
            try:
                result = result_in(folder)
                outcome = result or without_result(local.stopping or stop_in(folder))
            finally:
                os.close(folder)
        except (Unsound, Spoilt, FileNotFoundError) as fault:
            result, outcome = None, without_result(local.stopping) if local.stopping else tampered(fault)
        except OSError:
            return []  # Of this process or the disk: the next look tries again.
        if local.done and result is not None:
            return self._end(local, result, durable=True)
        local.outcome, local.sweep_ms = outcome, mono_ms() + SWEEP_MS
        return []

    def _swept(self) -> list[Local]:
        return [local for local in self.by_key.values() if local.outcome is not None and local.phase != "ended"]

    def _sweep(self, now_ms: int) -> list[Local]:
        """Ends what killed shims have left; returns the attempts of which nothing is left. One walk over all processes
        serves all of them.
        """
        swept = self._swept()
        if not swept:
            return []
        with processes.spawning:
            table = processes.seen()
            since = [local.ticks for local in swept if local.spawned and local.ticks is not None]
            loose = processes.family(table, processes.orphans(table, min(since)) if since else ())
        carried = processes.carriers(table, self.node)
        changed = []
        for local in swept:
            assert local.outcome is not None
            left = processes.family(table, carried.get(self._key(local), ()))
            left |= loose if local.spawned else set()
            processes.end(left)
            if not left:
                changed += self._end(local, local.outcome)
            elif now_ms >= local.sweep_ms:
                detail = f"{local.outcome.detail}; {len(left)} of its processes could not be ended"
                changed += self._end(local, replace(local.outcome, detail=detail))
        return changed

    def _time(self, local: Local, ends_ms: int, fate: Result) -> None:
        local.phase, local.ends_ms, local.fate = "running", ends_ms, fate

    def _end(self, local: Local, result: Result, *, durable: bool = False) -> list[Local]:
        """`durable`: the result lies in the folder already. Otherwise it is written there."""
        if local.phase == "ended":
            return []
        local.phase, local.result = "ended", result
        if local.pid is not None and processes.status_of(local.pid) is None:
            self.leaving[local.pid] = True
        if not durable:
            self._write(local, RESULT, document_of(result))
        if local.ends_ms is None:
            self.groups.remove(self._key(local))
        return [local]

    def _write(self, local: Local, name: str, document: dict[str, object]) -> None:
        """Leaves a document in the attempt's folder, if that can be done."""
        with suppress(OSError):
            folder = open_folder(self.settings.data, *self._parts(local))
            try:
                write_json(name, document, dir_fd=folder)
            finally:
                os.close(folder)

    def _signal(self, local: Local, number: signal.Signals) -> None:
        """To its shim, if that still guards it."""
        if local.pid is None or local.ticks is None:
            return
        with processes.spawning:
            if proc.start_ticks(local.pid) == local.ticks and not processes.has_moved_on(local.pid, self._key(local)):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(local.pid, number)
