"""Failed attempts to be let in, by address: who fails too often is answered so for a while."""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

FAILURES_MAX = 10
WINDOW_S = 60
"""How often an address may fail within how many seconds."""

ADDRESSES_MAX = 10_000
"""Addresses that are remembered; beyond it the oldest are forgotten."""

IPV6_PREFIX = 64
"""Of an IPv6 address: one household or host can have all that share it."""


@dataclass(slots=True)
class Window:
    """Failures of one address since `begun`, in seconds."""

    begun: float
    count: int = 0


@dataclass(slots=True)
class Failures:
    """Those of one gateway, the address whose window begins first at the front."""

    clock: Callable[[], float]
    seen: dict[str, Window] = field(default_factory=dict)

    def note(self, address: str) -> tuple[int, float]:
        """Another failure: the how manyth it is in its window, and how many seconds of that are left."""
        now, key = self.clock(), _network(address)
        window = self.seen.get(key)
        if window is None or now - window.begun >= WINDOW_S:
            self.seen.pop(key, None)
            if len(self.seen) >= ADDRESSES_MAX:
                del self.seen[next(iter(self.seen))]
            window = self.seen[key] = Window(now)
        window.count += 1
        return window.count, window.begun + WINDOW_S - now


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return ""  # A socket of this machine, or a test.
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(ip_network((found, IPV6_PREFIX), strict=False))
    return str(found)
