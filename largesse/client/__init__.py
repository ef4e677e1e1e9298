"""A client of a cell for programs: submit, follow, explain and cancel jobs, over HTTP (docs/client.md).

from largesse.client import Client

with Client() as cell:
    cell.wait(cell.submit("word-count.yaml")["job"])
"""

from largesse.http_library import httpx  # noqa: F401 - before httpx_sse, which imports all of httpx otherwise.
from largesse.client.asynchronous import AsyncClient
from largesse.client.calls import Retry
from largesse.client.errors import (
    JobFailed,
    LargesseError,
    Malformed,
    NotAllowed,
    NotFound,
    Refused,
    Unavailable,
    Unreachable,
    WaitedTooLong,
)
from largesse.client.specs import JobSpec, Stage
from largesse.client.sync import Client

__all__ = [
    "AsyncClient",
    "Client",
    "JobFailed",
    "JobSpec",
    "LargesseError",
    "Malformed",
    "NotAllowed",
    "NotFound",
    "Refused",
    "Retry",
    "Stage",
    "Unavailable",
    "Unreachable",
    "WaitedTooLong",
]
