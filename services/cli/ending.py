"""How a command ends: exit codes, and what goes to which stream.

0 done, 1 the answer is no, 2 wrong usage or invalid input, 3 an internal error. Results go to stdout and nothing else
does; all that is said about them goes to stderr. Names and details come from people and their programs: whatever of a
text could control a terminal, or turn its reading direction, is written out, and what its encoding lacks is replaced.
"""

import codecs
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


_STYLE = os.urandom(16).hex()
"""Stands for the beginning of an escape sequence that a table of ours has. Nobody can know it beforehand."""
_CONTROL = "\x1b["
_LINES = "\n\t"


def styled(text: str) -> str:
    """A text that may control the terminal, since all that comes from outside in it is `visible`."""
    return text.replace(_CONTROL, _STYLE)


def visible(text: str, kept: str = "") -> str:
    """A text whose every character can be seen: control characters, marks of direction and the like are written as
    `\\x1b` or `\\u202e`. `kept`: those that stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """A text as it goes to a terminal: lines, of which nothing but what is `styled` controls it."""
    return "\n".join(visible(line, _LINES) for line in text.split("\n")).replace(_STYLE, _CONTROL)


_SIMPLE = dict(zip("▁▂▃▄▅▆▇█━╸╺…", ".:-=+*%#===.", strict=True))
"""What is written where an encoding lacks a character; `?` for any other."""


def _simplified(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SIMPLE.get(c, "?") for c in error.object[error.start : error.end]), error.end


def prepare_streams() -> None:
    """From now on stdout and stderr replace what their encoding lacks."""
    codecs.register_error("largesse.simplified", _simplified)
    for stream in (sys.stdout, sys.stderr):
        if callable(reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(errors="largesse.simplified")


def out(text: str) -> None:
    """Writes to stdout, whole lines, as `shown` makes them."""
    with pipe():
        text = shown(text)
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
    """One line for a person, on stderr, as `shown` makes it."""
    print(shown(text), file=sys.stderr, flush=True)


@contextmanager
def pipe() -> Iterator[None]:
    """Around writes to stdout: ends the command quietly where its reader has gone."""
    try:
        yield
    except BrokenPipeError:
        # What is still buffered would fail once more when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)
