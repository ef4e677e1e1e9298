"""Rights: tokens by which the gateway knows who asks, and what each may do. No decision depends on them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

RoleName = Literal["viewer", "submitter", "operator", "admin"]

ROLES: tuple[RoleName, ...] = ("viewer", "submitter", "operator", "admin")
"""From the least to the most: each may do what those before it may."""

TOKENS_MAX = 1_000
"""Tokens of a cell that are neither revoked nor expired."""
TOKEN_ROLES_MAX = 16
ROLE_QUEUES_MAX = 64


@dataclass(slots=True)
class Role:
    """What the holder of a token may do. `queues`: of a submitter, those to which it may submit, with the queues below
    them; empty: all.
    """

    role: RoleName
    queues: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TokenMade:
    """A token of a user: `sha256` of its text, in hexadecimal; the text itself is not in the log. `expires_ms`: from
    then on (Unix milliseconds) it does not count; null: until it is revoked.
    """

    name: str
    user: str
    roles: list[Role]
    sha256: str
    expires_ms: int | None = None
    author: str = "unknown"


@dataclass(slots=True)
class TokenRevoked:
    """A token does not count any more, and its name is free."""

    name: str
    author: str = "unknown"


def highest(roles: Iterable[Role]) -> RoleName:
    """The role of a list that may do most."""
    return max((each.role for each in roles), key=ROLES.index)


def role_text(role: Role) -> str:
    """A role as it is written: `submitter:ads,test`."""
    return f"{role.role}:{','.join(role.queues)}" if role.queues else role.role


def role_parts(text: str) -> tuple[str, list[str]]:
    """A role and its queues, as `role_text` writes them. Raises ValueError, which says what is wrong."""
    role, colon, queues = text.partition(":")
    if role not in ROLES:
        raise ValueError(f"has to be one of {', '.join(ROLES)}, like submitter:ads,test; is {role!r}")
    if colon and not queues:
        raise ValueError(f"{text!r} names no queue: write {role}:QUEUE, or {role} alone")
    return role, [each.strip() for each in queues.split(",")] if queues else []
