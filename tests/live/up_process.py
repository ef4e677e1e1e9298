"""`largesse up` as a user starts it, in a process of its own, and the commands that talk to it."""

import fcntl
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from time import monotonic, sleep
from typing import Any

from services.agent import processes
from tests.unit.cli_here import largesse
from tests.unit.cli_process import COMMAND, ROOT, Said

GUARD_S = 240


class Up:
    """A cell that runs. `data`: its folder."""

    def __init__(self, data: Path, process: "subprocess.Popen[str]") -> None:
        self.data = data
        self.process = process
        self.greeting = _first_line(process)
        self.url = self.greeting.rpartition(" at ")[2].strip()

    def greets(self) -> list[str]:
        """The lines of the greeting after the first. To be asked once."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline()]
        while lines[-1] and not lines[-1].startswith("Ctrl-C"):
            lines.append(self.process.stdout.readline())
        return [line.rstrip("\n") for line in lines]

    def ask(self, *words: object, **given: Any) -> Said:
        """One command to its end, in this process."""
        return largesse(*words, LARGESSE_URL=self.url, **given)

    def until(self, job: str, holds: Any) -> Any:
        """The job's document, once it is as asked for."""

        def document() -> Any:
            said = self.ask("get", "job", job, "--json")
            assert said.code == 0, said.err
            return said.json if holds(said.json) else None

        return eventually(document)

    def submit_until_it_ends(self, job: Callable[[str], str]) -> str:
        """Submits jobs `a`, `b` and so on, made by `job`, until the cell ends by itself; returns its stderr."""
        deadline = monotonic() + GUARD_S
        for number in count():
            if self.process.poll() is not None:
                break
            assert monotonic() < deadline, "it went on"
            self.ask("submit", "-", stdin=job(ascii_lowercase[number] if number < 26 else f"a{number}"))
        return self.process.communicate(timeout=GUARD_S)[1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, stdout and stderr after a signal."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=GUARD_S)
        return self.process.returncode, out, err


def eventually(holds: Callable[[], Any]) -> Any:
    """Waits until something that nobody announces holds; returns what it said. Raises AssertionError."""
    deadline = monotonic() + GUARD_S
    while monotonic() < deadline:
        if said := holds():
            return said
        sleep(0.1)
    raise AssertionError(f"it did not come to that within {GUARD_S} s")


def _first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], GUARD_S)
    line = process.stdout.readline() if ready else ""
    if "http" not in line:
        process.kill()
        raise AssertionError(f"no cell: {line}{process.communicate()[1]}")
    return line


def on_a_terminal(*words: object, columns: int) -> tuple[int, str]:
    """A command whose stdout is a terminal so wide: its exit code, and what it showed, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen([*COMMAND, *map(str, words)], stdout=theirs, cwd=ROOT, env={**env, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux says so where the last writer has gone.
        while chunk := os.read(ours, 65_536):
            shown += chunk
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


@contextmanager
def up(
    data: Path,
    *words: object,
    file_bytes_max: int | None = None,
    files_max: tuple[int, int] | None = None,
    under: Sequence[str] = (),
    **env: str,
) -> Iterator[Up]:
    """A cell on `data`; it has ended, with all tasks, when this is left. `file_bytes_max`: no file gets larger.
    `files_max`: so many files it may have open, soft and hard limit. `under`: a command that starts it."""

    def limit() -> None:
        if file_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
        if files_max is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, files_max)

    process = subprocess.Popen(
        [*under, *COMMAND, "up", "--data", str(data), "--http", "0", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "LARGESSE_USER": "ann", **env},
        preexec_fn=limit,
    )
    try:
        yield Up(data, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        end_tasks(data)


def end_tasks(data: Path) -> None:
    """Ends what a cell that was ended has left running: the shims of its tasks, found by the folder they guard, and all
    that comes from them, also in sessions of its own."""
    shims = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(str(data).encode() + b"/") for word in words):
                shims.append(int(entry.name))
    for pid in processes.family(processes.seen(), shims):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
