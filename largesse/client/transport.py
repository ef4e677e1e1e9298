"""What both clients share of HTTP: settings, requests, answers, and where a stream of events stands."""

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TypedDict, TypeVar

from largesse.http_library import httpx
from largesse.access import Access, account, headers_of, is_proxied, token_in, trust_in
from largesse.client.calls import Answer, Call, Document, NoAnswer, Retry, Tries, is_passing
from largesse.client.errors import LargesseError, Unreachable

EVENTS, JSON_LINES = "text/event-stream", "application/jsonl"
NO_CONTENT = 204
COMMENT_S = 16.0
"""A stream of events says something more often than this."""
QUIET_S = 60.0
"""A stream of events that says nothing for so long is opened again; a gateway speaks every 15 s at least."""

T = TypeVar("T")


class Options(TypedDict):
    """What both clients of httpx take."""

    base_url: str
    headers: dict[str, str]
    timeout: httpx.Timeout
    follow_redirects: bool
    trust_env: bool
    verify: ssl.SSLContext | bool


@dataclass(frozen=True, slots=True)
class Where:
    """The cell, and who asks: as `largesse` finds it, where an argument says nothing. `context`: of the config file.
    `cell`: of a gateway that serves several. `token_file`, `ca_file`: in place of those that count otherwise."""

    url: str | None = None
    context: str | None = None
    cell: str | None = None
    user: str | None = None
    token_file: str | os.PathLike[str] | None = None
    ca_file: str | os.PathLike[str] | None = None

    def options(self) -> Options:
        """For a client of httpx. Raises AccessWrong, which names what is wrong."""
        access = Access(self.context, self.cell)
        url, source = access.url_of(self.url)
        token = access.token_of(source)[0] if self.token_file is None else token_in(str(self.token_file), "token_file")
        user = self.user or access.said("LARGESSE_USER", "user")[0] or account()
        path, names_it = access.ca_file_of(source) if self.ca_file is None else (str(self.ca_file), "ca_file")
        secured = url.startswith("https:") and path is not None
        return Options(
            base_url=url,
            headers=headers_of(token, user, access.cell_of(source)[0]),
            timeout=httpx.Timeout(30.0),
            follow_redirects=False,  # A token goes nowhere else.
            trust_env=is_proxied(url),
            verify=trust_in(path, names_it) if secured and path is not None else True,
        )


def request_of(http: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
    """A call as httpx sends it."""
    headers = dict(call.headers) | ({} if call.body is None else {"Content-Type": "application/json"})
    timeout = httpx.Timeout(call.timeout_s, connect=min(call.timeout_s, 30.0))
    return http.build_request(
        call.method, call.path, params=dict(call.params), content=call.body, headers=headers, timeout=timeout
    )


def answer_of(response: httpx.Response) -> Answer:
    """A response that has been read."""
    return Answer(response.status_code, {k.lower(): v for k, v in response.headers.items()}, response.content)


def no_answer(error: httpx.HTTPError) -> NoAnswer:
    """Why there is no answer. Where there was not even a connection, nothing can have arrived."""
    arrived = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    url, text = error.request.url, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return NoAnswer(f"from {url.scheme}://{url.netloc.decode()}: {text}", arrived=arrived)


def opened_of(response: httpx.Response) -> Answer:
    """A response that is read later."""
    return Answer(response.status_code, {}, b"", response)


def response_of(answer: Answer) -> httpx.Response:
    """What `opened_of` has put into an answer."""
    assert isinstance(answer.opened, httpx.Response), "a streamed call was answered whole"
    return answer.opened


def check_type(response: httpx.Response, wanted: str) -> None:
    """Raises Unreachable where an answer is no stream of a gateway."""
    if not response.headers.get("Content-Type", "").startswith(wanted):
        raise Unreachable(f"an answer that no gateway gives (status {response.status_code})")


class Place:
    """Where a stream of events stands, so that it goes on there when it is opened again."""

    def __init__(self, path: str, params: Mapping[str, str | list[str]], retry: Retry, last: str = "") -> None:
        self.last = last
        self._path, self._params = path, params
        self._tries = Tries(retry)

    def call(self, left_s: float | None = None) -> Call:
        """The request that opens it, or opens it again. `left_s`: so long it is read at most without a word."""
        headers = {"Accept": EVENTS, "Cache-Control": "no-store"} | ({"Last-Event-ID": self.last} if self.last else {})
        timeout_s = QUIET_S if left_s is None else min(left_s, QUIET_S)
        return Call("GET", self._path, self._params, headers=headers, timeout_s=timeout_s)

    def take(self, data: str, event_id: str) -> Document:
        """An event that came. Raises Unreachable for what no gateway sends."""
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise Unreachable("an event that no gateway sends")
        self.last = event_id
        self._tries.begin()
        return document

    @staticmethod
    def is_late(until: float | None, left_s: float | None) -> bool:
        """Whether one that has been quiet is to be opened again, so that it is read no longer than there is time.
        `left_s`: what was left when it was opened."""
        return until is not None and left_s is not None and until - monotonic() < min(COMMENT_S, left_s)

    def pause_s(self, failure: LargesseError, until: float | None = None) -> float:
        """Seconds until it is opened again, not beyond `until`. Raises `failure` where it is not."""
        if not is_passing(failure):
            raise failure
        pause_s = self._tries.pause_s(failure)
        return pause_s if until is None else max(0.0, min(pause_s, until - monotonic()))
