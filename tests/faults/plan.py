"""What one seed draws: a cell, its jobs, which kinds of faults there are (swarm testing), and when.

Each kind of draw has dice of its own, so that a plan with one fault less is otherwise the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.broker import Rates

FAULTS_FROM_MS = 3_000
SPANS_MS = (3_000, 4_000, 5_000, 6_000, 7_000, 9_000, 14_000, 27_000)
"""Faults last for one of these: most stories are short, for the sake of more of them."""
JOBS_PART = 0.75
"""Jobs come within this part of the time until faults end."""
LEASE_MS, NODE_LEASE_MS = 1_500, 2_500

SPARE = ("estimator", "planner", "gateway")
"""Without these jobs run all the same."""
SERVICES = ("fairness", "leftover", "estimator", "planner", "gateway")
POINTS = (
    ("admission", ("before_consume", "after_consume", "before_judge", "after_judge", "before_append", "after_append",
                   "before_read_back", "after_read_back", "before_close", "after_close", "before_snapshot",
                   "after_snapshot")),
    ("service", ("before_consume", "after_consume", "before_decide", "after_decide", "before_publish", "after_publish",
                 "before_snapshot", "after_snapshot")),
    ("agent", ("before_consume", "after_consume", "before_publish", "after_publish", "before_task_start",
               "after_task_start")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One event. `kind`: see `KINDS`; `target`: a process, node or partition; `much`: for how long, by how much, or at
    which hit of a point."""

    at_ms: int
    kind: str
    target: str
    much: int = 0

    def __str__(self) -> str:
        return f"{self.at_ms} ms: {self.kind} {self.target} {self.much}"


@dataclass(frozen=True, slots=True)
class Job:
    """What is submitted when, how it has to end, and when it is cancelled."""

    at_ms: int
    spec: dict[str, Any]
    outcome: str
    cancel_ms: int | None = None

    @property
    def name(self) -> str:
        """Its id."""
        return str(self.spec["job"])


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed draws. `on`: the kinds of faults that it has; `standbys`: services with a second instance.
    `bad_ms`: when something is sent that cannot be read. `until_ms`: when faults end. `without`: services that the cell
    can do without, and does."""

    seed: int
    nodes: dict[str, int]
    jobs: tuple[Job, ...]
    shards: int
    standbys: tuple[str, ...]
    on: tuple[str, ...]
    rates: Rates
    faults: tuple[Fault, ...]
    knobs: dict[str, Any] = field(default_factory=dict)
    snapshot_rounds: int = 4
    bad_ms: tuple[int, ...] = ()
    until_ms: int = FAULTS_FROM_MS + SPANS_MS[-1]
    without: tuple[str, ...] = ()

    def size(self) -> int:
        """For shrinking: less is simpler."""
        rates = sum(bool(getattr(self.rates, kind)) for kind in RATES)
        return (
            5 * len(self.jobs)
            + len(self.bad_ms)
            + 4 * len(self.faults)
            + 3 * len(self.nodes)
            + 4 * rates
            + len(self.standbys)
        )


RATES = ("lost", "unknown", "late", "torn", "repeated", "stalled", "reading")
RATE_MAX = {"lost": 300, "unknown": 300, "late": 300, "torn": 200, "repeated": 800, "stalled": 3_000, "reading": 100}
EVENTS = (
    "kill",
    "point",
    "pause",
    "wall",
    "cut",
    "reboot",
    "power",
    "away",
    "shim",
    "slow",
    "absence",
    "held",
    "parted",
)


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"plan {seed}")
    until_ms = FAULTS_FROM_MS + dice.choice(SPANS_MS)
    nodes = {f"n{at}": dice.choice((2, 3, 4)) for at in range(dice.choice((1, 1, 2, 2, 2, 3)))}
    shards = dice.choice((1, 1, 1, 2))
    standbys = tuple(name for name in ("admission", "fairness", "leftover") if dice.random() < 0.4)
    without = tuple(name for name in SPARE if dice.random() < 0.5)
    part = dice.choice((0.1, 0.2, 0.4, 0.7))
    on = tuple(kind for kind in (*RATES, *EVENTS) if dice.random() < part)
    count = dice.randrange(2, 5 if until_ms < 10_000 else 9)
    jobs = tuple(_job(random.Random(f"job {seed} {at}"), at, max(nodes.values()), until_ms) for at in range(count))
    if "parted" in on and len(nodes) > 1:
        jobs += (_long(dice, count),)
    rates = Rates(hop_ms=dice.choice((0.5, 2, 20)))
    drawn = {kind: dice.randrange(10, RATE_MAX[kind]) for kind in RATES}
    rates = rates.but({kind: drawn[kind] for kind in RATES if kind in on})
    cell = Cell(nodes, shards, standbys, until_ms)
    faults = [fault for kind in EVENTS if kind in on for fault in _faults(kind, random.Random(f"{kind} {seed}"), cell)]
    knobs = {
        "sequencer_lease_ms": LEASE_MS,
        "node_lease_ms": NODE_LEASE_MS,
        "retry_backoff_ms": dice.choice((0, 200)),
        "altruism_shards": shards,
        "round_gap_ms": dice.choice((0, 0, 200)),
    }
    rounds = dice.choice((2, 4, 10))
    bad_ms = tuple(dice.randrange(1_000, int(until_ms * JOBS_PART)) for _ in range(dice.randrange(3)))
    ordered = tuple(sorted(faults, key=lambda fault: (fault.at_ms, fault.kind, fault.target)))
    return Plan(
        seed, nodes, jobs, shards, standbys, on, rates, ordered, knobs, rounds, bad_ms, until_ms, without
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """What faults may happen to, and until when."""

    nodes: dict[str, int]
    shards: int
    standbys: tuple[str, ...]
    until_ms: int


# ---------------------------------------------------------------- jobs
def _stage(dice: random.Random, name: str, tasks: int, codes: tuple[int, ...] = (0,), **more: Any) -> dict[str, Any]:
    ms = dice.choice((100, 400, 2_000, 5_000, 8_000))
    command = ["run", str(ms), *map(str, codes)]
    demand = {"cpu": dice.choice(("500m", "1")), "memory": "64Mi"}
    return {"stage": name, "tasks": tasks, "demand": demand, "command": command, **more}


def _plain(dice: random.Random, cpu: int) -> tuple[list[dict[str, Any]], str]:
    return [_stage(dice, "run", dice.randrange(1, 5))], "succeeded"


def _graph(dice: random.Random, cpu: int) -> tuple[list[dict[str, Any]], str]:
    first, second = _stage(dice, "first", dice.randrange(1, 4)), _stage(dice, "second", 2)
    return [first, second, _stage(dice, "join", 1, after=["first", "second"])], "succeeded"


def _gang(dice: random.Random, cpu: int) -> tuple[list[dict[str, Any]], str]:
    return [_stage(dice, "gang", min(2, cpu), gang=True)], "succeeded"


def _again(dice: random.Random, cpu: int) -> tuple[list[dict[str, Any]], str]:
    return [_stage(dice, "shaky", 2, (3, 0), retries=9)], "succeeded"


def _fails(dice: random.Random, cpu: int) -> tuple[list[dict[str, Any]], str]:
    return [_stage(dice, "bad", 1, (3,), retries=1), _stage(dice, "never", 1, after=["bad"])], "failed"


def _endless(dice: random.Random, cpu: int) -> tuple[list[dict[str, Any]], str]:
    return [{**_stage(dice, "endless", 1), "command": ["run", "100000000"]}], "cancelled"


JOB_KINDS: tuple[Callable[[random.Random, int], tuple[list[dict[str, Any]], str]], ...] = (
    _plain, _plain, _graph, _gang, _again, _fails, _endless,
)  # fmt: skip


def _long(dice: random.Random, at: int) -> Job:
    """Runs on whenever a node is cut off, and could run elsewhere."""
    stages = [{**_stage(dice, "run", 3), "command": ["run", "9000", "0"]}]
    return Job(dice.randrange(1_000, 2_500), {"job": f"j{at}-long", "priority": 1, "stages": stages}, "succeeded")


def _job(dice: random.Random, at: int, cpu: int, until_ms: int) -> Job:
    kind = dice.choice(JOB_KINDS)
    stages, outcome = kind(dice, cpu)
    at_ms = dice.randrange(1_000, int(until_ms * JOBS_PART))
    spec = {"job": f"j{at}{kind.__name__.replace('_', '-')}", "priority": dice.randrange(2), "stages": stages}
    return Job(at_ms, spec, outcome, at_ms + dice.randrange(500, 9_000) if outcome == "cancelled" else None)


# ---------------------------------------------------------------- faults
def _faults(kind: str, dice: random.Random, cell: Cell) -> list[Fault]:
    nodes = cell.nodes
    services = ["admission", *SERVICES, *(f"altruism-{shard}" for shard in range(cell.shards))]
    services += [f"{name}+" for name in cell.standbys]
    agents = [f"agent-{node}" for node in nodes]
    found = []
    for _ in range(dice.randrange(1, 6)):
        at_ms = dice.randrange(FAULTS_FROM_MS, cell.until_ms)
        match kind:
            case "kill":
                found.append(
                    Fault(at_ms, kind, dice.choice([*services, *agents * 4]), dice.choice((200, 3_000, 9_000)))
                )
            case "point":
                found.append(_at_point(dice, at_ms, services, agents))
            case "pause":
                found.append(
                    Fault(at_ms, kind, dice.choice([*services, *agents * 4]), dice.choice((300, 3_000, 9_000)))
                )
            case "absence":  # Of an agent, for longer than its node's lease.
                kinds = ("kill", "pause", "cut")
                found.append(Fault(at_ms, dice.choice(kinds), dice.choice(agents), dice.randrange(4_000, 9_000)))
            case "wall":
                found.append(
                    Fault(at_ms, kind, dice.choice(services[:1]), dice.choice((-3_600_000, -700, 700, 90_000)))
                )
            case "cut":
                found.append(
                    Fault(at_ms, kind, dice.choice([*services, *agents * 4]), dice.choice((800, 3_000, 9_000)))
                )
            case "reboot" | "shim":
                found.append(Fault(at_ms, kind, dice.choice([*nodes]), dice.randrange(500, 9_000)))
            case "held":
                found.append(Fault(at_ms, kind, dice.choice(("record", "claim")), dice.randrange(1_000, 6_000)))
            case "parted":
                found.append(Fault(at_ms, kind, dice.choice(agents), dice.randrange(700, 1_350)))
            case "power":
                found.append(Fault(at_ms, kind, "everything", dice.randrange(500, 3_000)))
            case "away":
                found.append(Fault(at_ms, kind, "broker", dice.choice((300, 2_000, 6_000))))
            case "slow":
                topic = dice.choice(("cluster.log", "tasks", "nodes", "shares", "asks", "grants", "releases", "plans"))
                found.append(Fault(at_ms, kind, topic, dice.randrange(1_000, 8_000)))
    return found[: {"power": 2, "reboot": 2, "away": 2, "parted": 1}.get(kind)]


def _at_point(dice: random.Random, at_ms: int, services: list[str], agents: list[str]) -> Fault:
    group, points = dice.choice(POINTS)
    if group == "admission":
        target = "admission"
    elif group == "agent":
        target = dice.choice(agents)
    else:
        target = dice.choice([name for name in services if not name.startswith(("admission", "gateway"))])
    return Fault(at_ms, "point", f"{target}:{dice.choice(points)}", dice.randrange(1, 4))
