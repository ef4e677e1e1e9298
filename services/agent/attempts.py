"""Attempts on this machine: started once, watched, stopped, found again after a restart.

The table says which there are and what is known of each; what runs them is behind a port (executors/port.py), chosen by
what the stage asks for. What happened is returned to the caller, who reports it.

What lies in an attempt's folder is not trusted (found.py): what is not right there ends that attempt, and no other.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from largesse import failpoints
from largesse.lifecycle.node_work import Start
from services.agent.documents import RESULT, Spoilt, Way
from services.agent.executors.choice import executors_of, kind_in, kind_of
from services.agent.executors.port import Executor, Told
from services.agent.folders import OVER, attempt_folder, run_name
from services.agent.found import AttemptFolder, StopReason, Unsound, places, task_in
from services.agent.local import Launched, Local, NotStarted, document_of, key_of, leave, spoilt, tampered
from services.agent.outbox import Name, Result
from services.agent.settings import NodeSettings
from services.agent.troubles import failed_start


@dataclass(slots=True)
class Attempts:
    """All of one node. `hold`: the file that says how long tasks may run on (lease_file.py); None: without end. `made`:
    makes the executors. `found`: folders of attempts that were there when this agent began: any other that is in the
    way of a start was made by a task.
    """

    settings: NodeSettings
    hold: str | None = None
    made: Callable[[NodeSettings, str | None], dict[str, Executor]] = executors_of
    by_key: dict[str, Local] = field(default_factory=dict)
    found: dict[Path, bool] = field(default_factory=dict)
    executors: dict[str, Executor] = field(init=False)

    def __post_init__(self) -> None:
        self.executors = self.made(self.settings, self.hold)

    def open_events(self) -> list[int]:
        """Descriptors that can be read from, without waiting, when there is something to hear. Raises OSError."""
        opened = [executor.open_events() for executor in self.executors.values()]
        return [events for events in opened if events is not None]

    def close(self) -> None:
        """Starts and hears nothing more. What runs goes on."""
        for executor in self.executors.values():
            executor.close()

    # ---------------------------------------------------------------- starting
    def prepare(self, starts: Iterable[Start]) -> list[tuple[Local, Start]]:
        """Room in the table for attempts that are about to be launched."""
        prepared = []
        for start in starts:
            held = start.held
            name = Name(held.job, held.stage, held.index, held.attempt)
            run = run_name(held.run, held.epoch)
            folder = attempt_folder(self.settings.data, held.job, run, held.stage, held.index, held.attempt)
            local = self.by_key[start.key] = Local(start.key, name, held.run, folder, kind_of(start.stage))
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
            except NotStarted as why:
                launched.append(Launched(local, result=Result(why.reason, detail=str(why))))
            except OSError as error:
                # Nothing of the job's own is looked at before it runs, so it does not count against its retries.
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
            if outcome.result is not None:
                # What was started before has a folder with a story of its own.
                changed += self._end(local, outcome.result, durable=outcome.result.reason == "lost")
            elif outcome.handle is not None:
                changed += self._enter(self.executors[local.executor].watch(local, outcome.handle))
        return changed

    def _launch(self, local: Local, start: Start, way: Way) -> Launched:
        name = local.name
        about: dict[str, object] = {"key": local.key, "job": name.job, "stage": name.stage, "index": name.index}
        about |= {"attempt": name.attempt, "admitted": local.admitted}
        mode = 0o700 if self.settings.task_user is None else 0o711
        folder = way.open(*local.parts(self.settings.data), mode=mode)
        try:
            return Launched(local, self.executors[local.executor].start(local, start, folder, about))
        finally:
            os.close(folder)

    # ---------------------------------------------------------------- finding again
    def scan(self) -> None:
        """Finds what an earlier agent left: runs on, has ended, or is lost. Ends whatever runs for attempts of its that
        do not run on. Blocks. Raises OSError.
        """
        for executor in self.executors.values():
            executor.open()
        if self.settings.task_user is not None:
            self.settings.data.chmod(0o711)  # Tasks have to get through it to their work folders.
        for place in places(self.settings.data):
            self.found[place.folder] = True
            if (place.folder.parents[1] / OVER).exists():
                continue  # Its job has ended, and nothing of it was left when that was written.
            local = self._find(place)
            known = self.by_key.get(local.key) if local is not None else None
            # Two folders for one attempt: one of them is forged. What runs is not.
            if local is not None and (known is None or (known.phase == "ended" and local.phase == "running")):
                self.by_key[local.key] = local
        for executor in self.executors.values():
            executor.settle(self.by_key)

    def _find(self, place: AttemptFolder) -> Local | None:
        """The attempt in a folder; None where nothing could start there, or it cannot be told which attempt it is."""
        name, kind = place.name(), ""
        try:
            folder = place.open()
            try:
                task = task_in(place, folder)
                if task is None:
                    return None  # The agent died before anything could start here.
                name, kind = task.name, kind_in(task)
                local = Local(key_of(name), name, place.admitted, place.folder, kind)
                self._enter([self.executors[kind].adopt(local, folder, task)])
            finally:
                os.close(folder)
        except Unsound as fault:
            if name is None:
                return None  # The log calls it lost by the registration that does not name it.
            local = Local(key_of(name), name, place.admitted, place.folder, kind)
            self._end(local, tampered(fault))
        return local

    # ---------------------------------------------------------------- watching
    def hear(self) -> list[Local]:
        """What executors were told without asking; returns the attempts that began or ended."""
        return self._enter([told for each in self.executors.values() for told in each.hear(self.by_key)])

    def look(self, now_ms: int) -> list[Local]:
        """Finds out about every attempt what nobody has told; returns those that began or ended."""
        return self._look(self.executors.values(), now_ms)

    def look_where_due(self, now_ms: int) -> list[Local]:
        """The same, where it is time to look."""
        return self._look([each for each in self.executors.values() if _is_due(each, now_ms)], now_ms)

    def look_ms(self) -> int | None:
        """When something is due."""
        due = [each.look_ms() for each in self.executors.values()]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def _look(self, executors: Iterable[Executor], now_ms: int) -> list[Local]:
        return self._enter([told for each in executors for told in each.look(self.by_key, now_ms)])

    @property
    def alive(self) -> int:
        """How many have not ended."""
        return sum(local.phase != "ended" for local in self.by_key.values())

    @property
    def labels(self) -> dict[str, str]:
        """What the node is labelled with by its executors."""
        return {key: value for each in self.executors.values() for key, value in each.labels().items()}

    @property
    def limits_text(self) -> str:
        """What holds tasks to their limits, in words."""
        return "; ".join(text for each in self.executors.values() if (text := each.limits_text()))

    def forget(self, key: str) -> None:
        """The log has its end, and it has ended here."""
        self.by_key.pop(key, None)

    # ---------------------------------------------------------------- ending
    def stop(self, local: Local, reason: StopReason, grace_ms: int) -> list[Local]:
        """Asks an attempt to end within the grace; returns it if that was all it took."""
        if local.phase == "ended" or local.stopping:
            return []
        local.stopping = reason
        if local.waits:
            return self._end(local, Result(reason, detail=f"stopped before it began: {reason}"))
        return self._enter(self.executors[local.executor].stop(local, grace_ms))

    def _enter(self, told: Iterable[Told]) -> list[Local]:
        """Notes what executors say; returns the attempts for which that is news."""
        changed = []
        for each in told:
            if each.result is not None:
                changed += self._end(each.local, each.result, durable=each.durable)
            elif each.local.phase == "starting":
                each.local.phase = "running"
                changed.append(each.local)
        return changed

    def _end(self, local: Local, result: Result, *, durable: bool = False) -> list[Local]:
        """`durable`: the result lies in the folder already. Otherwise it is written there."""
        if local.phase == "ended":
            return []
        local.phase, local.result = "ended", result
        if not durable:
            leave(self.settings.data, local, RESULT, document_of(result))
        if local.executor:
            self.executors[local.executor].release(local)
        return [local]


def _is_due(executor: Executor, now_ms: int) -> bool:
    at_ms = executor.look_ms()
    return at_ms is not None and now_ms >= at_ms
