"""What is wrong with a request as somebody wrote it, and where."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a document, both from 1."""

    line: int
    column: int


class BadDocument(Exception):
    """A request that cannot be read. The message begins with line and column, and says what would be right."""

    def __init__(self, spot: Spot, reason: str) -> None:
        self.spot = spot
        self.reason = reason
        super().__init__(f"line {spot.line}, column {spot.column}: {reason}")
