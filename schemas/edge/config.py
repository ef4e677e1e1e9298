"""The config topic: knobs to set, and the queue tree. Knobs are the fields of `Policy`; those not named stay."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import Field, WithJsonSchema

from schemas.checkpoints import CHECKPOINT_STATES_MAX, Checkpoint, KeptState
from schemas.edge.base import TEXT_PATTERN, Input, Malformed, at_key, author_of, joined, milliseconds_meant, shown
from schemas.edge.jobs import WARNINGS_MAX
from schemas.edge.queues import QueueInput, queue_warnings, tree_of
from schemas.edge.validated import validated
from schemas.knobs import knob_conflict, with_knobs
from schemas.policy import KNOB_ITEMS_MAX, KNOBS, SHARDS_MAX, KnobValue, Policy
from schemas.quantities import QUANTITY_MAX
from schemas.queues import Queue
from schemas.rounds import Position
from schemas.topics import INPUTS
from schemas.wording import nearest

SKIP_REASON_MAX = 200  # Characters of an operator's reason to skip an input.


def _knob_schemas() -> dict[str, object]:
    """What each knob may be, as JSON Schema."""
    hints, knobs = get_type_hints(Policy), dict[str, object]()
    for name, knob in KNOBS.items():
        about: dict[str, object] = {"description": knob.help}
        if get_origin(hints[name]) is Literal:
            about["enum"] = list(get_args(hints[name]))
        elif hints[name] is bool:
            about["type"] = "boolean"
        else:
            number = {"type": "integer", "minimum": knob.least, "maximum": knob.most}
            is_list = get_origin(hints[name]) is list
            about |= {"type": "array", "items": number, "maxItems": KNOB_ITEMS_MAX} if is_list else number
        knobs[name] = about
    return {"type": "object", "properties": knobs, "additionalProperties": False}


Knobs = Annotated[dict[str, object], WithJsonSchema(_knob_schemas())]
"""Knob -> value. Read by `knobs_of`, which suggests the nearest name."""


class SkipInput(Input):
    """A message of an input topic that the sequencer is not to look at, and why."""

    topic: Annotated[str, WithJsonSchema({"enum": list(INPUTS), "type": "string"})]
    offset: Annotated[int, Field(ge=0, le=QUANTITY_MAX)]
    reason: Annotated[str, Field(max_length=SKIP_REASON_MAX, pattern=TEXT_PATTERN)] = ""


Seq = Annotated[int, Field(ge=0, le=QUANTITY_MAX)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PositionInput(Input):
    """The last offset that was taken of an input topic."""

    topic: Annotated[str, Field(max_length=64, pattern=TEXT_PATTERN)]
    partition: Seq
    offset: Seq


class KeptStateInput(Input):
    """The state of one core, recognised by the hash of its JSON."""

    service: Annotated[str, Field(max_length=64, pattern=TEXT_PATTERN)]
    shard: Annotated[int, Field(ge=0, lt=SHARDS_MAX)]
    layout: Seq
    sha256: Sha256


class CheckpointInput(Input):
    """States that are kept outside of the log, and where in it they are: `largesse checkpoint make` sends it."""

    closing: Annotated[int, Field(ge=1, le=QUANTITY_MAX)]
    prefix: Sha256
    positions: Annotated[list[PositionInput], Field(max_length=len(INPUTS))]
    states: Annotated[list[KeptStateInput], Field(min_length=1, max_length=CHECKPOINT_STATES_MAX)]
    file: Sha256


class ConfigInput(Input):
    """A message of the config topic: knobs to set, a tree to put in force, or both; or a round to give up; or an input
    to skip; or a checkpoint to note.

    What is `initial` counts only where nothing has been set before.
    """

    set: Knobs | None = None
    queues: QueueInput | None = None
    initial: bool = False
    abandon_round: Annotated[int, Field(ge=1, le=QUANTITY_MAX)] | None = None
    skip_input: SkipInput | None = None
    checkpoint: CheckpointInput | None = None


@dataclass(slots=True)
class SkipRequest:
    """An operator's wish that the message at `offset` of an input topic is not looked at."""

    topic: str
    offset: int
    reason: str = ""


@dataclass(slots=True)
class ConfigPatch:
    """What an operator changes: knobs by name, and the whole queue tree (None: stays as it is). `initial`: only where
    the cell has had no config yet.

    `abandon_round`: the open round that is to be given up, since a service cannot answer it; `skip`: an input that
    stops the sequencer; `checkpoint`: what the log is to say of kept states. Each stands alone.
    """

    values: dict[str, KnobValue]
    queues: Queue | None
    author: str = "unknown"
    abandon_round: int | None = None
    initial: bool = False
    skip: SkipRequest | None = None
    checkpoint: Checkpoint | None = None


def read_config(document: object, author: str) -> ConfigPatch:
    """A message of the config topic. Raises Malformed."""
    message = validated(ConfigInput, document)
    if (alone := _alone(message, author_of(author))) is not None:
        return alone
    if message.set is None and message.queues is None:
        raise Malformed("", 'needs "set" (knobs) or "queues" (the whole tree), or both')
    values = knobs_of(message.set or {}, "set")
    queues = tree_of(message.queues, "queues") if message.queues else None
    return ConfigPatch(values, queues, author_of(author), initial=message.initial)


def _alone(message: ConfigInput, author: str) -> ConfigPatch | None:
    """What a message says that has to stand alone; None where it says nothing of the kind. Raises Malformed."""
    changes = message.set is not None or message.queues is not None or message.initial
    forms = ("abandon_round", "skip_input", "checkpoint")
    said = [name for name in forms if getattr(message, name) is not None]
    if not said:
        return None
    if changes or len(said) > 1:
        raise Malformed(said[0], "stands alone: send everything else in a message of its own")
    if message.checkpoint is not None:
        return ConfigPatch({}, None, author, checkpoint=_checkpoint_of(message.checkpoint, author))
    if message.skip_input is None:
        return ConfigPatch({}, None, author, message.abandon_round)
    skip = message.skip_input
    if skip.topic not in INPUTS:
        raise Malformed("skip_input.topic", f"has to be one of {', '.join(INPUTS)}; is {shown(skip.topic)}")
    return ConfigPatch({}, None, author, skip=SkipRequest(skip.topic, skip.offset, skip.reason))


def _checkpoint_of(given: CheckpointInput, author: str) -> Checkpoint:
    """Raises Malformed."""
    for at, position in enumerate(given.positions):
        if position.topic not in INPUTS:
            where = f"checkpoint.positions[{at}].topic"
            raise Malformed(where, f"has to be one of {', '.join(INPUTS)}; is {shown(position.topic)}")
    positions = [Position(each.topic, each.partition, each.offset) for each in given.positions]
    states = [KeptState(each.service, each.shard, each.layout, each.sha256) for each in given.states]
    return Checkpoint(given.closing, given.prefix, positions, states, given.file, author)


def config_warnings(document: Mapping[str, Any]) -> list[str]:
    """What a message of the config topic says and yet most likely does not mean, at most WARNINGS_MAX lines."""
    return queue_warnings("queues", document.get("queues") or {})[:WARNINGS_MAX]


def knobs_of(values: dict[str, Any], parent: str) -> dict[str, KnobValue]:
    """Knobs and their values, in the order of `Policy`. Raises Malformed under `parent`."""
    hints = get_type_hints(Policy)
    for name in values:
        if name not in hints:
            close = nearest(name, hints)
            text = f'did you mean "{close}"?' if close else "`largesse config show` and docs/settings.md list them"
            raise Malformed(joined(parent, at_key(name)), f"unknown knob; {text}")
    for name, value in values.items():
        if fault := _knob_fault(name, hints[name], value):
            raise Malformed(joined(parent, name), f"{fault}; is {_knob_shown(value)}{_meant(hints[name], value)}")
    return {knob.name: values[knob.name] for knob in fields(Policy) if knob.name in values}


def knob_of_text(setting: str) -> tuple[str, KnobValue]:
    """One knob as a command line says it, `name=value`. Raises Malformed."""
    name, equals, text = setting.partition("=")
    if not equals:
        raise Malformed("", f'{shown(setting)} is no setting: write "name=value"')
    value: KnobValue = text
    if get_origin(get_type_hints(Policy).get(name)) is list:
        parts = text.split(",") if text else []
        if all(re.fullmatch("-?[0-9]{1,16}", part) for part in parts):
            value = [int(part) for part in parts]
    elif re.fullmatch("-?[0-9]{1,16}", text):
        value = int(text)
    elif get_type_hints(Policy).get(name) is bool:
        value = {"true": True, "false": False}.get(text, text)
    return name, knobs_of({name: value}, "")[name]


def policy_of(values: Mapping[str, KnobValue], parent: str) -> Policy:
    """The policy of a cell in which only these knobs have been set. Raises Malformed where they contradict."""
    policy = with_knobs(Policy(), values)
    if conflict := knob_conflict(policy, values):
        raise Malformed(joined(parent, conflict[0]), conflict[1])
    return policy


def _knob_shown(value: object) -> str:
    """A knob's value for an error message: of a list that is no longer than it may be, each item."""
    if type(value) is list and len(value) <= KNOB_ITEMS_MAX:
        return f"[{', '.join(map(shown, value))}]"
    return shown(value)


def _meant(hint: object, value: object) -> str:
    """The value of a knob that a mistyped one is nearest to, as the end of a message; empty where none is near."""
    options = get_args(hint) if get_origin(hint) is Literal else ()
    close = nearest(value, options) if type(value) is str else None
    return f'; did you mean "{close}"?' if close else ""


def _knob_fault(name: str, hint: object, value: object) -> str | None:
    """What is wrong with a knob's value, if anything."""
    if get_origin(hint) is Literal:
        options = get_args(hint)
        if type(value) is str and value in options:
            return None
        text = f"has to be one of {', '.join(options)}"
        word = {True: "on", False: "off"}[value] if type(value) is bool else None
        # To YAML 1.1, which many tools write and read, a bare `off` is false.
        return f'{text}; write "{word}", in quotes' if word in options else text
    if hint is bool:
        return None if type(value) is bool else "has to be true or false"
    low, high = KNOBS[name].least, KNOBS[name].most
    if get_origin(hint) is list:
        return _list_fault(value, low, high)
    if type(value) is not int:
        meant = milliseconds_meant(name, value)
        return "has to be a whole number" + (f": write {meant}" if meant else "")
    return None if low <= value <= high else f"has to be from {low} to {high}"


def _list_fault(value: object, low: int, high: int) -> str | None:
    """What is wrong with the value of a knob that is an ascending list of whole numbers, if anything."""
    if type(value) is not list or not all(type(item) is int for item in value):
        return "has to be a list of whole numbers"
    if len(value) > KNOB_ITEMS_MAX:
        return f"has to be a list of at most {KNOB_ITEMS_MAX}"
    if not all(low <= item <= high for item in value):
        return f"has to be a list of numbers from {low} to {high}"
    return None if all(a < b for a, b in pairwise(value)) else "has to be ascending"
