"""`python -m services.cli.records_page`: writes docs/records.md: every record and decision, with an example.

With `--check` it writes nothing and exits with 1 where the page is not current.
"""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from largesse.log.codec import decode
from largesse.log.record_lines import line_of
from schemas.registry import NEWEST, LogBody, Released, RouterBody
from schemas.topics import LOG, TOPICS
from services.cli.show import plain

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "records.md"
SAMPLES = ROOT / "schemas" / "samples"

EXAMPLE_CHARACTERS = 118
"""Characters of a line of an example; a value that needs more is broken up."""

_HEAD = """# Records

<!-- Written by `make docs` from the schemas and their samples. -->

Everything that a cell knows is a record of its log, and everything that it decides is a document of a decision topic,
which a record names. This page has each with its fields and one example. `largesse tail LOG --type TYPE --json` shows
those of a log of your own; the JSON schemas are in `schemas/published`, with
[asyncapi.yaml](../schemas/published/asyncapi.yaml).

Every record has the same envelope: `type` and `version` of its body, the `cell`, its `seq` (its place in the log, from
1, without gaps), the `round` that was opened last, log `time` in Unix milliseconds, its `id` (`CELL/SEQ` in the log),
and the `cause`: the id of what it answers, empty where that is an input, whose topic, partition and offset stand in the
header of the message. The examples below are bodies; one record is, whole:

```json
{example}
```

Amounts are integers: thousandths of a core, MiB of memory, thousandths of a GPU; shares are in 10⁻⁹ of the cell, times
in milliseconds.
"""


def records_page() -> str:
    """The whole page."""
    logged, routed = get_args(LogBody), get_args(RouterBody)
    groups = [
        ("The log", [name for name, released in NEWEST.items() if released.model in logged]),
        ("Decisions", [name for name, released in NEWEST.items() if released.model not in (*logged, *routed)]),
        ("The router's log", [name for name, released in NEWEST.items() if released.model in routed]),
    ]
    example = _broken(json.loads((SAMPLES / "NodeLost.v1.json").read_bytes()), 0)
    lines = [_HEAD.replace("{example}", example)]
    for title, names in groups:
        lines += [f"## {title}", ""]
        lines += [", ".join(f"[{name}](#{name.lower()})" for name in names), ""]
        for name in names:
            lines += [*_about(name, NEWEST[name]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _about(name: str, released: Released) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield inspect.cleandoc(released.model.__doc__ or "")
    yield ""
    yield _written(name)
    yield ""
    sample = (SAMPLES / f"{name}.v{released.version}.json").read_bytes().strip()
    record = decode(sample)
    if LOG in _topics(name):
        yield "As `largesse tail` shows the example:"
        yield ""
        yield f"    {plain(line_of(record)).rstrip()}"
        yield ""
    yield "```json"
    yield _broken(json.loads(sample)["body"], 0)
    yield "```"


def _topics(name: str) -> list[str]:
    return [topic.name for topic in TOPICS if name in topic.bodies and topic.kind in ("log", "decision")]


def _written(name: str) -> str:
    """Where it stands, who writes it and who reads it."""
    said = []
    for topic in TOPICS:
        if topic.name in _topics(name):
            readers = "everybody but clients" if topic.name == LOG else ", ".join(topic.readers)
            said.append(f"in `{topic.name}`, written by {', '.join(topic.writers)}, read by {readers}")
    return f"Version {NEWEST[name].version}; {'; '.join(said)}."


def _broken(value: object, indent: int, before: int = 0) -> str:
    """A value as JSON: on one line where it fits behind `before` characters, else a line for each member."""
    line = json.dumps(value, ensure_ascii=False)
    if indent + before + len(line) <= EXAMPLE_CHARACTERS or not isinstance(value, dict | list) or not value:
        return line
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        members = [f"{pad}{json.dumps(key)}: {_broken(item, indent + 2, len(key) + 4)}" for key, item in value.items()]
    else:
        members = [pad + _broken(item, indent + 2) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(members) + f"\n{' ' * indent}{last}"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == records_page()
        sys.exit(0 if current else f"{PAGE} is not current: run `make docs`")
    PAGE.write_text(records_page(), encoding="utf-8")
