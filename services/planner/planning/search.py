"""Searches that can be stopped after any small step and gone on with later."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Search = Generator[None, None, T]
"""Yields after every small step; its value is what it found."""


def finished(search: "Search[T]") -> T:
    """Runs a search to its end."""
    try:
        while True:
            next(search)
    except StopIteration as end:
        found: T = end.value
        return found
