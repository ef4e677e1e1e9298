"""`max_failed` of a stage as people write it: a count of tasks, or a part of them like "5%"."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import WithJsonSchema

from schemas.edge.base import TASKS_MAX, Malformed, shown
from schemas.wording import plural

_PERCENT = re.compile(r"([0-9]{1,3})(\.[0-9]{1,3})? ?%")

MaxFailed = Annotated[
    object,  # Read by `most_failed`, which knows how many tasks there are.
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": TASKS_MAX},
                {"type": "string", "pattern": f"^{_PERCENT.pattern}$"},
                {"type": "null"},
            ]
        }
    ),
]


def most_failed(said: object, tasks: int, *, gang: bool) -> int:
    """How many of a stage's tasks may fail for good. A part is rounded down. Raises Malformed."""
    if said is None:
        return 0
    most = said if type(said) is int else _part(said, tasks)
    if most < 0:
        raise Malformed("max_failed", f"has to be 0 or more, is {shown(said)}")
    if most > tasks:
        raise Malformed("max_failed", f"is {shown(said)}, but the stage has {plural(tasks, 'task')}")
    if gang and most:
        raise Malformed("max_failed", "a gang fails as a whole: leave it out")
    return most


def _part(said: object, tasks: int) -> int:
    match = _PERCENT.fullmatch(said) if isinstance(said, str) else None
    if match is None:
        raise Malformed("max_failed", f'has to be a count like 10, or a part like "5%", is {shown(said)}')
    percent = Decimal(match[1] + (match[2] or ""))
    if percent > 100:
        raise Malformed("max_failed", f"has to be at most 100%, is {shown(said)}")
    return int(percent * 1_000) * tasks // 100_000
