"""Images that containers here need, fetched before their attempts begin, and removed by age and disk.

An attempt waits for its image as it does for results of earlier stages (inputs.py): nothing of it has begun, and the
time that it takes is not its own. One fetch serves all that wait for the same image. What may pass is tried again, ever
more rarely; what the registry says of the image itself is final. Removed are only images that this agent has fetched.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Protocol

from largesse.telemetry import logger
from schemas import Container
from services.agent.documents import read_json, write_json
from services.agent.engine import OFF, Engine, ImageRefused, NoEngine
from services.agent.local import Launched, Local, mono_ms
from services.agent.outbox import Result
from services.agent.settings import NodeSettings

FETCHERS = 3
"""Images that are fetched at a time."""
TRIES = 6
PAUSE_MS, PAUSE_MS_MAX = 1_000, 60_000
"""Before the second try, and at most; it doubles."""
KNOWN_MS = 10_000
"""An image that was there so lately is there."""
SAY_MS = 10_000
SWEEP_S = 600
FETCHED = "images.json"


class Store(Protocol):
    """What is asked of an engine (engine.py). Everything blocks, and raises NoEngine."""

    def has_image(self, image: str) -> bool:
        """Whether it is there."""

    def fetch_image(self, image: str, over: Callable[[], bool], said: Callable[[str], None]) -> None:
        """Until it is there, or `over`; `said`: how far that has come. Raises ImageRefused."""

    def image_bytes(self, image: str) -> int | None:
        """None: it is not there."""

    def remove_image(self, image: str) -> bool:
        """False where containers still use it."""

    def close(self) -> None:
        """Keeps no connection."""


class NotFetched(Exception):
    """An image cannot be fetched: says why. `final`: another try would end in the same way."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


@dataclass(slots=True)
class Images:
    """Those of one node. `used`: when an image that was fetched here was asked for last, in Unix seconds."""

    node: NodeSettings
    made: Callable[[], Store] | None = None
    used: dict[str, int] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None
    _closed: bool = False
    _seen_ms: dict[str, int] = field(default_factory=dict)
    _under_way: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _waiting: dict["asyncio.Task[None]", None] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        found: Mapping[str, object] = {}
        with suppress(OSError):
            found = read_json(self.node.data / FETCHED) or {}
        self.used = {image: at for image, at in found.items() if type(at) is int}

    def close(self) -> None:
        """Fetches nothing more."""
        self._closed = True
        for task in (*self._waiting, *self._under_way.values()):
            task.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def is_there(self, said: Container | None) -> bool:
        """Whether an attempt need not wait for its image: it has none, has to find it, or would find it."""
        if said is None or said.pull == "never" or self.node.containers.engine == OFF:
            return True
        seen_ms = self._seen_ms.get(said.image)
        if said.pull == "always" or seen_ms is None or mono_ms() - seen_ms >= KNOWN_MS:
            return False
        self._note_use(said.image)
        return True

    def begin(self, local: Local, said: Container, then: Callable[[Launched | None], Awaitable[None]]) -> None:
        """Fetches an attempt's image, and calls `then` once it is there, with None, or with how the attempt ended since
        it cannot be had. Nothing is called where it has ended meanwhile.
        """

        async def brought() -> None:
            outcome = await self._outcome(local, said)
            if local.phase != "ended":
                await then(outcome)

        local.waits = True
        task = asyncio.ensure_future(brought())
        self._waiting[task] = None
        task.add_done_callback(lambda _: self._changed.set())

    async def watch(self) -> None:
        """For ever, or until one of them ends by an error, which it raises. Removes what is used no more."""
        sweep_s = time.monotonic() + SWEEP_S
        while True:
            self._changed.clear()
            for task in [task for task in self._waiting if task.done()]:
                del self._waiting[task]
                if not task.cancelled():
                    task.result()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, sweep_s - time.monotonic())):
                    await self._changed.wait()
                    continue
            sweep_s = time.monotonic() + SWEEP_S
            if self.used and self.node.containers.engine != OFF:
                with suppress(NoEngine):
                    await self._in_thread(self.sweep, int(time.time()))

    def sweep(self, now_s: int) -> list[str]:
        """Removes images that were not asked for too long, and the oldest beyond the disk that they may take; returns
        which. Blocks. Raises NoEngine.
        """
        with closing(self._store()) as store:
            removed = self._swept(store, now_s)
        for image in removed:
            self.used.pop(image, None)
            self._seen_ms.pop(image, None)
        if removed:
            logger(service="agent", node=self.node.name).info("images removed", images=removed)
            self._save()
        return removed

    def _swept(self, store: Store, now_s: int) -> list[str]:
        settings, removed, total = self.node.containers, list[str](), 0
        for image, at_s in sorted(self.used.items(), key=lambda each: -each[1]):
            size = store.image_bytes(image)
            total += size or 0
            old = bool(settings.images_keep_s) and now_s - at_s > settings.images_keep_s
            large = bool(settings.images_keep_bytes) and total > settings.images_keep_bytes
            if size is not None and not ((old or large) and store.remove_image(image)):
                continue
            total -= size or 0
            removed.append(image)
        return removed

    # ---------------------------------------------------------------- fetching
    async def _outcome(self, local: Local, said: Container) -> Launched | None:
        try:
            task = self._under_way.get(said.image)
            if task is None:
                task = asyncio.ensure_future(self._fetch(said.image, always=said.pull == "always"))
                self._under_way[said.image] = task
                task.add_done_callback(lambda _: self._under_way.pop(said.image, None))
            await asyncio.shield(task)
        except NotFetched as why:
            return Launched(local, result=Result("cannot_start" if why.final else "lost", detail=str(why)))
        except NoEngine as why:
            return Launched(local, result=Result("lost", detail=str(why)))
        self._note_use(said.image)
        return None

    async def _fetch(self, image: str, *, always: bool) -> None:
        """Raises NotFetched, NoEngine."""
        with closing(self._store()) as store:
            await self._fetch_from(store, image, always=always)

    async def _fetch_from(self, store: Store, image: str, *, always: bool) -> None:
        pause_ms, why, final = PAUSE_MS, "", False
        if not always and await self._in_thread(store.has_image, image):
            self._seen_ms[image] = mono_ms()
            return
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(pause_ms / 1_000)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
            try:
                await self._in_thread(store.fetch_image, image, lambda: self._closed, self._say(image))
            except ImageRefused as refused:
                why = str(refused)
                final = refused.final
                if final:
                    break
                logger(service="agent", node=self.node.name).warning(
                    "an image cannot be fetched", image=image, reason=why, tries=attempt + 1
                )
                continue
            self._seen_ms[image] = mono_ms()
            self.used[image] = int(time.time())
            self._save()
            return
        raise NotFetched(f"image {image} cannot be fetched: {why}", final=final)

    def _say(self, image: str) -> Callable[[str], None]:
        """Says how far a fetch has come, now and then."""
        log, last_ms = logger(service="agent", node=self.node.name), [0]

        def say(text: str) -> None:
            if mono_ms() - last_ms[0] >= SAY_MS:
                last_ms[0] = mono_ms()
                log.info("an image is fetched", image=image, progress=text)

        return say

    def _note_use(self, image: str) -> None:
        if image in self.used:
            self.used[image] = int(time.time())

    def _save(self) -> None:
        with suppress(OSError):
            write_json(self.node.data / FETCHED, dict(self.used))

    def _store(self) -> Store:
        return self.made() if self.made is not None else Engine(self.node.containers.engine)

    async def _in_thread(self, work: Callable[..., object], *arguments: object) -> object:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(FETCHERS, thread_name_prefix="images")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
