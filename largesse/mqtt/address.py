"""Where an MQTT broker is, and as whom one comes: `mqtt://[USER@]HOST[:PORT]`, `mqtts://` over TLS.

The password stands in a file of its own, never in the address, which is printed.
"""

import re
import ssl
from dataclasses import dataclass
from urllib.parse import unquote

from largesse.secret_file import SecretUnreadable, secret_in

PORT, TLS_PORT = 1883, 8883
PORT_MAX = 65_535
SHAPE = "mqtt[s]://[USER@]HOST[:PORT]"

_PLACE = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>.*))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class AddressWrong(ValueError):
    """An address of a broker, or what belongs to it, that cannot be used: says what would be right."""


@dataclass(frozen=True, slots=True)
class MqttAddress:
    """`user`: the name that its password belongs to; empty: none is given."""

    host: str
    port: int
    user: str = ""
    is_tls: bool = False

    @property
    def place(self) -> str:
        """The address without the user, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.is_tls else 'mqtt'}://{host}:{self.port}"

    def tls_context(self, ca_file: str = "") -> ssl.SSLContext | None:
        """Whose certificates count: those of the file, else the system's; None without TLS. Raises AddressWrong."""
        if not self.is_tls:
            if ca_file:
                raise AddressWrong(f"certificates are for TLS: write mqtts:// in place of {self.place}")
            return None
        try:
            return ssl.create_default_context(cafile=ca_file or None)
        except (OSError, ValueError) as error:
            raise AddressWrong(f"no certificates can be read from {ca_file}: {error}") from None


def read_address(url: str) -> MqttAddress:
    """The broker that a URL names. Raises AddressWrong, without the URL where that may hold a password."""
    kind, found, place = url.partition("://")
    if not found or kind not in ("mqtt", "mqtts"):
        raise AddressWrong(f"is no MQTT broker: write {SHAPE}")
    user, at, place = place.rpartition("@")
    if ":" in user:
        raise AddressWrong(f"holds a password: write {SHAPE}, and the password into a file")
    name = unquote(user)
    parts = _PLACE.fullmatch(place.removesuffix("/"))
    if parts is None:
        raise AddressWrong(f"has no host, or more than a host and a port: write {SHAPE}")
    port = parts["port"]
    if port is not None and not (re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= PORT_MAX):
        raise AddressWrong(f"has no port from 1 to {PORT_MAX} behind the colon: write {SHAPE}")
    if (at and not name) or _CONTROL.search(name) or "\ufffd" in name:
        raise AddressWrong(f"has no user before the @: write {SHAPE}")
    is_tls = kind == "mqtts"
    return MqttAddress(parts["host"].strip("[]"), int(port or (TLS_PORT if is_tls else PORT)), name, is_tls)


def read_password(address: MqttAddress, path: str) -> str:
    """What stands on the one line of a file. Raises AddressWrong, and never says what stands there."""
    if not address.user:
        raise AddressWrong(f"a password is given, but no user: write {SHAPE} with the user")
    try:
        return secret_in(path)
    except SecretUnreadable as error:
        raise AddressWrong(str(error)) from None
