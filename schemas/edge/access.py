"""The access topic: operators and the gateway make and revoke tokens (docs/security.md)."""

from typing import Annotated

from pydantic import Field

from schemas.access import ROLE_QUEUES_MAX, TOKEN_ROLES_MAX, Role, RoleName, TokenMade, TokenRevoked
from schemas.edge.base import Input, Malformed, Name, NewName, author_of, check_one_form
from schemas.edge.jobs import QueuePath, queue_path
from schemas.edge.validated import validated
from schemas.quantities import QUANTITY_MAX

SHA256_PATTERN = r"^[0-9a-f]{64}$"


class RoleInput(Input):
    """As `schemas.access.Role`."""

    role: RoleName
    queues: Annotated[list[QueuePath], Field(max_length=ROLE_QUEUES_MAX)] = []


class TokenRequest(Input):
    """A token to be made. `sha256`: of its text, which is nobody's but its holder's; `expires_ms` in Unix time."""

    name: NewName
    user: Name
    roles: Annotated[list[RoleInput], Field(min_length=1, max_length=TOKEN_ROLES_MAX)]
    sha256: Annotated[str, Field(pattern=SHA256_PATTERN)]
    expires_ms: Annotated[int, Field(ge=1, le=QUANTITY_MAX)] | None = None


class TokenRevocation(Input):
    """The token that is to count no more."""

    name: Name


class AccessInput(Input):
    """A message of the access topic: exactly one of its fields."""

    make: TokenRequest | None = None
    revoke: TokenRevocation | None = None


def read_access(document: object, author: str) -> TokenMade | TokenRevoked:
    """A message of the access topic. Raises Malformed."""
    message = validated(AccessInput, document)
    check_one_form(message)
    author = author_of(author)
    if message.revoke is not None:
        return TokenRevoked(message.revoke.name, author)
    assert message.make is not None
    asked = message.make
    for name in ("name", "user"):
        if not getattr(asked, name).isprintable():
            raise Malformed(f"make.{name}", "may hold no characters that cannot be seen")
    roles = [role_of(each, f"make.roles[{i}]") for i, each in enumerate(asked.roles)]
    return TokenMade(asked.name, asked.user, roles, asked.sha256, asked.expires_ms, author)


def role_of(asked: RoleInput, field: str) -> Role:
    """Raises Malformed."""
    if asked.queues and asked.role != "submitter":
        raise Malformed(f"{field}.queues", f"are only for the role submitter: {asked.role} is for the whole cell")
    queues = [queue_path(path, f"{field}.queues[{i}]") for i, path in enumerate(asked.queues)]
    return Role(asked.role, sorted(dict.fromkeys(queues)))
