"""Which of several bridges serves a node: rendezvous hashing, so that one that comes or goes moves only its own part.

Pure. Two that see others at different moments may both serve a node for a while, or none: what both say is ordered by
the log, and what both append the sequencer takes once.
"""

from collections.abc import Iterable
from hashlib import sha256

ALIVE_MS = 15_000
"""A bridge that has not said for so long that it is there is gone, whatever the broker has kept of it."""


def serving(bridges: Iterable[str], node: str) -> str:
    """The one of these bridges, at least one, that serves the node."""
    return max(bridges, key=lambda bridge: (sha256(f"{bridge}\0{node}".encode()).digest(), bridge))


class Bridges:
    """Who is there, as one of them, `own`, hears it."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._heard_ms: dict[str, int] = {}
        self._dealt: dict[str, bool] = {}

    def hear(self, bridge: str, *, is_there: bool, now_ms: int) -> bool:
        """What one has said; whether it may change who serves what."""
        if bridge == self._own:
            return False
        if not is_there:
            gone = self._heard_ms.pop(bridge, None) is not None
            self._dealt.clear()
            return gone
        is_new = bridge not in self._heard_ms
        self._heard_ms[bridge] = now_ms
        if is_new:
            self._dealt.clear()
        return is_new

    def forget_silent(self, now_ms: int) -> list[str]:
        """Those that are gone without a word."""
        silent = [bridge for bridge, heard_ms in self._heard_ms.items() if now_ms - heard_ms > ALIVE_MS]
        for bridge in silent:
            del self._heard_ms[bridge]
        if silent:
            self._dealt.clear()
        return silent

    def serves(self, node: str) -> bool:
        """Whether a node is dealt to this one."""
        if not self._heard_ms:
            return True
        known = self._dealt.get(node)
        if known is None:
            known = serving([self._own, *self._heard_ms], node) == self._own
            if len(self._dealt) >= DEALT_MAX:
                self._dealt.clear()
            self._dealt[node] = known
        return known


DEALT_MAX = 100_000
"""Nodes whose bridges are remembered."""
