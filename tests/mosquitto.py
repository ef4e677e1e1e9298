"""A real mosquitto for tests, on a loopback port with a configuration of its own, killed by its process id.

LARGESSE_TEST_MOSQUITTO names another program than the one that is installed, and LARGESSE_TEST_MOSQUITTO_PLUGINS the
folder of its plugins, which 2.1 has for passwords and rules.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_port

START_SECONDS = 60
"""A guard: it listens within milliseconds."""


def mosquitto_program() -> str:
    """Where it is installed. Skips where it is not."""
    if (named := os.environ.get("LARGESSE_TEST_MOSQUITTO")) is not None:
        return named
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("no mosquitto is installed (Debian: apt-get install mosquitto)")
    return found


def mosquitto_version() -> tuple[int, int]:
    """Of that program. Skips where none is installed."""
    said = subprocess.run(
        [mosquitto_program(), "-h"], capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    found = re.match(r"mosquitto version (\d+)\.(\d+)", said.stdout)
    assert found is not None, said.stdout
    return int(found[1]), int(found[2])


def mosquitto_plugins() -> Path:
    """The folder of its plugins."""
    return Path(os.environ.get("LARGESSE_TEST_MOSQUITTO_PLUGINS", "/usr/lib"))


class Mosquitto:
    """One broker. `port`: the same over its lives. Lines of its configuration stand before and
    after its listener. `inner_port`: of another listener among them."""

    def __init__(self, folder: Path, *lines: str, before: Iterable[str] = (), inner_port: int | None = None) -> None:
        self.port = free_port()
        self._ports = [self.port] if inner_port is None else [self.port, inner_port]
        self._program = mosquitto_program()
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "mosquitto.log"
        self._config = folder / "mosquitto.conf"
        # Started by root, it would become a user who may not read what tests write.
        own = ("persistence false", "set_tcp_nodelay true", f"user {_user()}", f"listener {self.port} 127.0.0.1")
        self._config.write_text("\n".join((*before, *own, *(lines or ("allow_anonymous true",)), "")))

    def start(self) -> None:
        """Starts it, or starts it again; returns when it listens."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([self._program, "-c", self._config], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not all(_listens(port) for port in self._ports):
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def kill(self, signal_: int = signal.SIGKILL) -> None:
        """Ends it; returns when it is gone."""
        if self._process is not None:
            self._process.send_signal(signal_)
            self._process.wait(START_SECONDS)
            self._process = None

    def pause(self, paused: bool = True) -> None:
        """It hears and says nothing, and its connections stay, until it goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def reload(self) -> None:
        """It reads passwords and rules again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)


def _listens(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.connect(("127.0.0.1", port))
        return True
    return False


def _user() -> str:
    return "root" if os.getuid() == 0 else "nobody"  # Ignored where it was not started by root.


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that runs, for one test."""
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker
    broker.kill()
