"""Sessions of browsers: a cookie stands for a token, so that the page does not have to keep the token itself.

What a cookie holds is drawn at random, and only its SHA-256 is kept, in memory: a gateway that starts again asks its
readers to sign in again.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

SESSION_S = 12 * 3_600
"""So long a session lasts at most; it ends before with its token."""

SESSIONS_MAX = 10_000
"""Beyond it the oldest end."""

COOKIE_CHARACTERS = 43
"""32 random bytes, in base64."""


@dataclass(frozen=True, slots=True)
class Session:
    """The token that it stands for, by SHA-256, and until when, in seconds of Unix time."""

    token: str
    until_s: float


@dataclass(slots=True)
class Sessions:
    """All of one gateway, by the SHA-256 of their cookies, the oldest first."""

    clock: Callable[[], float]
    open: dict[str, Session] = field(default_factory=dict)

    def begin(self, token: str) -> str:
        """A session for a token, by its SHA-256; the text of its cookie."""
        now = self.clock()
        self.open = {key: each for key, each in self.open.items() if each.until_s > now}
        while len(self.open) >= SESSIONS_MAX:
            del self.open[next(iter(self.open))]
        text = secrets.token_urlsafe(32)
        self.open[_key(text)] = Session(token, now + SESSION_S)
        return text

    def find(self, text: str) -> str | None:
        """The SHA-256 of the token that a cookie stands for; None: for none."""
        if len(text) != COOKIE_CHARACTERS or not text.isascii():
            return None
        found = self.open.get(_key(text))
        return None if found is None or found.until_s <= self.clock() else found.token

    def end(self, text: str) -> None:
        """Signs out."""
        self.open.pop(_key(text), None)


def _key(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
