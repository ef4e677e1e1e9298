"""Superseded body versions and the function that lifts each one to the next."""

from collections.abc import Callable

from schemas.registry import NEWEST

LIFTS: dict[tuple[str, int], Callable[[dict[str, object]], dict[str, object]]] = {}
"""(type, version) -> the document of version + 1. Empty while every body is at version 1."""


def lift(kind: str, version: int, document: dict[str, object]) -> dict[str, object]:
    """The document in its newest version. Raises KeyError for a type or version that nobody ever released."""
    newest = NEWEST[kind].version
    if not 1 <= version <= newest:
        raise KeyError(f"{kind} has no version {version}; the newest is {newest}")
    while version < newest:
        document = LIFTS[kind, version](document)
        version += 1
    return document
