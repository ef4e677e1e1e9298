"""A cell of a kill campaign: one data folder, the processes that serve it one after another, and a power cut."""

import http.client
import itertools
import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from largesse.failpoints import VARIABLE
from tests.conftest import ROOT
from tests.ports import free_port
from tests.unit.cli_process import COMMAND

GUARD_S = 240
"""What takes longer hangs."""
PAGE = 4_096
"""A power cut keeps or loses what was not synced by pages of so many bytes."""

CLUSTER = {
    "nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "1", "memory": "1Gi"}}],
    "queues": {"name": "root", "children": [{"name": "a", "weight": 2}, {"name": "b"}, {"name": "default"}]},
}
POLICY = {"preset": "largesse", "retry_backoff_ms": 100}
PACE = {"LARGESSE_SNAPSHOT_ROUNDS": "3", "LARGESSE_WAIT_MS": "200", "LARGESSE_GAP_WAIT_MS": "2000"}


class Cell:
    """A data folder, and at most one process that serves it. `port` stays the same over its lives."""

    def __init__(self, folder: Path, **policy: int) -> None:
        self.folder, self.data, self.proof = folder, folder / "data", folder / "proof"
        self.data.mkdir()
        self.proof.mkdir()
        self.port = free_port()
        (folder / "cluster.json").write_text(json.dumps({**CLUSTER, "policy": {**POLICY, **policy}}))
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, failpoint: str = "") -> None:
        """A new life, that ends at the failpoint where one is given."""
        self._begin({VARIABLE: failpoint})

    def _begin(self, variables: dict[str, str], limit: Callable[[], None] | None = None) -> None:
        """Starts the process of a new life. `limit`: called in it before it becomes the cell."""
        self.lives += 1
        words = ["up", "--data", self.data, "--cluster", self.folder / "cluster.json", "--http", self.port]
        with (self.folder / f"life-{self.lives}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **PACE, **variables},
                preexec_fn=limit,
            )

    def kill(self, after_s: float, gently_s: float | None = None) -> bool:
        """SIGKILL after so long; False where it had ended by its failpoint. `gently_s`: SIGTERM so long before.

        Raises AssertionError where it ended in another way.
        """
        assert self.process is not None
        over = self._has_ended(after_s)
        early = over
        if not over and gently_s is not None:
            self.process.terminate()
            over = self._has_ended(gently_s)
        if not over:
            self.process.kill()
        code = self.process.wait()
        self.process = None
        expected = (-signal.SIGKILL,) if early or gently_s is None else (-signal.SIGKILL, -signal.SIGTERM, 0)
        assert code in expected, f"life {self.lives} ended with {code}:\n{self.said()}"
        return not early

    def _has_ended(self, after_s: float) -> bool:
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(after_s)
        return self.process.poll() is not None

    def end(self) -> int:
        """Exit code after SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(GUARD_S)
        self.process = None
        return code

    def said(self) -> str:
        """What the last life printed."""
        return (self.folder / f"life-{self.lives}.log").read_text()

    def ask(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        """One request: status and document; 0 and None where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def until(self, path: str, holds: Any) -> Any:
        """The document there, once it is as asked for."""
        over = monotonic() + GUARD_S
        document = None
        while monotonic() < over:
            assert self.process is None or self.process.poll() is None, f"it ended:\n{self.said()}"
            status, document = self.ask("GET", path)
            if status == 200 and holds(document):
                return document
            sleep(0.1)
        raise AssertionError(f"{path} did not come to that: {document}\n{self.said()}")

    def processes(self) -> list[int]:
        """Everything that runs here: the cell, guardians by their arguments, tasks by their folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                place = f"{self.data}/".encode()
                words = (entry / "cmdline").read_bytes().replace(b"\0", b"/")
                if place in words or os.fsencode(f"{(entry / 'cwd').readlink()}/").startswith(place):
                    found.append(int(entry.name))
        return found

    def guardians(self) -> list[int]:
        """The shims of running attempts: their arguments name the attempt's folder, as do those of a child that has not
        become its command yet.
        """
        attempt = re.compile(re.escape(f"{self.data}/".encode()) + rb"[^\0]*/\d+\.\d+\0")
        found: dict[int, int] = {}
        for pid in self.processes():
            with suppress(OSError):
                if attempt.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return [pid for pid, parent in found.items() if parent not in found]

    def kill_all(self) -> None:
        """Ends every process that is left, at once: all are stopped first, so that no guardian sees its task die."""
        while left := self._stopped():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.wait()

    def _stopped(self) -> list[int]:
        """Every process that is left, none of which goes on or starts another one."""
        stopped: dict[int, bool] = {}
        while fresh := [pid for pid in self.processes() if pid not in stopped]:
            for pid in fresh:
                stopped[pid] = True
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        return list(stopped)


def cut_power(directory: Path, dice: random.Random) -> int:
    """Takes what nobody had synced off the end of a journal, page by page; returns how many lines went.

    Decisions of cores and dead letters are sent without a sync; whatever needs them is synced after them. synced.json
    says how far the last sync came. Of the pages behind it any may be missing, or all from one on.
    """
    path = max(directory.glob("journal-*.jsonl"), default=None)
    if path is None or not (directory / "synced.json").exists():
        return 0  # It had only just begun.
    data = path.read_bytes()
    first = int(path.stem.rpartition("-")[2])
    synced = max(json.loads((directory / name).read_bytes())["line"] for name in ("head.json", "synced.json"))
    lines = data.splitlines(keepends=True)
    kept = sum(map(len, lines[: max(0, synced - first + 1)]))
    if kept == len(data):
        return 0
    left = bytearray(data[: dice.randint(kept, len(data))])
    for page in range(kept - kept % PAGE, len(left), PAGE):
        if dice.random() < 0.3:
            begin, end = max(kept, page), min(page + PAGE, len(left))
            left[begin:end] = bytes(end - begin)
    path.write_bytes(left)
    return sum(now != before for now, before in itertools.zip_longest(bytes(left).splitlines(keepends=True), lines))
