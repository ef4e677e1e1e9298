"""Containers: each is guarded by a shim (container_guard.py) that outlives the agent and leaves the attempt's result.

What holds for shims holds here (process.py): they claim, they are found again, and what one leaves that was killed is
ended before its attempt is over. That may be a container, which a thread of its own has the engine remove. A node
offers containers as long as its engine answers.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from largesse.lifecycle.node_work import Start
from largesse.telemetry import logger
from schemas.jobs import ENGINE_LABEL, ENGINE_THERE
from services.agent.container_meter import remove_groups
from services.agent.container_task import container_document, container_name, group_of
from services.agent.documents import TASK, write_json
from services.agent.engine import AUTO, OFF, About, Engine, NoEngine, socket_of
from services.agent.executors.port import Known, Told, of_kind
from services.agent.executors.process import Guarded, ProcessExecutor
from services.agent.local import Local, NotStarted
from services.agent.settings import NodeSettings
from services.agent.starting import limits_of, task_of

CONTAINER = "container"
ASK_MS = 5_000
"""So often the engine is asked whether it is there."""


class ContainerExecutor(ProcessExecutor):
    """The containers of one node. `about`: the engine, as it was found last; `why_not`: why there is none. `_asking`:
    what is asked of the engine at the moment: whether it is there, or to remove a container, by its name. `_unsettled`:
    the engine could not say yet what an earlier agent has left.
    """

    kind = CONTAINER

    def __init__(self, settings: NodeSettings, hold: str | None) -> None:
        super().__init__(settings, hold)
        self.engine = Engine(settings.containers.engine)
        self.about: About | None = None
        self.why_not = ""
        self._pool: ThreadPoolExecutor | None = None
        self._asking: dict[str, Future[About | None]] = {}
        self._ask_ms = 0
        self._unsettled = False
        self._log = logger(service="agent", node=settings.name)

    # ---------------------------------------------------------------- finding again
    def open(self) -> None:
        """Looks for the engine."""
        super().open()
        self._note(self._found())

    def settle(self, known: Known) -> None:
        """Ends the containers of attempts that do not run on."""
        if self._is_off():
            return
        try:
            self._end_forsaken({container_name(key) for key in self._running(known)})
        except NoEngine as why:
            self._unsettled = True
            # Where nobody has named an engine, and nothing here ran in one, there is most likely none.
            say = self._log.warning if self._is_named() or of_kind(known.values(), self.kind) else self._log.info
            say("what runs in containers is not known yet", reason=str(why))

    def _end_forsaken(self, kept: set[str]) -> None:
        """Raises NoEngine."""
        for found in self.engine.containers(self.node.rstrip("/")):
            if found.name not in kept:
                self.engine.remove(found.name)
        self._unsettled = False

    # ---------------------------------------------------------------- starting
    def start(self, local: Local, start: Start, folder: int, about: dict[str, object]) -> Guarded:
        """Spawns its shim, which claims the attempt before it has the engine make the container."""
        engine = self.about
        if engine is None:
            raise NotStarted(f"there is no container engine: {self.why_not}", "lost")
        key = self.key(local)
        said = container_document(start, self._settings, key, local.folder, engine)
        task = about | task_of(start, self._settings, key, local.folder) | {"hold": self._hold}
        task |= {"env": {}, "memory_mib": limits_of(start, self._settings).memory_mib}
        socket = socket_of(self._settings.containers.engine)
        task["container"] = {
            "name": container_name(key),
            "engine": socket,
            "create": said,
            "parent": group_of(key, engine),
        }
        write_json(TASK, task, dir_fd=folder)
        events = self.events[1] if self.events is not None else None
        return Guarded(*self.forks.spawn(local.folder, key, events), spawned=True)

    # ---------------------------------------------------------------- watching
    def look(self, known: Known, now_ms: int) -> list[Told]:
        """Asks the kernel about shims, and now and then the engine whether it is there."""
        if not self._is_off():
            self._look_for_engine(known, now_ms)
        return super().look(known, now_ms)

    def _look_for_engine(self, known: Known, now_ms: int) -> None:
        asked = self._asking.get("")
        if asked is not None and asked.done():
            del self._asking[""]
            with suppress(NoEngine):
                self._note(asked.result())
        elif asked is None and now_ms >= self._ask_ms:
            self._ask_ms = now_ms + ASK_MS
            kept = {container_name(key) for key in self._running(known)} if self._unsettled else None
            self._asking[""] = self._in_pool(self._asked, kept)

    def _asked(self, kept: set[str] | None) -> About | None:
        about = self._found()
        if about is not None and kept is not None:
            self._end_forsaken(kept)
        return about

    def _found(self) -> About | None:
        if self._is_off():
            self.why_not = f"LARGESSE_NODE_ENGINE={OFF}"
            return None
        try:
            return self.engine.about()
        except NoEngine as why:
            self.why_not = str(why)
            return None

    def _note(self, about: About | None) -> None:
        if about != self.about and not self._is_off():
            what = f"by {about.name} {about.version}" if about is not None else f"none: {self.why_not}"
            self._log.info("containers", engine=what)
        self.about = about

    # ---------------------------------------------------------------- ending
    def close(self) -> None:
        """Asks the engine for nothing more."""
        super().close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def labels(self) -> dict[str, str]:
        """Stages with containers ask for it."""
        return {} if self.about is None or self._unsettled else {ENGINE_LABEL: ENGINE_THERE}

    def limits_text(self) -> str:
        """By whom containers are run."""
        if self.about is None:
            return f"no containers ({self.why_not})" if self.why_not else ""
        return f"containers by {self.about.name} {self.about.version}"

    def _left_elsewhere(self, local: Local) -> str:
        """Its container, until the engine has removed it."""
        name = container_name(self.key(local))
        asked = self._asking.get(name)
        if asked is None:
            self._asking[name] = self._in_pool(self._removed, self.key(local))
            return "its container"
        if not asked.done():
            return "its container"
        del self._asking[name]
        return "" if asked.exception() is None else "its container"

    def _removed(self, key: str) -> None:
        self.engine.remove(container_name(key))
        if self.about is not None and (group := group_of(key, self.about)) is not None:
            remove_groups(group)

    def _is_off(self) -> bool:
        return self._settings.containers.engine == OFF

    def _is_named(self) -> bool:
        return self._settings.containers.engine != AUTO

    def _in_pool(self, work: Callable[..., About | None], *arguments: object) -> "Future[About | None]":
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="engine")
        return self._pool.submit(work, *arguments)
