"""How long tests take, recorded, so that the longest start first and no process is left alone with one at the end.

`tests/durations.json` holds seconds by test function (the longest of its cases), and by file those of all that are
shorter than a second, from `make durations`. It only orders tests: one that is not in it counts as short, and one that
is gone does no harm.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".json")
OPTION = "--record-durations"
SHORTEST_S = 1.0
"""Shorter tests need no order of their own, and the file stays small."""


def add_option(parser: pytest.Parser) -> None:
    """Makes pytest know `--record-durations`."""
    parser.addoption(OPTION, action="store_true", help=f"write {FILE.name} from this run")


def record(config: pytest.Config) -> None:
    """In the process that gathers the reports of all others, notes durations where that is asked for."""
    if config.getoption(OPTION) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "largesse-durations")


class Recorder:
    """Adds the time of set-up, call and tear-down by test, and writes the long ones to the file."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Every process's reports arrive here."""
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Keeps what was known of tests that this run left out."""
        found: dict[str, float] = defaultdict(float)
        for nodeid, seconds in self.seconds.items():
            name, file = function_of(nodeid), file_of(nodeid)
            found[name] = max(found[name], seconds)
            found[file] += seconds if seconds < SHORTEST_S else 0.0
        known = {**recorded(), **found}
        kept = {name: round(known[name], 1) for name in sorted(known) if known[name] >= SHORTEST_S}
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


def recorded() -> dict[str, float]:
    """Seconds by test function."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def function_of(nodeid: str) -> str:
    """The id of a test without its parameters and its group."""
    return nodeid.partition("[")[0].partition("@")[0]


def file_of(nodeid: str) -> str:
    """The file of a test, as its id names it."""
    return nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by how long their groups take; tests of one group stay together, in the order of their file."""
    seconds = recorded()
    of_group = {group: seconds.get(group, 0.0) for group in map(_group, items)}  # A group may be a file.
    for item in items:
        of_group[_group(item)] += seconds.get(function_of(item.nodeid), 0.0)
    place = {item.nodeid: at for at, item in enumerate(items)}
    items.sort(key=lambda item: (-of_group[_group(item)], place[item.nodeid]))


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker is not None else item.nodeid
