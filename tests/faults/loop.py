"""An event loop of virtual time for many simulated processes, with a seeded order of what is ready.

Every handle belongs to the process in whose context it was made. A process may be paused, when its handles wait while
time passes, or dead, when they are never run: nothing of it happens any more, not even a `finally`, as after SIGKILL.
Within a process the order is asyncio's; among processes it is drawn.
"""

import asyncio
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.faults.machines import Machine

STEP_US = 10
"""What one step of a task takes: so nothing can wait for ever without time passing."""
THREAD_US = 2_000
"""What is given to a thread is done within so long, and at once as the others see it."""


class Died(BaseException):
    """Unwinds what a process was doing where it died in the middle of a step."""


class Due:
    """What is to be called, once, in the context of a process; None: it was cancelled."""

    __slots__ = ("_when_s", "args", "callback", "context", "process")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context, process: "Process", when_s: float):
        self.callback, self.args, self.context, self.process, self._when_s = callback, args, context, process, when_s

    def run(self, loop: "VirtualLoop") -> None:
        """Calls it; what it raises is the loop's to keep."""
        try:
            self.context.run(self.callback, *self.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": f"in {self.callback!r}", "exception": error})

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self._when_s


class Process:
    """One simulated process. `begun`: its tasks, which are kept from the garbage collector, or it would end them."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name, self.machine, self.kind = name, machine, kind_of(name)
        self.ready: deque[Due] = deque()
        self.held: list[Due] = []
        self.is_dead = self.is_paused = False
        self.begun: list[asyncio.Task[Any]] = []
        self.readers: dict[int, Due] = {}

    def __repr__(self) -> str:
        return self.name


def kind_of(name: str) -> str:
    """Of which service or agent a process is one."""
    return name.split("-")[0].rstrip("+")


OUTSIDE = Process("outside", Machine("outside", lambda: 0))
PROCESS: ContextVar[Process] = ContextVar("process", default=OUTSIDE)
"""Whose turn it is."""


class VirtualLoop:
    """What asyncio asks of a loop, as far as anything here uses it. `dice`: draws the order. `world`: the process of
    whatever belongs to none. `now_us`: since the loop began."""

    def __init__(self, dice: random.Random, machine: Machine) -> None:
        self.dice, self.now_us, self.steps = dice, 0, 0
        self.me: Any = self  # As asyncio takes it.
        self.world = Process("world", machine)
        self.faults: list[dict[str, Any]] = []
        self._ready: list[Process] = []  # Those that have something to run.
        self._timers: list[tuple[int, int, Due]] = []
        self._number = 0
        self.is_over = False

    # ---------------------------------------------------------------- running
    def run_until(self, look: Callable[[], bool], every_us: int, until_us: int) -> None:
        """Runs until `look`, which is asked every so often, says that it is over, until `stop`, or until that time."""
        events._set_running_loop(self.me)
        ready, timers, draw = self._ready, self._timers, self.dice.random
        look_us, self.is_over = self.now_us, False
        try:
            while not self.is_over:
                now_us = self.now_us
                while timers and timers[0][0] <= now_us:
                    due = heapq.heappop(timers)[2]
                    if due.callback is not None:
                        self._enqueue(due)
                if not ready:
                    if not timers or timers[0][0] > until_us:
                        self.now_us = until_us if timers else now_us
                        return
                    self.now_us = timers[0][0]
                    continue
                at = int(draw() * len(ready)) if len(ready) > 1 else 0
                process = ready[at]
                handle = process.ready.popleft()
                if not process.ready:
                    ready[at] = ready[-1]
                    ready.pop()
                if handle.callback is not None:
                    self.now_us = now_us + STEP_US
                    self.steps += 1
                    handle.run(self)
                if now_us >= look_us:
                    look_us = now_us + every_us
                    if look() or now_us >= until_us:
                        return
        finally:
            events._set_running_loop(None)

    def stop(self) -> None:
        """Nothing more is run after this step."""
        self.is_over = True

    def _enqueue(self, handle: "Due") -> None:
        process = handle.process
        if process.is_dead:
            return
        if process.is_paused:
            process.held.append(handle)
            return
        if not process.ready:
            self._ready.append(process)
        process.ready.append(handle)

    # ---------------------------------------------------------------- processes
    def start(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine as (part of) a process."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(coroutine, context=context)

    def kill(self, process: Process) -> None:
        """Nothing of it runs any more."""
        process.is_dead = True
        if process.ready:
            self._ready.remove(process)
            process.ready.clear()
        process.held.clear()

    def pause(self, process: Process) -> None:
        """Nothing of it runs until it is woken; the clock runs on."""
        process.is_paused = True
        if process.ready:
            self._ready.remove(process)
            process.held.extend(process.ready)
            process.ready.clear()

    def wake(self, process: Process) -> None:
        """It goes on where it was, with all that has become due."""
        if process.is_dead or not process.is_paused:
            return
        process.is_paused = False
        held, process.held = process.held, []
        for handle in held:
            self._enqueue(handle)

    def notify(self, process: Process, reader: int) -> None:
        """There is something to read at one of its descriptors."""
        found = process.readers.get(reader)
        if found is not None and not process.is_dead:
            self._enqueue(Due(found.callback, found.args, found.context, process, 0))

    # ---------------------------------------------------------------- what asyncio asks of a loop
    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        handle = Due(callback, args, context, context.get(PROCESS) or self.world, 0)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.now_us / 1_000_000 + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        handle = Due(callback, args, context, context.get(PROCESS) or self.world, when)
        self._number += 1
        heapq.heappush(self._timers, (max(self.now_us, round(when * 1_000_000)), self._number, handle))
        return handle

    def call_world(self, delay_us: int, callback: Callable[..., None], *args: Any) -> None:
        """Has the world do something later, whoever asks for it."""
        context = copy_context()
        context.run(PROCESS.set, self.world)
        self.call_at((self.now_us + delay_us) / 1_000_000, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.me)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        self._number += 1
        task = asyncio.Task(coro, loop=self.me, name=name or f"task-{self._number}", context=context)
        process = (context or copy_context()).get(PROCESS, self.world)
        begun = process.begun
        begun.append(task)
        if len(begun) % 64 == 0:
            process.begun = [each for each in begun if not each.done()]
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Whole, at some later moment, unless the process has died by then."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.dice.randrange(THREAD_US) / 1_000_000, work)
        return future

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        process = PROCESS.get()
        process.readers[fd] = Due(callback, args, copy_context(), process, 0)

    def remove_reader(self, fd: Any) -> bool:
        return PROCESS.get().readers.pop(fd, None) is not None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Died):
            self.faults.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # ---------------------------------------------------------------- the end
    def bury(self, processes: list[Process]) -> None:
        """Ends what is left of them. They can do nothing any more, so how they take it does not matter."""
        events._set_running_loop(self.me)
        try:
            for process in processes:
                self.kill(process)
                context = copy_context()
                context.run(PROCESS.set, process)
                for task in process.begun:
                    context.run(_end, task)
                process.begun.clear()
        finally:
            events._set_running_loop(None)
        self._timers.clear()
        self.faults.clear()


def _end(task: asyncio.Task[Any]) -> None:
    if task.done():
        if not task.cancelled():
            task.exception()
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    for _ in range(3):  # A `finally` that awaits goes on from there.
        try:
            task.get_coro().close()
        except BaseException:
            continue
        return
