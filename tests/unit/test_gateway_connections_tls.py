"""What holds of connections holds of those over TLS: the same stories, told over it."""

import pytest

from tests import http_rig
from tests.tls_files import tls_files
from tests.unit.test_gateway_connections import *  # noqa: F403 - all of its tests


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tls_files(tmp_path_factory.mktemp("connections") / "tls")


@pytest.fixture(autouse=True)
def over_tls(files, monkeypatch):
    monkeypatch.setattr(http_rig, "TLS", files)
