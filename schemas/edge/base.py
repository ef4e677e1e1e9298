"""What every reader of outside input shares: strict models, field paths, limits, and errors that name the fix.

Nothing is coerced: a boolean is no number, a fraction no whole number, an unknown field no spelling variant. The models
say what is allowed and become the published schemas; light checks after them say what a schema cannot.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from schemas.quantities import QUANTITY_MAX, QUANTITY_TEXT, RESOURCE_NAME, Vector, parse_quantity
from schemas.wording import nearest

FIELD_MAX = 200  # Characters of a field path in an error.
REASON_MAX = 500
KEY_SHOWN_MAX = 40  # Characters of a user's own key or value that an error repeats.

UNKNOWN_NAMED_MAX = 8  # Unknown fields that one error names beside the first.

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
TEXT_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
LABEL_KEY_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$"
NO_NUL_PATTERN = r"^[^\x00]*$"
ENV_NAME_PATTERN = r"^[A-Za-z_.-][A-Za-z0-9_.-]*$"

_WHOLE_TEXT = re.compile("-?(0|[1-9][0-9]{0,18})")

_PATTERN_WORDS = {
    NAME_PATTERN: 'may hold no "/" and no control characters',
    NEW_NAME_PATTERN: 'may hold no "/" and no control characters, and may not begin with "-", as options do',
    QUEUE_TEXT_PATTERN: 'may hold no control characters, and may not begin with "-", as options do',
    TEXT_PATTERN: "may hold no control characters",
    LABEL_KEY_PATTERN: 'has to be letters, digits and "-", "_", ".", "/", and to begin and end with a letter or digit',
    NO_NUL_PATTERN: "may hold no NUL character",
    ENV_NAME_PATTERN: 'has to be letters, digits and "_", "-", ".", and may not begin with a digit',
}

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
        told = "".join(c if c.isprintable() else "?" for c in reason[: REASON_MAX + 1])
        self.reason = told if len(told) <= REASON_MAX else told[: REASON_MAX - 3] + "..."
        super().__init__(f"{self.field}: {self.reason}" if field else self.reason)

    def under(self, parent: str) -> "Malformed":
        """The same fault, seen from the document that holds `parent`."""
        return Malformed(joined(parent, self.field), self.reason)


class Input(BaseModel):
    """A strict model of something from outside: unknown fields are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


M = TypeVar("M", bound=Input)


def joined(parent: str, child: str) -> str:
    """Two pieces of a field path as one."""
    return f"{parent}.{child}" if parent and child and child[0] != "[" else parent + child


def at_key(key: str) -> str:
    """One step of a field path; keys that are no plain words stand in brackets and quotes, cut short."""
    plain = len(key) <= KEY_SHOWN_MAX and re.fullmatch(r"[\w-]+", key, re.ASCII)
    return key if plain else f"[{_quoted(key)}]"


def shown(value: object) -> str:
    """A value for an error message, on one line and short."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return _quoted(value)
        case list():
            return "a list"
        case dict():
            return "an object"
    return str(value)[:KEY_SHOWN_MAX]


def _quoted(text: str) -> str:
    cut = text if len(text) <= KEY_SHOWN_MAX else text[: KEY_SHOWN_MAX - 3] + "..."
    return '"' + "".join(c if c.isprintable() and c != '"' else "?" for c in cut) + '"'


def validated(model: type[M], document: object) -> M:
    """The document as a model. Raises Malformed for the first fault.

    Unknown fields come before all others, and all in one: what is missing is then most often only misspelt.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False)
    unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
    if len(unknown) > 1:
        unknown = _in_order(unknown, document)
    fault = (unknown or faults)[0]
    reason = _reason_of(fault, model, document)
    raise Malformed(_field_of(fault, document), reason + _unknown_too(unknown[1:], model, document))


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


def _field_of(fault: Any, document: Any) -> str:
    """The path of a fault. Steps that the document does not have are names of branches inside the models, except the
    last step of a field that is missing."""
    path = ""
    at = document
    for i, step in enumerate(fault["loc"]):
        if isinstance(step, int) and isinstance(at, list) and step < len(at):
            path += f"[{step}]"
            at = at[step]
        elif isinstance(step, str) and isinstance(at, dict) and step in at:
            path = joined(path, at_key(step))
            at = at[step]
        elif fault["type"] == "missing" and i == len(fault["loc"]) - 1:
            path = joined(path, at_key(str(step)))
    return path


def _in_order(faults: list[Any], document: Any) -> list[Any]:
    """Faults in the order in which their fields stand in the document."""
    places: dict[object, dict[str, int]] = {}  # Of an object's keys, by the steps to it.

    def place(fault: Any) -> list[int]:
        at, found = document, []
        for i, step in enumerate(fault["loc"]):
            if isinstance(step, int) and isinstance(at, list) and step < len(at):
                found.append(step)
                at = at[step]
            elif isinstance(step, str) and isinstance(at, dict) and step in at:
                keys = places.get(fault["loc"][:i])
                if keys is None:
                    keys = places[fault["loc"][:i]] = {key: position for position, key in enumerate(at)}
                found.append(keys[step])
                at = at[step]
        return found

    return sorted(faults, key=place)


def _unknown_too(faults: list[Any], model: type[Input], document: Any) -> str:
    """The unknown fields after the first, as the message about that one goes on."""
    if not faults:
        return ""
    named = []
    for fault in faults[:UNKNOWN_NAMED_MAX]:
        close = nearest(str(fault["loc"][-1]), _fields_at(model, fault["loc"][:-1]))
        named.append(_field_of(fault, document)[:FIELD_MAX] + (f' (did you mean "{close}"?)' if close else ""))
    more = f" and {len(faults) - len(named)} more" if len(faults) > len(named) else ""
    return f"; unknown too: {', '.join(named)}{more}"


def _reason_of(fault: Any, model: type[Input], document: Any) -> str:
    kind, context, value = fault["type"], fault.get("ctx", {}), fault["input"]
    if kind == "extra_forbidden":
        return _unknown(str(fault["loc"][-1]), _fields_at(model, fault["loc"][:-1]))
    if kind == "string_pattern_mismatch":
        return f"{_PATTERN_WORDS.get(context['pattern'], 'has to match ' + context['pattern'])}, is {shown(value)}"
    if kind == "list_type" and isinstance(value, str):
        return f"{_REASONS[kind](context, value)}: write {_listed(str(fault['loc'][-1]), value)}"
    if kind in _REASONS:
        meant = _meant(kind, value)
        return _REASONS[kind](context, value) + (f": write {meant}" if meant else "")
    return str(fault["msg"])


def _meant(kind: str, value: object) -> str | None:
    """A value of another type as it was most likely meant, where nothing else can have been."""
    if kind == "string_type" and value is not None and not isinstance(value, list | dict):
        text = shown(value)
        return f'"{text}"' if len(text) < KEY_SHOWN_MAX else None
    if kind == "int_type" and isinstance(value, str) and _WHOLE_TEXT.fullmatch(value):
        return value
    return value if kind == "bool_type" and value in ("true", "false") else None


def _listed(field: str, text: str) -> str:
    """A text as the list that it should have been: of a command line its words, where no shell has to find them."""
    short = 0 < len(text.strip()) <= len(text) <= KEY_SHOWN_MAX and text.isprintable() and '"' not in text
    if field != "command":
        return f"[{_quoted(text)}]" if short else 'a list of texts, like ["a", "b"]'
    if short and re.fullmatch(r"[\w./:=,@%+ -]*\w[\w./:=,@%+ -]*", text):
        return f"[{', '.join(_quoted(word) for word in text.split())}]"
    return f'["sh", "-c", {_quoted(text if short else "...")}]'


def _unknown(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return (
        f'unknown field; did you mean "{close}"?' if close else f"unknown field; known here: {', '.join(sorted(known))}"
    )


def _fields_at(model: type[Input], steps: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the model that the steps of a fault lead to."""
    models: list[type[Input]] = [model]
    for step in steps:
        fields = [f.annotation for m in models for name, f in m.model_fields.items() if step == (f.alias or name)]
        if fields:
            models = [inner for annotation in fields for inner in _models_in(annotation)]
        else:  # An index, or the tag of a branch.
            tagged = [m for m in models if "op" in m.model_fields and step in get_args(m.model_fields["op"].annotation)]
            models = tagged or models
    return [f.alias or name for m in models for name, f in m.model_fields.items()]


def _models_in(annotation: object) -> list[type[Input]]:
    if isinstance(annotation, type) and issubclass(annotation, Input):
        return [annotation]
    return [inner for part in get_args(annotation) for inner in _models_in(part)]


def _is(expected: str) -> Callable[[object, object], str]:
    return lambda context, value: f"has to be {expected}, is {shown(value)}"


_REASONS: dict[str, Callable[[Any, Any], str]] = {
    "value_error": lambda context, value: str(context["error"]),
    "missing": lambda context, value: "is missing",
    "int_type": _is("a whole number"),
    "string_type": _is("a string"),
    "string_unicode": lambda context, value: "is no valid Unicode text",
    "bool_type": _is("true or false"),
    "list_type": _is("a list"),
    "dict_type": _is("an object"),
    "model_type": _is("an object"),
    "model_attributes_type": _is("an object"),
    "literal_error": lambda context, value: f"has to be one of {context['expected']}; is {shown(value)}",
    "greater_than": lambda context, value: f"has to be above {context['gt']}, is {shown(value)}",
    "greater_than_equal": lambda context, value: f"has to be at least {context['ge']}, is {shown(value)}",
    "less_than_equal": lambda context, value: f"has to be at most {context['le']}, is {shown(value)}",
    "string_too_short": lambda context, value: "may not be empty",
    "string_too_long": lambda context, value: (
        f"is too long: at most {context['max_length']} characters, has {len(value)}"
    ),
    "too_short": lambda context, value: "may not be empty",
    "too_long": lambda context, value: f"is too long: at most {context['max_length']} entries",
    "union_tag_invalid": lambda context, value: (
        f"op has to be one of {context['expected_tags']}; is {shown(context['tag'])}"
    ),
    "union_tag_not_found": lambda context, value: 'needs its "op"',
    "recursion_loop": lambda context, value: "is nested too deep",
    "recursion_depth_exceeded": lambda context, value: "is nested too deep",
}
