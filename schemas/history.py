"""Superseded body versions and the function that lifts each one to the next."""

from collections.abc import Callable

from schemas.registry import NEWEST


def _classes_by_index(document: dict[str, object]) -> dict[str, object]:
    """JobAdmitted 2: the class is an index; version 1 knew two words."""
    return {**document, "job_class": ("small", "large").index(str(document["job_class"]))}


LIFTS: dict[tuple[str, int], Callable[[dict[str, object]], dict[str, object]]] = {
    ("JobAdmitted", 1): _classes_by_index,
}
"""(type, version) -> the document of version + 1."""


def lift(kind: str, version: int, document: dict[str, object]) -> dict[str, object]:
    """The document in its newest version. Raises KeyError for a type or version that was never released."""
    newest = NEWEST[kind].version
    if not 1 <= version <= newest:
        raise KeyError(f"{kind} has no version {version}; the newest is {newest}")
    while version < newest:
        document = LIFTS[kind, version](document)
        version += 1
    return document
