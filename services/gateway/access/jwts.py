"""JWTs of an issuer: verified once, and then known by their SHA-256 until they expire or their key is withdrawn."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

import jwt

from largesse.token_text import JWT_CHARACTERS_MAX
from schemas.edge.base import NAME_MAX
from services.gateway.access.callers import Caller, Fault
from services.gateway.access.issuer import ALGORITHMS, Issuer
from services.gateway.access.oidc import Oidc, claim_of

LEEWAY_SECONDS = 30
"""By so much the clocks of issuer and gateway may differ."""
LIFETIME_SECONDS_MAX = 24 * 3_600
"""One that is valid for longer does not count: nobody can revoke it."""
KNOWN_MAX = 10_000
"""Verified JWTs that are remembered; beyond it those that were asked with least recently are verified again."""
TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""Of the header `typ`, in lower case: others, like that of a logout, let nobody in."""

_KNOWN_ALGORITHMS = frozenset(each for kind in ALGORITHMS.values() for each in kind)


@dataclass(frozen=True, slots=True)
class Known:
    """A JWT that was verified: whose it is, by which key, and until when, in seconds of Unix time."""

    caller: Caller
    key: tuple[str, str]
    signer: jwt.PyJWK
    until_s: float


class Jwts:
    """Those of one issuer. `clock`: Unix time."""

    def __init__(self, oidc: Oidc, issuer: Issuer, clock: Callable[[], float] = time.time) -> None:
        self._oidc, self.issuer, self._clock = oidc, issuer, clock
        self._known: dict[str, Known] = {}
        issuer.on_change = self._forget

    def by_hash(self, digest: str) -> Caller | Fault:
        """The holder of a JWT that has been verified."""
        found = self._known.get(digest)
        if found is None:
            return "unknown"
        if self.issuer.key(*found.key) is None:
            return "key"
        if found.until_s <= self._clock():
            return "expired"
        return found.caller

    async def look_up(self, text: str) -> Caller | Fault:
        """The holder of a JWT. Asks the issuer for keys where it names one that is not known."""
        if len(text) > JWT_CHARACTERS_MAX:
            return "too_large"
        digest = sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        if (known := self._known.pop(digest, None)) is not None:
            self._known[digest] = known  # The last to be forgotten.
            if known.until_s <= self._clock():
                return "expired"
            if self.issuer.key(*known.key) is not None:
                await self.issuer.wanted(*known.key)
                return self.by_hash(digest)
        return await self._verify(text, digest)

    async def _verify(self, text: str, digest: str) -> Caller | Fault:
        name = _key_name(text)
        if not isinstance(name, tuple):
            return name
        signer = await self.issuer.wanted(*name)
        if signer is None:
            return "key" if self.issuer.has_keys else "no_keys"
        claims = self._claims(text, signer)
        if not isinstance(claims, dict):
            return claims
        until_s = float(str(claims["exp"])) + LEEWAY_SECONDS
        if until_s - self._clock() > LIFETIME_SECONDS_MAX + 2 * LEEWAY_SECONDS:
            return "too_long"
        user, roles = claim_of(claims, self._oidc.user_claim), self._oidc.roles_of(claims)
        if not isinstance(user, str) or not 1 <= len(user) <= NAME_MAX or "/" in user or not user.isprintable():
            return "user"
        if not roles:
            return "no_role"
        caller = Caller(user, roles, self._oidc.issuer, digest)
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[digest] = Known(caller, name, signer, until_s)
        return caller

    def _claims(self, text: str, signer: jwt.PyJWK) -> dict[str, object] | Fault:
        try:
            found: dict[str, object] = jwt.decode(
                text,
                signer,
                algorithms=[signer.algorithm_name],
                audience=self._oidc.audience,
                issuer=self._oidc.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
            return found
        except jwt.ExpiredSignatureError:
            return "expired"
        except jwt.ImmatureSignatureError:
            return "not_yet"
        except jwt.InvalidIssuerError:
            return "issuer"
        except jwt.InvalidAudienceError:
            return "audience"
        except jwt.InvalidSignatureError:
            return "signature"
        except jwt.MissingRequiredClaimError as error:
            return "audience" if error.claim == "aud" else "issuer" if error.claim == "iss" else "malformed"
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError):
            return "malformed"

    def _forget(self) -> None:
        """The issuer's keys have been read again: what a withdrawn one has signed does not count any more."""
        now = self._clock()
        kept = {}
        for digest, each in self._known.items():
            signer = self.issuer.key(*each.key)
            if signer is not None and each.until_s > now and _is_same(signer, each.signer):
                kept[digest] = replace(each, signer=signer)
        self._known = kept


def _is_same(one: jwt.PyJWK, other: jwt.PyJWK) -> bool:
    same: bool = one.key == other.key
    return same


def _key_name(text: str) -> tuple[str, str] | Fault:
    """Which key is said to have signed, and how. Nothing else of the header counts."""
    try:
        header = jwt.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return "malformed"
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in _KNOWN_ALGORITHMS:
        return "algorithm"
    if "crit" in header or "b64" in header or (kind.lower() if isinstance(kind, str) else kind) not in TYPES:
        return "malformed"
    if not isinstance(kid, str) or not kid:
        return "no_kid"
    return kid, algorithm


async def begun(oidc: Oidc) -> Jwts:
    """The JWTs of an issuer that has been asked for its keys. Raises SettingWrong where it certainly is none."""
    found = Jwts(oidc, Issuer(oidc))
    await found.issuer.begin()
    return found
