"""Topics: what they carry, who writes, who reads, how they are keyed and kept.

Writers and readers are no prose: the rights of each principal of a Kafka cluster are made of them (principals.py).
"""

from dataclasses import dataclass
from typing import Literal

LOG = "cluster.log"
SNAPSHOTS = "snapshots"
DEADLETTER = "deadletter"
BEATS = "beats"
"""Signs of life. No position in it is ever saved: who reads it begins at its end, and what lies there is soon gone."""
CELLS = "cells"
"""The list of a deployment's cells, in one partition: only on Kafka."""
ROUTER_JOBS, ROUTER_LOG = "router.jobs", "router.log"
"""Jobs that name no cell, and what becomes of them: one partition each, for all cells of a deployment."""


@dataclass(frozen=True, slots=True)
class Topic:
    """`kind`: an input (any order), the log, a decision, a by-product, or signs of life. `bodies`: type names of its
    messages."""

    name: str
    kind: Literal["input", "log", "decision", "aside", "beat"]
    bodies: tuple[str, ...]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    cleanup: Literal["delete", "compact"] = "delete"


INPUTS = ("access", "config", "nodes", "tasks", "jobs", "reservations")
"""Input topics in the order in which a sequencer looks at them: what frees or tells comes before what asks."""

DECISIONS = ("releases", "plans", "shares", "asks", "grants")

_LOG_BODIES = (
    "SequencerClaimed SequencerAlive JobAdmitted JobRejected InputRefused InputRepeated InputSkipped JobCancelled "
    "JobChanged JobEnded JobTurns NodeRegistered NodeReported NodeDrained NodeLost NodeRemoved NodeForgotten "
    "AttemptsKnown TaskStarted TaskFinished TaskFailed ConfigChanged ReservationRequested ReservationUpdated "
    "ReservationDeleted PlanProposed SeriesRequested SeriesEnded Releases Plans TimeReached RoundOpened RoundClosed "
    "RoundAbandoned TokenMade TokenRevoked Checkpoint"
)

_ROUTER_BODIES = (
    "SequencerClaimed SequencerAlive RouterSet CellsHeard RouteAsked JobRejected InputRefused InputRepeated "
    "JobCancelled CellsJudged JobRouted RouteDeclined RouteTaken RouteLapsed MoveAsked MoveAnswered RouteEnded"
)

_CORES = ("admission", "fairness", "altruism", "leftover", "estimator", "planner", "gateway")
_SNAPSHOTS = (*_CORES, "bridge", "router")
_ASIDE = ("readers", "operators")
"""Who reads a log beside its services."""


def _decided(*services: str) -> tuple[str, ...]:
    """Readers of a decision: whoever decides by it (and who wrote it: a standby looks whether another instance was
    sooner), who puts it into a closing, who shows it, who decides it again."""
    return (*services, "admission", "gateway", *_ASIDE)


TOPICS = (
    Topic(
        "jobs",
        "input",
        ("JobSubmission", "JobCancellation", "JobChange", "JobRouting"),
        ("clients", "gateway", "router"),
        ("admission",),
    ),
    Topic("reservations", "input", ("ReservationInput",), ("clients", "gateway", "planner"), ("admission",)),
    Topic("nodes", "input", ("NodeInput",), ("agent", "bridge", "gateway"), ("admission", "gateway", "operators")),
    Topic("tasks", "input", ("TaskInput",), ("agent", "bridge"), ("admission",)),
    Topic("access", "input", ("AccessInput",), ("operators", "gateway"), ("admission",)),
    Topic("config", "input", ("ConfigInput",), ("operators", "gateway"), ("admission",)),
    Topic(BEATS, "beat", ("BeatInput",), ("agent", "bridge", "admission"), ("admission", "gateway", "router")),
    Topic(LOG, "log", tuple(_LOG_BODIES.split()), ("admission",), (*_CORES, "agent", "bridge", "router", *_ASIDE)),
    Topic("releases", "decision", ("Releases",), ("estimator",), _decided("estimator")),
    Topic("plans", "decision", ("Plans",), ("planner",), _decided("planner")),
    Topic("shares", "decision", ("Shares",), ("fairness",), _decided("fairness", "altruism", "leftover")),
    Topic("asks", "decision", ("Asks",), ("altruism",), _decided("altruism", "leftover")),
    Topic("grants", "decision", ("Grants",), ("leftover",), _decided("leftover")),
    Topic(DEADLETTER, "aside", ("InputRefused",), ("admission",), ("admission", "operators")),
    Topic(ROUTER_JOBS, "input", ("RouteSubmission", "JobCancellation"), ("clients", "gateway"), ("router",)),
    Topic(ROUTER_LOG, "log", tuple(_ROUTER_BODIES.split()), ("router",), ("router", "gateway", *_ASIDE)),
    Topic(SNAPSHOTS, "aside", ("Snapshot",), _SNAPSHOTS, (*_SNAPSHOTS, "operators"), "compact"),
)


@dataclass(frozen=True, slots=True)
class NodeTopic:
    """A topic of MQTT that each node has: `address` names it by cell and node. `retained`: the broker keeps its last
    message."""

    name: str
    address: str
    body: str
    writer: str
    reader: str
    retained: bool


NODE_TOPICS = (
    NodeTopic("node.up", "largesse/{cell}/node/{node}/up", "NodeUp", "agent", "bridge", False),
    NodeTopic("node.down", "largesse/{cell}/node/{node}/down", "NodeDown", "bridge", "agent", True),
    NodeTopic("node.ask", "largesse/{cell}/node/{node}/ask", "NodeAsk", "bridge", "agent", False),
    NodeTopic("node.reply", "largesse/{cell}/node/{node}/reply/{bridge}", "NodeReply", "agent", "bridge", False),
    NodeTopic("node.fetch", "largesse/{cell}/node/{node}/fetch", "NodeFetch", "agent", "bridge", False),
    NodeTopic("node.fetched", "largesse/{cell}/node/{node}/fetched", "NodeReply", "bridge", "agent", False),
)

BY_NAME = {topic.name: topic for topic in TOPICS}

SHARDED = ("asks",)
"""Topics that several shards of one service write; all others have shard 0 of 1."""
