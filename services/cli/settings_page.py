"""`python -m services.cli.settings_page`: writes docs/settings.md: every setting with its default and unit.

With `--check` it writes nothing and exits with 1 where the page is not current.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

from largesse.process.usage import DESCRIPTIONS
from largesse.settings import PREFIX, Settings
from schemas.access import TOKENS_MAX
from schemas.edge.base import BATCH_MAX, TASKS_MAX
from schemas.edge.jobs import STAGES_MAX
from schemas.edge.nodes import DEVICES_MAX
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.edge.task_checks import MESSAGE_TASKS_MAX
from schemas.policy import JOB_TASKS_MAX, KNOBS, Policy
from schemas.presets import PRESETS
from services.admission.core.state import LIVE_JOBS_MAX, SKIPS_MAX
from services.agent.settings import VARIABLES as AGENT
from services.bridge.settings import VARIABLES as BRIDGE
from services.gateway.shell import VARIABLES as GATEWAY
from services.router.settings import VARIABLES as ROUTER

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

_UNITS = (("_ms", "ms"), ("_permille", "per mille"))
_LENGTHS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
"""Milliseconds of each unit, the largest first."""

_ENVIRONMENT_UNITS = {
    "_SECONDS": "s", "_HOURS": "h", "_MINUTES": "min", "_MIB": "MiB", "_MS": "ms", "_BYTES": "bytes",
}  # fmt: skip

_HOLDS = {
    "plans_jobs": "jobs are planned",
    "has_shadow": "shadow order",
    "has_pools": "pools for classes of jobs",
    "counts_slots": "slots are counted",
    "may_starve": "a queue may get nothing",
}
"""What a preset has more than others, by the field of PresetFacts."""

_HOLDS_NOT = {
    "has_queues": "no shares, guarantees or maxima of queues",
    "keeps_job_order": "`job_order` is `dagps`",
    "has_reservations": "no reservations",
}
"""What others have and a preset has not."""

_CLIENT = (
    (
        "LARGESSE_URL",
        "`http://127.0.0.1:8642`",
        "the cell that commands ask ([which cell](command-line.md#which-cell))",
    ),
    ("LARGESSE_USER", "your account's name", "the user in whose name they ask"),
    ("LARGESSE_TOKEN_FILE", "", "the file with the token that they send ([tokens](security.md#tokens))"),
    ("LARGESSE_TOKEN", "", "the token itself, where there is no file"),
    (
        "LARGESSE_CA_FILE",
        "the system's",
        "the file with the authorities that may sign the certificate of an `https://` gateway ([TLS](security.md#tls))",
    ),
    ("LARGESSE_CONTEXT", "", "the context of the config file that they use"),
    ("XDG_CONFIG_HOME", "`~/.config`", "the folder in which `largesse` keeps its config file"),
    ("LARGESSE_DEBUG", "", "1: show the traceback of an internal error"),
)

_ARCHIVER = (
    ("LARGESSE_ARCHIVE", "", "where the archive and the checkpoints lie"),
    ("LARGESSE_CHECKPOINT_EVERY", "`6h`", "a checkpoint is due once the newest is so old"),
    ("LARGESSE_CHECKPOINT_RECORDS", "1,000,000", "or this number of records behind the log"),
    ("LARGESSE_KEEP_LOG", "all", "what is older goes, behind the older of two checkpoints, once the archive has it"),
    ("LARGESSE_SEGMENT_AGE", "`1h`", "a segment of the archive ends when its first record is so old"),
    ("LARGESSE_ARCHIVE_KEY_FILE", "", "file with the private key with which the archive is signed"),
)

_LIMITS = (
    ("any message, job or config", f"{INPUT_BYTES_MAX:,} bytes"),
    (
        "a job",
        f"{STAGES_MAX:,} stages, {TASKS_MAX:,} tasks per stage, {JOB_TASKS_MAX:,} tasks in all (see `job_tasks_max`)",
    ),
    ("a cell", f"{LIVE_JOBS_MAX:,} live jobs, and the tasks that the knobs above allow"),
    ("an agent's report on tasks", f"{BATCH_MAX:,} items, whose ranges add up to {MESSAGE_TASKS_MAX:,} tasks"),
    ("a node", f"{DEVICES_MAX:,} GPUs"),
    ("tokens that are neither revoked nor expired", f"{TOKENS_MAX:,}"),
    ("inputs that an operator has skipped and that have not been reached yet", f"{SKIPS_MAX:,}"),
)


def settings_page() -> str:
    """The page, in Markdown."""
    return "\n".join(
        (
            "# Settings",
            "",
            "<!-- Generated from the code by `make docs`. Do not edit. -->",
            "",
            "## Policy",
            "",
            "Policy knobs change decisions, so every change of one is a record of the log. They are set by `policy`",
            "in a cluster file, by `set` in a file for `largesse config apply`, and by `--set KEY=VALUE` in a",
            "simulation.",
            "",
            *_table(("knob", "default", "unit", "meaning"), _knobs()),
            "",
            "## Presets",
            "",
            "What holds under each value of `preset`, where no knob or queue says otherwise.",
            "[Queues](queues.md#presets) explains them. `sharing`: among queues, or the order of one list of all jobs.",
            "",
            *_table(("preset", "how capacity is shared", "sharing", "holds"), _presets()),
            "",
            "## Services",
            "",
            "Settings of a process are environment variables; they never change a decision. `largesse up` runs all",
            "services in one process; it reads those of this table except `LARGESSE_BUS`, `LARGESSE_CELL`,",
            "`LARGESSE_PARTITION`, `LARGESSE_CELLS` and `LARGESSE_CELL_COPIES`, and of an agent's settings",
            "`LARGESSE_TASK_USER`, `LARGESSE_NODE_PORTS`, `LARGESSE_NODE_SECRETS` and those",
            "about control groups, limits, output, kept runs and free disk space. It names the others where they are",
            "set, and refuses `LARGESSE_HTTP`: its address is `--http`.",
            "",
            *_table(("variable", "default", "unit", "meaning"), _services()),
            "",
            "## The gateway",
            "",
            *_table(("variable", "default", "unit", "meaning"), _variables(GATEWAY)),
            "",
            "## A node's agent",
            "",
            *_table(("variable", "default", "unit", "meaning"), _variables(AGENT)),
            "",
            "## The bridge",
            "",
            "An agent whose `LARGESSE_BUS` is that broker, `mqtt://` or `mqtts://`, reads the two files, too.",
            *("", *_table(("variable", "default", "unit", "meaning"), _variables(BRIDGE)), ""),
            *_router(),
            *_archiver(),
            *_named("The command line", _CLIENT),
            "## Limits",
            "",
            "Input beyond a limit is refused with the field and the number. The gateway has",
            "[limits of its own](http.md#limits).",
            "",
            *_table(("input", "at most"), _LIMITS),
            "",
        )
    )


def _archiver() -> tuple[str, ...]:
    said = "`largesse archive keep` reads these and `LARGESSE_METRICS_PORT`, and as every command those below."
    return _named("The archiver", _ARCHIVER, said, "")


def _named(title: str, rows: Iterable[tuple[str, ...]], *said: str) -> tuple[str, ...]:
    """A part of the page with a table of variables without units."""
    table = _table(("variable", "default", "meaning"), ((f"`{name}`", *rest) for name, *rest in rows))
    return (f"## {title}", "", *said, *table, "")


def _router() -> tuple[str, ...]:
    said = "The router that leads writes these into its log: they count for all decisions from there on."
    table = _table(("variable", "default", "unit", "meaning"), _variables(ROUTER))
    return "## The router", "", said, "", *table, ""


def variables() -> frozenset[str]:
    """All variables that the page names, without LARGESSE_."""
    client = (name.removeprefix(PREFIX) for name, *_ in (*_ARCHIVER, *_CLIENT) if name.startswith(PREFIX))
    return frozenset([*GATEWAY, *AGENT, *BRIDGE, *ROUTER, *(knob.name.upper() for knob in fields(Settings)), *client])


def _knobs() -> Iterable[Sequence[str]]:
    hints = get_type_hints(Policy)
    for knob in fields(Policy):
        unit = next((unit for part, unit in _UNITS if part in knob.name), "")
        description = KNOBS[knob.name].help
        if get_origin(hints[knob.name]) is Literal:
            values = [f"`{each}`" for each in get_args(hints[knob.name])]
            if not all(value in description for value in values):
                description += ": " + ", ".join(values)
        default = knob.default_factory() if callable(knob.default_factory) else knob.default
        yield f"`{knob.name}`", _value(default, unit), unit, description


def _presets() -> Iterable[Sequence[str]]:
    for name, facts in PRESETS.items():
        holds = [text for field, text in _HOLDS.items() if getattr(facts, field)]
        holds += [text for field, text in _HOLDS_NOT.items() if not getattr(facts, field)]
        yield f"`{name}`", facts.help, f"`{facts.sharing}`", "; ".join(holds)


def _services() -> Iterable[Sequence[str]]:
    for knob in fields(Settings):
        unit = "ms" if knob.name.endswith("_ms") else ""
        default = "" if knob.default in (None, "") else _value(knob.default, unit)
        yield f"`{PREFIX}{knob.name.upper()}`", default, unit, DESCRIPTIONS[knob.name]


def _variables(variables: dict[str, tuple[str, str]]) -> Iterable[Sequence[str]]:
    for name, (default, description) in variables.items():
        unit = next((unit for part, unit in _ENVIRONMENT_UNITS.items() if name.endswith(part)), "")
        yield f"`{PREFIX}{name}`", f"{int(default):,}" if default.isdecimal() else default, unit, description


def _value(value: object, unit: str) -> str:
    """A default for people: `60,000 (1 minute)`."""
    if not isinstance(value, int):
        return f"`{value}`"
    if unit == "ms" and value:
        for length_ms, name in _LENGTHS:
            if value % length_ms == 0:
                count = value // length_ms
                return f"{value:,} ({count:,} {name}{'s' if count > 1 else ''})"
    return f"{value:,}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == settings_page()
        sys.exit(0 if current else f"{PAGE} is not current: run `make docs`")
    PAGE.write_text(settings_page(), encoding="utf-8")
