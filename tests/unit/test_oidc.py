"""JWTs of an issuer: which count, which do not and why, and what becomes of them as keys and clocks go on."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from contextlib import asynccontextmanager

import jwt
import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from largesse.settings import SettingWrong
from largesse.token_text import JWT_CHARACTERS_MAX, can_be_sent, is_jwt
from schemas import Role
from services.gateway.access import issuer as issuers
from services.gateway.access import jwts
from services.gateway.access.callers import Caller
from services.gateway.access.issuer import FRESH_SECONDS, KEPT_SECONDS, RETRY_SECONDS, RETRY_SECONDS_BARE, Issuer
from services.gateway.access.jwts import LEEWAY_SECONDS, LIFETIME_SECONDS_MAX, Jwts, begun
from services.gateway.access.oidc import claim_of, read_oidc
from tests.issuer import MADE, an_issuer, jwk_of
from tests.tls_files import tls_files

DATA = (Role("submitter", ["ads", "lab"]),)
GUARD_S = 60


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


class Known:
    """JWTs of a stub. `clock`: of its keys; `wall`: Unix time."""

    def __init__(self, stub, **more):
        self.stub, self.clock, self.wall = stub, Clock(1_000.0), Clock(time.time())
        oidc = read_oidc(stub.env | more)
        self.jwts = Jwts(oidc, Issuer(oidc, self.clock), self.wall)

    async def __call__(self, text):
        return await self.jwts.look_up(text)

    async def settle(self):
        """Waits for keys that are read beside."""
        if (reading := self.jwts.issuer._refreshing) is not None:
            await reading


def run(story, *, env=None, **keys):
    """Runs a story with the JWTs of an issuer whose keys have been read."""

    async def told(stub):
        async with asyncio.timeout(GUARD_S):
            known = Known(stub, **(env or {}))
            await known.jwts.issuer.begin()
            return await story(stub, known)

    with an_issuer(**keys) as stub:
        return asyncio.run(told(stub))


def fault_of(make, **given):
    """What is wrong with the JWT that `make` makes, beside one that counts."""

    async def story(stub, known):
        assert isinstance(await known(stub.sign()), Caller)
        found = make(stub)
        return await known(found)

    return run(story, **given)


# ---------------------------------------------------------------- which count
@pytest.mark.parametrize("algorithm", MADE)
def test_a_jwt_says_who_asks_and_with_which_roles(algorithm):
    async def story(stub, known):
        return await known(stub.sign())

    found = run(story, k1=algorithm)
    assert (found.user, found.roles, found.is_known) == ("ann", DATA, True)
    assert found.token.startswith("http://127.0.0.1:")


def test_claims_may_have_other_names_and_lie_deeper():
    async def story(stub, known):
        return await known(stub.sign(email="bob@example.org", realm={"roles": ["ops", "readers", "strangers"]}))

    env = {"LARGESSE_OIDC_USER_CLAIM": "email", "LARGESSE_OIDC_ROLES_CLAIM": "realm.roles"}
    found = run(story, env=env)
    assert (found.user, [each.role for each in found.roles]) == ("bob@example.org", ["operator", "viewer"])


@pytest.mark.parametrize(
    ("claims", "name", "value"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"https://x.example/roles": 1}, "https://x.example/roles", 1),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
        ({"a": 1}, "a.b", None),
        ({}, "a", None),
    ],
)
def test_a_claim_is_found_by_its_name_or_by_a_path(claims, name, value):
    assert claim_of(claims, name) == value


@pytest.mark.parametrize(
    ("said", "roles"),
    [
        pytest.param(["readers"], ["viewer"], id="a list"),
        pytest.param("readers ops", ["operator", "viewer"], id="a text, as a scope is"),
        pytest.param([{"readers": 1}, 7, None], ["no_role"], id="a list of something else"),
        pytest.param({"readers": True}, ["no_role"], id="an object"),
        pytest.param("reader", ["no_role"], id="a beginning"),
        pytest.param(None, ["no_role"], id="nothing"),
    ],
)
def test_roles_are_those_that_the_setting_gives_for_what_a_claim_says(said, roles):
    async def story(stub, known):
        found = await known(stub.sign(roles=said))
        return [each.role for each in found.roles] if isinstance(found, Caller) else [found]

    assert run(story) == roles


def test_everybody_of_an_issuer_may_get_a_role():
    async def story(stub, known):
        return await known(stub.sign(roles=None))

    assert run(story, env={"LARGESSE_OIDC_ROLES": "*=viewer"}).roles == (Role("viewer"),)


# ---------------------------------------------------------------- which do not
def unsigned(stub):
    head, body, _ = stub.sign().split(".")
    return f"{b64(header_of(head) | {'alg': 'none'})}.{body}."


def b64(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def header_of(head):
    return json.loads(base64.urlsafe_b64decode(head + "=="))


def by_the_public_key_as_a_secret(stub, form):
    """As if the public key, which everybody knows, were a secret that issuer and gateway share."""
    public = stub.keys["k1"].public_key()
    if form == "jwk":
        secret = json.dumps(jwk_of("k1", stub.keys["k1"], stub.algorithms["k1"])).encode()
    else:
        secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signed = f"{b64({'alg': 'HS256', 'kid': 'k1', 'typ': 'JWT'})}.{b64(stub.claims())}"
    return f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def test_alg_none_is_refused():
    assert fault_of(unsigned) == "algorithm"


@pytest.mark.parametrize("spelt", ["None", "NONE", "nOnE", "", None, 7, ["none"]])
def test_alg_none_in_other_letters_is_refused(spelt):
    def make(stub):
        head, body, _ = stub.sign().split(".")
        return f"{b64(header_of(head) | {'alg': spelt})}.{body}."

    assert fault_of(make) in ("algorithm", "malformed")


@pytest.mark.parametrize("form", ["pem", "jwk"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_hs256_with_the_public_key_is_refused(algorithm, form):
    assert fault_of(lambda stub: by_the_public_key_as_a_secret(stub, form), k1=algorithm) == "algorithm"


def test_a_shared_key_among_those_of_the_issuer_signs_nothing():
    secret = b"0123456789abcdef0123456789abcdef"

    async def story(stub, known):
        stub.more = [{"kty": "oct", "kid": "s", "k": b64(secret), "alg": "HS256"}]
        await known.jwts.issuer.begin()
        return await known(stub.sign(kid="s", key=secret, algorithm="HS256"))

    assert run(story) == "algorithm"


def test_another_issuer_is_refused():
    assert fault_of(lambda stub: stub.sign(iss="https://evil.example")) == "issuer"
    assert fault_of(lambda stub: stub.sign(iss=stub.url + "/")) == "issuer"
    assert fault_of(lambda stub: stub.sign(iss=None)) == "issuer"


def test_a_jwt_of_another_issuer_with_its_own_key_is_refused():
    assert fault_of(lambda stub: stub.sign(kid="k1", key=MADE["ES256"](), algorithm="ES256")) == "signature"
    assert fault_of(lambda stub: stub.sign(kid="x", key=MADE["ES256"](), algorithm="ES256")) == "key"


@pytest.mark.parametrize(
    "said", ["other", ["other", "another"], None, "", [], 7, {"largesse": 1}, "largesse-2", ["Largesse"]]
)
def test_another_audience_is_refused(said):
    def make(stub):
        return raw(stub, stub.claims() | {"aud": said})

    assert fault_of(make) == "audience"


def raw(stub, claims, head=None):
    """A JWT with whatever claims, signed as it should be."""
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return jwt.api_jws.encode(payload, stub.keys["k1"], stub.algorithms["k1"], headers={"kid": "k1"} | (head or {}))


def test_one_of_several_audiences_will_do():
    async def story(stub, known):
        return await known(stub.sign(aud=["other", "largesse"]))

    assert run(story).user == "ann"


def test_an_expired_one_is_refused():
    now = int(time.time())
    assert fault_of(lambda stub: stub.sign(exp=now - LEEWAY_SECONDS - 5)) == "expired"
    assert fault_of(lambda stub: stub.sign(exp=0)) == "expired"


@pytest.mark.parametrize("said", [None, "soon", True, []])
def test_one_that_never_expires_is_refused(said):
    def make(stub):
        claims = {name: value for name, value in (stub.claims() | {"exp": said}).items() if value is not None}
        return raw(stub, claims)

    assert fault_of(make) in ("malformed", "expired")


@pytest.mark.parametrize(
    "said", [lambda: time.time() + LIFETIME_SECONDS_MAX + 90, lambda: 10**12, lambda: 1e300, lambda: "9" * 400]
)
def test_one_that_is_valid_for_longer_than_a_day_is_refused(said):
    assert fault_of(lambda stub: raw(stub, stub.claims(exp=said()))) == "too_long"


def test_a_day_is_not_too_long():
    async def story(stub, known):
        return await known(stub.sign(exp=int(time.time()) + LIFETIME_SECONDS_MAX))

    assert run(story).user == "ann"


def test_one_that_is_not_valid_yet_is_refused():
    later = int(time.time()) + LEEWAY_SECONDS + 60
    assert fault_of(lambda stub: stub.sign(nbf=later)) == "not_yet"
    assert fault_of(lambda stub: stub.sign(iat=later)) == "not_yet"


def test_clocks_may_differ_a_little():
    now = int(time.time())

    async def story(stub, known):
        return [await known(stub.sign(nbf=now + 10, iat=now + 10)), await known(stub.sign(exp=now - 10))]

    assert [each.user for each in run(story)] == ["ann", "ann"]


def test_one_that_names_no_key_is_refused():
    assert fault_of(lambda stub: stub.sign(kid=None, key=stub.keys["k1"], algorithm="ES256")) == "no_kid"


@pytest.mark.parametrize("kid", ["", 7, None, ["k1"], {"k1": 1}])
def test_a_key_is_named_by_a_text(kid):
    def make(stub):
        head, body, signature = stub.sign().split(".")
        return f"{b64(header_of(head) | {'kid': kid})}.{body}.{signature}"

    assert fault_of(make) in ("no_kid", "malformed")


def test_a_huge_one_is_not_looked_at():
    assert fault_of(lambda stub: stub.sign(more="x" * JWT_CHARACTERS_MAX)) == "too_large"
    assert fault_of(lambda stub: "eyJ" + "x" * 10_000_000 + ".x.x") == "too_large"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda stub: stub.sign()[:-2], id="cut off"),
        pytest.param(lambda stub: stub.sign().rpartition(".")[0] + ".", id="without a signature"),
        pytest.param(lambda stub: "eyJ.eyJ.eyJ", id="nothing in it"),
        pytest.param(lambda stub: "eyJhbGciOiJFUzI1NiJ9..", id="no claims"),
        pytest.param(lambda stub: b64(b"{" * 3_000) + ".a.b", id="no JSON"),
        pytest.param(lambda stub: b64(b'{"a":' + b"[" * 5_000) + ".a.b", id="a deep header"),
        pytest.param(lambda stub: raw(stub, b"[1]"), id="claims that are a list"),
        pytest.param(lambda stub: raw(stub, b"\xff\xfe"), id="claims that are no text"),
        pytest.param(lambda stub: raw(stub, b"[" * 3_000), id="deep claims"),
        pytest.param(lambda stub: stub.sign(headers={"crit": ["x"], "x": 1}), id="an extension that has to be known"),
        pytest.param(lambda stub: stub.sign(headers={"typ": "logout+jwt"}), id="a goodbye"),
        pytest.param(lambda stub: stub.sign().replace("eyJ", "eyJ\udc80", 1), id="no ASCII"),
        pytest.param(lambda stub: stub.sign(sub=7), id="a subject that is no text"),
    ],
)
def test_what_cannot_be_read_is_refused(make):
    assert fault_of(make) in ("malformed", "signature", "algorithm", "no_kid")


def test_the_claims_of_another_jwt_are_refused():
    def make(stub):
        head, _, signature = stub.sign().split(".")
        return f"{head}.{stub.sign(roles=['admins']).split('.')[1]}.{signature}"

    assert fault_of(make) == "signature"


def test_a_key_or_its_address_in_the_jwt_itself_does_not_count():
    mine = MADE["ES256"]()

    def make(stub):
        head = {"jwk": jwk_of("k1", mine, "ES256"), "jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9/"}
        return stub.sign(key=mine, headers=head)

    assert fault_of(make) == "signature"


@pytest.mark.parametrize("user", ["", "a/b", "a\nb", "x" * 254, "a\u202eb"])
def test_a_user_has_a_name_that_records_can_have(user):
    assert fault_of(lambda stub: stub.sign(sub=user)) == "user"


@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
def test_a_weak_or_foreign_key_of_the_issuer_is_passed_over():
    weak = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)

    async def story(stub, known):
        key = MADE["RS256"]()
        stub.more = [
            jwk_of("weak", weak, "RS256"),
            jwk_of("enc", key, "RS256", use="enc"),
            {**jwk_of("bad", key, "RS256"), "n": "!!"},
            {"kty": "unheard of", "kid": "u"},
            "nonsense",
        ]
        await known.jwts.issuer.begin()
        found = []
        for kid, signer in (("weak", weak), ("enc", key), ("bad", key)):
            found.append(await known(stub.sign(kid=kid, key=signer, algorithm="RS256")))
        return found, (await known(stub.sign())).user

    assert run(story) == (["key"] * 3, "ann")


# ---------------------------------------------------------------- keys and clocks that go on
def test_a_verified_one_is_looked_up_and_not_verified_again(monkeypatch):
    verified = []
    decode = jwt.decode
    monkeypatch.setattr(jwts.jwt, "decode", lambda *args, **more: verified.append(1) or decode(*args, **more))

    async def story(stub, known):
        text = stub.sign()
        found = [(await known(text)).user for _ in range(5)]
        return found, len(verified), stub.asked

    assert run(story) == (["ann"] * 5, 1, ["/.well-known/openid-configuration", "/keys"])


def test_a_verified_one_ends_when_it_expires():
    async def story(stub, known):
        text = stub.sign()
        caller = await known(text)
        known.wall.now += 600 + LEEWAY_SECONDS + 1
        return await known(text), known.jwts.by_hash(caller.sha256)

    assert run(story) == ("expired", "expired")


def test_a_new_key_is_asked_for_when_somebody_comes_with_it():
    async def story(stub, known):
        stub.add("k2", "RS256")
        text = stub.sign(kid="k2")
        first = await known(text)  # The keys were read just now.
        known.clock.now += RETRY_SECONDS
        return first, (await known(text)).user, (await known(stub.sign())).user

    assert run(story) == ("key", "ann", "ann")


def test_a_flood_of_unknown_keys_asks_the_issuer_once_a_while():
    async def story(stub, known):
        known.clock.now += RETRY_SECONDS
        key = MADE["ES256"]()
        texts = [stub.sign(kid=f"x{number}", key=key, algorithm="ES256") for number in range(50)]
        found = await asyncio.gather(*map(known, texts))
        return set(found), stub.asked.count("/keys")

    assert run(story) == ({"key"}, 2)


def test_what_a_withdrawn_key_has_signed_does_not_count_any_more():
    async def story(stub, known):
        stub.add("k2")
        text = stub.sign()
        caller = await known(text)
        stub.withdraw("k1")
        known.clock.now += FRESH_SECONDS
        before = await known(text)  # It goes on while the keys are read beside.
        await known.settle()
        return before.user, await known(text), known.jwts.by_hash(caller.sha256)

    assert run(story) == ("ann", "key", "unknown")


def test_a_key_that_has_changed_under_its_id_ends_what_the_old_one_signed():
    async def story(stub, known):
        text = stub.sign()
        assert isinstance(await known(text), Caller)
        stub.add("k1")
        known.clock.now += FRESH_SECONDS
        await known(text)
        await known.settle()
        return await known(text), (await known(stub.sign())).user

    assert run(story) == ("signature", "ann")


def test_keys_of_an_issuer_that_is_down_go_on_for_a_day():
    async def story(stub, known):
        text = stub.sign()
        stub.fails = True
        found = []
        for age_s in (FRESH_SECONDS, KEPT_SECONDS - 1, KEPT_SECONDS):
            known.clock.now = 1_000.0 + age_s
            found.append(await known(text))
            found.append(await known(stub.sign(jti=str(age_s))))
            await known.settle()
        stub.fails = False
        known.clock.now += RETRY_SECONDS_BARE
        return found, (await known(text)).user

    found, again = run(story)
    assert [each.user for each in found[:4]] == ["ann"] * 4
    assert (found[4:], again) == (["no_keys", "no_keys"], "ann")


def test_an_issuer_that_is_down_at_the_start_is_logged_and_asked_again():
    async def story(stub, known):
        text = stub.sign()
        first = await known(text)
        stub.fails = False
        second = await known(text)
        known.clock.now += RETRY_SECONDS_BARE
        return first, second, (await known(text)).user

    async def told(stub):
        stub.fails = True
        known = Known(stub)
        await known.jwts.issuer.begin()
        return await story(stub, known)

    with an_issuer() as stub, structlog.testing.capture_logs() as logged:
        assert asyncio.run(told(stub)) == ("no_keys", "no_keys", "ann")
    assert logged[0]["error"] == f"{stub.url}/.well-known/openid-configuration answers 500"


def test_only_the_last_ones_are_remembered(monkeypatch):
    monkeypatch.setattr(jwts, "KNOWN_MAX", 3)

    async def story(stub, known):
        texts = [stub.sign(jti=str(number)) for number in range(4)]
        callers = [await known(text) for text in texts[:3]]
        await known(texts[0])  # The least recently used one gives way.
        await known(texts[3])
        return [isinstance(known.jwts.by_hash(each.sha256), Caller) for each in callers]

    assert run(story) == [True, False, True]


# ---------------------------------------------------------------- the start
ISSUER, AUDIENCE = "LARGESSE_OIDC_ISSUER", "LARGESSE_OIDC_AUDIENCE"
GOOD = {ISSUER: "https://id.example", AUDIENCE: "largesse", "LARGESSE_OIDC_ROLES": "a=viewer"}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({ISSUER: ""}, "LARGESSE_OIDC_AUDIENCE=largesse: there is no issuer: set LARGESSE_OIDC_ISSUER, too"),
        ({AUDIENCE: ""}, "LARGESSE_OIDC_ISSUER=https://id.example: also needs LARGESSE_OIDC_AUDIENCE, like largesse"),
        ({"LARGESSE_OIDC_ROLES": ""}, "also needs LARGESSE_OIDC_ROLES, like cell-admins=admin; "),
        ({ISSUER: "http://id.example"}, "keys that came over plain HTTP would be anybody's: write https://"),
        ({ISSUER: "id.example"}, "is no address of an issuer: write https://HOST[/PATH]"),
        ({ISSUER: "https://id.example:x"}, "is no address of an issuer: write https://HOST[/PATH]"),
        ({"LARGESSE_OIDC_ROLES": "admins"}, "LARGESSE_OIDC_ROLES: 'admins': write VALUE=ROLE, like cell-admins=admin"),
        ({"LARGESSE_OIDC_ROLES": "=admin"}, "LARGESSE_OIDC_ROLES: '=admin': write VALUE=ROLE"),
        ({"LARGESSE_OIDC_ROLES": "a=root"}, "the role has to be one of viewer, submitter, operator, admin"),
        ({"LARGESSE_OIDC_ROLES": "a=submitter:"}, "names no queue: write submitter:QUEUE, or submitter alone"),
        ({"LARGESSE_OIDC_ROLES": "a=viewer:ads"}, "are only for the role submitter: viewer is for the whole cell"),
        ({"LARGESSE_OIDC_ROLES": "a=submitter:x//y"}, 'has an empty name in it: write names joined by "/"'),
        ({"LARGESSE_OIDC_ROLES": ";"}, "names no role: write VALUE=ROLE"),
    ],
)
def test_settings_that_cannot_be_used_are_told(more, text):
    with pytest.raises(SettingWrong) as caught:
        read_oidc(GOOD | more)
    assert text in str(caught.value)


def test_without_an_issuer_there_are_no_jwts():
    assert read_oidc({}) is None


def test_a_value_may_hold_an_equals_sign_and_have_several_roles():
    oidc = read_oidc(GOOD | {"LARGESSE_OIDC_ROLES": "cn=data, ou=x=submitter:ads ,lab; cn=data, ou=x=viewer;"})
    assert oidc.roles == {"cn=data, ou=x": (*DATA, Role("viewer"))}


@asynccontextmanager
async def _guarded():
    async with asyncio.timeout(GUARD_S):
        yield


def start_of(stub, **more):
    """What the first question to an issuer raises."""

    async def told():
        async with _guarded():
            await begun(read_oidc(stub.env | more))

    with pytest.raises(SettingWrong) as caught:
        asyncio.run(told())
    return str(caught.value)


@pytest.mark.parametrize(
    ("discovery", "text"),
    [
        ({"issuer": "https://other.example"}, "what answers there calls itself 'https://other.example': write it so"),
        ({"jwks_uri": None}, "names no `jwks_uri`, so no keys"),
        ({"jwks_uri": "http://keys.example/"}, "keys that came over plain HTTP would be anybody's"),
        ({"jwks_uri": "/keys"}, "is no address of an issuer"),
    ],
)
def test_what_is_certainly_not_the_issuer_ends_the_start(discovery, text):
    with an_issuer() as stub:
        stub.discovery = discovery
        assert text in start_of(stub)


def test_an_address_where_there_is_no_issuer_ends_the_start():
    with an_issuer() as stub:
        said = start_of(stub, LARGESSE_OIDC_ISSUER=stub.url + "/realms/x")
    where = f"{stub.url}/realms/x/.well-known/openid-configuration"
    assert said == f"LARGESSE_OIDC_ISSUER: {where} answers 404: check the address"


def test_an_issuer_over_tls_is_believed_by_its_authority_alone(tmp_path):
    files = tls_files(tmp_path / "tls")

    async def told(stub, **more):
        async with _guarded():
            return await (await begun(read_oidc(stub.env | more))).look_up(stub.sign())

    with an_issuer(tls=files.serving()) as stub, structlog.testing.capture_logs() as logged:
        believed = asyncio.run(told(stub, LARGESSE_OIDC_CA_FILE=str(files.ca)))
        other = asyncio.run(told(stub))
    assert (believed.user, other) == ("ann", "no_keys")
    assert "CERTIFICATE_VERIFY_FAILED" in logged[0]["error"]


@pytest.mark.parametrize(("text", "why"), [(None, "it cannot be read: No such file"), ("x", "has no certificates")])
def test_a_file_of_authorities_that_cannot_be_used_is_told(tmp_path, text, why):
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingWrong) as caught:
        Issuer(read_oidc(GOOD | {"LARGESSE_OIDC_CA_FILE": str(path)}))
    assert f"LARGESSE_OIDC_CA_FILE={path}: {why}" in str(caught.value)


def test_an_endless_answer_of_an_issuer_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(issuers, "ANSWER_BYTES_MAX", 1_000)

    async def told(stub):
        stub.discovery = {"more": "x" * 2_000}
        return await (await begun(read_oidc(stub.env))).look_up(stub.sign())

    with an_issuer() as stub, structlog.testing.capture_logs() as logged:
        assert asyncio.run(told(stub)) == "no_keys"
    assert "answers with more than 1000 bytes" in logged[0]["error"]


@pytest.mark.parametrize(
    ("text", "is_one", "may_go"),
    [
        ("eyJhbGciOiJFUzI1NiJ9.eyJ9.sig", True, True),
        ("eyJ" + "x" * JWT_CHARACTERS_MAX + ".b.c", True, False),
        ("eyJhbGciOiJFUzI1NiJ9.b c.d", True, False),
        ("lgt_0123", False, True),
        ("x" * 513, False, False),
        ("a.b.c", False, True),
        ("", False, False),
    ],
)
def test_a_jwt_is_told_from_a_token_by_its_form(text, is_one, may_go):
    assert (is_jwt(text), can_be_sent(text)) == (is_one, may_go)
