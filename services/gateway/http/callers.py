"""Lets requests in: finds out who asks, and whether they may.

A request proves who makes it by a token (`Authorization: Bearer`), the page by the cookie of a session. A cookie goes
with every request that a browser makes, so a change by one counts only where the browser says that a page of this
gateway asks for it.
"""

from collections.abc import AsyncGenerator
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute

from largesse.hosts import is_loopback
from largesse.telemetry import HTTP_REFUSED, logger
from largesse.token_text import JWT_CHARACTERS_MAX, is_jwt
from schemas.access import RoleName, role_text
from schemas.queue_tree import QUEUE_DEFAULT
from services.gateway.access.callers import EVERYTHING, Caller, Callers, Fault
from services.gateway.access.failures import FAILURES_MAX, Failures
from services.gateway.access.rights import Right, right_of
from services.gateway.documents import Document
from services.gateway.http.problems import Problem

USER_HEADER = "Largesse-User"
COOKIE = "largesse-session"
SAFE = ("GET", "HEAD")

UNKNOWN_ROUTE = Right("admin")
"""What a route without an entry in the table needs: a test fails where there is one."""

_MAKE = "`largesse token make NAME --user USER --role {role}`"
_FAULTS: dict[Fault, str] = {
    "malformed": "what was sent is no token",
    "unknown": "this token is not known here, or was revoked",
    "expired": "this token has expired",
    "too_large": f"this JWT is longer than {JWT_CHARACTERS_MAX} characters",
    "algorithm": "this JWT is signed by nobody, or in a way that does not count here",
    "no_kid": "this JWT does not name its key (`kid`)",
    "key": "this JWT is signed by a key that the issuer does not have, or not any more",
    "signature": "the signature of this JWT is wrong",
    "issuer": "this JWT is of another issuer",
    "audience": "this JWT is made for somebody else (`aud`)",
    "not_yet": "this JWT is not valid yet",
    "too_long": "this JWT is valid for more than 24 hours, and nobody could revoke it",
    "user": "this JWT has no user's name in the claim that the gateway reads",
    "no_role": "the issuer gives its holder no role here",
    "no_keys": "the issuer of JWTs does not answer, and its keys are not known",
}


class Doorkeeper:
    """Knows who may come in. `callers`: the holders of tokens."""

    def __init__(self, callers: Callers, failures: Failures) -> None:
        self.callers = callers
        self.failures = failures
        self._log = logger(service="gateway")

    async def look_up(self, request: Request) -> None:
        """Verifies the JWT of a request, which may take a question to its issuer; for others it does nothing."""
        issued = self.callers.issued
        if issued is not None and (text := _bearer(request)) is not None and is_jwt(text):
            request.state.issued = await issued.look_up(text)

    def admit(self, request: Request, *, is_ready: bool) -> Caller:
        """Who makes the request. Raises Problem where they may not."""
        route = request.scope.get("route")
        right = _right(request, route)
        if right.role is None or (right.local and is_loopback(_address(request))):
            return Caller("", ())
        if not is_ready:  # Until then nobody's rights are known.
            raise Problem(503, "not_ready", "the gateway has not read the whole log yet")
        if self.callers.is_open:
            return Caller(request.headers.get(USER_HEADER, ""), EVERYTHING)
        least = right.least(dry_run=_is_dry(request))
        assert least is not None
        caller = self.holder(request, least)
        self._check(request, caller, least)
        return caller

    def lasting(
        self, caller: Caller, role: RoleName, parts: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """A long answer, which ends when its reader may not have it any more."""
        return self.callers.lasting(caller, role, parts)

    def holder(self, request: Request, least: RoleName) -> Caller:
        """The holder of the token or session that a request carries. Raises Problem where it carries none that counts.
        `least`: the role that is needed, for the message."""
        said = request.headers.getlist("authorization")
        cookie = request.cookies.get(cookie_name(request))
        if not said and cookie is None:
            raise self.refusal(
                "missing", 401, "unauthenticated", _wanted(least, "this cell wants to know who asks"), least
            )
        if said:
            text = _bearer(request)
            found = getattr(request.state, "issued", None) or self.callers.by_token(text or "")
        else:
            found = self.callers.by_session(cookie or "")
        if not isinstance(found, Caller):
            raise self._refused(request, found, least)
        if not said:
            self.check_origin(request)
        return found

    def _refused(self, request: Request, fault: Fault, least: RoleName) -> Problem:
        """How a request is answered whose token or session does not count."""
        if fault == "no_role":
            return self.refusal("role", 403, "forbidden", f"{_FAULTS[fault]}: ask for it there, or an admin", least)
        if fault == "no_keys":
            HTTP_REFUSED.labels(fault).inc()
            return Problem(503, "issuer_silent", f"{_FAULTS[fault]}: try again")
        return self.failure(request, fault, least)

    def failure(self, request: Request, fault: Fault, least: RoleName) -> Problem:
        """A failed attempt: counted, logged where it is the first of its address for a while. How it is answered."""
        address = _address(request)
        count, left_s = self.failures.note(address)
        HTTP_REFUSED.labels(fault).inc()
        if count in (1, FAILURES_MAX + 1):  # Otherwise anybody could fill the disk with log lines.
            self._log.warning(
                "too many refused tokens" if count > 1 else "token refused",
                address=address,
                reason=fault,
                route=_route_text(request),
            )
        if count > FAILURES_MAX:
            text = f"{FAILURES_MAX} tokens or sessions of this address were refused within a minute: {_FAULTS[fault]}"
            return Problem(429, "too_many_failures", text, retry_after_s=int(left_s) + 1)
        problem = Problem(401, "unauthenticated", _wanted(least, _FAULTS[fault]), role=least)
        problem.challenge = 'Bearer realm="largesse", error="invalid_token"'
        return problem

    def refusal(
        self, reason: str, status: int, kind: str, text: str, role: RoleName, field: str | None = None
    ) -> Problem:
        """The problem for a request that is not let in, counted."""
        HTTP_REFUSED.labels(reason).inc()
        problem = Problem(status, kind, text, field, role=role)
        if status == 401:
            problem.challenge = 'Bearer realm="largesse"'
        return problem

    def _check(self, request: Request, caller: Caller, least: RoleName) -> None:
        if not caller.may(least):
            has = ", ".join(role_text(each) for each in caller.roles)
            text = f'this needs the role {least}, and token "{caller.token}" of {caller.user} has {has}; an admin makes'
            raise self.refusal("role", 403, "forbidden", f"{text} another: {_make(least)}", least)
        named = request.headers.get(USER_HEADER)
        if named is not None and named != caller.user:
            text = f"{USER_HEADER} names another user than the token, which is of {caller.user}: leave it out"
            raise self.refusal("other_user", 403, "other_user", text, least)

    def check_origin(self, request: Request) -> None:
        """A change by a cookie has to come from a page of this gateway."""
        if request.method in SAFE:
            return
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        host = request.headers.get("host", "").lower()
        is_own = site == "same-origin"
        if origin is not None:
            scheme, netloc, *_ = urlsplit(origin)
            # Without TLS here there may be a proxy that has it: the page is then of another scheme.
            is_own = netloc.lower() == host and (not is_secure(request) or scheme.lower() == "https")
        if not is_own or (site is not None and site != "same-origin"):
            HTTP_REFUSED.labels("origin").inc()
            raise Problem(403, "origin", "a change by a browser's session has to come from a page of this gateway")


def _right(request: Request, route: object) -> Right:
    if not isinstance(route, APIRoute):
        return UNKNOWN_ROUTE
    try:
        return right_of(request.method, route.path)
    except KeyError:
        return UNKNOWN_ROUTE


def _bearer(request: Request) -> str | None:
    """The token of a request; None: it has none, or more than one."""
    said = request.headers.getlist("authorization")
    scheme, _, text = said[0].partition(" ") if len(said) == 1 else ("", "", "")
    return text.strip() if scheme.lower() == "bearer" else None


def _is_dry(request: Request) -> bool:
    """As the routes read it; in doubt it is none."""
    return request.query_params.getlist("dry_run") == ["true"]


def _address(request: Request) -> str:
    """Where it comes from; "" where that is no address: what a proxy passes on may be any text."""
    said = request.client.host if request.client is not None else ""
    try:
        return str(ip_address(said))
    except ValueError:
        return ""


def _route_text(request: Request) -> str:
    """Which route, not which address: a client chooses what stands in that."""
    route = request.scope.get("route")
    return f"{request.method} {route.path}" if isinstance(route, APIRoute) else ""


def _make(role: RoleName) -> str:
    return _MAKE.format(role=role)


def _wanted(role: RoleName, why: str) -> str:
    return (
        f"{why}: this needs a token of the role {role}, as `Authorization: Bearer TOKEN` (the command line reads"
        f" LARGESSE_TOKEN_FILE); {_make(role)} makes one"
    )


def is_secure(request: Request) -> bool:
    """Whether it came over TLS: to the gateway itself, or to a proxy on this machine that says so."""
    found: bool = request.scope.get("scheme") == "https"
    return found


def cookie_name(request: Request) -> str:
    """Browsers share cookies among all ports of a host, where another cell may listen, and among cells of a gateway.
    Over TLS the name also says that only this host, over TLS, can have set it."""
    server = request.scope.get("server")
    cell = request.scope.get("root_path", "").rpartition("/")[2]
    name = f"{COOKIE}-{server[1]}" if server and server[1] else COOKIE
    name = f"{name}-{cell}" if cell else name
    return f"__Host-{name}" if is_secure(request) else name


async def caller_of(
    request: Request,
    named: Annotated[
        str,
        Header(
            alias=USER_HEADER,
            description="who asks, where the cell has no tokens: a name for the log, and nothing checks it; by default"
            " the cell's",
        ),
    ] = "",
) -> Caller:
    """Who makes a request that has been let in."""
    found: Caller = request.state.caller
    return found


Asker = Annotated[Caller, Depends(caller_of)]
"""Who asks."""


async def reader_of(request: Request) -> Caller:
    """The same, of a request that is in nobody's name."""
    found: Caller = request.state.caller
    return found


Reader = Annotated[Caller, Depends(reader_of)]


def user_for(caller: Caller, document: Document, *, always: bool = False) -> None:
    """Fills in whose it is what a body asks for: the caller's. `always`: in an open cell, too, where the request names
    somebody. Raises Problem where a body names somebody else, and the caller may not act for others."""
    if not caller.is_known:
        if always and caller.user:
            document.setdefault("user", caller.user)
    elif document.get("user") is None:
        document["user"] = caller.user
    elif document["user"] != caller.user and not caller.may("operator"):
        raise _others(f"the token is of {caller.user}, and the body names another user", "user")


def owner_of(user: str | None, caller: Caller) -> Document:
    """The field `user` of a deletion, which has no body: as the query has it, else the one who asks. Empty where there
    is neither, so that the field is missed as it is in a body. Raises Problem as `user_for` does."""
    document: Document = {} if user is None else {"user": user}
    user_for(caller, document, always=True)
    return document


def check_own(caller: Caller, what: str, user: str, queue: str | None) -> None:
    """Raises Problem where something is not the caller's, or lies in a queue that is not: whoever may not act for
    others is kept to what is their own. `queue` None: it lies in none."""
    if caller.may("operator"):
        return
    if user != caller.user:
        raise _others(f"{what} is not of {caller.user}", None)
    check_queue_of(caller, queue or QUEUE_DEFAULT)


def check_queue_of(caller: Caller, queue: str) -> None:
    """Raises Problem where the caller may not submit to a queue."""
    paths = caller.queues()
    if paths is not None and not caller.may_use(queue):
        HTTP_REFUSED.labels("role").inc()
        text = f'token "{caller.token}" is for {", ".join(paths)} and the queues below, not for queue "{queue}"'
        text += f"; an admin makes another: {_make('submitter')}"
        raise Problem(403, "forbidden", text, "queue", role="submitter")


def _others(text: str, field: str | None) -> Problem:
    HTTP_REFUSED.labels("other_user").inc()
    made = _make("operator")
    return Problem(403, "other_user", f"{text}: only an operator may act for others ({made})", field, role="operator")
