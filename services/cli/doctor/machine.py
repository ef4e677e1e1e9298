"""This machine: what is installed, and what the environment says."""

import platform
import resource
from collections.abc import Mapping
from difflib import get_close_matches

from largesse.release import VERSION, are_cores_compiled, commit
from largesse.settings import PREFIX
from services.cli.doctor.findings import Finding, Findings

OPEN_FILES_LEAST = 4_096
"""An agent with a thousand tasks, or a gateway with a thousand watchers, needs some thousands."""

ELSEWHERE = frozenset(
    {
        *("ATTEMPT", "ATTEMPT_KEY", "INPUTS", "JOB", "LIFELINE", "MASTER_ADDR", "MASTER_PORT", "PEERS", "RESULTS"),
        *("STAGE", "TASK_COUNT", "TASK_INDEX"),  # Those of tasks.
        *("COMMIT", "COMPILE", "COMPLETE", "FAILPOINT", "GRAFANA_PORT", "HTTP_PORT", "KAFKA_PORT", "PROMETHEUS_PORT"),
        *("PYTHONS", "UP_OPTIONS"),
    }
)
"""Variables that are no settings of a service or a command."""


def of_machine(environment: Mapping[str, str], known: frozenset[str]) -> Findings:
    """What is installed here, and variables that nothing reads. `known`: those that something does, without
    LARGESSE_.
    """
    build = commit()
    how = "compiled" if are_cores_compiled() else "interpreted"
    text = f"Largesse {VERSION}{f' ({build})' if build else ''}, cores {how}, Python {platform.python_version()}"
    yield Finding("installed", "ok", text)
    yield _open_files()
    yield from _variables(environment, known)


def _open_files() -> Finding:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= OPEN_FILES_LEAST:
        return Finding("open files", "ok", f"a process here may open {_files(most)}")
    return Finding(
        "open files",
        "warn",
        f"a process here may open {_files(most)}: too few for a gateway or an agent with many tasks",
        f"raise the hard limit to {OPEN_FILES_LEAST:,} or more (ulimit -Hn; LimitNOFILE= of a systemd unit)",
    )


def _files(most: int) -> str:
    return "any number of files" if most == resource.RLIM_INFINITY else f"{most:,} files"


def _variables(environment: Mapping[str, str], known: frozenset[str]) -> Findings:
    said = sorted(name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX))
    strangers = [name for name in said if name not in known | ELSEWHERE and not name.startswith("TEST_")]
    for name in strangers:
        near = get_close_matches(name, known, 1)
        remedy = f"was {PREFIX}{near[0]} meant? " if near else ""
        yield Finding("environment", "warn", f"{PREFIX}{name} is set, and nothing reads it", f"{remedy}unset it")
    if not strangers:
        count = len(said)
        yield Finding(
            "environment", "ok", f"{count} variables of Largesse are set" if count else "nothing is set for Largesse"
        )
