"""Where a replay and a recording part: what is reported of it, and the first place at which two documents differ."""

import json
from dataclasses import dataclass


@dataclass(slots=True)
class Difference:
    """Where a replay and the recording part. `path`: the first JSON path that differs, with both sides."""

    seq: int
    round: int
    topic: str
    what: str
    path: str = ""
    recorded: str = ""
    decided: str = ""


class Diverged(Exception):
    """The recording is not what is decided again."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.what)
        self.difference = difference


def first_difference(recorded: object, decided: object, path: str = "$") -> tuple[str, object, object] | None:
    """The first JSON path at which two documents differ, with both sides; None where they are equal."""
    if isinstance(recorded, dict) and isinstance(decided, dict):
        for key in [*recorded, *(key for key in decided if key not in recorded)]:
            if key not in recorded or key not in decided:
                return f"{path}.{key}", recorded.get(key, "(missing)"), decided.get(key, "(missing)")
            if found := first_difference(recorded[key], decided[key], f"{path}.{key}"):
                return found
        return None
    if isinstance(recorded, list) and isinstance(decided, list):
        for i, (left, right) in enumerate(zip(recorded, decided, strict=False)):
            if found := first_difference(left, right, f"{path}[{i}]"):
                return found
        if len(recorded) != len(decided):
            return f"{path}.length", len(recorded), len(decided)
        return None
    return None if recorded == decided and type(recorded) is type(decided) else (path, recorded, decided)


def shown(value: object) -> str:
    """One side of a difference."""
    return value if isinstance(value, str) else json.dumps(value)
