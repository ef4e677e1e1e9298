"""Which tests a run takes: all of them, or those for every day.

`make test` without ALL passes `--daily`, and so does `.ci/run`. Such a run leaves out the tests marked `whole` (long
campaigns, whole traces, further cases of a law that other tests show), takes a part of the cases of tests marked
`rotating(n)`, draws fewer examples and takes shorter campaigns (the fixture `daily`, `tests/conftest.py`). Every law
and every contract keeps at least one test.

One n-th of a rotating test's cases runs on each commit: which one follows from the commit's hash, so that a run can be
repeated and n unlike commits have met most cases. Without a repository it is always the first.
"""

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OPTION = "--daily"


def add_option(parser: pytest.Parser) -> None:
    """Makes pytest know `--daily`."""
    parser.addoption(OPTION, action="store_true", help="leave out what only `make test ALL=1` runs")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes away, in a daily run, what is marked `whole` and the cases of rotating tests that are not this commit's."""
    if not config.getoption(OPTION):
        return
    turn = turn_of(commit())
    out: set[str] = set()
    rotating: dict[str, list[str]] = defaultdict(list)
    parts: dict[str, int] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("whole") is not None:
            out.add(item.nodeid)
        elif (marker := item.get_closest_marker("rotating")) is not None:
            rotating[test].append(item.nodeid)
            parts[test] = marker.args[0]
    for test, cases in rotating.items():
        out |= {*cases} - {*taken(cases, parts[test], turn)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]


def taken(cases: Sequence[str], parts: int, turn: int) -> Sequence[str]:
    """The cases of a test that a commit runs: one of so many parts, and at least one case.

    They are dealt by hash, so that a part of a table of rows and columns is no single column.
    """
    dealt = sorted(cases, key=lambda case: sha256(case.encode()).digest())
    return dealt[turn % min(parts, len(dealt)) :: parts]


def turn_of(commit: str) -> int:
    """A number that follows from the commit alone; 0 without a commit."""
    return int.from_bytes(sha256(commit.encode()).digest()[:8]) if commit else 0


def commit() -> str:
    """The hash of the checked out commit, or nothing where there is no repository."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
