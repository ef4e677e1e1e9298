"""The `largesse` command as a process: runs one command and ends with its exit code.

Imports little: Ctrl-C before `main` has begun still shows Python's own traceback. The commands are in
`services.cli.commands`.
"""

import largesse.privacy  # isort: skip  # noqa: F401 - first: what the environment holds can be read until then

import gc
import os
import sys
from contextvars import copy_context

from largesse.known_variables import stranger_text, strangers
from services.cli import interrupts
from services.cli.ending import Ending, note, out_error, prepare_streams

COMPLETING = "_LARGESSE_COMPLETE"
"""Set by a shell that completes a command line."""
WIDE = 10_000


def process() -> None:
    """Runs one command as what this process is for, and ends it with the command's exit code."""
    interrupts.guard()
    if COMPLETING in os.environ:
        os.environ["COLUMNS"] = str(WIDE)  # A shell takes each line for a name: no help may be folded.
    gc.disable()  # While the commands are imported there is nothing to collect.
    try:
        main()
    finally:
        gc.freeze()  # Nothing has to be looked through when the process ends: that saves a sixth of a short command.


def main() -> None:
    """Runs the command of `sys.argv` and raises SystemExit with its exit code."""
    copy_context().run(_main)  # What a command sets for itself ends with it.


def _main() -> None:
    prepare_streams()
    if COMPLETING not in os.environ:
        for name, near in strangers(os.environ):
            note(f"largesse: warning: {stranger_text(name, near)}")
    try:
        from services.cli.commands import app

        gc.enable()
        with interrupts.raising():
            app(prog_name="largesse")
    except BaseException as error:
        if interrupts.happened():
            # Whatever a library made of it (typer, for one, raises SystemExit): it was Ctrl-C.
            interrupts.tell()
            _trace()
            sys.exit(interrupts.CODE)
        if not isinstance(error, Exception):
            raise
        _end(error)


def _end(error: Exception) -> None:
    if isinstance(error, Ending):
        note(f"largesse: {error}")
        code = error.code
        out_error(str(error), code, error.problem)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        note(f"largesse: internal error: {text}\n(LARGESSE_DEBUG=1 shows the traceback)")
        code = 3
    _trace()
    sys.exit(code)


def _trace() -> None:
    if os.environ.get("LARGESSE_DEBUG"):
        import traceback

        traceback.print_exc()


if __name__ == "__main__":
    process()
