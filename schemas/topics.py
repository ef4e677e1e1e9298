"""Topics: what they carry, who writes, who reads, how they are keyed and kept."""

from dataclasses import dataclass
from typing import Literal

LOG = "cluster.log"
SNAPSHOTS = "snapshots"
DEADLETTER = "deadletter"


@dataclass(frozen=True, slots=True)
class Topic:
    """`kind`: an input (any order), the log, a decision, or a by-product. `bodies`: type names of its messages."""

    name: str
    kind: Literal["input", "log", "decision", "aside"]
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
    "RoundAbandoned TokenMade TokenRevoked"
)

TOPICS = (
    Topic("jobs", "input", ("JobSubmission", "JobCancellation", "JobChange"), ("clients", "gateway"), ("admission",)),
    Topic("reservations", "input", ("ReservationInput",), ("clients", "gateway", "planner"), ("admission",)),
    Topic("nodes", "input", ("NodeInput",), ("agent", "gateway"), ("admission",)),
    Topic("tasks", "input", ("TaskInput",), ("agent",), ("admission",)),
    Topic("access", "input", ("AccessInput",), ("operators", "gateway"), ("admission",)),
    Topic("config", "input", ("ConfigInput",), ("operators", "gateway"), ("admission",)),
    Topic(LOG, "log", tuple(_LOG_BODIES.split()), ("admission",), ("all",)),
    Topic("releases", "decision", ("Releases",), ("estimator",), ("admission", "gateway")),
    Topic("plans", "decision", ("Plans",), ("planner",), ("admission", "gateway")),
    Topic("shares", "decision", ("Shares",), ("fairness",), ("altruism", "leftover", "admission", "gateway")),
    Topic("asks", "decision", ("Asks",), ("altruism",), ("leftover", "admission", "gateway")),
    Topic("grants", "decision", ("Grants",), ("leftover",), ("admission", "gateway")),
    Topic(DEADLETTER, "aside", ("InputRefused",), ("admission",), ("operators",)),
    Topic(SNAPSHOTS, "aside", ("Snapshot",), ("all",), ("all",), "compact"),
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
