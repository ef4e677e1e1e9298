"""`largesse logs` and `run`: what a task printed, or prints, attempt after attempt, until its job has ended."""

import codecs
import re
import sys
from datetime import datetime
from time import sleep, time
from typing import TYPE_CHECKING, Protocol

from services.cli.client import ATTEMPT_HEADER, CUT_HEADER, END_HEADER, STATE_HEADER, Gateway, stranger
from services.cli.ending import Ending, Later, Unanswered, Wrong, note, pipe, visible
from services.cli.patience import Patience
from services.cli.show import on_terminal

if TYPE_CHECKING:
    import httpx

FOLLOW_S = 0.5
"""Between two looks at the output of a task that runs."""


def output_of(gateway: Gateway, path: str, params: dict[str, object]) -> "httpx.Response":
    """What a task printed, as the gateway answers it. Raises as `Gateway.ask` does."""
    response = gateway.ask("GET", path, params=params)
    if not all(response.headers.get(name, "").isdecimal() for name in (ATTEMPT_HEADER, END_HEADER)):
        raise stranger(response)
    return response


_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def since_ms(text: str) -> int:
    """A moment in Unix milliseconds: so long ago, or a time in ISO 8601, by this machine's clock. Raises Wrong."""
    if match := _AGO.fullmatch(text):
        return max(0, int((time() - int(match[1]) * _SECONDS[match[2]]) * 1_000))
    try:
        return max(0, int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        raise Wrong(
            f"--since: {text!r} is not a duration: write it like 90s, 10m, 2h, 1d or 2026-11-23T14:05"
        ) from None


def document_of(response: "httpx.Response") -> dict[str, object]:
    """An output as a document. `cuts`: what its node did not keep, by the offset in all that the task printed."""
    first, _, end = response.headers.get(CUT_HEADER, "").partition("-")
    cut = first.isdecimal() and end.isdecimal()
    return {
        "output": response.content.decode(errors="replace"),
        "printed_bytes": int(response.headers[END_HEADER]),
        "cuts": [{"at": int(first), "bytes": int(end) - int(first)}] if cut else [],
    }


class Sink(Protocol):
    """What output is written to."""

    def write(self, data: bytes, /) -> object:
        """Takes bytes."""

    def flush(self) -> object:
        """Passes them on."""


class Readable:
    """Shows on a terminal what was printed: control characters but for ends of lines and tabs are written out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes, /) -> None:
        """Takes bytes; the beginning of a character waits for its rest."""
        sys.stdout.write(visible(self._decoder.decode(data), "\n\t"))

    def flush(self) -> None:
        """Passes them on."""
        sys.stdout.flush()


def sink_of(raw: bool) -> Sink:
    """Where `logs` writes: what a task printed may control a terminal only if that is wanted; a program gets it byte
    for byte."""
    return sys.stdout.buffer if raw or not on_terminal() else Readable()


def print_output(response: "httpx.Response", to: Sink) -> None:
    """One answer of the gateway, byte for byte."""
    with pipe():
        to.write(response.content)
        to.flush()


class Tail:
    """One output stream of a task, which is looked at again and again. `to`: where it is printed. `begin`: where the
    first attempt's begins, as parameters of the gateway.

    While the job lives, a task that has not started and a node that does not answer are waited for: the node comes
    back, or the task runs elsewhere. A gateway that does not answer any more is waited for too, for a while.
    """

    def __init__(
        self,
        gateway: Gateway,
        path: str,
        params: dict[str, object],
        to: Sink,
        *,
        begin: dict[str, object] | None = None,
        quiet: bool = False,
    ) -> None:
        self._gateway, self._path, self._params, self._to = gateway, path, params, to
        self._attempt, self._offset = params.get("attempt"), 0
        self._begin = begin or {}
        self._quiet, self._noted, self._patience = quiet, "", Patience()

    def look(self) -> bool:
        """Prints what is new; returns whether the job had ended, so that this is all. Raises as `Gateway.ask` does."""
        while True:
            try:
                response = output_of(self._gateway, self._path, self._params | self._begin | {"offset": self._offset})
                now = int(response.headers[ATTEMPT_HEADER])
                if self._attempt not in (None, now):
                    self._print_rest()
            except Unanswered as why:
                self._patience.wait(why)
                continue
            except Later as why:
                self._patience.answered()
                if self._noted != str(why) and not self._quiet:
                    self._noted = str(why)
                    note(f"{self._noted} (still trying)")
                return False
            self._noted = ""
            self._patience.answered()
            if self._attempt not in (None, now):
                note(f"attempt {now}:")
                self._begin = {}
                self._attempt, self._offset = now, 0
                continue
            self._attempt, self._offset = now, int(response.headers[END_HEADER])
            self._begin = {}
            print_output(response, self._to)
            return bool(response.headers.get(STATE_HEADER) == "ended")

    def _print_rest(self) -> None:
        """What an attempt printed between the last look and its end, if its node still has it. Raises Unanswered."""
        try:
            params = self._params | {"attempt": self._attempt, "offset": self._offset}
            print_output(output_of(self._gateway, self._path, params), self._to)
        except Unanswered:
            raise
        except Ending as why:
            note(f"the end of attempt {self._attempt} is not available: {why}")


def follow_output(
    gateway: Gateway, path: str, params: dict[str, object], to: Sink, begin: dict[str, object] | None = None
) -> None:
    """Prints one stream as `Tail` does until the job ends. Raises as `Gateway.ask` does."""
    tail = Tail(gateway, path, params, to, begin=begin)
    while not tail.look():
        sleep(FOLLOW_S)
