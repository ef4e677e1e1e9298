"""Who asks: the holder of a token, as the log knows it at this moment, or anybody where a cell is open.

A token is found by the SHA-256 of its text, so that how long looking takes says nothing about any token.
"""

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from largesse.token_text import may_be_token
from schemas import Role
from schemas.access import ROLES, RoleName, highest
from schemas.queue_tree import is_below
from services.gateway.access.sessions import Sessions
from services.gateway.view.state import State

if TYPE_CHECKING:  # It takes long to import what verifies them, and most gateways have no issuer.
    from services.gateway.access.jwts import Jwts

EVERYTHING = (Role("admin"),)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request. `token`: the name of the token, of a JWT its issuer, "" in an open cell; there `user` is
    whom the request names, "" where it names nobody.
    """

    user: str
    roles: tuple[Role, ...]
    token: str = ""
    sha256: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it holds a token: nobody else is who they say they are."""
        return bool(self.token)

    @property
    def role(self) -> RoleName:
        """The role that may do most."""
        return highest(self.roles)

    def may(self, role: RoleName) -> bool:
        """Whether it may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def queues(self) -> tuple[str, ...] | None:
        """The queues to which it may submit, with those below them; None: to all."""
        found: dict[str, bool] = {}
        for each in self.roles:
            if each.role != "viewer" and not each.queues:
                return None
            found |= dict.fromkeys(each.queues, True)
        return tuple(found)

    def may_use(self, queue: str) -> bool:
        """Whether it may submit to a queue."""
        paths = self.queues()
        return paths is None or any(is_below(queue, path) for path in paths)


# fmt: off
Fault = Literal[
    "malformed", "unknown", "expired",
    "too_large", "algorithm", "no_kid", "key", "signature", "issuer", "audience", "not_yet", "too_long", "user",
    "no_role", "no_keys",
]
# fmt: on
"""What is wrong with a token or a session. One that was revoked is as unknown as one that never was. The others are
those of JWTs; with the last two nothing is wrong but what the gateway knows of them."""


class Callers:
    """The holders of one cell's tokens. `state`: the cell as the log says now. `is_open`: whoever asks may do
    everything, whatever the log says. `issued`: JWTs count, too, and the cell is closed."""

    def __init__(
        self,
        state: Callable[[], State],
        *,
        is_open: bool = False,
        issued: "Jwts | None" = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._is_open = is_open
        self.issued = issued
        self._clock = clock
        self.sessions = Sessions(clock)

    @property
    def now_ms(self) -> int:
        """The time by which tokens expire: this machine's."""
        return int(self._clock() * 1_000)

    @property
    def is_open(self) -> bool:
        """Whether no token has ever been made, and there is no issuer: then everybody may do everything."""
        return self._is_open or (self.issued is None and not self._state().tokens_made)

    def by_token(self, text: str) -> Caller | Fault:
        """The holder of a token."""
        if not may_be_token(text):
            return "malformed"
        return self.by_hash(sha256(text.encode()).hexdigest())

    def by_session(self, text: str) -> Caller | Fault:
        """Who has signed in."""
        found = self.sessions.find(text)
        return "unknown" if found is None else self.by_hash(found)

    def by_hash(self, digest: str) -> Caller | Fault:
        """The holder of the token with this SHA-256, or of a JWT that was verified."""
        state = self._state()
        name = state.token_names.get(digest)
        if name is None:
            return "unknown" if self.issued is None else self.issued.by_hash(digest)
        row = state.tokens[name]
        if row.expires_ms is not None and row.expires_ms <= self.now_ms:
            return "expired"
        return Caller(row.user, tuple(row.roles), name, digest)

    def still_may(self, caller: Caller, role: RoleName) -> bool:
        """Whether who could ask before still can."""
        if not caller.is_known:
            return self.is_open
        found = self.by_hash(caller.sha256)
        return isinstance(found, Caller) and found.may(role)

    async def lasting(
        self, caller: Caller, role: RoleName, parts: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """The parts of a long answer as long as its reader may have them: each is checked before it goes."""
        try:
            async for part in parts:
                if not self.still_may(caller, role):
                    return
                yield part
        finally:
            await parts.aclose()


def may_submit(callers: Callers, caller: Caller, queue: str) -> bool:
    """Whether who was let in by one cell may submit to a queue of another: the same token, or JWT, counts there, and is
    the same user's; or that cell is open."""
    if callers.is_open:
        return True
    found = callers.by_hash(caller.sha256) if caller.sha256 else "unknown"
    return isinstance(found, Caller) and found.user == caller.user and found.may("submitter") and found.may_use(queue)
