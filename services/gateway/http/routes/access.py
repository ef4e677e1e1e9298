"""Routes of tokens, and of the sessions in which the page holds one."""

from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from largesse.hosts import is_loopback_name
from schemas.access import role_text
from schemas.edge.read import Malformed, read_input
from services.gateway.access.callers import Caller
from services.gateway.access.sessions import SESSION_S
from services.gateway.documents import Document
from services.gateway.documents.access import token_document, token_documents
from services.gateway.documents.models.access import Session, Token, Tokens, UnreadToken
from services.gateway.http.callers import Asker, cookie_name, is_secure
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, dumped, malformed
from services.gateway.http.reading import message_of

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_ONE = "/v1/tokens/{token}"
_UNREAD = "the log has not read it within 10 s"
_MADE: Responses = {
    201: answer(Token, "the token counts"),
    202: answer(UnreadToken, _UNREAD),
    **problems(409, 413, 422),
}
_REVOKED: Responses = {
    200: answer(Token, "the token as it was"),
    202: answer(Token, _UNREAD),
    **problems(404),
}
_LISTED: Responses = {200: answer(Tokens, "all that were not revoked, without their text, which nobody keeps")}
_SAID: Responses = {200: answer(Session, "who asks")}
_SIGNED_IN: Responses = {
    200: answer(Session, "who has signed in", Set_Cookie="the session, for this browser alone"),
    **problems(401, 429),
}


def add_tokens(app: FastAPI, api: "Api") -> None:
    """Lists tokens, makes one, revokes one."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/tokens", tags=["access"], dependencies=ready, responses=_LISTED)
    async def list_tokens(ended: bool = False) -> Response:
        """Tokens in the order in which they were made, with whose they are and what they may do. `ended`: before them
        the last ones that were revoked or have expired."""
        state, now_ms = api.follower.state, api.door.callers.now_ms
        return as_json({"tokens": token_documents(state, now_ms, ended=ended)})

    @app.post("/v1/tokens", tags=["access"], status_code=201, dependencies=ready, responses=_MADE)
    async def make_token(request: Request, asker: Asker) -> Response:
        """Makes a token. Whoever asks has drawn its text, and sends only the SHA-256 of that. The first one closes the
        cell to everybody without a token, so it has to be of the role `admin`."""
        document = await api.document(request)
        _check("make", document)
        await api.send("access", message_of({"make": document}), asker.user)
        row = api.follower.state.tokens.get(document["name"])
        if row is None or row.sha256 != document["sha256"]:
            return as_json({"name": document["name"]}, 202)
        return as_json(token_document(row, api.door.callers.now_ms), 201)

    @app.delete(_ONE, tags=["access"], dependencies=ready, responses=_REVOKED)
    async def revoke_token(token: str, asker: Asker) -> Response:
        """Revokes a token: nobody is let in by it any more, and streams that it opened end."""
        row = api.follower.state.tokens.get(token)
        if row is None:
            raise Problem(404, "unknown_token", f'token "{token}" is not known here', "name")
        found = await api.send("access", dumped({"revoke": {"name": token}}), asker.user)
        return as_json(token_document(row, api.door.callers.now_ms), 200 if found.answered else 202)


def _check(form: str, document: object) -> None:
    try:
        read_input("access", {form: document}, "")
    except Malformed as fault:
        raise malformed(Malformed(fault.field.removeprefix(form).removeprefix("."), fault.reason)) from None


def add_sessions(app: FastAPI, api: "Api") -> None:
    """Who asks; signing in and out."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/session", tags=["access"], dependencies=ready, responses=_SAID)
    async def get_session(request: Request) -> Response:
        """Who asks, and what they may do; `user` null: nobody who has proved it. `open`: everybody may do everything,
        since no token has ever been made here."""
        callers = api.door.callers
        if callers.is_open:
            return as_json(_document(None, is_open=True))
        if "authorization" not in request.headers and cookie_name(request) not in request.cookies:
            return as_json(_document(None))
        try:
            return as_json(_document(api.door.holder(request, "viewer")))
        except Problem as problem:
            if problem.status != 401:
                raise
            return as_json(_document(None))

    @app.post("/v1/session", tags=["access"], dependencies=ready, responses=_SIGNED_IN)
    async def sign_in(request: Request) -> Response:
        """Exchanges the token of `Authorization` for a cookie, by which a browser is known for 12 hours, or until the
        token ends. What changes something has to come from a page of this gateway."""
        if "authorization" not in request.headers:
            text = "send the token as `Authorization: Bearer TOKEN`"
            raise api.door.refusal("missing", 401, "unauthenticated", text, "viewer")
        caller = api.door.holder(request, "viewer")
        text = api.door.callers.sessions.begin(caller.sha256)
        return as_json(_document(caller), 200, **{"Set-Cookie": _cookie(request, text, SESSION_S)})

    @app.delete("/v1/session", tags=["access"], dependencies=ready, responses=_SAID)
    async def sign_out(request: Request) -> Response:
        """Ends the session of the cookie."""
        api.door.check_origin(request)
        if (text := request.cookies.get(cookie_name(request))) is not None:
            api.door.callers.sessions.end(text)
        is_open = api.door.callers.is_open
        return as_json(_document(None, is_open=is_open), 200, **{"Set-Cookie": _cookie(request, "", 0)})


def _document(caller: Caller | None, *, is_open: bool = False) -> Document:
    if caller is None:
        return {"open": is_open, "user": None, "role": "admin" if is_open else None, "roles": [], "token": None}
    roles = [role_text(each) for each in caller.roles]
    return {"open": False, "user": caller.user, "role": caller.role, "roles": roles, "token": caller.token}


def _cookie(request: Request, text: str, seconds: int) -> str:
    """Over plain HTTP no browser keeps a cookie that is `Secure`; on the way to a loopback address nobody listens."""
    is_near = is_loopback_name(request.headers.get("host", "")) and not is_secure(request)
    where = "" if is_near else "; Secure"
    return f"{cookie_name(request)}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{where}"
