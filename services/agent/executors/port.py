"""What the table of attempts (attempts.py) needs from whatever runs them.

The table keeps which attempts there are and what is known of them, makes their folders, and writes down how they ended.
An executor begins an attempt, finds it again after the agent's restart, stops it, and says what became of it. The
folder is the same for all of them: `claim.json` is made before anything begins, by whoever may begin it, and only once;
what an attempt prints is kept there as streams.py says, from where it is shown (task_output.py); what it used is part
of its result (found.py). An executor that does not measure leaves that out.

All methods are called on the agent's event loop and return at once, but for those that say that they block.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from largesse.lifecycle.node_work import Start
from services.agent.found import Task
from services.agent.local import Handle, Local
from services.agent.outbox import Result

LOOK_MS = 1_000
"""From look to look, where nothing is about to happen."""

Known = Mapping[str, Local]
"""Every attempt in the table by its key, also those of other executors."""


@dataclass(slots=True)
class Told:
    """What an executor says of an attempt. `result`: its fate; None: it has begun. `durable`: the result lies in
    the attempt's folder already; otherwise the table writes it there before anybody is told.
    """

    local: Local
    result: Result | None = None
    durable: bool = False


class Executor(Protocol):
    """Runs attempts in one way. What it keeps of one of them it keeps in a `Handle` of its own class."""

    # ---------------------------------------------------------------- finding again
    def open(self) -> None:
        """Makes ready for `adopt`. Blocks; in another thread, before anything else. Raises OSError."""

    def adopt(self, local: Local, folder: int, task: Task) -> Told:
        """What became of an attempt that an earlier agent was to start: it runs on, and has its handle, or has ended.
        One that nobody had claimed may not begin any more. Blocks; in another thread. Raises Unsound, OSError.

        `folder`: a descriptor of the attempt's folder.
        """

    def settle(self, known: Known) -> None:
        """Every folder has been looked at: ends whatever still runs for attempts that are over. Blocks; in another
        thread. Raises OSError.
        """

    # ---------------------------------------------------------------- starting
    def start(self, local: Local, start: Start, folder: int, about: dict[str, object]) -> Handle:
        """Begins an attempt and leaves its task, which `about` is the head of, in its new folder. Blocks; in another
        thread, beside all methods but `open`, `adopt` and `settle`. Raises FileExistsError where it was claimed before,
        NotStarted, OSError; nothing has begun then.
        """

    def watch(self, local: Local, handle: Handle) -> list[Told]:
        """What `start` has begun is watched from here on. It may have been stopped meanwhile, or be told to have ended
        before.
        """

    # ---------------------------------------------------------------- watching
    def open_events(self) -> int | None:
        """A descriptor that can be read from, without waiting, when there is something to `hear`; None: there never
        is. Raises OSError.
        """

    def hear(self, known: Known) -> list[Told]:
        """What it was told without asking, in the order of time. Raises OSError."""

    def look(self, known: Known, now_ms: int) -> list[Told]:
        """What can be found out by asking, about all its attempts at once. Raises OSError."""

    def look_ms(self) -> int | None:
        """When to look next; None: when something has happened to it."""

    # ---------------------------------------------------------------- ending
    def stop(self, local: Local, grace_ms: int) -> list[Told]:
        """Asks an attempt to end within the grace, for the reason that `local` has, and sees to it that it does."""

    def release(self, local: Local) -> None:
        """The attempt has ended, and its result is written down: nothing needs to be kept for it."""

    def close(self) -> None:
        """Begins and hears nothing more. What runs goes on."""

    def labels(self) -> dict[str, str]:
        """What its node is labelled with at the moment, so that it gets what needs this executor."""

    def limits_text(self) -> str:
        """What holds attempts to what they asked for, in words; empty: nothing has to."""


def of_kind(locals_: Iterable[Local], kind: str) -> list[Local]:
    """The attempts of one executor that have not ended."""
    return [local for local in locals_ if local.executor == kind and local.phase != "ended"]
