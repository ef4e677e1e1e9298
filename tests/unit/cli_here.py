"""Runs the command line in this process: its streams and exit code, without the half second that an interpreter takes.

For what a command says. What a process of its own is needed for (signals, pipes, its environment from the very start,
another hash seed) runs as tests/unit/cli_process.py does it.
"""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from services.cli.main import main
from tests.unit.cli_process import ROOT, Said, environment


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def largesse(
    *words: object,
    stdin: str | bytes = b"",
    columns: int = 60,
    terminal: bool = False,
    encoding: str = "utf-8",
    **env: str,
) -> Said:
    """One command to its end. Its stdin is what is given, and no terminal. `terminal`: whether stdout and stderr are;
    `encoding`: theirs."""
    written = io.BytesIO(), io.BytesIO()
    made = _Terminal if terminal else io.TextIOWrapper
    out, err = (made(each, encoding=encoding, write_through=True) for each in written)
    given = io.BufferedReader(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin))
    code: str | int | None = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(ROOT)
        for name, value in environment(columns, env).items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["largesse", *map(str, words)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(given, encoding="utf-8"))
        try:
            main()
        except SystemExit as end:
            code = end.code
    said, noted = (each.getvalue().decode(encoding) for each in written)
    return Said(int(code or 0), said, noted)
