"""Where an agent keeps what: one folder an attempt, found again after any crash, and the output of ended tasks for a
while.

    DATA/identity.json                     whose epochs these are, how many there were, and the last of them
    DATA/jobs/JOB/RUN/STAGE/INDEX.ATTEMPT  task.json, claim.json, result.json, stdout, stderr, work/ (shim.py)
    DATA/jobs/JOB/RUN/#inputs              results of earlier stages that attempts of the run need (inputs.py)
    DATA/ended/N/JOB/RUN                   the same of jobs that have ended, on shelves in order of time (clearing.py)

JOB and STAGE are encoded names. RUN is the seq of the job's admission and the epoch that the attempt was granted under:
a name may be used again after years, on another log too, and an attempt of it must not meet an older one's folder.
"""

import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from largesse.task_output import folder_name
from services.agent.documents import read_json, write_json

JOBS, IDENTITY = "jobs", "identity.json"
WORK = "work"
"""The folder of an attempt in which its command starts, without `cwd` (shim.py): its results."""
INPUTS = "#inputs"  # No encoded name has a #.
OLD_EVENTS = "events"  # A pipe that earlier versions kept in the data folder.
ISSUED_MAX = 64
"""Epochs of its own that an agent remembers; a message of an older one comes no more."""
COUNT_MAX = 10**15
OVER = "#over.json"  # What earlier versions left in runs of ended jobs. No encoded name has a #.


@dataclass(frozen=True, slots=True)
class Kept:
    """How long the folders of ended jobs stay: until one limit is passed, oldest first. `behind_max`: with more that
    have ended and are not put away yet, the node takes no new tasks. `free_bytes`: less is kept where less
    of the disk would be free.
    """

    age_ms: int = 7 * 24 * 3_600 * 1_000
    bytes: int = 16 << 30
    runs: int = 20_000
    inodes: int = 1_000_000
    behind_max: int = 5_000
    free_bytes: int = 1 << 30


def attempt_folder(data: Path, job: str, run: str, stage: str, index: int, attempt: int) -> Path:
    """Where one attempt lives. `run`: RUN above."""
    return data.joinpath(JOBS, folder_name(job), run, folder_name(stage), f"{index}.{attempt}")


def run_name(admitted: int, epoch: str) -> str:
    """RUN above, for a job admitted at seq `admitted` and an attempt granted under `epoch`."""
    return f"{admitted}-{folder_name(epoch)}"


def live_name(job: str, admitted: int) -> str:
    """Names all folders of one admission of a job, for runs.py."""
    return f"{folder_name(job)}/{admitted}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an agent is. `issued`: its own epochs in order, the present one last."""

    name: str
    issued: tuple[str, ...]

    @property
    def epoch(self) -> str:
        """The present one."""
        return self.issued[-1]


def take_identity(data: Path) -> Identity:
    """Who this data folder belongs to, with a fresh epoch of theirs, `NAME.COUNT.CHANCE`. Raises OSError.

    Chance tells the epochs of two agents on copies of one folder from each other: neither takes a grant, or a
    registration, of the other for its own.
    """
    known = read_json(data / IDENTITY) or {}
    name, count, issued = known.get("identity"), known.get("count"), known.get("issued")
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{12}", name):
        name = secrets.token_hex(6)
    count = count + 1 if type(count) is int and 0 <= count < COUNT_MAX else 1
    own = [text for text in issued if isinstance(text, str)] if isinstance(issued, list) else []
    own = [*own[1 - ISSUED_MAX :], f"{name}.{count}.{secrets.token_hex(6)}"]
    write_json(data / IDENTITY, {"identity": name, "count": count, "issued": own}, durable=True)
    return Identity(name, tuple(own))
