"""This machine: what is installed, and what the environment says."""

import platform
import resource
from collections.abc import Mapping

from largesse.known_variables import PREFIX, strangers
from largesse.release import VERSION, are_cores_compiled, commit
from services.cli.doctor.findings import Finding, Findings

OPEN_FILES_LEAST = 4_096
"""An agent with a thousand tasks, or a gateway with a thousand watchers, needs some thousands."""


def of_machine(environment: Mapping[str, str]) -> Findings:
    """What is installed here, and variables that nothing reads."""
    build = commit()
    how = "compiled" if are_cores_compiled() else "interpreted"
    text = f"Largesse {VERSION}{f' ({build})' if build else ''}, cores {how}, Python {platform.python_version()}"
    yield Finding("installed", "ok", text)
    yield _open_files()
    yield from _variables(environment)


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


def _variables(environment: Mapping[str, str]) -> Findings:
    found = list(strangers(environment))
    for name, near in found:
        remedy = f"was {near} meant? " if near else ""
        yield Finding("environment", "warn", f"{name} is set, and nothing reads it", f"{remedy}unset it")
    if not found:
        count = sum(name.startswith(PREFIX) for name in environment)
        yield Finding(
            "environment", "ok", f"{count} of Largesse's variables set" if count else "nothing is set for Largesse"
        )
