"""The process that packs closed segments (packing.py), as the bus starts and ends it."""

import subprocess
import sys
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)


class Packer:
    """One at a time, for one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def is_idle(self) -> bool:
        """Whether none runs. Says in the log what was wrong with the last one, if anything."""
        if self._process is None:
            return True
        if self._process.poll() is None:
            return False
        if self._process.returncode:
            self.failed(f"the process that packs ended with status {self._process.returncode}")
        self._process = None
        return True

    def start(self) -> None:
        """Packs what is closed by now."""
        command = [sys.executable, "-m", "largesse.bus.file.packing", str(self._directory)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            self.failed(str(error))

    def failed(self, reason: str) -> None:
        """Says in the log why nothing was packed."""
        what = "closed segments of the journal stay as they are until the next one is full"
        _log.warning("journal_not_packed", reason=reason, what=what)

    def stop(self) -> None:
        """Ends it, wherever it is: the next one goes on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
