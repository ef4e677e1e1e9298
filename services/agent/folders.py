"""Where an agent keeps what: one folder an attempt, found again after any crash, and the output of ended tasks for a
while.

    DATA/identity.json                     whose epochs these are, and how many there were
    DATA/events                            the pipe on which shims say `started KEY` and `ended KEY`
    DATA/jobs/JOB/RUN/STAGE/INDEX.ATTEMPT  task.json, claim.json, result.json, stdout, stderr, work/ (shim.py)

JOB and STAGE are encoded names. RUN is the seq of the job's admission and the epoch that the attempt was granted under:
a name may be used again after years, on another log too, and an attempt of it must not meet an older one's folder.
"""

import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from services.agent.shim import read_json, write_json

JOBS, EVENTS, IDENTITY = "jobs", "events", "identity.json"
OVER = "#over.json"  # No encoded name has a #.
ENCODED_MAX = 120  # Characters of a folder's name; a longer one ends in a hash. File systems take 255 bytes.


@dataclass(frozen=True, slots=True)
class Kept:
    """How long the folders of ended jobs stay: until one limit is passed, oldest first."""

    age_ms: int = 24 * 3_600 * 1_000
    bytes: int = 4 << 30
    runs: int = 10_000


def encoded(name: str) -> str:
    """A folder's name for any job or stage name: different for different names, readable where that is possible."""
    text = quote(name, safe=" +,=@^").replace("~", "%7E")
    if text.startswith("."):
        text = "%2E" + text[1:]
    if len(text) <= ENCODED_MAX:
        return text
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{text[: ENCODED_MAX - 33]}~{digest}"


def attempt_folder(data: Path, job: str, run: str, stage: str, index: int, attempt: int) -> Path:
    """Where one attempt lives. `run`: RUN above."""
    return data / JOBS / encoded(job) / run / encoded(stage) / f"{index}.{attempt}"


def run_name(admitted: int, epoch: str) -> str:
    """RUN above, for a job admitted at seq `admitted` and an attempt granted under `epoch`."""
    return f"{admitted}-{encoded(epoch)}"


def live_name(job: str, admitted: int) -> str:
    """Names all folders of one admission of a job, for `clear_away`."""
    return f"{encoded(job)}/{admitted}"


def attempt_folders(data: Path) -> Iterator[Path]:
    """Every attempt's folder that there is."""
    return (data / JOBS).glob("*/*/*/*.*")


def take_identity(data: Path) -> tuple[str, str]:
    """Who this data folder belongs to, and a fresh epoch of theirs: `identity` and `identity.count`. Raises OSError."""
    path = data / IDENTITY
    known = read_json(path) or {"identity": secrets.token_hex(6), "count": 0}
    known["count"] += 1
    write_json(path, known, durable=True)
    return known["identity"], f"{known['identity']}.{known['count']}"


def make_events(data: Path) -> int:
    """The pipe that shims write to, open for reading without waiting. Raises OSError."""
    path = data / EVENTS
    if not path.exists() or not stat.S_ISFIFO(path.stat().st_mode):
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
    # Open for writing too: without a writer of its own the pipe would be at its end whenever no shim writes.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


# ---------------------------------------------------------------- clearing away
def runs_of_jobs(data: Path) -> list[Path]:
    """Folders JOB/RUN that there are now."""
    return list((data / JOBS).glob("*/*"))


def clear_away(runs: list[Path], live: frozenset[str], kept: Kept) -> int:
    """Removes what ended jobs left, beyond the limits; returns how many runs of jobs went.

    `runs`: runs_of_jobs as it was before `live` was asked for, so that what has just begun is not taken for over.
    `live`: live_name of the runs that must stay. What resists is tried again the next time.
    """
    now_ms = time.time_ns() // 1_000_000
    over: list[tuple[int, int, Path]] = []
    for run in runs:
        if f"{run.parent.name}/{run.name.partition('-')[0]}" in live:
            continue
        try:
            end = read_json(run / OVER)
            if end is None:
                end = {"at_ms": now_ms, "bytes": _size(run)}
                write_json(run / OVER, end)
        except OSError:
            continue
        over.append((end["at_ms"], end["bytes"], run))
    over.sort(key=lambda entry: (-entry[0], entry[2]))
    count = total = gone = 0
    for at_ms, size, run in over:
        count, total = count + 1, total + size
        if now_ms - at_ms > kept.age_ms or total > kept.bytes or count > kept.runs:
            gone += _remove(run)
    return gone


def _remove(run: Path) -> bool:
    try:
        for folder, names, _ in os.walk(run):
            for name in names:
                if not (path := Path(folder, name)).is_symlink():
                    path.chmod(0o700)  # A task may have locked what it made.
        shutil.rmtree(run)
        if not any(run.parent.iterdir()):
            run.parent.rmdir()
    except OSError:
        return False
    return True


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
