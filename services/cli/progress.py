"""How far a long command is: a bar on stderr, or a counter where the end is unknown; only on a terminal."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

QUIET_S = 1.0
"""What takes less time than this shows no progress."""
SHOWN_EVERY = 64
"""Of what is only counted."""

Tell = Callable[[int, int | None], None]
"""Called with how much is done, and of how much; None: unknown."""
T = TypeVar("T")


@contextmanager
def progress_of(what: str, unit: str, *, results_elsewhere: bool = True) -> Iterator[Tell | None]:
    """Around work that lasts; gives None where stderr is no terminal. `unit`: of what is counted, in the plural.

    `results_elsewhere`: whether the terminal is free meanwhile, which it is not where results go to it as they come.
    """
    console = Console(stderr=True)
    if not (console.is_terminal and results_elsewhere):
        yield None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(None),
        _Count(unit),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        redirect_stdout=False,  # Results are written while it is shown, and are not for stderr.
    )
    task = bar.add_task(what, total=None)
    started = monotonic()

    def tell(done: int, total: int | None) -> None:
        if not bar.live.is_started:
            if monotonic() - started < QUIET_S:
                return
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


class _Count(ProgressColumn):
    """`12,345 records`, or `5/20 jobs` where the end is known."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        done = f"{task.completed:,.0f}"
        return Text(f"{done} {self._unit}" if task.total is None else f"{done}/{task.total:,.0f} {self._unit}")


def counting(things: Iterable[T], tell: Tell | None) -> Iterator[T]:
    """The same things; `tell` hears how many they were so far."""
    if tell is None:
        yield from things
        return
    for done, thing in enumerate(things, 1):
        if done % SHOWN_EVERY == 0:
            tell(done, None)
        yield thing
