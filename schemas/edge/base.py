"""What every reader of outside input shares: strict models, field paths, limits, and errors that name the fix.

Nothing is coerced: a boolean is no number, a fraction no whole number, an unknown field no spelling variant. The models
say what is allowed and become the published schemas; light checks after them say what a schema cannot.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from schemas.quantities import QUANTITY_MAX, QUANTITY_TEXT, RESOURCE_NAME, Vector, parse_quantity

FIELD_MAX = 200  # Characters of a field path in an error.
REASON_MAX = 500
KEY_SHOWN_MAX = 40  # Characters of a user's own key or value that an error repeats.

NAME_MAX = 253
LABELS_MAX = 64
LABEL_VALUE_MAX = 253
RESOURCES_MAX = 32  # Kinds in one vector.
TASKS_MAX = 200_000  # Tasks of one stage.
BATCH_MAX = 10_000  # Items of one report.
DURATION_MS_MAX = 10 * 365 * 24 * 3_600 * 1_000  # Ten years: a million tasks of them still add up in 64 bits.
AUTHOR_MAX = 253
AMOUNTS_CACHED = 65_536

NAME_PATTERN = r"^[^/\x00-\x1f\x7f-\x9f]+$"
NEW_NAME_PATTERN = r"^[^-/\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*$"
QUEUE_TEXT_PATTERN = r"^([^-\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*)?$"
NO_NUL_PATTERN = r"^[^\x00]*$"
ENV_NAME_PATTERN = r"^[A-Za-z_.-][A-Za-z0-9_.-]*$"

TEXT_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
LABEL_KEY_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$"

Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)]
NewName = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=NEW_NAME_PATTERN)]
"""The name of something that is made: a command line has to be able to take it. What has another name from an earlier
version can still be reported and cancelled.
"""
Text = Annotated[str, Field(max_length=NAME_MAX, pattern=TEXT_PATTERN)]
Epoch = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=TEXT_PATTERN)]
Whole = Annotated[int, Field(ge=0, le=QUANTITY_MAX)]
DurationMs = Annotated[int, Field(ge=0, le=DURATION_MS_MAX)]
Tasks = Annotated[int, Field(ge=1, le=TASKS_MAX)]
LabelKey = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=LABEL_KEY_PATTERN)]
LabelValue = Annotated[str, Field(max_length=LABEL_VALUE_MAX, pattern=TEXT_PATTERN)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=LABELS_MAX)]

Amounts = Annotated[
    dict[str, object],  # Each value is read by `vector_of`, which knows its resource.
    Field(max_length=RESOURCES_MAX),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": RESOURCES_MAX,
            "propertyNames": {"pattern": f"^{RESOURCE_NAME.pattern}$"},
            "additionalProperties": {
                "anyOf": [
                    {"type": "number", "minimum": 0, "maximum": QUANTITY_MAX},
                    {"type": "string", "pattern": f"^{QUANTITY_TEXT.pattern}$"},
                ]
            },
        }
    ),
]
"""Resource -> quantity as people write it: `"500m"`, `"2Gi"`, or a bare number of natural units (cores, GPUs, bytes,
bit/s).
"""


class Malformed(ValueError):
    """An input that cannot be taken.

    `field`: the path of what is wrong (`stages[2].demand.cpu`; empty for the whole document). `reason`: what is wrong
    with it and what would be right. Both are cut to a sane length.
    """

    def __init__(self, field: str, reason: str) -> None:
        self.field = field if len(field) <= FIELD_MAX else field[: FIELD_MAX - 3] + "..."
        text = "".join(c if c.isprintable() else "?" for c in reason[: REASON_MAX + 1])
        self.reason = text if len(text) <= REASON_MAX else text[: REASON_MAX - 3] + "..."
        super().__init__(f"{self.field}: {self.reason}" if field else self.reason)

    def under(self, parent: str) -> "Malformed":
        """The same fault, seen from the document that holds `parent`."""
        return Malformed(joined(parent, self.field), self.reason)


class Input(BaseModel):
    """A strict model of something from outside: unknown fields are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def joined(parent: str, child: str) -> str:
    """Two pieces of a field path as one."""
    return f"{parent}.{child}" if parent and child and child[0] != "[" else parent + child


def at_key(key: str) -> str:
    """One step of a field path; keys that are no plain words stand in brackets and quotes, cut short."""
    plain = len(key) <= KEY_SHOWN_MAX and re.fullmatch(r"[\w-]+", key, re.ASCII)
    return key if plain else f"[{quoted(key)}]"


def shown(value: object) -> str:
    """A value for an error message, on one line and short."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case list():
            return "a list"
        case dict():
            return "an object"
    return str(value)[:KEY_SHOWN_MAX]


def quoted(text: str) -> str:
    cut = text if len(text) <= KEY_SHOWN_MAX else text[: KEY_SHOWN_MAX - 3] + "..."
    return '"' + "".join(c if c.isprintable() and c != '"' else "?" for c in cut) + '"'


def vector_of(amounts: Mapping[str, object], *, round_up: bool) -> Vector:
    """Whole base units, keys sorted, zero amounts dropped. Raises Malformed with the resource as its field."""
    vector: Vector = {}
    for resource in sorted(amounts):
        value = amounts[resource]
        kind = type(value)
        if kind is not int and kind is not str and kind is not Decimal:
            raise Malformed(at_key(resource), f'has to be a quantity like "500m", 2 or "2Gi", is {shown(value)}')
        try:
            if amount := _amount(resource, value, round_up):
                vector[resource] = amount
        except ValueError as error:
            raise Malformed(at_key(resource), str(error)) from None
    return vector


def asked_for(amounts: Mapping[str, object], field: str, what: str) -> Vector:
    """A demand: rounded up, and never nothing. Raises Malformed under `field`."""
    try:
        vector = vector_of(amounts, round_up=True)
    except Malformed as fault:
        raise fault.under(field) from None
    if not vector:
        raise Malformed(field, f'{what} has to ask for something: name at least one resource, like {{"cpu": "1"}}')
    return vector


_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,12}) ?(ms|s|m|min|h|d)")


def milliseconds_meant(field: str, value: object) -> str | None:
    """A duration with a unit, like "30s", as the whole milliseconds that a field whose name ends in `_ms` takes."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and field.endswith("_ms") else None
    return None if match is None else f"{int(match[1]) * _MS[match[2]]} (milliseconds)"


def sorted_map(values: Mapping[str, str]) -> dict[str, str]:
    """The same map with its keys in order, so that equal specs have equal bytes."""
    return dict(sorted(values.items())) if len(values) > 1 else dict(values)


def check_one_form(message: Input) -> None:
    """A message says exactly one thing. Raises Malformed for none and for two."""
    forms = {field.alias or name: getattr(message, name) for name, field in type(message).model_fields.items()}
    present = [form for form, content in forms.items() if content is not None]
    if len(present) != 1:
        listed = ", ".join(f'"{form}"' for form in forms)
        raise Malformed(present[1] if present else "", f"exactly one of {listed} is needed, not {len(present)}")


def author_of(author: str) -> str:
    """Who sent it, as it may stand in a record."""
    return "".join(c for c in author[:AUTHOR_MAX] if c.isprintable()) or "unknown"


@lru_cache(maxsize=AMOUNTS_CACHED)
def _amount(resource: str, value: int | str | Decimal, round_up: bool) -> int:
    if RESOURCE_NAME.fullmatch(resource) is None:
        raise ValueError("is no resource name: write lower-case letters, digits and . _ -, a letter first, at most 63")
    return parse_quantity(resource, value, round_up=round_up)


@lru_cache(maxsize=AMOUNTS_CACHED)
def is_below_unit(resource: str, value: int | str | Decimal) -> bool:
    """Whether a quantity that was read without fault is more than nothing and less than one base unit."""
    return parse_quantity(resource, value, round_up=False) == 0 < parse_quantity(resource, value, round_up=True)
