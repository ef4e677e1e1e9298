"""The rooms of the house as data: which files belong to each, and what they may import. The first that matches counts.

A path pattern is matched against the path below the project root, `*` also matches slashes. In `ours` and `never`,
`{service}` stands for the folder below services/ that a file lies in; a name opens everything below it.
"""

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase

PURE = frozenset(
    {"__future__", "bisect", "collections", "dataclasses", "enum", "fractions", "functools"}
    | {"heapq", "itertools", "math", "operator", "typing"}
)
"""The standard library without a clock, a socket or a dice."""

COMPILER = frozenset({"mypy_extensions"})  # What classes and numbers say to mypyc; of no effect elsewhere.

STDLIB = frozenset(sys.stdlib_module_names)
CLOCK_AND_CHANCE = frozenset({"time", "datetime", "random", "secrets", "uuid"})

_PROCESSES = ("services.*.__main__", "services.*.milp")  # Started, never imported.
_FILTERS = ("services.*.solve", "services.*.offline")
_SHELLS = ("services.*.shell", "services.*.sequencer", "services.*.main", "services.*.app")
_AROUND_A_CORE = (*_SHELLS, *_FILTERS, *_PROCESSES)


@dataclass(frozen=True, slots=True)
class Room:
    """`ours`: what of this project may be imported; `others`: top-level modules from elsewhere; `never` overrules both.

    `pure`: also no built-in I/O, no object identity, no broad `except` that carries on. `whole`: no floats and no true
    division. `lines_max`: of a function.
    """

    name: str
    paths: tuple[str, ...]
    ours: tuple[str, ...] = ()
    others: frozenset[str] = PURE
    never: tuple[str, ...] = ()
    pure: bool = False
    whole: bool = False
    lines_max: int = 60


ROOMS = (
    Room(
        "the export of the vocabulary",
        ("schemas/export.py",),
        ours=("schemas",),
        others=STDLIB | {"pydantic", "pydantic_core"},
    ),
    Room(
        "the reader of JSON",  # The one place of the vocabulary that meets bytes.
        ("schemas/edge/strict_json.py",),
        ours=("schemas",),
        others=PURE | {"decimal", "json", "re"},
        never=("schemas.export",),
        pure=True,
    ),
    Room(
        "the vocabulary",
        ("schemas/*",),
        ours=("schemas",),
        others=PURE | COMPILER | {"decimal", "re", "pydantic", "pydantic_core", "typing_extensions"},
        never=("schemas.export",),
        pure=True,
    ),
    Room(
        "the pure engine",
        ("largesse/core.py", "largesse/ids.py", "largesse/open_round.py"),
        ours=("schemas", "largesse.core", "largesse.ids", "largesse.open_round"),
        others=PURE | {"hashlib"},
        never=("schemas.export",),
        pure=True,
    ),
    Room(
        "rounds in one process",  # A simulation imports them, on a Python that has neither bus nor metrics installed.
        ("largesse/rounds.py", "largesse/log/wanted.py"),
        ours=("schemas", *(f"largesse.{name}" for name in ("core", "ids", "log.codec", "log.wanted"))),
        others=PURE,
        never=("schemas.export",),
        pure=True,
    ),
    Room(
        "what every core folds alike",
        ("largesse/lifecycle/*",),
        ours=("schemas", "largesse.lifecycle"),
        others=PURE | COMPILER,
        never=("schemas.export",),
        pure=True,
        whole=True,
    ),
    Room(
        "telemetry",
        ("largesse/telemetry.py",),
        ours=("schemas", "largesse"),
        others=STDLIB | {"orjson", "prometheus_client", "structlog"},
    ),
    Room(
        "the engine beside the world",
        ("largesse/shell.py", "largesse/moments.py", "largesse/bus/*/bus.py", "largesse/bus/*.py"),
        ours=("schemas", "largesse"),
        others=STDLIB | {"aiokafka", "backports", "compression", "orjson", "pydantic", "structlog"},
    ),
    Room(
        "clocks and chance",
        ("largesse/clocks.py",),
        ours=(),
        others=frozenset({"secrets", "time"}),
    ),
    Room(
        "a client of MQTT",
        ("largesse/mqtt/client.py",),
        ours=("schemas", "largesse"),
        others=(STDLIB - CLOCK_AND_CHANCE) | {"aiomqtt", "paho"},
    ),
    Room(
        "archives",  # They are closed by age, and signed.
        ("largesse/archive/*",),
        ours=("schemas", "largesse"),
        others=STDLIB | {"backports", "compression", "cryptography", "obstore", "orjson", "pydantic"},
    ),
    Room(
        "certificates",  # They hold from a day to a day.
        ("largesse/tls.py",),
        ours=("schemas", "largesse"),
        others=STDLIB | {"cryptography"},
    ),
    Room(
        "the reader of YAML",
        ("largesse/bodies.py",),
        ours=("schemas",),
        others=PURE | {"json", "re", "yaml"},
    ),
    Room(
        "the library of HTTP",
        ("largesse/http_library.py",),
        others=STDLIB | {"httpx"},
    ),
    Room(
        "the client library",
        ("largesse/client/*",),
        ours=tuple(f"largesse.{name}" for name in ("access", "bodies", "client", "contexts", "http_library")),
        others=STDLIB | {"_typeshed", "cloudpickle", "httpx", "httpx_sse"},
    ),
    Room(
        "the engine",
        ("largesse/*",),
        ours=("schemas", "largesse"),
        others=(STDLIB - CLOCK_AND_CHANCE) | {"aiokafka", "orjson", "pydantic", "structlog"},
    ),
    Room(
        "the command line",  # `up` and `demo` run every service in one process: the one host that starts shells.
        ("services/cli/*",),
        ours=("schemas", "largesse", "services"),
        others=STDLIB | {"httpx", "httpx_sse", "rich", "typer", "yaml"},
        never=_PROCESSES,
    ),
    Room(
        "the comparison of presets",  # Plots: only the command line asks for them.
        ("services/simulator/report/*",),
        ours=(
            *("schemas", "largesse", "services.simulator.report"),
            *("services.simulator.class_history", "services.simulator.reservations", "services.simulator.schedule"),
            *("services.simulator.result", "services.simulator.steps", "services.simulator.usage_history"),
        ),
        others=STDLIB | {"plotly"},
    ),
    Room(
        "an importer of manifests",
        ("services/simulator/workloads/kubernetes.py",),
        ours=("schemas", "services.simulator.workloads"),
        others=STDLIB | {"yaml"},
    ),
    Room(
        "a host of cores and of the gateway's view",  # In a process that serves nobody.
        (
            "services/replay/viewing.py",
            "services/replay/bundling.py",
            "services/replay/checkpointing.py",
            "services/replay/redacting.py",
            "services/replay/bisect/*",
            "services/replay/live/*",
        ),
        ours=("schemas", "largesse", "services"),
        others=STDLIB | {"lark"},
        never=("services.cli", "services.gateway.http", *_AROUND_A_CORE),
    ),
    Room(
        "a host of cores",
        ("services/simulator/*", "services/replay/*"),
        ours=("schemas", "largesse", "services"),
        others=STDLIB | COMPILER,
        never=("services.cli", "services.gateway", *_AROUND_A_CORE),
    ),
    Room(
        "a core",
        ("services/*/core.py", "services/*/core/*"),
        ours=("schemas", "largesse.core", "largesse.ids", "largesse.lifecycle", "services.{service}"),
        others=PURE | COMPILER,
        never=("schemas.export", *_AROUND_A_CORE),
        pure=True,
        whole=True,
    ),
    Room(
        "the solver in a process of its own",
        ("services/planner/milp.py",),
        ours=("schemas", "services.planner"),
        others=STDLIB | {"highspy", "numpy"},
        never=("services.*.core", "services.*.shell", "services.*.__main__"),
    ),
    Room(
        "reservations as people write them",
        ("services/planner/rdl/*",),
        ours=("schemas", "services.planner.planning", "services.planner.rdl"),
        others=PURE | {"cronsim", "datetime", "difflib", "lark", "re", "yaml", "zoneinfo"},
        never=("schemas.export",),
    ),
    Room(
        "the gateway's view",
        ("services/gateway/view/*",),
        ours=("schemas", "largesse.core", "largesse.ids", "largesse.lifecycle", "services.gateway.view"),
        others=STDLIB - CLOCK_AND_CHANCE,
    ),
    Room(
        "the gateway's documents",
        ("services/gateway/documents/*",),
        ours=("schemas", "largesse", "services.gateway.view", "services.gateway.documents"),
        others=STDLIB | {"prometheus_client", "pydantic"},
    ),
    Room(
        "the gateway",
        ("services/gateway/*",),
        ours=("schemas", "largesse", "services.gateway"),
        others=STDLIB
        | {
            "cronsim",
            "fastapi",
            "h11",
            "httpx",
            "jwt",
            "prometheus_client",
            "pydantic",
            "starlette",
            "uvicorn",
            "yaml",
        },
    ),
    Room(
        "the agent",
        ("services/agent/*",),
        ours=("schemas", "largesse", "services.agent"),
        others=STDLIB | {"docker", "psutil", "requests"},
    ),
    Room(
        "what a bridge judges and deals",
        ("services/bridge/intake.py", "services/bridge/dealing.py", "services/bridge/allowance.py"),
        ours=("schemas", "largesse.mqtt", "services.bridge"),
        others=PURE | {"hashlib"},
        never=("largesse.mqtt.client", "largesse.mqtt.memory", "largesse.mqtt.settings", *_AROUND_A_CORE),
        pure=True,
    ),
    Room(
        "the bridge",
        ("services/bridge/*",),
        ours=("schemas", "largesse", "services.bridge"),
        others=STDLIB,
    ),
    Room(
        "what the router folds of a cell",  # By the sequencer's core: a job is judged as there.
        ("services/router/following.py", "services/router/backlog.py"),
        ours=("schemas", "largesse", "services.router", "services.admission.core"),
        others=STDLIB - CLOCK_AND_CHANCE,
        never=_AROUND_A_CORE,
    ),
    Room(
        "the router",
        tuple(
            f"services/router/{name}.py" for name in ("cells", "checking", "intake", "placing", "sending", "settings")
        ),
        ours=("schemas", "largesse", "services.router"),
        others=STDLIB - CLOCK_AND_CHANCE,
    ),
    Room(
        "a shell",  # solve.py, dry_run.py: a policy or its core as a filter, one problem from stdin.
        (
            *("services/*/shell.py", "services/*/__main__.py", "services/*/solve.py", "services/*/offline/dry_run.py"),
            *("services/admission/sequencer.py", "services/admission/clock.py", "services/admission/leading.py"),
            *("services/admission/node_leases.py", "services/admission/intake.py", "services/admission/letters.py"),
            *("services/admission/pacing.py", "services/admission/beats.py"),
            *("services/planner/offline/reservation.py", "services/planner/offline/reorganise*.py"),
            *("services/planner/lifeline.py", "services/planner/occurrences.py", "services/planner/renewing.py"),
        ),
        ours=("schemas", "largesse", "services.{service}"),
        others=STDLIB,
    ),
    Room(
        "queues and their levels",  # A tree of queues is to fairness what the graph of a job is to altruism.
        ("services/fairness/accounts/*", "services/fairness/filling/*"),
        ours=(
            *("schemas.quantities", "schemas.queue_tree", "services.fairness"),
            *("schemas.sharing.LIST_POLICIES", "schemas.queues.Queue", "schemas.sharing.Sharing"),
        ),
        others=PURE | COMPILER,
        never=("services.*.core", *_AROUND_A_CORE),
        pure=True,
        whole=True,
    ),
    Room(
        "a policy",
        ("services/*",),
        ours=(
            "schemas.quantities",
            "largesse.lifecycle.dag",
            "schemas.jobs.JobSpec",
            "schemas.jobs.PlacementRule",
            "schemas.jobs.Stage",
            "schemas.placement_rules",
            "schemas.policy.JobOrder",
            "schemas.policy.Placing",
            "schemas.sharing.ServingOrder",
            "services.{service}",
        ),
        others=PURE | COMPILER | {"numpy"},
        never=("numpy.random", "services.*.core", *_AROUND_A_CORE),
        pure=True,
    ),
)


def room_of(path: str) -> Room:
    """The room of a file, `path` being below the project root. Raises LookupError where it has none."""
    for room in ROOMS:
        if any(fnmatchcase(path, pattern) for pattern in room.paths):
            return room
    raise LookupError(f"{path} belongs to no room")


def may_import(room: Room, path: str, name: str) -> bool:
    """Whether a file may import `name`, a module or `module.name`."""
    parts = path.split("/")
    service = parts[1] if len(parts) > 2 else ""
    opened = [".".join(name.split(".")[:length]) for length in range(1, name.count(".") + 2)]

    def meets(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(part, pattern.format(service=service)) for part in opened for pattern in patterns)

    return not meets(room.never) and (opened[0] in room.others or meets(room.ours))
