"""What a document says by a model, or what is wrong with it in words: which field, why, and what was probably meant."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from schemas.edge.base import (
    ENV_NAME_PATTERN,
    FIELD_MAX,
    KEY_SHOWN_MAX,
    LABEL_KEY_PATTERN,
    NAME_PATTERN,
    NEW_NAME_PATTERN,
    NO_NUL_PATTERN,
    QUEUE_TEXT_PATTERN,
    TEXT_PATTERN,
    Input,
    Malformed,
    at_key,
    joined,
    milliseconds_meant,
    quoted,
    shown,
)
from schemas.edge.containers import IMAGE_PATTERN, USER_PATTERN
from schemas.edge.short_forms import SECRET_NAME_PATTERN
from schemas.wording import nearest

UNKNOWN_NAMED_MAX = 8  # Unknown fields that one error names beside the first.

SET_AND_POLICY = {"policy": "set", "set": "policy"}
"""Knobs are under `set` in a config and under `policy` in a cluster file, where queues are under one name in both."""

_BOOLEANS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
_PAIR = re.compile(r"([\w./-]+)=([\w./:@%+-]+)")
_OBJECTS = {
    "labels": '{"zone": "a"}',
    "prefer": '{"zone": "a"}',
    "env": '{"NAME": "value"}',
    "secrets": '{"TOKEN": "name of the secret"}',
    "matrix": '{"SEED": [1, 2, 3]}',
    "anti_affinity": '{"required": true}',
    "spread": '{"label": "zone"}',
    "container": '{"image": "python:3.12-slim"}',
    "capacity": '{"cpu": "4", "memory": "8Gi"}',
    **dict.fromkeys(("demand", "guaranteed", "max"), '{"cpu": "1", "memory": "2Gi"}'),
}
"""How a field is written that is an object, by its name."""

_WHOLE_TEXT = re.compile("-?(0|[1-9][0-9]{0,18})")

_PATTERN_WORDS = {
    NAME_PATTERN: 'may hold no "/" and no control characters',
    NEW_NAME_PATTERN: 'may hold no "/" and no control characters, and may not begin with "-", as options do',
    QUEUE_TEXT_PATTERN: 'may hold no control characters, and may not begin with "-", as options do',
    TEXT_PATTERN: "may hold no control characters",
    LABEL_KEY_PATTERN: 'has to be letters, digits and "-", "_", ".", "/", and to begin and end with a letter or digit',
    NO_NUL_PATTERN: "may hold no NUL character",
    SECRET_NAME_PATTERN: 'has to be letters, digits and "_", "-", ".", and may not begin or end with "."',
    ENV_NAME_PATTERN: 'has to be letters, digits and "_", "-", ".", and may not begin with a digit',
    IMAGE_PATTERN: 'has to be an image, like "python:3.12-slim" or "registry.example/team/app@sha256:..."',
    USER_PATTERN: 'has to be a user, or user and group, like "1000:1000"',
}

M = TypeVar("M", bound=Input)


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
        return _unknown(str(fault["loc"][-1]), _fields_at(model, fault["loc"][:-1]), _elsewhere(fault, model, document))
    if kind == "string_pattern_mismatch":
        return f"{_PATTERN_WORDS.get(context['pattern'], 'has to match ' + context['pattern'])}, is {shown(value)}"
    if kind == "list_type" and isinstance(value, str):
        return f"{_REASONS[kind](context, value)}: write {_listed(str(fault['loc'][-1]), value)}"
    if kind in _REASONS:
        meant = _meant(kind, value)
        if kind in ("dict_type", "model_type", "model_attributes_type") and fault["loc"]:
            meant = _object_meant(str(fault["loc"][-1]), value)
        if kind == "int_type" and meant is None and fault["loc"]:
            meant = milliseconds_meant(str(fault["loc"][-1]), value)
        return _REASONS[kind](context, value) + (f": write {meant}" if meant else "")
    return str(fault["msg"])


def _meant(kind: str, value: object) -> str | None:
    """A value of another type as it was most likely meant, where nothing else can have been."""
    if kind == "string_type" and value is not None and not isinstance(value, list | dict):
        text = shown(value)
        return f'"{text}"' if len(text) < KEY_SHOWN_MAX else None
    if kind == "int_type" and isinstance(value, str) and _WHOLE_TEXT.fullmatch(value):
        return value
    return _BOOLEANS.get(value.lower()) if kind == "bool_type" and isinstance(value, str) else None


def _object_meant(field: str, value: object) -> str | None:
    """An object as it was most likely meant where a list of pairs stands (`[zone=a]`), else an example of its form."""
    pairs = value if isinstance(value, list) else [value]
    found = [_PAIR.fullmatch(pair) if isinstance(pair, str) else None for pair in pairs]
    text = ", ".join(f"{quoted(pair[1])}: {quoted(pair[2])}" for pair in found if pair)
    if field in _OBJECTS and found and all(found) and len(text) <= KEY_SHOWN_MAX:
        return f"{{{text}}}"
    return f"an object, like {_OBJECTS[field]}" if field in _OBJECTS else None


def _listed(field: str, text: str) -> str:
    """A text as the list that it should have been: of a command line its words, where no shell has to find them."""
    short = 0 < len(text.strip()) <= len(text) <= KEY_SHOWN_MAX and text.isprintable() and '"' not in text
    if field != "command":
        return f"[{quoted(text)}]" if short else 'a list of texts, like ["a", "b"]'
    if short and re.fullmatch(r"[\w./:=,@%+ -]*\w[\w./:=,@%+ -]*", text):
        return f"[{', '.join(quoted(word) for word in text.split())}]"
    return f'["sh", "-c", {quoted(text if short else "...")}]'


def _unknown(name: str, known: list[str], elsewhere: str) -> str:
    close = SET_AND_POLICY.get(name) if "queues" in known else None
    if elsewhere and close not in known:
        return f"unknown field here: it belongs {elsewhere}"
    close = close if close in known else nearest(name, known)
    return (
        f'unknown field; did you mean "{close}"?' if close else f"unknown field; known here: {', '.join(sorted(known))}"
    )


def _elsewhere(fault: Any, model: type[Input], document: Any) -> str:
    """Where a field of exactly this name belongs: further up, where the document does not have it yet, or into one of
    those beside it; "" where it is known in neither place.
    """
    *steps, name = fault["loc"]
    for depth in range(len(steps) - 1, -1, -1):
        inside, at = steps[depth], _value_at(document, steps[:depth])
        missing_there = isinstance(at, dict) and inside in at and name not in at
        if missing_there and name in _fields_at(model, tuple(steps[:depth])):
            return f'further up, beside "{inside}"'
    for beside in _fields_at(model, tuple(steps)):
        inner = _fields_at(model, (*steps, beside))
        if name in inner and beside not in inner:  # Not in a tree of its own kind.
            return f'in "{beside}"'
    return ""


def _value_at(document: object, steps: list[int | str]) -> object:
    """What stands at a place; steps that the document does not have are names of branches inside the models."""
    at = document
    for step in steps:
        if isinstance(at, dict):
            at = at.get(step, at)
        elif isinstance(at, list) and isinstance(step, int) and step < len(at):
            at = at[step]
    return at


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


def parameter_reason(kind: str, context: Mapping[str, object], value: object) -> str | None:
    """What is wrong with a parameter of a request, which comes as text; None where there are no words for it."""
    words = _REASONS.get(_PARAMETERS.get(kind, kind))
    return words(context, value) if words else None


_PARAMETERS = {"int_parsing": "int_type", "int_parsing_size": "int_type", "bool_parsing": "bool_type"}


def _one_of(context: Mapping[str, object], value: object) -> str:
    expected = str(context["expected"])
    close = nearest(value, re.findall("'([^']+)'", expected)) if isinstance(value, str) else None
    return f"has to be one of {expected}; is {shown(value)}" + (f'; did you mean "{close}"?' if close else "")


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
    "literal_error": _one_of,
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
