"""A batch script of Slurm: what its `#SBATCH` lines ask for, as one job.

An array is a stage with a task for each index; a job of several nodes is a gang of one task a node; any other job is
one task, with the cores, memory and GPUs of all it asks for. The time limit is time-out and estimate, and, as a script
has no duration, how long a task lasts where --duration-ms does not say it. With --no-times the line is a job file for
`largesse submit`, and the script is its command, except where several nodes would each run it.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.edge.base import TASKS_MAX
from schemas.edge.jobs import COMMAND_WORD_MAX
from schemas.quantities import Vector, quantity_texts
from services.simulator.workloads.files import Damaged, read_bytes
from services.simulator.workloads.source import Leave, Line, Option, require, unheard
from services.simulator.workloads.when import clean_name, span_s

QUEUES = ("none", "partition", "account", "qos")

OPTIONS = (
    Option("duration_ms", int, 0, "how long a task lasts; 0: the time limit, or an hour where there is none"),
    Option("times", bool, True, "writes submit_ms and duration_ms; without it the line is a job file for submit"),
    Option("queue", str, "none", "names the queue by this option of the script; none: no queue", QUEUES),
    Option("index", str, "SLURM_ARRAY_TASK_ID", "the variable that tells a task of an array its index"),
)

_HOUR_MS = 3_600_000
_SHORT = {
    "J": "job-name", "n": "ntasks", "N": "nodes", "c": "cpus-per-task", "t": "time", "a": "array", "p": "partition",
    "A": "account", "q": "qos", "D": "chdir", "o": "output", "e": "error", "d": "dependency", "C": "constraint",
    "G": "gpus", "w": "nodelist", "x": "exclude", "L": "licenses", "M": "clusters", "b": "begin", "i": "input",
    "B": "extra-node-info", "m": "distribution", "S": "core-spec", "F": "nodefile", "s": "oversubscribe", "H": "hold",
    "k": "no-kill", "O": "overcommit", "Q": "quiet", "v": "verbose", "W": "wait",
}  # fmt: skip
_FLAGS = ("exclusive", "oversubscribe", "hold", "no-kill", "overcommit", "quiet", "verbose", "wait", "requeue",
          "no-requeue", "contiguous", "parsable", "reboot", "spread-job", "use-min-nodes", "get-user-env",
          "ignore-pbs")  # fmt: skip
_KEPT = ("job-name", "ntasks", "nodes", "cpus-per-task", "time", "array", "partition", "account", "qos", "chdir",
         "gpus", "gres", "gpus-per-node", "gpus-per-task", "ntasks-per-node", "mem", "mem-per-cpu",
         "mem-per-gpu", "cpus-per-gpu", "hold", "export")  # fmt: skip
_SIZE = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MIB = {"": 1, "M": 1, "G": 1 << 10, "T": 1 << 20}
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")
_GPU_MILLI = 1000
_SHELLS = ("bash", "sh", "dash", "zsh", "ksh")


@dataclass(slots=True)
class Script:
    """The options of a script by their long names, where each stands, and its text."""

    path: str
    options: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    text: str = ""

    def fault(self, name: str, reason: str) -> Damaged:
        """An error at the option's line."""
        return Damaged(f"{self.path}:{self.lines.get(name, 1)}", f"--{name}", reason)

    def whole(self, name: str, default: int) -> int:
        """A whole number above 0."""
        text = self.options.get(name)
        if text is None:
            return default
        if not text.isdigit() or not 1 <= int(text) <= TASKS_MAX:
            raise self.fault(name, f"has to be a whole number from 1 to {TASKS_MAX}, is {text[:40]!r}")
        return int(text)

    def mib(self, name: str) -> int:
        """An amount of memory in MiB; 0 where there is none."""
        match = _SIZE.fullmatch(self.options.get(name, "0"))
        if match is None:
            raise self.fault(name, f"has to be an amount like 4000M or 16G, is {self.options[name][:40]!r}")
        unit = match[2].upper()
        return -(-int(match[1]) // 1024) if unit == "K" else int(match[1]) * _MIB[unit]

    def gpus(self, name: str) -> int:
        """How many GPUs `2`, `a100:2`, or `gpu:a100:2,shard:1` ask for; 0 where there are none."""
        text = self.options.get(name)
        if text is None:
            return 0
        total = 0
        for part in text.split(","):
            kind, *rest = part.split(":")
            if name == "gres" and kind not in ("gpu", "gres/gpu"):
                continue
            number = (rest[-1] if rest else "1") if name == "gres" else part.split(":")[-1]
            if not number.isdigit():
                if name == "gres" and len(rest) == 1:
                    number = "1"  # gpu:a100
                else:
                    raise self.fault(name, f"has to be like gpu:2 or gpu:a100:2, is {text[:40]!r}")
            total += int(number)
        return total


def convert(
    path: str,
    *,
    duration_ms: int = 0,
    times: bool = True,
    queue: str = "none",
    index: str = "SLURM_ARRAY_TASK_ID",
    leave: Leave = unheard,
) -> Iterator[Line]:
    """One workload line. Raises ValueError for a wrong option and Damaged for a damaged line of the script."""
    require("duration_ms", duration_ms >= 0, "at least 0", duration_ms)
    require("queue", queue in QUEUES, f"one of {', '.join(QUEUES)}", queue)
    require("index", re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", index) is not None, "the name of a variable", index)

    def lines() -> Iterator[Line]:
        script = _read(path)
        for name, text in script.options.items():
            if name not in _KEPT:
                leave(f"--{name}", "option")
            elif name == "gres" and any(part.split(":")[0] not in ("gpu", "gres/gpu") for part in text.split(",")):
                leave("in --gres other than GPUs", "resource")
        indexes, running_max = _indexes(script)
        tasks, demand = _shape(script, leave)
        stage: Line = {
            "stage": "run", "after": [], "tasks": len(indexes) or tasks, "demand": quantity_texts(demand),
        }  # fmt: skip
        if indexes and tasks > 1:
            leave("each is one task here, not a gang of several nodes", "array index", len(indexes))
        elif tasks > 1:
            stage["gang"] = True
        if running_max:
            stage["running_max"] = running_max
        limit_ms = _limit_ms(script)
        if limit_ms:
            stage |= {"timeout_ms": limit_ms, "estimate_ms": limit_ms}
        line: Line = {"job": clean_name(script.options.get("job-name") or path.rsplit("/", 1)[-1])}
        if queue in script.options:
            line["queue"] = clean_name(script.options[queue])
        if times:
            line["submit_ms"] = 0
            if "hold" in script.options:
                leave("--hold", "option")  # Nobody releases a job of a simulation.
            stage["duration_ms"] = duration_ms or limit_ms or _HOUR_MS
        else:
            stage |= _command(script, tasks, indexes, index, leave)
            if "command" not in stage:
                leave("without a command that could be started")
                return
            if "chdir" in script.options:
                stage["cwd"] = script.options["chdir"]
            if env := _environment(script, leave):
                stage["env"] = env
            if "hold" in script.options:
                line["hold"] = True
        yield line | {"stages": [stage]}

    return lines()


def _read(path: str) -> Script:
    """The script; as sbatch does, options after the first command are not looked at."""
    script = Script(path)
    try:
        script.text = read_bytes(path).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise Damaged(path, "", f"is not valid UTF-8 at byte {error.start}") from None
    if not script.text.startswith("#!"):
        raise Damaged(f"{path}:1", "", "has to begin with #!, as sbatch requires it")
    for number, text in enumerate(script.text.split("\n"), 1):
        if text.strip() and not text.lstrip().startswith("#"):
            break
        if text.startswith("#SBATCH"):
            _take(script, text.removeprefix("#SBATCH"), number)
    return script


def _take(script: Script, text: str, number: int) -> None:
    where = f"{script.path}:{number}"
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise Damaged(where, "#SBATCH", f"cannot be read: {error}") from None
    while words:
        word = words.pop(0)
        value: str | None = None
        if word.startswith("--"):
            name, equals, rest = word[2:].partition("=")
            value = rest if equals else None
        elif len(word) > 1 and word[0] == "-":
            name = _SHORT.get(word[1], word[1])
            value = word[2:].removeprefix("=") or None
        else:
            raise Damaged(where, "#SBATCH", f"has to be options like --time=10, has {word[:40]!r}")
        if value is None and name not in _FLAGS:
            if not words or words[0].startswith("--"):
                raise Damaged(where, f"--{name}", "has to have a value")
            value = words.pop(0)
        script.options[name] = value or ""
        script.lines[name] = number


def _indexes(script: Script) -> tuple[list[int], int]:
    """Indexes of an array, in order, and how many may run at a time (0: all); none where the job is no array."""
    text = script.options.get("array")
    if text is None:
        return [], 0
    text, percent, limit = text.partition("%")
    if percent and (re.fullmatch(r"[0-9]{1,7}", limit) is None or not int(limit)):
        raise script.fault("array", f"has to end in a limit of 1 or more like 0-9%4, has {limit[:40]!r}")
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[3] or 1) < 1 or int(match[2] or match[1]) < int(match[1]):
            raise script.fault("array", f"has to be like 0-9, 1-9:2 or 1,3,5, has {part[:40]!r}")
        span = range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if len(found) + len(span) > TASKS_MAX:
            raise script.fault("array", f"has more than {TASKS_MAX} indexes")
        found |= dict.fromkeys(span)
    return sorted(found), min(int(limit or 0), TASKS_MAX)


def _shape(script: Script, leave: Leave) -> tuple[int, Vector]:
    """How many tasks, one a node, and what each holds."""
    nodes_text, dash, _ = script.options.get("nodes", "1").partition("-")
    if dash:
        leave("the least of them are asked for", "range of --nodes")
        script.options["nodes"] = nodes_text
    nodes = script.whole("nodes", 1)
    per_node = script.whole("ntasks-per-node", 0)
    processes = script.whole("ntasks", nodes * (per_node or 1))
    on_node = per_node or -(-processes // nodes)
    gpus = (
        script.gpus("gpus-per-node")
        or script.gpus("gres")
        or script.gpus("gpus-per-task") * on_node
        or -(-script.gpus("gpus") // nodes)
    )
    cpus = script.whole("cpus-per-gpu", 0) * gpus or on_node * script.whole("cpus-per-task", 1)
    demand: Vector = {"cpu": cpus * 1000}
    if script.options.get("mem") == "0":
        leave("all that a node has", "memory")
    mib = script.mib("mem") or script.mib("mem-per-cpu") * cpus or script.mib("mem-per-gpu") * gpus
    if mib:
        demand["memory"] = mib
    if gpus:
        demand["gpu"] = gpus * _GPU_MILLI
    return nodes, demand


def _command(script: Script, tasks: int, indexes: list[int], index: str, leave: Leave) -> Line:
    if tasks > 1:
        leave("of a job of several nodes, each of which would run it", "script")
        return {}
    text = script.text
    if indexes:
        step = indexes[1] - indexes[0] if len(indexes) > 1 else 1
        even = indexes == list(range(indexes[0], indexes[0] + step * len(indexes), step))
        formula = f"$(({indexes[0]} + {step} * LARGESSE_TASK_INDEX))"
        listed = " ".join(map(str, indexes))
        picked = f"$(printf '%s\\n' {listed} | sed -n $((LARGESSE_TASK_INDEX + 1))p)"
        told = f"{index}={formula if even else picked}"
        text = f"{told}; export {index}\n{text}"
    if len(text) > COMMAND_WORD_MAX:
        leave(f"longer than {COMMAND_WORD_MAX:,} characters", "script")
        return {}
    shell = script.text.splitlines()[0].removeprefix("#!").split()
    program = shell[1:2] if shell[:1] == ["/usr/bin/env"] else shell[:1]
    if not program or program[0].rsplit("/", 1)[-1] not in _SHELLS:
        leave("not written for a shell", "script")
        return {}
    return {"command": [*shell, "-c", text]}


def _environment(script: Script, leave: Leave) -> dict[str, str]:
    """Variables that --export sets; those that it takes from who submits are not known here."""
    found: dict[str, str] = {}
    for part in script.options.get("export", "").split(","):
        name, equals, value = part.strip().partition("=")
        if equals and name:
            found[name] = value
        elif name and name.upper() != "NONE":
            leave("taken from who submits", "variable of --export")
    return found


def _limit_ms(script: Script) -> int:
    text = script.options.get("time")
    if text is None or text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return 0
    seconds = span_s(text, minutes=True)
    if not seconds:
        raise script.fault("time", f"has to be like 90, 1:30:00 or 2-12:00:00, is {text[:40]!r}")
    return seconds * 1000
