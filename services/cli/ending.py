"""How a command ends: exit codes, and what goes to which stream.

0 done, 1 the answer is no, 2 wrong usage or invalid input, 3 an internal error. Results go to stdout and nothing else
does; all that is said about them goes to stderr.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

READER_GONE = 141  # What a shell shows of a filter whose reader has gone: 128 + SIGPIPE.


class Ending(Exception):
    """Ends the command with `code`, and says why on stderr. `problem`: the gateway's problem document, if it is one."""

    code = 3
    problem: dict[str, object] | None = None


class Refused(Ending):
    """The answer is no."""

    code = 1


class Wrong(Ending):
    """Wrong usage or invalid input; the message names the option, the file and line, or the field."""

    code = 2


class Broken(Ending):
    """Something that should not happen, in words; a traceback is shown with LARGESSE_DEBUG only."""


class Unanswered(Broken):
    """The gateway does not answer, or is not ready yet; `brief` says so in one line."""

    def __init__(self, text: str, brief: str) -> None:
        super().__init__(text)
        self.brief = brief


class Later(Ending):
    """It is not to be had now, but may be as long as the job lives."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def out(text: str) -> None:
    """Writes to stdout, whole lines."""
    with pipe():
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
        sys.stdout.flush()


_json: ContextVar[bool] = ContextVar("json", default=False)


def expect_json(asked: bool) -> bool:
    """Remembers whether `--json` was given, for `out_error`; returns it."""
    _json.set(asked)
    return asked


def out_json(document: object, indent: int | None = None) -> None:
    """The one JSON document of a command with `--json`. ASCII only, so that no locale can stop it. `indent`: spaces a
    level, for readers; None: all of it on one line."""
    import json

    _json.set(False)
    out(json.dumps(document, indent=indent))


def out_error(text: str, code: int, problem: dict[str, object] | None = None) -> None:
    """What a command with `--json` prints where the answer is no, or the gateway answers with a problem document, if it
    has not printed its own before: `{"error": {"detail", "exit_code", ...}}` with all fields of the problem document.
    """
    if _json.get() and (problem is not None or code == Refused.code):
        out_json({"error": {**(problem or {}), "detail": text, "exit_code": code}})


def note(text: str) -> None:
    """One line for a person, on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def pipe() -> Iterator[None]:
    """Around writes to stdout: ends the command quietly where its reader has gone."""
    try:
        yield
    except BrokenPipeError:
        # What is still buffered would fail once more when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)
