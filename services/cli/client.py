"""The gateway as the command line asks it. Problems become endings: 1 the cell says no, 2 malformed, 3 all else."""

import getpass
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from services.cli.ending import Broken, Ending, Later, Refused, Unanswered, Wrong

URL_DEFAULT = "http://127.0.0.1:8642"
TIMEOUT_S = 30.0
"""Longer than the gateway waits for the log's answer."""

USER_HEADER = "Largesse-User"
STATE_HEADER = "Largesse-Task-State"
EVENTS = "text/event-stream"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def user() -> str:
    """Who asks: LARGESSE_USER, or the account, as far as a header can say it."""
    name = os.environ.get("LARGESSE_USER", "")
    if not name:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = "unknown"
    return name.encode("ascii", "replace").decode()


class Gateway:
    """One cell's gateway. `url`: what `--url` says; else LARGESSE_URL, else URL_DEFAULT. Raises Wrong for no URL."""

    def __init__(self, url: str | None = None) -> None:
        self.url = (url or os.environ.get("LARGESSE_URL") or URL_DEFAULT).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Wrong(f"--url: {self.url} is no address of a gateway: write {URL_DEFAULT}")
        # A proxy has no business with what runs on this machine.
        proxied = parts.hostname not in _LOOPBACK
        self._http = httpx.Client(
            base_url=self.url, timeout=TIMEOUT_S, headers={USER_HEADER: user()}, trust_env=proxied
        )

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request. Raises Refused, Wrong, Broken, the last also for a redirect: no gateway sends one."""
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if response.is_error:
            raise ending_of(response)
        if not response.is_success:
            raise stranger(response)
        return response

    def document(self, method: str, path: str, *fields: str, **request: Any) -> Any:
        """What one request is answered with: a document that has these fields. Raises as `ask` does."""
        response = self.ask(method, path, **request)
        try:
            document = response.json()
        except ValueError:
            raise stranger(response) from None
        if not isinstance(document, dict) or not all(field in document for field in fields):
            raise stranger(response)
        return document

    def get(self, path: str, *fields: str, **params: Any) -> Any:
        """The document at a path, which has these fields; parameters that are None are left out."""
        return self.document("GET", path, *fields, params={k: v for k, v in params.items() if v is not None})

    def events(self, job: str) -> Iterator[Any]:
        """The job's document whenever it changes, until it ends. Raises as `ask` does; Unanswered where the stream ends
        before the job."""
        quiet = httpx.Timeout(TIMEOUT_S, read=60.0)
        try:
            with self._http.stream("GET", f"{job_path(job)}/events", timeout=quiet) as response:
                if response.is_error:
                    response.read()
                    raise ending_of(response)
                if not response.is_success or not response.headers.get("Content-Type", "").startswith(EVENTS):
                    raise stranger(response)
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        document = json.loads(line.removeprefix("data: "))
                        yield document
                        if document["ended_ms"] is not None:
                            return
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        told = f"{self.url} has ended, and job {job} has not"
        raise Unanswered(told, told)

    def _unreachable(self, error: httpx.HTTPError) -> Unanswered:
        brief = f"no answer from {self.url}: {str(error) or type(error).__name__}"
        return Unanswered(f"{brief}\n(`largesse up` starts a cell; --url or LARGESSE_URL names one)", brief)


def job_path(job: str) -> str:
    """Where a job is."""
    return f"/v1/jobs/{step(job)}"


def step(name: str) -> str:
    """A name as one step of a path; `.` and `..` are names, too, and lead nowhere else."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def stranger(response: httpx.Response) -> Broken:
    """How a command ends that got an answer which no gateway gives."""
    return Broken(f"{response.url} answered {response.status_code}, and not as a gateway does: is --url right?")


def ending_of(response: httpx.Response) -> Ending:
    """How a command ends that got this error."""
    try:
        problem = response.json()
        kind, detail = str(problem["type"]).removeprefix("urn:largesse:"), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return stranger(response)
    if problem.get("live"):
        return Later(detail, Refused.code if response.status_code == 404 else Broken.code)
    if kind == "not_ready":
        return Unanswered(detail, detail)
    if kind.startswith("refused:") or response.status_code in (404, 409):
        return Refused(detail)
    if kind in ("malformed", "too_large"):
        return Wrong(detail)
    return Broken(detail)
