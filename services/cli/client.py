"""The gateway as the command line asks it. Problems become endings: 1 the cell says no, 2 malformed, 3 all else."""

from collections.abc import Iterator
from contextlib import closing
from contextvars import ContextVar
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from largesse.access import account, header_of, headers_of, is_proxied, job_path
from services.cli.contexts import as_wrong, checked_user, way_in
from services.cli.ending import Broken, Ending, Later, Refused, Unanswered, Wrong, note, visible
from services.cli.moments import point_of
from services.cli.show import in_zone, moment
from services.cli.trust import SYSTEM, fault_of, trusted

if TYPE_CHECKING:  # Half of the time of a short command would go into importing it; `Gateway` does when it is made.
    import httpx

TIMEOUT_S = 45.0
"""Longer than the gateway waits for the bus, 30 s at most, and then for the log's answer, 10 s."""
DRY_RUN_TIMEOUT_S = 150.0
"""Longer than the gateway gives a dry run, also where it has to wait for another one."""

BUSY_S_MAX = 30.0
"""So long a request is made again where the gateway has taken nothing of it, and says when to come again."""

STATE_HEADER = "Largesse-Task-State"
ATTEMPT_HEADER, END_HEADER = "Largesse-Output-Attempt", "Largesse-Output-End"
CUT_HEADER = "Largesse-Output-Cut"
EVENTS = "text/event-stream"
JSON_LINES = "application/jsonl"
OCTETS = "application/octet-stream"
SERVICE_UNAVAILABLE = 503
NOT_LET_IN = ("unauthenticated", "forbidden", "other_user")
_HINT = "(`largesse up` starts a cell; --url, LARGESSE_URL or `largesse context` names one)"


_known: ContextVar["Gateway | None"] = ContextVar("known", default=None)
"""The gateway that a command asks with a token: it knows whose that is."""


def user() -> str:
    """Who asks, as far as a header can say it. Raises Wrong as `Access.current` does."""
    return _user()[0]


def job_user(option: str | None) -> str | None:
    """Whose a job is that names no user: `option`, else whom LARGESSE_USER or the context names. None where only the
    account does: such a job stays without. Raises Wrong as `Access.current` does, and for an option that names nobody.
    """
    if option is not None:
        return checked_user(option, "--user")
    return user() if _said_user()[0] else None


_said_user = as_wrong(lambda: way_in().said("LARGESSE_USER", "user"))


def _user() -> tuple[str, str]:
    name, source = _said_user()
    if not name and (gateway := _known.get()) is not None:
        name, source = gateway.holder(), "the token"
    if not name:
        name, source = account(), "the account"
    return header_of(name), source


@as_wrong
def gateway_url(url: str | None) -> tuple[str, str]:
    """The gateway's address, and what says it. `url`: of the option. Raises Wrong for what is no address."""
    return way_in().url_of(url)


@as_wrong
def settled(url: str | None) -> dict[str, dict[str, str]]:
    """The `url`, `user`, `token`, `ca_file` and `cell` that count, each with `value` and `from`, which says so; of the
    token only whether there is one. Raises Wrong.
    """
    access = way_in()
    address = access.url_of(url)
    token, source = access.token_of(address[1])
    path, names_it = access.ca_file_of(address[1])
    cell, cell_source = access.cell_of(address[1])
    found = {"url": address, "user": _user(), "token": ("none" if token is None else "sent", source)}
    found["ca_file"] = (path or SYSTEM, names_it)
    found["cell"] = (cell or "its own", cell_source)
    return {name: {"value": value, "from": source} for name, (value, source) in found.items()}


def timeout_s_of(dry_run: bool) -> float:
    """How long the gateway may need to answer a request, in seconds."""
    return DRY_RUN_TIMEOUT_S if dry_run else TIMEOUT_S


Row = dict[str, Any]
"""A document of a line, or of an event."""


class Gateway:
    """One cell's gateway. `url`: what `--url` says; where it says nothing, LARGESSE_URL, the context or URL_DEFAULT.

    `at`: what `get` shows is the cell as it was then; `as_of` says which moment that is. Raises Wrong for no URL or no
    moment, and as `Access.current` does.
    """

    def __init__(self, url: str | None = None, *, timeout_s: float = TIMEOUT_S, at: str | None = None) -> None:
        from largesse.http_library import httpx

        self.url, source = gateway_url(url)
        token, cell = self._told_by(source)
        self._timeout_s = timeout_s
        point_of("--at", at)
        self._at = at
        self.as_of: Row | None = None
        verify = trusted(source) if self.url.startswith("https:") else True
        try:
            self._http = httpx.Client(
                base_url=self.url,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, TIMEOUT_S)),
                headers=headers_of(token, user() if token is None else "", cell),
                follow_redirects=False,  # A token goes nowhere else.
                trust_env=is_proxied(self.url),
                verify=verify,
            )
        except (ValueError, httpx.InvalidURL):  # Of a proxy that the environment names, or of the host.
            raise Wrong(f"{self.url} cannot be reached: check the address, HTTP_PROXY and HTTPS_PROXY") from None
        _known.set(self if token is not None else None)

    @staticmethod
    @as_wrong
    def _told_by(source: str) -> tuple[str | None, str | None]:
        """The token and the cell for the gateway that `source` names."""
        access = way_in()
        return access.token_of(source)[0], access.cell_of(source)[0]

    @property
    def has_token(self) -> bool:
        """Whether it is asked with a token."""
        return "Authorization" in self._http.headers

    def holder(self) -> str:
        """Whose the token is that it is asked with; "" where the cell asks for none. Raises as `ask` does."""
        return str(self.document("GET", "/v1/session", "user")["user"] or "")

    def ask(self, method: str, path: str, **request: Any) -> "httpx.Response":
        """One request, made again while the gateway is busy. Raises Refused, Wrong, Broken, the last also for a
        redirect: no gateway sends one."""
        from largesse.http_library import httpx

        try:
            response = self._sent(self._http.build_request(method, path, **request), stream=False)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if response.is_error:
            raise ending_of(response)
        if not response.is_success:
            raise stranger(response)
        return response

    def _sent(self, request: "httpx.Request", *, stream: bool) -> "httpx.Response":
        """The answer, read whole unless it is a stream that is no error. Raises httpx.HTTPError."""
        until = monotonic() + BUSY_S_MAX
        while True:
            response = self._http.send(request, stream=stream)
            if response.is_error:
                response.read()
            pause_s = _pause_s(response) if response.status_code == SERVICE_UNAVAILABLE else None
            if pause_s is None or monotonic() + pause_s > until:
                return response
            sleep(pause_s)

    def rows(self, path: str, **params: object) -> Iterator[Row]:
        """The JSON documents of an answer that has one a line, as they come. Raises as `ask` does."""
        yield from self._lines("GET", path, params, None)

    def posted_rows(self, path: str, document: Row) -> Iterator[Row]:
        """The same of the answer to a document that is sent. Closing this breaks the connection off."""
        yield from self._lines("POST", path, {}, document)

    def _lines(self, method: str, path: str, params: dict[str, object], document: Row | None) -> Iterator[Row]:
        from largesse.http_library import httpx

        try:
            with closing(self._streamed(path, params, method, document)) as response:
                if not response.headers.get("Content-Type", "").startswith(JSON_LINES):
                    raise stranger(response)
                yield from _rows_of(response)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def pieces(self, path: str, **params: object) -> Iterator[bytes]:
        """The bytes of an answer that is a file, as they come. Raises as `ask` does; Unanswered where it breaks off."""
        from largesse.http_library import httpx

        try:
            with closing(self._streamed(path, params)) as response:
                if not response.headers.get("Content-Type", "").startswith(OCTETS):
                    raise stranger(response)
                yield from response.iter_bytes()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _streamed(
        self, path: str, params: dict[str, object], method: str = "GET", document: Row | None = None
    ) -> "httpx.Response":
        """An answer that is no error, to be read as it comes. Raises as `ask` does, and httpx.HTTPError."""
        query = {name: str(value) for name, value in params.items()}
        response = self._sent(self._http.build_request(method, path, params=query, json=document), stream=True)
        if response.is_error:
            response.close()
            raise ending_of(response)
        return response

    def document(self, method: str, path: str, *fields: str, **request: Any) -> Any:
        """What one request is answered with: a document that has these fields. Raises as `ask` does."""
        return self.answered(method, path, *fields, **request)[0]

    def answered(self, method: str, path: str, *fields: str, **request: object) -> tuple[Row, int]:
        """The same with the status of the answer."""
        response = self.ask(method, path, **request)
        try:
            document = response.json()
        except ValueError:
            raise stranger(response) from None
        if not isinstance(document, dict) or not all(field in document for field in fields):
            raise stranger(response)
        return document, response.status_code

    def get(self, path: str, *fields: str, **params: Any) -> Any:
        """The document at a path, which has these fields; parameters that are None are left out."""
        params = {**params, "at": self._at}
        found = self.document("GET", path, *fields, params={k: v for k, v in params.items() if v is not None})
        if self._at is not None:
            self.as_of = found.get("at")
        return found

    def dated(self, name: str, found: list[Row]) -> object:
        """A list as programs get it: of the past, with the moment beside it."""
        return found if self.as_of is None else {"at": self.as_of, name: found}

    def moment_ms(self, *, told: bool = True) -> float:
        """The time of what `get` has shown, in Unix ms. Where that is past, a note says so if it is to be `told`."""
        if self.as_of is None:
            return time() * 1_000
        if told:
            note(f"as of record {self.as_of['seq']:,}, {moment(self.as_of['time'])}")
        return float(self.as_of["time"])

    def events(self, job: str) -> Iterator[object]:
        """The job's document whenever it changes, until it ends. Raises as `ask` does; Unanswered where the stream ends
        before the job."""
        from largesse.http_library import httpx  # Before httpx_sse, which imports all of httpx otherwise.

        from httpx_sse import EventSource  # isort: skip

        quiet = httpx.Timeout(self._timeout_s, read=60.0)
        try:
            with self._http.stream("GET", f"{job_path(job)}/events", timeout=quiet) as response:
                if response.is_error:
                    response.read()
                    raise ending_of(response)
                if not response.is_success or not response.headers.get("Content-Type", "").startswith(EVENTS):
                    raise stranger(response)
                for event in EventSource(response).iter_sse():
                    if not event.data:  # What httpx-sse makes of a comment, which keeps a quiet stream open.
                        continue
                    document = _event(event.data, response)
                    yield document
                    if document["ended_ms"] is not None:
                        return
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        text = f"{self.url} has ended, and job {job} has not"
        raise Unanswered(text, text)

    def _unreachable(self, error: "httpx.HTTPError") -> Unanswered:
        brief = f"no answer from {self.url}: {failure_text(error, self._timeout_s, self.url)}"
        return Unanswered(f"{brief}\n{_HINT}", brief)


def _rows_of(response: "httpx.Response") -> Iterator[Row]:
    """Lines end with a line feed alone: texts may hold others that Unicode knows. Raises Broken, httpx.HTTPError."""
    import json

    begun: list[bytes] = []
    for data in response.iter_bytes():
        first, *others = data.split(b"\n")
        begun.append(first)
        for following in others:
            try:
                row = json.loads(b"".join(begun))
            except ValueError:
                raise stranger(response) from None
            if not isinstance(row, dict):
                raise stranger(response)
            yield row
            begun = [following]


def _event(text: str, response: "httpx.Response") -> Row:
    import json

    try:
        document = json.loads(text)
    except ValueError:
        raise stranger(response) from None
    if not isinstance(document, dict) or "ended_ms" not in document:
        raise stranger(response)
    return document


def failure_text(error: BaseException, timeout_s: float, url: str = "") -> str:
    """Why there was no answer from a URL, in words: the library's own are for who knows it."""
    import ssl
    from socket import gaierror

    from largesse.http_library import httpx

    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return fault_of(cause, urlsplit(url).hostname or "it")
            case ssl.SSLError():
                return "it does not answer as https; is it http?"
            case gaierror():
                return "its name is not known"
            case ConnectionRefusedError():
                return "nothing listens there"
            case OSError(strerror=str(reason)):
                return reason.lower()
        cause = cause.__cause__ or cause.__context__
    match error:
        case httpx.ConnectTimeout():
            return f"it cannot be reached within {min(timeout_s, TIMEOUT_S):g} s"
        case httpx.TimeoutException():
            return f"it has said nothing for {timeout_s:g} s"
        case httpx.ProxyError():
            return "the proxy between does not let it through (HTTP_PROXY, HTTPS_PROXY, NO_PROXY)"
        case httpx.ProtocolError():
            return "the connection ended before the answer, or what answers does not speak HTTP"
        case httpx.NetworkError():
            return "the connection broke off"
    return "what it answered cannot be read"


def stranger(response: "httpx.Response") -> Broken:
    """How a command ends that got an answer which no gateway gives."""
    return Broken(f"{response.url} answered {response.status_code}, which is not a gateway's answer: check --url")


def _pause_s(response: "httpx.Response") -> float | None:
    """Seconds after which a gateway that has taken nothing of a request wants it again; None if it does not say so."""
    try:
        again = response.json()["type"] == "urn:largesse:busy"
        pause_s = int(response.headers.get("Retry-After", ""))
    except (ValueError, KeyError, TypeError):
        return None
    return pause_s if again and pause_s >= 0 else None


def ending_of(response: "httpx.Response") -> Ending:
    """How a command ends that got this error."""
    try:
        problem = response.json()
        return problem_ending(problem, response.status_code)
    except (ValueError, KeyError, TypeError):
        return stranger(response)


def problem_ending(problem: Row, status: int) -> Ending:
    """How a command ends that got this problem document. Raises KeyError, TypeError where it is none."""
    kind, detail = str(problem["type"]).removeprefix("urn:largesse:"), in_zone(visible(str(problem["detail"])))
    ending: Ending
    if problem.get("live"):
        ending = Later(detail, Refused.code if status == 404 else Broken.code)
    elif kind == "not_ready":
        ending = Unanswered(detail, detail)
    elif kind.startswith("refused:") or kind in NOT_LET_IN or status in (404, 409):
        ending = Refused(detail)
    elif kind in ("malformed", "too_large"):
        ending = Wrong(detail)
    else:
        ending = Broken(detail)
    ending.problem = problem
    return ending
