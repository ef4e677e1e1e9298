"""A broker with users for the tests of a module. Skips where there is nothing to start one with."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka_broker import SCRIPT
from tests.secure_kafka import SecureBroker


@contextmanager
def secure_broker(folder: Path, users: Iterable[str]) -> Iterator[SecureBroker]:
    """Started, and killed at the end."""
    if not SCRIPT.exists():
        pytest.skip(f"no broker to start: {SCRIPT} is missing")
    if "LARGESSE_TEST_KAFKA" not in os.environ:
        pytest.skip("no broker to start: LARGESSE_TEST_KAFKA is not set, so no broker is wanted here")
    if not shutil.which("openssl"):
        pytest.skip("no certificate for a broker: there is no openssl here")
    broker = SecureBroker(folder, users)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
