"""JWTs of others, old ones, and forged ones."""

import time

import pytest

from services.gateway.access.jwts import LEEWAY_SECONDS, LIFETIME_SECONDS_MAX
from tests.attacks.gateway import attacked, said
from tests.attacks.listed import Attack, Target, check_names, ended, named
from tests.issuer import MADE, jwk_of
from tests.unit.test_oidc import b64, by_the_public_key_as_a_secret, header_of, raw, unsigned

TARGET = Target(
    "The gateway: JWTs of an issuer",
    "A gateway of a closed cell over HTTP, and an issuer. Counted is in `largesse_http_refused_total`.",
)


@pytest.fixture(scope="module")
def tried():
    with attacked() as found:
        yield found


def forged(name, reason, make):
    """`make`: the JWT, of the issuer's stub."""

    async def story(cell):
        assert (await cell.ask("GET", "/v1/jobs", authorization=f"Bearer {cell.stub.sign()}")).status == 200
        return said(await cell.ask("GET", "/v1/jobs", authorization=f"Bearer {make(cell.stub)}"))

    return Attack(name, story, "401 unauthenticated", f"token refused: {reason}", reason)


def with_head(**said_too):
    """A good one, with something else in its header."""

    def make(stub):
        head, body, signature = stub.sign().split(".")
        return f"{b64(header_of(head) | said_too)}.{body}.{signature}"

    return make


def swapped(stub):
    head, _, signature = stub.sign().split(".")
    return f"{head}.{stub.sign(roles=['admins']).split('.')[1]}.{signature}"


def with_own_key(stub):
    mine = MADE["ES256"]()
    head = {"jwk": jwk_of("k1", mine, "ES256"), "jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9/"}
    return stub.sign(key=mine, headers=head)


def later(seconds):
    return int(time.time()) + seconds


async def withdrawn(cell):
    """Signed by a key that the issuer takes back; the gateway reads its keys again."""
    cell.stub.add("old")
    text, issuer = cell.stub.sign(kid="old"), cell.served.callers.issued.issuer
    await issuer.begin()
    assert (await cell.ask("GET", "/v1/jobs", authorization=f"Bearer {text}")).status == 200
    cell.stub.withdraw("old")
    await issuer.begin()
    return said(await cell.ask("GET", "/v1/jobs", authorization=f"Bearer {text}"))


async def of_nobody(cell):
    return said(await cell.ask("GET", "/v1/jobs", authorization=f"Bearer {cell.stub.sign(roles=['strangers'])}"))


async def more_than_its_role(cell):
    text = cell.stub.sign(roles=["readers"], admin=True, role="admin", scope="admins")
    return said(await cell.ask("GET", "/v1/tokens", authorization=f"Bearer {text}"))


async def as_a_cookie(cell):
    return said(await cell.ask("GET", "/v1/jobs", cookie=f"largesse-session-{cell.served.port}={cell.stub.sign()}"))


ATTACKS = [
    forged("alg none", "algorithm", unsigned),
    forged("alg nOnE", "algorithm", lambda stub: with_head(alg="nOnE")(stub).rpartition(".")[0] + "."),
    forged(
        "HS256 with the public key (PEM) as the secret",
        "algorithm",
        lambda stub: by_the_public_key_as_a_secret(stub, "pem"),
    ),
    forged(
        "HS256 with the public key (JWK) as the secret",
        "algorithm",
        lambda stub: by_the_public_key_as_a_secret(stub, "jwk"),
    ),
    forged("no signature", "signature", lambda stub: stub.sign().rpartition(".")[0] + "."),
    forged("claims of another JWT under a good signature", "signature", swapped),
    forged("another issuer", "issuer", lambda stub: stub.sign(iss="https://evil.example")),
    forged("the issuer's address otherwise spelt", "issuer", lambda stub: stub.sign(iss=f"{stub.url}/")),
    forged("another audience", "audience", lambda stub: stub.sign(aud="other")),
    forged("no audience", "audience", lambda stub: stub.sign(aud=None)),
    forged("an expired JWT, replayed", "expired", lambda stub: stub.sign(exp=later(-LEEWAY_SECONDS - 5))),
    forged("a JWT without an end", "malformed", lambda stub: stub.sign(exp=None)),
    forged("a JWT for a year", "too_long", lambda stub: stub.sign(exp=later(365 * LIFETIME_SECONDS_MAX))),
    forged("a JWT of the future (nbf)", "not_yet", lambda stub: stub.sign(nbf=later(LEEWAY_SECONDS + 60))),
    forged("a JWT of the future (iat)", "not_yet", lambda stub: stub.sign(iat=later(LEEWAY_SECONDS + 60))),
    forged("kid missing", "no_kid", lambda stub: stub.sign(kid=None, key=stub.keys["k1"], algorithm="ES256")),
    forged("kid unknown", "key", with_head(kid="unheard-of")),
    forged("kid a path", "key", with_head(kid="../../../../dev/null")),
    forged("kid an address", "key", with_head(kid="http://127.0.0.1:9/keys")),
    forged("kid with SQL", "key", with_head(kid="x' UNION SELECT 'secret' --")),
    forged("a key of its own in the header (jwk, jku, x5u)", "signature", with_own_key),
    forged("an extension that has to be known (crit)", "malformed", with_head(crit=["x"], x=1)),
    forged("a deep header", "malformed", lambda _: b64(b'{"a":' + b"[" * 5_000) + ".a.b"),
    forged("deep claims", "malformed", lambda stub: raw(stub, b"[" * 3_000)),
    forged("10 kB of JWT", "too_large", lambda stub: stub.sign(more="x" * 7_500)),
    forged("a user's name with a line in it", "user", lambda stub: stub.sign(sub="ann\nroot")),
    forged("a user's name with a slash", "user", lambda stub: stub.sign(sub="ann/../root")),
    Attack("a key that was withdrawn", withdrawn, "401 unauthenticated", logged="token refused: key", counted="key"),
    Attack("a user of the issuer without a role here", of_nobody, "403 forbidden", counted="role"),
    Attack("roles in claims that are not the one for roles", more_than_its_role, "403 forbidden", counted="role"),
    Attack("a JWT as a cookie", as_a_cookie, "401 unauthenticated", logged="token refused: unknown", counted="unknown"),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tried, attack):
    assert ended(tried(attack)) == ended(attack)
