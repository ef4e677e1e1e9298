"""What every test shares: Hypothesis profiles, and where the outside world is found.

HYPOTHESIS_PROFILE chooses a profile: `default` (few, random examples, for every day), `ci` (the same examples on every
run, so that a change and not a die fails a build; taken where CI is set), `deep` (many, for a night).
Outside data lies in the folder LARGESSE_SHARED, or `shared` beside the checkout; a Kafka broker at LARGESSE_TEST_KAFKA.
What is missing skips its tests and says so.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# No deadlines: a loaded machine is no bug.
settings.register_profile("default", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True)
settings.register_profile("deep", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


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
