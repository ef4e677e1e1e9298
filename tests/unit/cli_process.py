"""Runs the command line as a user does: a process of its own, its streams and its exit code."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WORKLOAD = "examples/workloads/small.jsonl"
CLUSTER = "examples/clusters/small.json"
COMMAND = (sys.executable, "-m", "services.cli.main")


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(columns: int, more: dict[str, str]) -> dict[str, str]:
    """What a command's environment has beside or instead of ours."""
    return {"COLUMNS": str(columns), "LARGESSE_DEBUG": "", **more}


def largesse(*words: object, stdin: str | bytes = b"", columns: int = 60, **env: str) -> Said:
    """One command to its end. Its stdin is what is given, and no terminal."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment(columns, env)},
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())
