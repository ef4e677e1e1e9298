"""The gateway as the command line asks it. Problems become endings: 1 the cell says no, 2 malformed, 3 all else."""

import os
from collections.abc import Iterator
from contextlib import closing
from contextvars import ContextVar
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from services.cli.contexts import asked, asked_cell, current_context
from services.cli.ending import Broken, Ending, Later, Refused, Unanswered, Wrong, note, visible
from services.cli.moments import point_of
from services.cli.show import in_zone, moment
from services.cli.tokens import context_source, token_for
from services.cli.trust import SYSTEM, ca_file_for, fault_of, trusted

if TYPE_CHECKING:  # Half of the time of a short command would go into importing it; `Gateway` does when it is made.
    import httpx

URL_DEFAULT = "http://127.0.0.1:8642"
TIMEOUT_S = 30.0
"""Longer than the gateway waits for the log's answer."""
DRY_RUN_TIMEOUT_S = 150.0
"""Longer than the gateway gives a dry run, also where it has to wait for another one."""

BUSY_S_MAX = 30.0
"""So long a request is made again where the gateway has taken nothing of it, and says when to come again."""

USER_MAX = 253
USER_HEADER, CELL_HEADER = "Largesse-User", "Largesse-Cell"
STATE_HEADER = "Largesse-Task-State"
ATTEMPT_HEADER, END_HEADER = "Largesse-Output-Attempt", "Largesse-Output-End"
CUT_HEADER = "Largesse-Output-Cut"
EVENTS = "text/event-stream"
JSON_LINES = "application/jsonl"
OCTETS = "application/octet-stream"
SERVICE_UNAVAILABLE = 503
NOT_LET_IN = ("unauthenticated", "forbidden", "other_user")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HINT = "(`largesse up` starts a cell; --url, LARGESSE_URL or `largesse context` names one)"


_known: ContextVar["Gateway | None"] = ContextVar("known", default=None)
"""The gateway that a command asks with a token: it knows whose that is."""


def user() -> str:
    """Who asks, as far as a header can say it. Raises Wrong as `current_context` does."""
    return _user()[0]


def job_user(option: str | None) -> str | None:
    """Whose a job is that names no user: `option`, else whom LARGESSE_USER or the context names. None where only the
    account does: such a job stays without. Raises Wrong as `current_context` does, and for an option that names nobody.
    """
    if option is not None:
        return checked_user(option, "--user")
    return user() if _said("LARGESSE_USER", "user")[0] else None


def _user() -> tuple[str, str]:
    name, source = _said("LARGESSE_USER", "user")
    if not name and (gateway := _known.get()) is not None:
        name, source = gateway.holder(), "the token"
    if not name:
        import getpass

        source = "the account"
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = "unknown"
    return name.encode("ascii", "replace").decode(), source


def _said(variable: str, field: str) -> tuple[str, str]:
    """What is said of `field`, and what says it; "" where nothing does. Raises Wrong as `current_context` does.

    A context that an option names beats the environment; one that is only the current one does not.
    """
    if asked.get() is not None and (value := getattr(current_context(), field)) is not None:
        return value, f"--context {asked.get()}"
    if value := os.environ.get(variable, ""):
        return value, variable
    context = current_context()
    value = getattr(context, field)
    return ("", "") if value is None else (value, context_source(context.name))


def gateway_url(url: str | None) -> tuple[str, str]:
    """The gateway's address, and what says it. `url`: of the option. Raises Wrong for what is no address."""
    value, source = (url, "--url") if url else _said("LARGESSE_URL", "url")
    return (checked_url(value, source), source) if value else (URL_DEFAULT, "the default")


def gateway_cell(url_source: str) -> tuple[str | None, str]:
    """Which of the gateway's cells is asked, and what says it; None: its own. A context's counts for its gateway alone.
    `url_source`: what says the address. Raises Wrong for what is no name of a cell, and as `current_context` does.
    """
    if (name := asked_cell.get()) is not None:
        return checked_cell(name, "--cell"), "--cell"
    context = current_context()
    sources = (f"--context {context.name}", context_source(context.name))
    if context.cell is not None and (context.url is None or url_source in sources):
        return checked_cell(context.cell, f"contexts.{context.name}.cell"), context_source(context.name)
    return None, "the gateway"


def settled(url: str | None) -> dict[str, dict[str, str]]:
    """The `url`, `user`, `token`, `ca_file` and `cell` that count, each with `value` and `from`, which says so; of the
    token only whether there is one. Raises Wrong.
    """
    address = gateway_url(url)
    token, source = token_for(address[1])
    path, names_it = ca_file_for(address[1])
    cell, cell_source = gateway_cell(address[1])
    found = {"url": address, "user": _user(), "token": ("none" if token is None else "sent", source)}
    found["ca_file"] = (path or SYSTEM, names_it)
    found["cell"] = (cell or "its own", cell_source)
    return {name: {"value": value, "from": source} for name, (value, source) in found.items()}


def timeout_s_of(dry_run: bool) -> float:
    """How long the gateway may need to answer a request, in seconds."""
    return DRY_RUN_TIMEOUT_S if dry_run else TIMEOUT_S


def checked_url(url: str, source: str) -> str:
    """An address of a gateway, without a slash at its end. Raises Wrong that names the source."""
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # Of a port, or an IPv6 address.
        good = False
    if not good or not url.isprintable() or " " in url:
        raise Wrong(f"{source}: {url} is not the address of a gateway: write {URL_DEFAULT}")
    return url


def checked_cell(name: str, source: str) -> str:
    """A cell's name. Raises Wrong that names the source."""
    from largesse.known_cells import NAME, NAME_RULE

    if not NAME.fullmatch(name):
        raise Wrong(f"{source}: {name!r} {NAME_RULE}")
    return name


def checked_user(name: str, source: str) -> str:
    """A user's name. Raises Wrong that names the source."""
    if not 1 <= len(name) <= USER_MAX or not name.isprintable():
        raise Wrong(f"{source}: has to be 1 to {USER_MAX} characters without control characters")
    return name


Row = dict[str, Any]
"""A document of a line, or of an event."""


class Gateway:
    """One cell's gateway. `url`: what `--url` says; where it says nothing, LARGESSE_URL, the context or URL_DEFAULT.

    `at`: what `get` shows is the cell as it was then; `as_of` says which moment that is. Raises Wrong for no URL or no
    moment, and as `current_context` does.
    """

    def __init__(self, url: str | None = None, *, timeout_s: float = TIMEOUT_S, at: str | None = None) -> None:
        from services.cli.http_library import httpx

        self.url, source = gateway_url(url)
        token, cell = token_for(source)[0], gateway_cell(source)[0]
        # A proxy has no business with what runs on this machine.
        proxied = urlsplit(self.url).hostname not in _LOOPBACK
        self._timeout_s = timeout_s
        point_of("--at", at)
        self._at = at
        self.as_of: Row | None = None
        verify = trusted(source) if self.url.startswith("https:") else True
        try:
            self._http = httpx.Client(
                base_url=self.url,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, TIMEOUT_S)),
                # Where a token says who asks, nothing else does.
                headers=({USER_HEADER: user()} if token is None else {"Authorization": f"Bearer {token}"})
                | ({CELL_HEADER: cell} if cell is not None else {}),
                follow_redirects=False,  # A token goes nowhere else.
                trust_env=proxied,
                verify=verify,
            )
        except (ValueError, httpx.InvalidURL):  # Of a proxy that the environment names, or of the host.
            raise Wrong(f"{self.url} cannot be reached: check the address, HTTP_PROXY and HTTPS_PROXY") from None
        _known.set(self if token is not None else None)

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
        from services.cli.http_library import httpx

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
        from services.cli.http_library import httpx

        try:
            with closing(self._streamed(path, params, method, document)) as response:
                if not response.headers.get("Content-Type", "").startswith(JSON_LINES):
                    raise stranger(response)
                yield from _rows_of(response)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def pieces(self, path: str, **params: object) -> Iterator[bytes]:
        """The bytes of an answer that is a file, as they come. Raises as `ask` does; Unanswered where it breaks off."""
        from services.cli.http_library import httpx

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
        from services.cli.http_library import httpx  # Before httpx_sse, which imports all of httpx otherwise.

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

    from services.cli.http_library import httpx

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


def job_path(job: str) -> str:
    """Where a job is."""
    return f"/v1/jobs/{step(job)}"


def step(name: str) -> str:
    """A name as one step of a path; `.` and `..` are names, too, and lead nowhere else."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


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
