"""Short forms of a stage that are made into what a stage keeps: arrays, matrices, secrets by name."""

import re
from collections.abc import Mapping
from decimal import Decimal
from math import prod
from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from schemas.arrays import ARRAY_TEXT_MAX, ArrayWrong, spans_of, text_of
from schemas.edge.base import ENV_NAME_PATTERN, NAME_MAX, NO_NUL_PATTERN, TASKS_MAX, Malformed, at_key, joined, shown
from schemas.jobs import Axis

TASK_VARIABLES: Final = (
    *("LARGESSE_JOB", "LARGESSE_STAGE", "LARGESSE_TASK_INDEX", "LARGESSE_TASK_COUNT"),
    *("LARGESSE_ATTEMPT", "LARGESSE_NODE", "LARGESSE_PEERS", "LARGESSE_MASTER_ADDR", "LARGESSE_MASTER_PORT"),
    *("LARGESSE_RESULTS", "LARGESSE_INPUTS", "LARGESSE_ARRAY_INDEX"),
)
"""What an agent says to a task; a spec may not say otherwise."""

AXES_MAX: Final = 16
AXIS_VALUES_MAX: Final = 10_000
AXIS_DIGITS_MAX: Final = 15
SECRETS_MAX: Final = 64
SECRET_NAME_MAX: Final = 128
SECRET_NAME_PATTERN: Final = r"^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?$"
ENV_VALUE_MAX: Final = 32_768

EnvName = Annotated[str, Field(max_length=NAME_MAX, pattern=ENV_NAME_PATTERN)]
EnvValue = Annotated[str, Field(max_length=ENV_VALUE_MAX, pattern=NO_NUL_PATTERN)]
ArrayText = Annotated[str, Field(min_length=1, max_length=ARRAY_TEXT_MAX)]
AxisValues = Annotated[
    list[object],  # Each value is read by `matrix_of`.
    Field(min_length=1, max_length=AXIS_VALUES_MAX),
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "maxItems": AXIS_VALUES_MAX,
            "items": {
                "anyOf": [{"type": "string", "maxLength": ENV_VALUE_MAX}, {"type": "number"}, {"type": "boolean"}]
            },
        }
    ),
]
Matrix = Annotated[dict[EnvName, AxisValues], Field(min_length=1, max_length=AXES_MAX)]
SecretName = Annotated[str, Field(max_length=SECRET_NAME_MAX, pattern=SECRET_NAME_PATTERN)]
Secrets = Annotated[dict[EnvName, SecretName], Field(max_length=SECRETS_MAX)]

_LIMIT = re.compile("[1-9][0-9]{0,6}")


def array_of(text: str) -> tuple[str, int, int | None]:
    """What a stage keeps of an array, how many tasks it has, and how many may run at a time. Raises Malformed."""
    indexes, percent, limit = text.replace(" ", "").partition("%")
    if percent and _LIMIT.fullmatch(limit) is None:
        raise Malformed("array", f'has to end in how many tasks run at a time, like "0-99%8", has "%{limit[:40]}"')
    try:
        spans = spans_of(indexes, TASKS_MAX)
    except ArrayWrong as fault:
        raise Malformed("array", str(fault)) from None
    return text_of(spans), sum(len(span) for span in spans), min(int(limit), TASKS_MAX) if percent else None


def matrix_of(matrix: Mapping[str, list[object]], env: Mapping[str, str]) -> tuple[list[Axis], int]:
    """What a stage keeps of a matrix, and how many tasks it has. Raises Malformed."""
    axes = []
    for name, values in matrix.items():
        field = joined("matrix", at_key(name))
        check_variable(field, name, env)
        texts = [_text_of(value, f"{field}[{k}]") for k, value in enumerate(values)]
        if len(set(texts)) < len(texts):
            twice = next(k for k, text in enumerate(texts) if text in texts[:k])
            raise Malformed(f"{field}[{twice}]", f"{shown(texts[twice])} is named twice")
        axes.append(Axis(name, texts))
    tasks = prod(len(axis.values) for axis in axes)
    if tasks > TASKS_MAX:
        raise Malformed("matrix", f"has {tasks} combinations: a stage has at most {TASKS_MAX} tasks")
    return axes, tasks


def _text_of(value: object, field: str) -> str:
    """A value as its variable has it: a number without an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        if len(value.normalize().as_tuple().digits) > AXIS_DIGITS_MAX:
            raise Malformed(field, f'has more than {AXIS_DIGITS_MAX} digits: write it as a text, like "{value}"')
        return format(value.normalize(), "f")
    if not isinstance(value, str):
        raise Malformed(field, f"has to be a text, a number, or true or false, is {shown(value)}")
    if "\0" in value or len(value) > ENV_VALUE_MAX:
        raise Malformed(field, f"has to be a text of at most {ENV_VALUE_MAX} characters without NUL")
    return value


def check_variable(field: str, name: str, *others: Mapping[str, object]) -> None:
    """Raises Malformed for a variable that is set by the agent, or that something else of the stage sets, too."""
    if name in TASK_VARIABLES:
        raise Malformed(field, "is set by the agent: choose another name")
    if any(name in other for other in others):
        raise Malformed(field, "is set by another field of the stage, too: use only one of them")
