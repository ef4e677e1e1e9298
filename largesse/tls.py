"""TLS from files: who this process is, and followed when the files change, so that certificates are renewed without a
restart.

A pair that cannot be used ends the start, with what is wrong and what helps. One that comes later is logged, and the
one before it goes on.
"""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from largesse.secret_file import exposed
from largesse.settings import PREFIX, Settings, SettingWrong
from largesse.telemetry import CERTIFICATE_EXPIRES, logger

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

LOOK_SECONDS = 1
"""So often at most the files are looked at; a connection that begins asks for it."""
FILE_BYTES_MAX = 1 << 20

_PEM = "-----BEGIN "
_DATES = "%Y-%m-%d %H:%M UTC"


class CertificateWrong(SettingWrong):
    """Files of TLS that cannot be used: names the variable, what is wrong, and what helps."""


@dataclass(frozen=True, slots=True)
class FileOf:
    """A file that a variable names."""

    variable: str
    path: str

    def __str__(self) -> str:
        return f"{self.variable}={self.path}"

    def read(self) -> bytes:
        """What it holds. Raises CertificateWrong."""
        try:
            with Path(self.path).open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            raise CertificateWrong(f"{self}: there is no such file: name one that there is") from None
        except PermissionError:
            text = "it cannot be read: let the user of this process read it"
            raise CertificateWrong(f"{self}: {text} (`chown`, `chmod`)") from None
        except OSError as error:
            raise CertificateWrong(f"{self}: it cannot be read: {error.strerror or error}") from None
        if len(data) > FILE_BYTES_MAX:
            raise CertificateWrong(f"{self}: it is larger than {FILE_BYTES_MAX} bytes")
        return data

    def state(self) -> tuple[int, ...]:
        """What is another once the file is."""
        try:
            found = Path(self.path).stat()
        except OSError:
            return ()
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)

    def check_private(self) -> None:
        """Raises CertificateWrong where everybody may read it."""
        try:
            fault = exposed(Path(self.path).stat().st_mode, self.path)
        except OSError:
            return  # Reading it says why.
        if fault:
            raise CertificateWrong(f"{self}: {fault}")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate, with those between it and its root, and its private key; both in PEM."""

    certificate: FileOf
    key: FileOf

    def state(self) -> tuple[object, ...]:
        """What is another once one of the files is."""
        return self.certificate.state(), self.key.state()

    def load_into(self, context: ssl.SSLContext, now: datetime) -> datetime:
        """Has a context show the certificate; returns when that expires. Raises CertificateWrong."""
        until = _until(self.certificate, now)
        text = _text(self.key, "PRIVATE KEY")
        self.key.check_private()
        if "ENCRYPTED" in text:
            helps = "write it without (`openssl pkey -in FILE -out NEW`)"
            raise CertificateWrong(f"{self.key}: the key has a passphrase, which nobody can enter here: {helps}")
        try:
            context.load_cert_chain(self.certificate.path, self.key.path, password=_no_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                text = f"it is not the key of the certificate in {self.certificate}: name the two that belong together"
            else:
                text = f"it cannot be used with {self.certificate}: {error.reason or error}"
            raise CertificateWrong(f"{self.key}: {text}") from None
        except OSError as error:  # It has gone meanwhile.
            raise CertificateWrong(f"{self.key}: it cannot be read: {error.strerror or error}") from None
        return until


def read_pair(certificate: str, key: str, environment: Mapping[str, str] | None = None) -> Pair | None:
    """The pair that two variables name; None: neither is set. Raises SettingWrong where one alone is."""
    environment = os.environ if environment is None else environment
    return pair_of(*(FileOf(f"{PREFIX}{name}", environment.get(f"{PREFIX}{name}", "")) for name in (certificate, key)))


def pair_of(certificate: FileOf, key: FileOf) -> Pair | None:
    """The pair of two files; None: neither is named. Raises SettingWrong where one alone is."""
    pair = Pair(certificate, key)
    if not pair.certificate.path and not pair.key.path:
        return None
    for missing, there in ((pair.certificate, pair.key), (pair.key, pair.certificate)):
        if not missing.path:
            raise SettingWrong(f"{there}: a certificate and its key go together: set {missing.variable}, too")
    return pair


class Followed:
    """A context that is made of files, and made again once they have changed."""

    def __init__(
        self,
        make: Callable[[datetime], ssl.SSLContext],
        state: Callable[[], object],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._make, self._state, self._clock = make, state, clock
        self._seen = state()  # Before they are read: what changes meanwhile is seen at the next look.
        self._looked = clock()
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        """As the files have it by now, or had it when they could last be used."""
        now = self._clock()
        if 0 <= now - self._looked < LOOK_SECONDS:
            return self._context
        self._looked, state = now, self._state()
        if state != self._seen:
            self._seen = state
            try:
                self._context = self._made()
                logger().info("the files of TLS have changed, and count from now on")
            except CertificateWrong as why:
                logger().warning("new files of TLS cannot be used: those before them go on", error=str(why))
        return self._context

    def _made(self) -> ssl.SSLContext:
        return self._make(datetime.fromtimestamp(self._clock(), UTC))


class ServerTls(ssl.SSLContext):
    """What asyncio makes a connection of a server with: each begins with the files as they are by then."""

    _followed: Followed

    def __new__(cls, followed: Followed) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._followed = followed
        return made

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As every context does."""
        return self._followed.context().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def server_tls(pair: Pair, ca: FileOf | None = None, *, clock: Callable[[], float] = time.time) -> ServerTls:
    """For a server with this certificate, TLS 1.2 or later. `ca`: clients have to show a certificate of these
    authorities. Raises CertificateWrong."""

    def make(now: datetime) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        until = pair.load_into(context, now)
        CERTIFICATE_EXPIRES.labels(pair.certificate.path).set(until.timestamp())
        if ca is not None:
            _trust(context, ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    return ServerTls(Followed(make, lambda: (pair.state(), ca and ca.state()), clock=clock))


@dataclass(frozen=True, slots=True)
class Peers:
    """TLS among services and agents. `server`: for the port of this process; None: it serves HTTP. `client`: with what
    it asks others. `is_mutual`: nobody is asked, or answered, without a certificate of the authorities. `name`: for
    which the certificates of those are that it asks; "": for the host at which it asks."""

    server: ServerTls | None
    client: Followed
    is_mutual: bool
    name: str = ""


def read_peers(settings: Settings) -> Peers | None:
    """As the settings have it; None: there is no TLS among them. Raises SettingWrong."""
    certificate, key, ca = (
        FileOf(f"{PREFIX}{name.upper()}", getattr(settings, name))
        for name in ("peer_cert_file", "peer_key_file", "peer_ca_file")
    )
    pair = pair_of(certificate, key)
    name = settings.peer_name
    if name and not ca.path:
        # Of the system's authorities anybody gets a certificate for some name.
        raise SettingWrong(f"{PREFIX}PEER_NAME={name}: is for an authority of the cell's own: set {ca.variable}, too")
    if pair is None and not ca.path:
        return None
    if pair is None and settings.metrics_port:
        text = (
            f"a port that asks others for a certificate needs one: set {certificate.variable} and {key.variable}, too"
        )
        raise SettingWrong(f"{ca}: {text}")
    authorities = ca if ca.path else None
    return Peers(
        None if pair is None else server_tls(pair, authorities),
        client_tls(pair, authorities),
        authorities is not None,
        name,
    )


def client_tls(pair: Pair | None, ca: FileOf | None) -> Followed:
    """For who asks servers whose certificates are of these authorities, by default the system's. `pair`: what it shows
    of itself. Raises CertificateWrong."""

    def make(now: datetime) -> ssl.SSLContext:
        context = ssl.create_default_context() if ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if ca is not None:
            _trust(context, ca)
        if pair is not None:
            pair.load_into(context, now)
        return context

    return Followed(make, lambda: (pair and pair.state(), ca and ca.state()))


def _trust(context: ssl.SSLContext, ca: FileOf) -> None:
    _text(ca, "CERTIFICATE")
    try:
        context.load_verify_locations(ca.path)
    except OSError as error:
        raise CertificateWrong(f"{ca}: it cannot be read as certificates: {error}") from None


def first_end(file: FileOf) -> datetime:
    """When the certificate of a file that ends first does. Raises CertificateWrong."""
    return min(each.not_valid_after_utc for each in _certificates(file))


def names_of(file: FileOf) -> list[str]:
    """Host names and addresses for which the first certificate of a file is, in lower case. Raises CertificateWrong."""
    from cryptography import x509

    try:
        said = _certificates(file)[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(each) for each in said.get_values_for_type(x509.IPAddress)]
    return sorted([*(each.lower() for each in said.get_values_for_type(x509.DNSName)), *addresses])


def _certificates(file: FileOf) -> "list[Certificate]":
    """At least one. Raises CertificateWrong."""
    from cryptography import x509  # Takes a while, and most processes have no certificate.

    text = _text(file, "CERTIFICATE")
    try:
        return x509.load_pem_x509_certificates(text.encode("latin-1"))
    except ValueError as error:
        raise CertificateWrong(f"{file}: it cannot be read as certificates: {error}") from None


def _until(file: FileOf, now: datetime) -> datetime:
    """When the first certificate of a file expires. Raises CertificateWrong, also where it does not hold now."""
    first = _certificates(file)[0]
    until, since = first.not_valid_after_utc, first.not_valid_before_utc
    if until <= now:
        helps = "put a new one in its place (and its key)"
        raise CertificateWrong(f"{file}: the certificate expired on {until.strftime(_DATES)}: {helps}")
    if since > now:
        text = f"the certificate is not valid before {since.strftime(_DATES)}"
        raise CertificateWrong(f"{file}: {text}: check the clock of this machine, or wait")
    return until


def _text(file: FileOf, kind: str) -> str:
    """What a file holds, in which there is something of a kind. Raises CertificateWrong."""
    text = file.read().decode("latin-1")
    if not any(line.startswith(_PEM) and line.rstrip().endswith(f"{kind}-----") for line in text.splitlines()):
        other = "; it has a private key: the two files are swapped?" if "PRIVATE KEY-----" in text else ""
        other = "; it has certificates: the two files are swapped?" if "CERTIFICATE-----" in text else other
        raise CertificateWrong(f"{file}: has no {kind} in PEM, a block that begins with {_PEM}...{other}")
    return text


def _no_passphrase() -> str:
    """Otherwise OpenSSL asks for it on the terminal."""
    return ""
