"""Answers about tokens and sessions."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.access import RoleName
from services.gateway.documents.models.cell import Ms

Roles = Annotated[list[str], Field(description="each a role; `submitter:ads,test`: of these queues and those below")]


class Token(BaseModel):
    """A token: whose it is and what it may do. Its text is nowhere kept. `ended_ms`, `ended_by`: of one that has ended,
    null as who ended it: it expired."""

    name: str
    user: str
    roles: Roles
    made_ms: Ms
    author: str
    expires_ms: Ms | None
    state: Literal["live", "expired", "revoked"]
    ended_ms: Ms | None = None
    ended_by: str | None = None


class Tokens(BaseModel):
    tokens: list[Token]


class UnreadToken(BaseModel):
    """A token that the log has not read yet."""

    name: str


class Session(BaseModel):
    """Who asks. `open`: everybody may do everything, since no token has ever been made. `role`: the one that may do
    most; `token`: its name; null: nobody has proved who they are."""

    open: bool
    user: str | None
    role: RoleName | None
    roles: Roles
    token: str | None
