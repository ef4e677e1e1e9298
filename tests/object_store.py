"""An object store on this machine that speaks like S3, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import httpx
import pytest

_buckets = count()


@contextmanager
def served() -> Iterator[str]:
    """The address of a server, for as long as it runs. Skips the test where it is not installed."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def environment(address: str) -> dict[str, str]:
    """By which a client finds that server."""
    found = {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    return found | {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "somebody's key"}


def new_bucket(address: str) -> str:
    """The URL of a new, empty bucket."""
    name = f"bucket-{next(_buckets)}"
    httpx.put(f"{address}/{name}").raise_for_status()
    return f"s3://{name}"
