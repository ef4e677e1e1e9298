"""A Kafka broker that a test may kill, started by the script beside the checkout in a folder of its own."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.conftest import ROOT
from tests.ports import free_port

SCRIPT = Path(os.environ.get("LARGESSE_SHARED", ROOT.parent / "shared")) / "offline" / "kafka-broker"
START_SECONDS = 200


class Broker:
    """One broker under `folder`. `address`: the same over its lives."""

    def __init__(self, folder: Path, *settings: str, heap: str = "512m") -> None:
        """`settings`: `key=value` lines for the broker's properties."""
        self._folder = folder
        port, controller = free_port(), free_port()
        # The script's own choices are ports that another process could take while the broker is down. It reads its
        # address from the first line that begins with `listeners=PLAINTEXT`; the broker believes the last `listeners=`.
        own = (
            f"listeners=CONTROLLER://127.0.0.1:{controller},PLAINTEXT://127.0.0.1:{port}",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
        )
        self._environment = {
            "KAFKA_PORT": str(port),
            "KAFKA_OPTS_EXTRA": " ".join((*own, *settings)),
            "KAFKA_HEAP": heap,
        }
        self.address = ""

    def start(self) -> None:
        """Starts it, or starts it again. Raises CalledProcessError and TimeoutExpired."""
        started = subprocess.run(
            [SCRIPT, "start", self._folder],
            env=os.environ | self._environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=START_SECONDS,
            check=True,
        )
        self.address = started.stdout.strip()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        with suppress(FileNotFoundError, ProcessLookupError):
            pid = int((self._folder / "broker.pid").read_text())
            os.kill(pid, signal.SIGKILL)
            while _exists(pid):
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def stop(self) -> None:
        """Ends it for good."""
        subprocess.run([SCRIPT, "stop", self._folder], check=False, capture_output=True)


def _exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
