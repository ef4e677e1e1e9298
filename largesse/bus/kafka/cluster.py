"""Which Kafka cluster, and as whom: `kafka://HOST:PORT[,HOST:PORT]`, `kafkas://` over TLS.

The user, its password and whose certificates count come from the environment, the same for whatever opens a bus
(Access). A password is sent over TLS only (SASL, SCRAM-SHA-512), and stands in a file that is read again for each
connection.
"""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from largesse.secret_file import SecretUnreadable, secret_in

USER, PASSWORD_FILE, CA_FILE = "LARGESSE_KAFKA_USER", "LARGESSE_KAFKA_PASSWORD_FILE", "LARGESSE_KAFKA_CA_FILE"
MECHANISM = "SCRAM-SHA-512"
PLAIN, TLS = "kafka://", "kafkas://"
SHAPE = "kafka[s]://HOST:PORT[,HOST:PORT]"

_BROKER = re.compile(r"(?:[^\s,:/@\[\]]+|\[[0-9a-fA-F:]+\]):\d{1,5}")
_USER = re.compile(r"[^\x00-\x1f\x7f-\x9f\s,=]+")


class BusUrlWrong(ValueError):
    """An address of a bus that cannot be used: says what would be right."""


class AccessWrong(BusUrlWrong):
    """A variable of Access that cannot be used: names it."""


@dataclass(frozen=True, slots=True)
class Access:
    """`user`: as whom one comes; empty: as nobody. `password_file`: that user's password. `ca_file`: whose certificates
    count, in place of those that the system trusts."""

    user: str = ""
    password_file: str = ""
    ca_file: str = ""


class Options(TypedDict):
    """Connecting, in aiokafka's words."""

    bootstrap_servers: str
    security_protocol: str
    ssl_context: NotRequired[ssl.SSLContext]
    sasl_mechanism: NotRequired[str]
    sasl_plain_username: NotRequired[str]
    sasl_plain_password: NotRequired["_Password"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`brokers`: `host:port[,host:port]`."""

    brokers: str
    is_tls: bool = False
    access: Access = field(default_factory=Access)

    @property
    def url(self) -> str:
        """Its address, as whoever wrote it knows it."""
        return f"{TLS if self.is_tls else PLAIN}{self.brokers}"

    @property
    def shown(self) -> str:
        """As `--bootstrap` takes it."""
        return self.url if self.is_tls else self.brokers

    @property
    def principal(self) -> str:
        """As whom the cluster knows this process."""
        return f"User:{self.access.user or 'ANONYMOUS'}"

    def checked(self) -> "Cluster":
        """This cluster, if all that it needs can be used and read. Raises AccessWrong."""
        user, password_file, ca_file = self.access.user, self.access.password_file, self.access.ca_file
        if not self.is_tls:
            given = [(name, text) for name, text in ((USER, user), (CA_FILE, ca_file)) if text]
            for name, text in given:
                raise AccessWrong(f"{name}={text}: is for a cluster over TLS: write {TLS} in place of {self.url}")
        if user and not _USER.fullmatch(user):
            raise AccessWrong(f"{USER}={user!r}: is no name of a user: no spaces, commas or equals signs")
        if user and not password_file:
            raise AccessWrong(f"{USER}={user}: its password is missing: {PASSWORD_FILE} names the file that holds it")
        if password_file and not user:
            raise AccessWrong(f"{PASSWORD_FILE}={password_file}: whose password is it? {USER} names the user")
        if password_file:
            _Password(password_file).read()
        self.options()
        return self

    def options(self) -> Options:
        """How to connect. Raises AccessWrong where the file of certificates cannot be read."""
        if not self.is_tls:
            return {"bootstrap_servers": self.brokers, "security_protocol": "PLAINTEXT"}
        options: Options = {
            "bootstrap_servers": self.brokers,
            "security_protocol": "SSL",
            "ssl_context": self._tls_context(),
        }
        if self.access.user:
            options["security_protocol"] = "SASL_SSL"
            options["sasl_mechanism"] = MECHANISM
            options["sasl_plain_username"] = self.access.user
            options["sasl_plain_password"] = _Password(self.access.password_file)
        return options

    def _tls_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.access.ca_file or None)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise AccessWrong(f"{CA_FILE}={self.access.ca_file}: no certificates can be read there: {why}") from None


class _Password:
    """Stands where aiokafka expects a text, which it encodes for each connection: the file is read then."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> str:
        """The password. Raises AccessWrong."""
        try:
            return secret_in(self._path)
        except SecretUnreadable as error:
            raise AccessWrong(f"{PASSWORD_FILE}: {error}") from None

    def encode(self, encoding: str) -> bytes:
        """As of a text. Raises OSError: aiokafka takes that for a connection that did not come about."""
        try:
            return self.read().encode(encoding)
        except AccessWrong as error:
            raise OSError(str(error)) from None


def access_of(environment: Mapping[str, str] | None = None) -> Access:
    """What an environment says, by default this process's."""
    environment = os.environ if environment is None else environment
    return Access(*(environment.get(name, "") for name in (USER, PASSWORD_FILE, CA_FILE)))


def is_cluster(url: str) -> bool:
    """Whether it is the address of a cluster, be it a right one or not."""
    return url.startswith((PLAIN, TLS))


def cluster_of(url: str, access: Access | None = None) -> Cluster:
    """The cluster at an address; `access`: the environment's, where none is given. Raises BusUrlWrong, AccessWrong."""
    scheme, found, brokers = url.partition("://")
    if not found or f"{scheme}://" not in (PLAIN, TLS):
        raise BusUrlWrong(f"{url!r} is no cluster: write {SHAPE}")
    brokers = brokers.removesuffix("/")
    for broker in brokers.split(","):
        if not _BROKER.fullmatch(broker):
            raise BusUrlWrong(f"{broker!r} is not a broker: write {SHAPE}")
    return Cluster(brokers, f"{scheme}://" == TLS, access_of() if access is None else access).checked()
