"""An OpenID Connect issuer on a port of this machine, and the JWTs that it makes."""

import json
import time
from contextlib import contextmanager

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.unit.stub_server import respond, serving

AUDIENCE = "largesse"
ROLES = "admins=admin; ops=operator; data=submitter:ads,lab; readers=viewer"
MADE = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65_537, key_size=2_048),
    "PS256": lambda: rsa.generate_private_key(public_exponent=65_537, key_size=2_048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
_AS_JWK = {"RS256": RSAAlgorithm, "PS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def jwk_of(kid, key, algorithm, **more):
    found = json.loads(_AS_JWK[algorithm].to_jwk(key.public_key()))
    return {**found, "kid": kid, "use": "sig", "alg": algorithm, **more}


class Stub:
    """What the issuer answers. `asked`: paths, in order. `fails`: it answers 500."""

    def __init__(self):
        self.url, self.asked, self.fails, self.keys = "", [], False, {}
        self.algorithms, self.more, self.discovery = {}, [], {}

    def add(self, kid, algorithm="ES256", key=None):
        self.keys[kid], self.algorithms[kid] = key or MADE[algorithm](), algorithm

    def withdraw(self, kid):
        del self.keys[kid]

    @property
    def jwks(self):
        return {"keys": [*self.more, *(jwk_of(kid, key, self.algorithms[kid]) for kid, key in self.keys.items())]}

    def __call__(self, request, _):
        self.asked.append(request.path)
        found = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.discovery,
            "/keys": self.jwks,
        }.get(request.path)
        status = 500 if self.fails else 404 if found is None else 200
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        respond(request, status, {"Content-Type": "application/json"}, body)

    def claims(self, **more):
        now = int(time.time())
        found = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, "roles": ["data"]}
        return {name: value for name, value in (found | more).items() if value is not None}

    def sign(self, *, kid="k1", key=None, algorithm=None, headers=None, **claims):
        """A JWT; `kid` None: without."""
        key, algorithm = key or self.keys[kid], algorithm or self.algorithms[kid]
        head = ({} if kid is None else {"kid": kid}) | (headers or {})
        return jwt.encode(self.claims(**claims), key, algorithm, headers=head)

    @property
    def env(self):
        return {
            "LARGESSE_OIDC_ISSUER": self.url,
            "LARGESSE_OIDC_AUDIENCE": AUDIENCE,
            "LARGESSE_OIDC_ROLES": ROLES,
        }


@contextmanager
def an_issuer(*, tls=None, **keys):
    """`keys`: algorithms by id; by default one."""
    stub = Stub()
    for kid, algorithm in (keys or {"k1": "ES256"}).items():
        stub.add(kid, algorithm)
    with serving(stub, tls=tls) as stub.url:
        yield stub
