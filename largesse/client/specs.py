"""Jobs as programs write them: dictionaries, dataclasses, or files in YAML or JSON, made one document with a name.

The name is what makes a repeated submission one job. A job without one gets its own here, before it is sent.
"""

import json
import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JobLike: TypeAlias = "Mapping[str, object] | DataclassInstance | str | os.PathLike[str]"
"""A job: a dictionary or a dataclass as docs/jobs.md has it, or the path of a file in YAML or JSON."""

NAME_DIGITS = 20
"""Of a name that is made here: two of a thousand million are alike with a chance of one in a hundred."""
MAPPED_MAX = 1_000
"""Commands of one `map`: a command line of the spec has at most 1,024 words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tasks alike; docs/jobs.md says what each field means. None: left out."""

    stage: str
    demand: Mapping[str, str | int | float]
    tasks: int | None = None
    command: Sequence[str] | None = None
    after: Sequence[str] | None = None
    inputs: Sequence[str] | None = None
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    retries: int | None = None
    timeout_ms: int | None = None
    max_failed: int | str | None = None
    on_failure: str | None = None
    running_max: int | None = None
    gang: bool | None = None
    labels: Mapping[str, str] | None = None
    prefer: Mapping[str, str] | None = None
    locality_wait_ms: int | None = None
    anti_affinity: Mapping[str, object] | None = None
    spread: Mapping[str, object] | None = None
    container: Mapping[str, object] | None = None
    speculative: bool | None = None
    duration_ms: int | None = None
    durations_ms: Sequence[int] | None = None
    estimate_ms: int | None = None
    estimate_demand: Mapping[str, str | int | float] | None = None
    needs: Sequence[str] | None = None
    array: str | None = None
    matrix: Mapping[str, Sequence[str | int | float | bool]] | None = None
    secrets: Mapping[str, str] | None = None
    grace_ms: int | None = None
    retry: Sequence[Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job; docs/jobs.md says what each field means. None: left out."""

    stages: Sequence[Stage] = field(default_factory=tuple)
    job: str | None = None
    queue: str | None = None
    priority: int | None = None
    user: str | None = None
    reservation: str | None = None
    reservation_atom: str | None = None
    altruism_permille: int | None = None
    revocable: str | None = None
    hold: bool | None = None
    rerun: bool | None = None
    from_stage: str | None = None
    after_jobs: Sequence[Mapping[str, str]] | None = None
    on_unmet: str | None = None


def document_of(job: JobLike) -> dict[str, object]:
    """A job as a document. Raises ValueError for what is none, OSError for a file that cannot be read."""
    if isinstance(job, str | os.PathLike):
        return _read(Path(job))
    document = _plain(job)
    if not isinstance(document, dict):
        raise ValueError(f"a job is a dictionary, a dataclass or a path, not {type(job).__name__}")
    return document


def named(document: dict[str, object], name: str | None = None) -> dict[str, object]:
    """The same under `name`, else under its own, else under one that nobody else has."""
    if name is None:
        name = str(document.get("job") or new_name())
    return {**document, "job": name}


def new_name(prefix: str = "job") -> str:
    """A name that no other job has. Its end is a number, so that jobs alike count as runs of one (docs/jobs.md)."""
    return f"{prefix}-{secrets.randbelow(10**NAME_DIGITS):0{NAME_DIGITS}d}"


def mapped(commands: Sequence[str | Sequence[str]]) -> list[str]:
    """The command line of a stage whose task number i runs command i. One in words is run as it is, a text by a shell.
    Raises ValueError for none, and for more than MAPPED_MAX."""
    if not 1 <= len(commands) <= MAPPED_MAX:
        raise ValueError(f"commands: has to be 1 to {MAPPED_MAX} of them, not {len(commands)}: submit several jobs")
    lines = [each if isinstance(each, str) else "exec " + shlex.join(each) for each in commands]
    return ["sh", "-c", 'shift "$LARGESSE_TASK_INDEX"; exec sh -c "$1"', "map", *lines]


def _read(path: Path) -> dict[str, object]:
    from largesse.bodies import read_body

    data = path.read_bytes()
    document = read_body(data, "json" if path.suffix == ".json" else "yaml")
    if not isinstance(document, dict):
        raise ValueError(f"{path}: is no job")
    # Decimals that the gateway takes have 6 digits behind the point at most: a float's shortest text keeps them.
    plain: dict[str, object] = json.loads(json.dumps(document, default=float))
    return plain


def _plain(value: object) -> object:
    """Dataclasses as dictionaries, without fields that are None, at every depth."""
    if is_dataclass(value) and not isinstance(value, type):
        said = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: _plain(each) for name, each in said.items() if each is not None}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
