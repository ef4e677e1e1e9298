"""Valid job specs, and every slip that can be made in one, with the field that its refusal has to name.

A slip changes a spec in place and says the fields of which one must be named. `raw(text)` stands for text that no JSON
writer would write.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from schemas.edge.base import DURATION_MS_MAX, LABEL_VALUE_MAX, LABELS_MAX, NAME_MAX, TASKS_MAX
from schemas.edge.jobs import (
    CWD_MAX,
    PRIORITY_MAX,
    QUEUE_DEPTH_MAX,
    RETRIES_MAX,
    SEGMENT_MAX,
)
from schemas.edge.short_forms import TASK_VARIABLES

Document = dict[str, Any]
Slip = Callable[[Random, Document], set[str]]

SLIPS: dict[str, Slip] = {}
WORDS = ("etl", "train", "q21-7", "Bericht über alles", "名前", "a b", "x" * NAME_MAX)
QUANTITIES: dict[str, tuple[Any, ...]] = {
    "cpu": ("1", "500m", "2.5", "3Gi", 20),
    "memory": ("1Mi", "500m", "2.5Gi", "10G", 1 << 30, "1000000"),
}
NO_NAMES = ("", "a/b", "a\nb", "x" * (NAME_MAX + 1), "\x7f")
NO_QUANTITIES: tuple[Any, ...] = (
    "",
    "two",
    "2ki",
    "1e3",
    "-1",
    "1.2.3",
    "٣",
    True,
    None,
    512,
    1.5,
    -1,
    [],
    {},
    "9" * 19,
)
WRONG_TYPES: tuple[tuple[str, Any], ...] = (
    ("stage", 7),
    ("demand", ["cpu"]),
    ("after", "s0"),
    ("gang", "yes"),
    ("gang", 1),
    ("retries", "3"),
    ("labels", []),
    ("command", "echo hello"),
    ("env", ["A=b"]),
    ("cwd", 1),
    ("timeout_ms", "60s"),
    ("estimate_ms", {}),
)
OUT_OF_RANGE = (
    ("tasks", 0),
    ("tasks", -3),
    ("tasks", TASKS_MAX + 1),
    ("retries", -1),
    ("retries", RETRIES_MAX + 1),
    ("timeout_ms", 0),
    ("duration_ms", -1),
    ("estimate_ms", -1),
    ("estimate_ms", DURATION_MS_MAX + 1),
)
NO_LABELS: tuple[tuple[Document, str], ...] = (
    ({"zone": 1}, ".zone"),
    ({"-zone": "a"}, ".-zone"),
    ({"": "a"}, '[""]'),
    ({"zone": "x" * (LABEL_VALUE_MAX + 1)}, ".zone"),
    ({"zone": "a\nb"}, ".zone"),
    ({f"l{i}": "x" for i in range(LABELS_MAX + 1)}, ""),
)


def valid_spec(random: Random) -> Document:
    """A spec that the edge takes: one to five stages, most features now and then."""
    names = [f"s{i}" for i in range(random.randint(1, 5))]
    spec: Document = {"stages": [_stage(random, name, names[:i]) for i, name in enumerate(names)]}
    optional = {
        "job": random.choice(WORDS),
        "queue": random.choice(("ads/prod", "default", "q" * SEGMENT_MAX)),
        "priority": random.randint(-PRIORITY_MAX, PRIORITY_MAX),
        "user": "ann",
        "submit_ms": random.randint(0, 2**40),
        "reservation": random.choice((None, "nightly")),
    }
    return {**{key: value for key, value in optional.items() if random.random() < 0.6}, **spec}


def text_of(spec: Any) -> bytes:
    """What goes over the wire, raw pieces in place."""
    text = json.dumps(spec, ensure_ascii=False)
    for piece in text.split("@@")[1::2]:
        text = text.replace(f'"@@{piece}@@"', json.loads(f'"{piece}"'))
    return text.encode()


def raw(text: str) -> str:
    """Text to stand unquoted in place of a value."""
    return f"@@{text}@@"


def slip(make: Slip) -> Slip:
    """Enters a slip in the table by its name."""
    SLIPS[make.__name__] = make
    return make


def _stage(random: Random, name: str, earlier: list[str]) -> Document:
    stage: Document = {"stage": name, "demand": {r: random.choice(some) for r, some in QUANTITIES.items()}}
    match random.randrange(3):
        case 0:
            stage |= {"tasks": random.randint(1, 9), "command": ["sh", "-c", "true"], "env": {"LANG": "C"}, "cwd": "/"}
        case 1:
            stage |= {"tasks": random.randint(1, 9), "duration_ms": random.randint(0, 10**6)}
        case 2:
            stage |= {"durations_ms": [random.randint(0, 10**6) for _ in range(random.randint(1, 5))]}
    if earlier and random.random() < 0.7:
        stage["after"] = random.sample(earlier, random.randint(1, len(earlier)))
    if random.random() < 0.3:
        stage |= {"labels": {"zone": "a"}, "prefer": {"gpu-model": "V100"}, "gang": True, "retries": 3}
    return stage


def _any_stage(random: Random, spec: Document) -> tuple[str, Document]:
    at = random.randrange(len(spec["stages"]))
    return f"stages[{at}]", spec["stages"][at]


def _set(stage: Document, path: str, field: str, value: Any) -> set[str]:
    stage[field] = value
    return {f"{path}.{field}"}


@slip
def unknown_field(random: Random, spec: Document) -> set[str]:
    path, stage = random.choice([("", spec), _any_stage(random, spec)])
    name = random.choice(("taks", "colour", "Demand", "job_name", "x"))
    stage[name] = 1
    return {f"{path}.{name}" if path else name}


@slip
def misspelt_field(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field = random.choice([key for key in stage if key != "stage"])
    stage[f"{field}s"] = stage.pop(field)
    if field in ("duration_ms", "tasks"):  # Their plural, or nearly, is a field too.
        stage[f"{field}x"] = stage.pop(f"{field}s")
        return {f"{path}.{field}x"}
    return {f"{path}.{field}s"}


@slip
def wrong_type(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field, value = random.choice(WRONG_TYPES)
    return _set(stage, path, field, value)


@slip
def wrong_type_of_the_job(random: Random, spec: Document) -> set[str]:
    field, value = random.choice(
        [("job", 7), ("queue", ["ads"]), ("priority", "high"), ("user", None), ("stages", {}), ("reservation", 1)]
    )
    spec[field] = value
    return {field}


@slip
def boolean_for_a_number(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field = random.choice(("tasks", "duration_ms", "estimate_ms", "retries", "timeout_ms"))
    return _set(stage, path, field, random.choice((True, False)))


@slip
def fraction_for_a_whole_number(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field = random.choice(("tasks", "duration_ms", "estimate_ms", "retries", "timeout_ms"))
    return _set(stage, path, field, random.choice((1.0, 2.5, raw("1e2"))))


@slip
def number_out_of_range(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field, value = random.choice(OUT_OF_RANGE)
    return _set(stage, path, field, value)


@slip
def priority_out_of_range(random: Random, spec: Document) -> set[str]:
    spec["priority"] = random.choice((PRIORITY_MAX + 1, -PRIORITY_MAX - 1))
    return {"priority"}


@slip
def number_that_readers_round(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    return _set(stage, path, "estimate_ms", random.choice((2**53, -(2**53), 10**30)))


@slip
def no_number(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    return _set(stage, path, "estimate_ms", raw(random.choice(("NaN", "Infinity", "-Infinity"))))


@slip
def duplicate_key(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    return _set(stage, path, "retries", raw('1, "retries": 1'))


@slip
def missing_field(random: Random, spec: Document) -> set[str]:
    path, stage = random.choice([("", spec), _any_stage(random, spec)])
    field = random.choice(("stage", "demand")) if path else "stages"
    del stage[field]
    return {f"{path}.{field}" if path else field}


@slip
def no_count_of_tasks(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    stage.pop("durations_ms", None)
    stage.pop("tasks", None)
    if "command" not in stage:
        stage["duration_ms"] = 1
    return {f"{path}.tasks"}


@slip
def nothing_to_do(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    for field in ("command", "duration_ms", "durations_ms"):
        stage.pop(field, None)
    stage["tasks"] = 1
    return {path}


@slip
def two_things_to_do(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    if "command" in stage or "durations_ms" in stage:
        later = "duration_ms" if "command" in stage else "durations_ms"
        stage["duration_ms"] = 5
        return {f"{path}.{later}"}
    return _set(stage, path, "durations_ms", [1])


@slip
def counts_that_disagree(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    for field in ("command", "duration_ms"):
        stage.pop(field, None)
    stage["durations_ms"] = [1, 2, 3]
    return _set(stage, path, "tasks", random.choice((2, 4)))


@slip
def bad_duration_among_good_ones(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    durations: list[Any] = [10] * random.randint(1, 50)
    at = random.randrange(len(durations))
    durations[at] = random.choice((-1, True, "10", 1.5, None))
    stage["durations_ms"] = durations
    return {f"{path}.durations_ms[{at}]"}


@slip
def stages_that_wait_for_each_other(random: Random, spec: Document) -> set[str]:
    names = [f"c{i}" for i in range(random.randint(1, 6))]
    first = len(spec["stages"])
    for i, name in enumerate(names):
        stage = {"stage": name, "tasks": 1, "duration_ms": 1, "demand": {"cpu": "1"}, "after": [names[i - 1]]}
        spec["stages"].append(stage)
    return {f"stages[{first + i}].after" for i in range(len(names))}


@slip
def a_stage_that_is_not_there(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    stage.setdefault("after", []).append("nowhere")
    return {f"{path}.after[{len(stage['after']) - 1}]"}


@slip
def a_parent_named_twice(random: Random, spec: Document) -> set[str]:
    spec["stages"].append({**spec["stages"][0], "stage": "last", "after": ["s0", "s0"]})
    return {f"stages[{len(spec['stages']) - 1}].after[1]"}


@slip
def a_stage_name_taken(random: Random, spec: Document) -> set[str]:
    spec["stages"].append(dict(random.choice(spec["stages"])))
    return {f"stages[{len(spec['stages']) - 1}].stage"}


@slip
def no_name(random: Random, spec: Document) -> set[str]:
    if random.random() < 0.5:
        spec["job"] = random.choice(NO_NAMES)
        return {"job"}
    path, stage = _any_stage(random, spec)
    return _set(stage, path, "stage", random.choice(NO_NAMES))


@slip
def half_a_character(random: Random, spec: Document) -> set[str]:
    spec["user"] = raw('"\\ud800"')
    return {"user"}


@slip
def empty_list(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    if random.random() < 0.5:
        spec["stages"] = []
        return {"stages"}
    return _set(stage, path, random.choice(("command", "durations_ms")), [])


@slip
def nothing_asked_for(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    return _set(stage, path, "demand", random.choice(({}, {"cpu": 0}, {"cpu": "0", "memory": "0Gi"})))


@slip
def no_quantity(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field = random.choice(("demand", "estimate_demand"))
    stage[field] = {"cpu": "1", "memory": random.choice(NO_QUANTITIES)}
    return {f"{path}.{field}.memory"}


@slip
def no_resource(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    name, shown = random.choice(
        [("CPU", "CPU"), ("2fast", "2fast"), ("a b", '["a b"]'), ("x" * 64, f'["{"x" * 37}..."]')]
    )
    stage["demand"][name] = 1
    return {f"{path}.demand{shown}" if shown[0] == "[" else f"{path}.demand.{shown}"}


@slip
def estimate_without_a_resource(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    stage["estimate_demand"] = {"cpu": "1"}
    return {f"{path}.estimate_demand.memory"}


@slip
def no_queue_path(random: Random, spec: Document) -> set[str]:
    deep = "/".join(["q"] * (QUEUE_DEPTH_MAX + 1))
    spec["queue"] = random.choice(
        ("root", "root/ads", "", "/ads", "ads/", "a//b", "q" * (SEGMENT_MAX + 1), deep, "a\tb")
    )
    return {"queue"}


@slip
def bad_label(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    field = random.choice(("labels", "prefer"))
    value, shown = random.choice(NO_LABELS)
    stage[field] = value
    return {f"{path}.{field}{shown}"}


@slip
def bad_environment(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    name, value = random.choice(
        [("A=B", "c"), ("1A", "c"), ("A", "\x00"), ("A", 1), (random.choice(TASK_VARIABLES), "x")]
    )
    stage["env"] = {name: value}
    return {f'{path}.env["A=B"]' if "=" in name else f"{path}.env.{name}"}


@slip
def bad_command(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    stage["command"] = ["sh", random.choice(("", 1, None, "a\x00b", ["-c"]))]
    return {f"{path}.command[1]"}


@slip
def bad_folder(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    return _set(stage, path, "cwd", random.choice(("", "x" * (CWD_MAX + 1), "/a\x00")))


@slip
def null_for_what_has_a_default(random: Random, spec: Document) -> set[str]:
    path, stage = _any_stage(random, spec)
    return _set(
        stage, path, random.choice(("gang", "retries", "labels", "prefer", "env", "after", "demand", "stage")), None
    )
