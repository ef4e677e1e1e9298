"""`largesse view` over a log or results, in a process of its own."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.unit.cli_process import COMMAND

GUARD_S = 240


@contextmanager
def viewed(location: Path) -> Iterator[str]:
    """Where it is served; ends it, which it has to do without a word."""
    command = [*COMMAND, "view", str(location), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http" in line, line + process.communicate(timeout=GUARD_S)[1]
        yield line.split()[-1]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=GUARD_S)
        assert err == ""
    finally:
        process.kill()
