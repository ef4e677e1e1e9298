"""What every test shares: Hypothesis profiles, tiers, durations, and where the outside world is found.

HYPOTHESIS_PROFILE chooses a profile: `default` (the same examples on every run, so that a change and not a die fails a
test), `daily` (fewer of them; taken with `--daily`), `random` (others on every run, for those who look into what they
find), `deep` (many of those, for a night).
Outside data lies in the folder LARGESSE_SHARED, or `shared` beside the checkout; a Kafka broker at LARGESSE_TEST_KAFKA;
another mosquitto than the installed one at LARGESSE_TEST_MOSQUITTO (tests/mosquitto.py).
What is missing skips its tests and says so.

`make test` spreads the tests over processes (pytest-xdist). One process runs a group of tests: those of a module that
share a module's fixture or are short, and those with the same `xdist_group`. The longest groups start first, by the
durations of an earlier run (`tests/durations.json`; `make durations` writes it). Which tests a run takes says
`tests/tiers.py`.
"""

import fcntl
import gc
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests import durations, tiers

ROOT = Path(__file__).resolve().parents[1]

# No deadlines: a loaded machine is no bug.
LOADED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("default", LOADED, max_examples=40, derandomize=True, database=None)
settings.register_profile("daily", settings.get_profile("default"), max_examples=10)
settings.register_profile("random", LOADED, max_examples=40, derandomize=False)
settings.register_profile("deep", settings.get_profile("random"), max_examples=2_000)

SHORT = ("tests/unit/", "tests/house/")
"""Folders whose tests are short, but for those marked slow."""

WORKERS_MIN = 4
"""On few cores more processes than cores: half of what the tests of processes and brokers take is waiting."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--daily` and `--record-durations`."""
    tiers.add_option(parser)
    durations.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the profile before any test module is read, and notes durations where that is asked for.

    A shell without job control lets what it starts in the background ignore Ctrl-C, and so would every process that a
    test starts and interrupts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = "daily" if config.getoption(tiers.OPTION) else "default"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", chosen))
    durations.record(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes `-n auto` starts, and `-n logical`, for tests that seldom wait: one a core and one more."""
    cores = len(os.sched_getaffinity(0))
    return cores + 1 if config.option.numprocesses == "logical" else max(cores, min(2 * cores, WORKERS_MIN))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups tests, and where several processes run them, starts the long ones first: none is left over at the end."""
    tiers.leave_out(config, items)
    for item in items:
        if (group := _group(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):
        durations.longest_first(items)


COLLECTED_AFTER = (50_000, 20, 50)
"""New objects before the collector looks for cycles among them, and rounds of that before it looks at older ones."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Lets the collector leave alone what was imported and collected, through which it went again and again: a sixth of
    the CPU time of short tests. Checks that pytest-xdist sees the groups: it reads them from the end of a test's id.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    if hasattr(session.config, "workerinput"):
        lost = [
            item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        assert not lost or session.config.getvalue("dist") != "loadgroup", f"not in their group: {lost[:3]}"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A log that a test has set up, to an output that is gone then, is not that of the tests after it."""
    structlog.reset_defaults()


def _group(item: pytest.Item) -> str | None:
    if item.get_closest_marker("xdist_group") is not None:
        return None
    if item.get_closest_marker("kafka") is not None and "LARGESSE_TEST_KAFKA" not in os.environ:
        return "kafka"  # One process starts one container for all of them.
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 - no public name shows a scope
    if any(each.scope == "module" for defs in fixtures for each in defs):
        return item.location[0]
    if item.location[0].startswith(SHORT) and item.get_closest_marker("slow") is None:
        return item.location[
            0
        ]  # Thousands of tests of milliseconds: dealing them out singly takes longer than they do.
    return None


Computed = Callable[[str, Callable[[], Any]], Any]


@pytest.fixture(scope="session")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Computed:
    """Computes a result once for all processes of a test run: `computed(name, compute)`, where `compute` takes nothing
    and returns what JSON can hold. Whoever asks while another process computes it waits.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def once(name: str, compute: Callable[[], Any]) -> Any:
        path = folder / f"{name}.json"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                draft = path.with_suffix(".draft")
                draft.write_text(json.dumps(compute()))
                draft.rename(path)
        return json.loads(path.read_text())

    return once


@pytest.fixture(scope="session")
def daily(request: pytest.FixtureRequest) -> bool:
    """Whether this is a run for every day, in which campaigns are shorter as examples are fewer."""
    return bool(request.config.getoption(tiers.OPTION))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of outside data: traces, checkers. Skips where it is absent."""
    folder = Path(os.environ.get("LARGESSE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no outside data at {folder}: set LARGESSE_SHARED")
    return folder


@pytest.fixture(scope="session")
def kafka_address() -> str:
    """host:port of a real Kafka broker that tests may fill with topics. Skips where there is none."""
    address = os.environ.get("LARGESSE_TEST_KAFKA")
    if not address:
        pytest.skip("no Kafka broker: set LARGESSE_TEST_KAFKA=host:port")
    return address
