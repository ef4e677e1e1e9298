"""Whose JWTs count, from the environment: the issuer, for whom they are made, and what their claims mean here."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from largesse.hosts import is_loopback
from largesse.settings import PREFIX, SettingWrong
from schemas import Role
from schemas.access import TOKEN_ROLES_MAX, role_parts
from schemas.edge.access import RoleInput, role_of
from schemas.edge.read import Malformed
from schemas.edge.validated import validated

VARIABLES = {
    "OIDC_ISSUER": ("none", "https:// address of an OpenID Connect issuer whose JWTs count beside tokens"),
    "OIDC_AUDIENCE": (
        "none",
        "whom its JWTs have to be made for (`aud`): the name of this cell's gateway at the issuer",
    ),
    "OIDC_USER_CLAIM": ("sub", "claim with the user's name"),
    "OIDC_ROLES_CLAIM": ("roles", "claim with what OIDC_ROLES goes by, like roles or realm_access.roles"),
    "OIDC_ROLES": ("none", "roles by value of that claim: VALUE=ROLE, `;` between; VALUE `*`: everybody"),
    "OIDC_CA_FILE": ("the system's", "file with the authorities that may sign the issuer's certificate"),
}
"""By name without the prefix: default and what it is."""

EVERYBODY = "*"
_EXAMPLE = "cell-admins=admin; data=submitter:ads,lab; *=viewer"


@dataclass(frozen=True, slots=True)
class Oidc:
    """An issuer, and what its JWTs have to say. `roles`: by value of the claim."""

    issuer: str
    audience: str
    user_claim: str = "sub"
    roles_claim: str = "roles"
    roles: dict[str, tuple[Role, ...]] = field(default_factory=dict)
    ca_file: str = ""

    def roles_of(self, claims: Mapping[str, object]) -> tuple[Role, ...]:
        """What the holder of these claims may do: all that any value of the claim gives."""
        said = _values(claim_of(claims, self.roles_claim))
        found = [each for value, roles in self.roles.items() if value == EVERYBODY or value in said for each in roles]
        return tuple(found)


def read_oidc(environment: Mapping[str, str] | None = None) -> Oidc | None:
    """The issuer of the environment; None: there is none. Raises SettingWrong."""
    environment = os.environ if environment is None else environment
    said = {name: environment.get(f"{PREFIX}{name}", "") for name in VARIABLES}
    issuer = said["OIDC_ISSUER"]
    if not issuer:
        for name in VARIABLES:
            if said[name]:
                raise SettingWrong(f"{PREFIX}{name}={said[name]}: there is no issuer: set {PREFIX}OIDC_ISSUER, too")
        return None
    check_url(issuer, f"{PREFIX}OIDC_ISSUER={issuer}")
    for name, example in (("OIDC_AUDIENCE", "largesse"), ("OIDC_ROLES", _EXAMPLE)):
        if not said[name]:
            raise SettingWrong(f"{PREFIX}OIDC_ISSUER={issuer}: also needs {PREFIX}{name}, like {example}")
    return Oidc(
        issuer,
        said["OIDC_AUDIENCE"],
        said["OIDC_USER_CLAIM"] or VARIABLES["OIDC_USER_CLAIM"][0],
        said["OIDC_ROLES_CLAIM"] or VARIABLES["OIDC_ROLES_CLAIM"][0],
        _roles(said["OIDC_ROLES"]),
        said["OIDC_CA_FILE"],
    )


def check_url(url: str, source: str) -> None:
    """Raises SettingWrong for an address whose answers could be anybody's."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or parts.scheme not in ("http", "https") or parts.fragment:
        raise SettingWrong(f"{source}: is no address of an issuer: write https://HOST[/PATH]")
    if parts.scheme != "https" and not is_loopback(host):
        raise SettingWrong(f"{source}: keys that came over plain HTTP would be anybody's: write https://")


def claim_of(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name, or one within another by a path with dots; None: there is none."""
    if name in claims:
        return claims[name]
    found: object = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _values(claim: object) -> frozenset[str]:
    """A list of texts, or one text with spaces between them, as `scope` has it."""
    if isinstance(claim, str):
        return frozenset({claim, *claim.split()})
    return frozenset(each for each in claim if isinstance(each, str)) if isinstance(claim, list) else frozenset()


def _roles(text: str) -> dict[str, tuple[Role, ...]]:
    """Raises SettingWrong."""
    found: dict[str, tuple[Role, ...]] = {}
    for entry in filter(None, (each.strip() for each in text.split(";"))):
        value, equals, role = (part.strip() for part in entry.rpartition("="))
        source = f"{PREFIX}OIDC_ROLES: {entry!r}"
        if not equals or not value:
            raise SettingWrong(f"{source}: write VALUE=ROLE, like {_EXAMPLE}")
        found[value] = (*found.get(value, ()), _role(role, source))
    if not found:
        raise SettingWrong(f"{PREFIX}OIDC_ROLES={text}: names no role: write VALUE=ROLE, like {_EXAMPLE}")
    if any(len(each) > TOKEN_ROLES_MAX for each in found.values()):
        raise SettingWrong(f"{PREFIX}OIDC_ROLES: a value has more than {TOKEN_ROLES_MAX} roles")
    return found


def _role(text: str, source: str) -> Role:
    try:
        role, queues = role_parts(text)
    except ValueError as error:
        raise SettingWrong(f"{source}: the role {error}") from None
    try:
        return role_of(validated(RoleInput, {"role": role, "queues": queues}), "")
    except Malformed as fault:
        raise SettingWrong(f"{source}: {fault.reason}") from None
