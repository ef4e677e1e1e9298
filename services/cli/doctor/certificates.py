"""Certificates and secrets whose files the environment names: do they hold, for how long, for which names, and who else
reads them; and the one that a gateway shows."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from largesse.known_variables import PREFIX
from largesse.secret_file import exposed
from largesse.settings import SettingWrong
from largesse.tls import FileOf, Pair, first_end, names_of, read_pair
from services.cli.doctor.findings import Finding, Findings
from services.cli.ending import Wrong

SOON_DAYS = 21
"""What renews certificates does so a month before their end, as a rule."""
ASK_SECONDS = 5
PAIRS = (("TLS_CERT_FILE", "TLS_KEY_FILE"), ("PEER_CERT_FILE", "PEER_KEY_FILE"))
AUTHORITIES = ("PEER_CA_FILE", "CA_FILE", "KAFKA_CA_FILE", "MQTT_CA_FILE", "OIDC_CA_FILE")
SECRETS = ("TOKEN_FILE", "KAFKA_PASSWORD_FILE", "MQTT_PASSWORD_FILE")
RENEW = "whatever renews it has to write the two files; services follow them without a restart"


def of_certificates(environment: Mapping[str, str], now: datetime | None = None) -> Findings:
    """All that the environment names; nothing where it names none."""
    now = now or datetime.now(UTC)
    for names in PAIRS:
        yield from _pair(environment, *names, now)
    for name in AUTHORITIES:
        if path := environment.get(PREFIX + name):
            yield from _ending(FileOf(PREFIX + name, path), now)
    for name in SECRETS:
        if path := environment.get(PREFIX + name):
            yield _secret(FileOf(PREFIX + name, path))


def _pair(environment: Mapping[str, str], certificate: str, key: str, now: datetime) -> Findings:
    try:
        pair = read_pair(certificate, key, environment)
        if pair is None:
            return
        pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), now)
    except SettingWrong as why:
        yield Finding(
            "certificates", "bad", str(why), "a service with it does not start; one that runs goes on without"
        )
        return
    yield from _ending(pair.certificate, now)
    yield from _names(pair, environment, certificate)


def _ending(file: FileOf, now: datetime) -> Findings:
    """When the first certificate of a file that ends does."""
    try:
        yield _judged(str(file), first_end(file), now)
    except SettingWrong as why:
        yield Finding("certificates", "bad", str(why), "name a file with certificates in PEM, that this user may read")


def _judged(what: str, until: datetime, now: datetime) -> Finding:
    days = (until - now).days
    text = f"{what}: it holds until {until:%Y-%m-%d}"
    if until <= now:
        return Finding("certificates", "bad", f"{what}: it expired on {until:%Y-%m-%d}", RENEW)
    if days < SOON_DAYS:
        return Finding("certificates", "warn", f"{text}, for {days} days more", RENEW)
    return Finding("certificates", "ok", text)


def _names(pair: Pair, environment: Mapping[str, str], certificate: str) -> Findings:
    """Whether it is for the names under which this process is asked, so far as the environment says them."""
    has = names_of(pair.certificate)
    for name, source in _asked_as(environment, certificate):
        if not any(_matches(name, each) for each in has):
            remedy = "have it made for that name, too" + (
                f", or set {PREFIX}PEER_NAME" if "PEER" in certificate else ""
            )
            text = f"{pair.certificate}: it is for {', '.join(has) or 'no name'}, and not for {name} ({source})"
            yield Finding("certificates", "warn", text, remedy)


def _asked_as(environment: Mapping[str, str], certificate: str) -> Iterator[tuple[str, str]]:
    """Names, and what says each."""
    if certificate == "PEER_CERT_FILE":
        if name := environment.get(f"{PREFIX}PEER_NAME"):
            yield name, f"{PREFIX}PEER_NAME"
        elif advertised := environment.get(f"{PREFIX}ADVERTISE"):
            yield advertised.removeprefix("https://").rpartition(":")[0].strip("[]"), f"{PREFIX}ADVERTISE"
        return
    for name in filter(None, (each.strip() for each in environment.get(f"{PREFIX}HTTP_HOSTS", "").split(","))):
        yield name, f"{PREFIX}HTTP_HOSTS"


def _matches(name: str, pattern: str) -> bool:
    """A `*` stands for one step of a name, the first."""
    if pattern.startswith("*."):
        return name.lower().partition(".")[2] == pattern[2:]
    return name.lower() == pattern


def _secret(file: FileOf) -> Finding:
    try:
        mode = Path(file.path).stat().st_mode
        file.read()
    except SettingWrong as why:
        return Finding("secrets", "bad", str(why), "name a file that this user may read")
    except OSError as error:
        return Finding("secrets", "bad", f"{file}: {error.strerror}", "name a file that there is")
    if fault := exposed(mode, file.path):
        return Finding("secrets", "bad", f"{file}: {fault}", "it is refused as long as that is so")
    return Finding("secrets", "ok", f"{file}: it is not for everybody")


def of_gateways_certificate(url: str | None, now: datetime | None = None) -> Findings:
    """What the gateway shows; nothing where it speaks no TLS, or is not believed, which another finding says. `url`: of
    the option."""
    from services.cli.client import gateway_url
    from services.cli.trust import trusted

    said, source = gateway_url(url)
    address = urlsplit(said)
    if address.scheme != "https" or address.hostname is None:
        return
    with suppress(OSError, Wrong, ValueError):
        trust = trusted(source)
        context = trust if isinstance(trust, ssl.SSLContext) else ssl.create_default_context()
        place = (address.hostname, address.port or 443)
        with (
            socket.create_connection(place, ASK_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=address.hostname) as secured,
        ):
            shown = secured.getpeercert() or {}
        until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
        yield _judged(f"the certificate of {said}", until, now or datetime.now(UTC))
