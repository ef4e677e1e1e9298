"""What was found, and what helps."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warn", "bad", "unknown"]
LEVELS: tuple[Level, ...] = ("bad", "warn", "unknown", "ok")
"""The worst first. `bad`: work stands still, or can be lost; `unknown`: it could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`area`: what was looked at; `text`: what was found; `remedy`: what to do, where something is wrong."""

    area: str
    level: Level
    text: str
    remedy: str = ""

    def document(self) -> dict[str, str]:
        """As programs get it."""
        return asdict(self)


Findings = Iterator[Finding]


def judged(area: str, amount: float, warn: float, bad: float, text: str, remedy: str) -> Finding:
    """A measure that should be small: from `warn` and from `bad` on it is worth a word."""
    level: Level = "bad" if amount >= bad else "warn" if amount >= warn else "ok"
    return Finding(area, level, text, "" if level == "ok" else remedy)
