"""What somebody else may write to a topic: documents made from the published schemas, or from real ones, in which types
are wrong, numbers are huge, and fields are missing, unknown or there twice; and bytes that are no document at all.
"""

import json
from random import Random
from typing import Any

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message, Outgoing
from largesse.log.answers import Shelf
from largesse.log.codec import Undecodable
from largesse.log.inputs import parse
from schemas import JobSpec
from schemas.topics import BY_NAME, DECISIONS, INPUTS, LOG
from tests.conftest import ROOT

PUBLISHED = {
    path.name.partition(".")[0]: json.loads(path.read_text()) for path in ROOT.glob("schemas/published/*.json")
}
WORDS = (
    "",
    "x",
    "hostile-1",
    "hostile-2",
    "a/b",
    "名前",
    "\x00",
    "x" * 5_000,
    "9" * 40,
    "1",
    "-0",
    "1e999",
    "cpu",
    "500m",
)
NUMBERS = (0, 1, -1, 2, 1_000, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**70), 10**30)
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 1.5, -0.0, 1e300, [], {}, [[]], [None], {"": {}}, {"token": 1}, [0] * 500, {"seq": "1"}),
    *WORDS,
    *NUMBERS,
)
GARBAGE = (
    b"",
    b"\x00",
    b"hello",
    b"{",
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"null",
    b"7",
    b'""',
    b"[]",
    b"{}",
    b"\xff\xfe",
    b"NaN",
)
NOWHERE = {"nowhere": "1"}
"""Labels that no node has: a job that somebody else submits may be admitted, and then never takes any room."""


def made_from(schema: Any, random: Random, defs: Any = None) -> Any:
    """A document that a published schema describes, about one value in twelve strange."""
    defs = schema.get("$defs", {}) if defs is None else defs
    if random.random() < 1 / 12:
        return random.choice(STRANGE)
    if "$ref" in schema:
        return made_from(defs[schema["$ref"].rpartition("/")[2]], random, defs)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return made_from(random.choice(schema[several]), random, defs)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            return _object(schema, random, defs)
        case "array":
            return [made_from(schema.get("items", {}), random, defs) for _ in range(random.randrange(3))]
        case "string":
            return random.choice(WORDS)
        case "integer" | "number":
            return random.choice((schema.get("minimum", 0), schema.get("maximum", 1), *NUMBERS))
        case "boolean":
            return random.random() < 0.5
        case "null":
            return None
    return random.choice(STRANGE)


def _object(schema: Any, random: Random, defs: Any) -> Any:
    wanted = schema.get("required", ())
    document = {
        name: made_from(each, random, defs)
        for name, each in schema.get("properties", {}).items()
        if name in wanted or random.random() < 0.5
    }
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        document |= {random.choice(WORDS): made_from(more, random, defs) for _ in range(random.randrange(3))}
    elif random.random() < 0.1:
        document["unheard_of"] = random.choice(STRANGE)
    return document


def broken(document: Any, random: Random) -> Any:
    """A document in which one value, somewhere, is another one, is missing, or is there twice."""
    if not isinstance(document, dict | list) or not document or random.random() < 0.15:
        return random.choice(STRANGE)
    if isinstance(document, list):
        at = random.randrange(len(document))
        again = [document[at]] * random.randrange(3)
        return document[:at] + (again if random.random() < 0.3 else [broken(document[at], random)]) + document[at + 1 :]
    name = random.choice(list(document))
    changed = dict(document)
    match random.randrange(6):
        case 0:
            del changed[name]
        case 1:
            changed[random.choice(WORDS)] = changed.pop(name)
        case _:
            changed[name] = broken(document[name], random)
    return changed


def spoiled(value: bytes, random: Random) -> bytes:
    """A message of which something is wrong; about half of them are still documents."""
    match random.randrange(8):
        case 0:
            return random.choice(GARBAGE)
        case 1:
            return value[: random.randrange(len(value) + 1)]
        case 2:
            at = random.randrange(len(value) + 1)
            return value[:at] + bytes([random.randrange(256)]) + value[at + 1 :]
        case 3:
            return value.replace(b'"seq":', b'"seq":%d,"seq":' % random.choice((0, 2**63, 10**30)), 1)
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return random.choice(GARBAGE)
    for _ in range(random.randrange(1, 4)):
        document = broken(document, random)
    return json.dumps(document, separators=(",", ":"), ensure_ascii=random.random() < 0.5).encode(errors="replace")


def hostile_input(topic: str, random: Random) -> Outgoing:
    """A message for an input topic, with any author. Of `config` only what is refused: an operator's wish is obeyed."""
    schema = PUBLISHED[random.choice(BY_NAME[topic].bodies)]
    document = made_from(schema, random)
    if isinstance(document, dict) and isinstance(document.get("stages"), list):
        for stage in document["stages"]:
            if isinstance(stage, dict):
                stage["labels"] = NOWHERE
    value = random.choice(GARBAGE) if random.random() < 0.1 else json.dumps(document).encode()
    found = parse(Message(topic, 0, 0, value))
    if found.fault is None and (topic == "config" or (isinstance(found.body, JobSpec) and b'"nowhere"' not in value)):
        value = random.choice(GARBAGE)
    return Outgoing(topic, 0, value, headers={"author": random.choice(WORDS)})


class HostileBus(MemoryBus):
    """A bus on which somebody else writes too: before one message in `1 / rate`, a few that are like it or not, and
    offsets that no message has. `inputs`: also to the topics of inputs. `written`: how many that were.
    """

    def __init__(self, random: Random, rate: float) -> None:
        super().__init__()
        self.random, self.rate, self.inputs, self.written = random, rate, True, 0
        self._strangers = 0

    def _send(self, batch: list[Outgoing]) -> list[int]:
        offsets = []
        for each in batch:
            while self.random.random() < self.rate:
                self._intrude(each)
            offsets += self._append([each])
        return offsets

    def _intrude(self, real: Outgoing) -> None:
        topic, partition = real.topic, real.partition
        if self.random.random() < 0.1:
            self.skip(topic, partition, self.random.randrange(1, 40))
        if topic in INPUTS and not self.inputs:
            return
        self.written += 1
        if topic in INPUTS:
            self._append([hostile_input(topic, self.random)])
            return
        value = spoiled(real.value, self.random)
        if topic == LOG:
            # With the valid token and the next seq it would be the sequencer's own: one of them is another.
            value = value.replace(b"the-only-token", b"a-strangers-token")
            if self.random.random() < 0.3:
                value = real.value.replace(b'"seq":', b'"seq":9', 1)
        elif topic in DECISIONS and value != real.value and _counts(topic, partition, value):
            return  # A forged answer in the right words counts: who may write there is for the broker to say.
        self._append([Outgoing(topic, partition, value, real.key if self.random.random() < 0.5 else "")])


def _counts(topic: str, partition: int, value: bytes) -> bool:
    try:
        return Shelf(0).take(Message(topic, partition, 0, value), 0) is not None
    except Undecodable:
        return False
