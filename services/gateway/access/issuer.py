"""The keys of an issuer: found by its discovery document, kept, and asked for again when they change.

A key that is not known is asked for at once, but not more often than every RETRY_SECONDS, so that nobody can have the
issuer flooded. An issuer that is down takes nothing from who holds a JWT: its last keys count for KEPT_SECONDS more.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import jwt

from largesse.settings import PREFIX, SettingWrong
from largesse.telemetry import logger
from services.gateway.access.oidc import Oidc, check_url

WELL_KNOWN = "/.well-known/openid-configuration"
FRESH_SECONDS = 3_600
"""Older keys are asked for again, while they still count: one that the issuer has withdrawn ends then."""
KEPT_SECONDS = 24 * 3_600
"""Keys of an issuer that does not answer count for so long."""
RETRY_SECONDS = 30
"""Between two questions at least; RETRY_SECONDS_BARE while there are no keys at all."""
RETRY_SECONDS_BARE = 5
ANSWER_SECONDS = 5
ANSWER_BYTES_MAX = 1 << 20
KEYS_MAX = 100
RSA_BITS_MIN = 2_048

ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By kind of key, how it may sign. A key that is shared, not a pair, signs nothing here, and neither does none."""


class IssuerSilent(Exception):
    """The issuer does not answer, or not as it should for the moment: says why."""


@dataclass(slots=True)
class Keys:
    """Public keys by id and algorithm. `since_s`: when they were read."""

    since_s: float
    by_id: dict[tuple[str, str], jwt.PyJWK] = field(default_factory=dict)


class Issuer:
    """Where keys come from. `clock`: seconds that only go on."""

    def __init__(self, oidc: Oidc, clock: Callable[[], float] = time.monotonic) -> None:
        self._oidc, self._clock = oidc, clock
        self._tls = _trusted(oidc.ca_file)
        self._keys: Keys | None = None
        self._asked_s: float | None = None
        self._asking = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self.on_change: Callable[[], None] = lambda: None

    def key(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        """A key that is known and counts; None: it is not."""
        keys = self._keys
        if keys is None or self._age_s() >= KEPT_SECONDS:
            return None
        return keys.by_id.get((kid, algorithm))

    @property
    def has_keys(self) -> bool:
        """Whether any count."""
        return self._keys is not None and self._age_s() < KEPT_SECONDS

    async def begin(self) -> None:
        """Asks for keys once. Raises SettingWrong; an issuer that is silent is logged, and asked again later."""
        try:
            await self._read()
        except IssuerSilent as why:
            self._log(why, "it is asked again when somebody comes with a JWT")

    async def wanted(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        """A key, asked for where it is not known, unless that was done just now; None: the issuer has none."""
        found = self.key(kid, algorithm)
        if found is not None:
            if self._age_s() >= FRESH_SECONDS and self._may_ask() and self._refreshing is None:
                self._refreshing = asyncio.ensure_future(self._refresh())
            return found
        async with self._asking:  # Who waited here finds what the first one brought.
            if self.key(kid, algorithm) is None and self._may_ask():
                await self._try()
        return self.key(kid, algorithm)

    async def _refresh(self) -> None:
        try:
            async with self._asking:
                await self._try()
        finally:
            self._refreshing = None

    async def _try(self) -> None:
        try:
            await self._read()
        except (IssuerSilent, SettingWrong) as why:
            goes_on = f"its keys go on for {(KEPT_SECONDS - self._age_s()) / 3_600:.1f} h" if self.has_keys else ""
            self._log(why, goes_on or "no JWT counts")

    def _may_ask(self) -> bool:
        pause_s = RETRY_SECONDS if self.has_keys else RETRY_SECONDS_BARE
        return self._asked_s is None or self._clock() - self._asked_s >= pause_s

    def _age_s(self) -> float:
        return self._clock() - self._keys.since_s if self._keys is not None else 0

    def _log(self, why: Exception, goes_on: str) -> None:
        logger(service="gateway").warning(
            "keys of the OIDC issuer cannot be read", issuer=self._oidc.issuer, error=str(why), then=goes_on
        )

    async def _read(self) -> None:
        """Raises IssuerSilent, SettingWrong."""
        self._asked_s, issuer = self._clock(), self._oidc.issuer
        times = httpx.Timeout(ANSWER_SECONDS)
        async with httpx.AsyncClient(timeout=times, verify=self._tls, follow_redirects=False) as client:
            found = await _document(client, issuer.rstrip("/") + WELL_KNOWN)
            said, where = found.get("issuer"), found.get("jwks_uri")
            variable = f"{PREFIX}OIDC_ISSUER={issuer}"
            if said != issuer:
                raise SettingWrong(f"{variable}: what answers there calls itself {said!r}: write it so, or another one")
            if not isinstance(where, str):
                raise SettingWrong(f"{variable}: its {WELL_KNOWN} names no `jwks_uri`, so no keys")
            check_url(where, f"{variable}: its `jwks_uri` {where}")
            if issuer.startswith("https:") and not where.startswith("https:"):
                raise SettingWrong(f"{variable}: its `jwks_uri` {where} is not https://")
            listed = (await _document(client, where)).get("keys")
        keys = Keys(self._clock(), _keys_in(listed))
        if not keys.by_id:
            raise IssuerSilent(f"{where} has no public key with an id that could be used")
        self._keys = keys
        self.on_change()


def _trusted(ca_file: str) -> ssl.SSLContext:
    """Raises SettingWrong."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except ssl.SSLError:
        raise SettingWrong(f"{PREFIX}OIDC_CA_FILE={ca_file}: has no certificates in PEM") from None
    except OSError as error:
        raise SettingWrong(f"{PREFIX}OIDC_CA_FILE={ca_file}: it cannot be read: {error.strerror}") from None


async def _document(client: httpx.AsyncClient, url: str) -> dict[str, object]:
    """A JSON object. Raises IssuerSilent, and SettingWrong where there certainly is none."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS), client.stream("GET", url) as response:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise IssuerSilent(f"{url} answers with more than {ANSWER_BYTES_MAX} bytes")
    except (httpx.TimeoutException, TimeoutError):
        raise IssuerSilent(f"no answer from {url} within {ANSWER_SECONDS} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise IssuerSilent(f"no answer from {url}: {str(error) or type(error).__name__}") from None
    if response.is_redirect or response.is_client_error:
        raise SettingWrong(f"{PREFIX}OIDC_ISSUER: {url} answers {response.status_code}: check the address")
    if not response.is_success:
        raise IssuerSilent(f"{url} answers {response.status_code}")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SettingWrong(f"{PREFIX}OIDC_ISSUER: {url} answers with something else than a JSON object")
    return found


def _keys_in(listed: object) -> dict[tuple[str, str], jwt.PyJWK]:
    """The keys of a list that can be used: others may be for other purposes."""
    found: dict[tuple[str, str], jwt.PyJWK] = {}
    for each in listed[:KEYS_MAX] if isinstance(listed, list) else []:
        if not isinstance(each, dict) or not isinstance(kid := each.get("kid"), str) or each.get("use", "sig") != "sig":
            continue
        kind, only = each.get("kty"), each.get("alg")
        for algorithm in ALGORITHMS.get(kind, ()) if isinstance(kind, str) else ():
            if only in (None, algorithm):
                try:
                    key = jwt.PyJWK(each, algorithm)
                except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                    continue
                if kind != "RSA" or key.key.key_size >= RSA_BITS_MIN:
                    found[kid, algorithm] = key
    return found
