"""Waiting out a gateway that does not answer, as while its cell is started again: for commands that follow a job."""

from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

from services.cli.client import Gateway
from services.cli.ending import Broken, Unanswered, note

SILENCE_S_MAX = 60.0
"""A gateway that does not answer for so long is given up."""

PAUSE_S, PAUSE_S_MAX = 0.5, 8.0
"""Between two tries: the first pause, doubled until it is the second."""


class Patience:
    """How long one command waits. Without any earlier answer it does not wait: the address may be wrong."""

    def __init__(self) -> None:
        self._heard = False
        self._since: float | None = None
        self._pause_s = PAUSE_S

    def answered(self) -> None:
        """There was an answer."""
        if self._since is not None:
            note("the gateway answers again")
        self._heard, self._since, self._pause_s = True, None, PAUSE_S

    def wait(self, why: Unanswered) -> None:
        """Pauses before the next try. Raises `why` where there was never an answer, Broken after SILENCE_S_MAX."""
        if not self._heard:
            raise why
        now = monotonic()
        if self._since is None:
            self._since = now
            note(f"{why.brief} (still trying, for {SILENCE_S_MAX:.0f} s)")
        left_s = self._since + SILENCE_S_MAX - now
        if left_s <= 0:
            raise Broken(f"given up after {SILENCE_S_MAX:.0f} s: {why}")
        sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


def followed(gateway: Gateway, job: str) -> Iterator[Any]:
    """The job's document whenever it changes, until it ends, whatever becomes of the gateway meanwhile.

    Raises as `Gateway.events` does where the gateway is given up.
    """
    patience, before = Patience(), None
    while True:
        try:
            for document in gateway.events(job):
                patience.answered()
                if document != before:
                    yield document
                before = document
            return
        except Unanswered as why:
            patience.wait(why)
