"""Who may ask over HTTP: requests for a name that is this server's own, and none from other sites' pages in a browser.

A page whose name its owner points at this machine (DNS rebinding) is sent by the browser as if it came from here; only
the Host header gives it away. Names can be pointed anywhere, addresses cannot. What a page of another origin sends
carries Origin or Sec-Fetch-Site, and is refused. Programs send neither, and are taken at their word.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

HOSTS_VARIABLE = "LARGESSE_HTTP_HOSTS"
LOOPBACK_NAMES = ("localhost", "::1")
"""Beside all addresses 127.x.x.x."""

_OWN_PAGES = f"only pages of this server's own names may, and {HOSTS_VARIABLE} lists more of them"
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]*)(?::[0-9]*)?")


def is_loopback(address: str) -> bool:
    """Whether an address, or the name of one, is reached from this machine alone."""
    if address.lower() == "localhost":
        return True
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return found.is_loopback or (mapped is not None and mapped.is_loopback)


def is_loopback_name(host: str) -> bool:
    """Whether a Host header, with a port or without, names this machine to itself."""
    found = _AUTHORITY.fullmatch(host.strip().lower())
    return found is not None and is_loopback(found[1].strip("[]"))


def is_host_name(host: str) -> bool:
    """Whether a Host header names a host, without a port, that is no address and not this machine to itself."""
    if _NAME.fullmatch(name := host.strip().lower()) is None or name == "localhost" or name.endswith(".localhost"):
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False


class HostsWrong(ValueError):
    """A list of host names that cannot be used: says which entry, and what would be right."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names of one server. `names`: lower case, addresses without brackets. `any_address`: it listens to all
    addresses of the machine, so a request for any address may be meant for it."""

    names: tuple[str, ...]
    any_address: bool = False

    def refusal(self, host: str | None, origin: str | None = None, site: str | None = None) -> str:
        """Why a request with these headers is refused; empty: it is not. `host`: Host, None where it has none, as in
        HTTP/1.0. `site`: Sec-Fetch-Site."""
        if host is not None and not self.has(host):
            return f"{host[:200] or 'an empty Host'} is no name of this server: list it in {HOSTS_VARIABLE}"
        if origin is not None and origin.lower().partition("://")[2] != (host or "").lower():
            return f"pages of {origin[:200]} may not ask here; {_OWN_PAGES}"
        if site is not None and site.strip().lower() == "cross-site":
            return f"pages of other sites may not ask here; {_OWN_PAGES}"
        return ""

    def has(self, host: str) -> bool:
        """Whether a Host header, with a port or without, names this server."""
        found = _AUTHORITY.fullmatch(host.strip().lower())
        if found is None:
            return False
        name = found[1].strip("[]").rstrip(".")
        if name in self.names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return self.any_address or (address.version == 4 and address.is_loopback)


def hosts_of(bound: str, listed: str = "", more: Iterable[str] = ()) -> Hosts:
    """The names of a server that listens at `bound`: the loopback names, that address, the machine's own name, what is
    `listed` (commas between) and `more`. Raises HostsWrong."""
    names = [*LOOPBACK_NAMES, socket.gethostname().lower(), *more]
    for entry in listed.split(","):
        if name := entry.strip().lower():
            names.append(_checked(name))
    everywhere = False
    try:
        everywhere = ip_address(bound).is_unspecified
    except ValueError:
        everywhere = not bound
    if not everywhere:
        names.append(bound.lower())
    return Hosts(tuple(dict.fromkeys(names)), any_address=everywhere)


def _checked(name: str) -> str:
    name = name.strip("[]").rstrip(".")
    try:
        return str(ip_address(name))
    except ValueError:
        if _NAME.fullmatch(name) is None:
            raise HostsWrong(
                f'"{name}" is no host name: write names or addresses without port, commas between'
            ) from None
    return name
