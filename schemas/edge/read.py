"""The strict edge: where documents from outside become bodies, or are refused with the field and the fix.

`strict_json.py` beside this makes documents of bytes. What stands here is what a job spec, a node's report, an
operator's change or a file may say; the cell's own reasons (no such queue, too large for any node) are admission's.
"""

from collections.abc import Callable

from schemas.access import TokenMade, TokenRevoked
from schemas.edge.access import AccessInput, read_access
from schemas.edge.base import Input, Malformed
from schemas.edge.beats import BeatInput
from schemas.edge.cluster import Cluster, ClusterFile, ClusterNode, cluster_warnings, read_cluster
from schemas.edge.config import ConfigInput, ConfigPatch, config_warnings, knob_of_text, read_config
from schemas.edge.jobs import (
    JobCancellation,
    JobChange,
    JobRouting,
    JobSubmission,
    RoutedJob,
    WorkloadLine,
    read_job,
    read_workload_line,
)
from schemas.edge.mqtt import NodeAsk, NodeDown, NodeFetch, NodeReply, NodeUp
from schemas.edge.nodes import NodeInput, NodeLeft, read_node
from schemas.edge.reservations import ReservationInput, read_reservation
from schemas.edge.routes import AskedRoute, RouteSubmission, read_route
from schemas.edge.tasks import TaskInput, read_task
from schemas.edge.unit_traps import job_warnings
from schemas.jobs import JobCancelled, JobChanged, JobRerun, JobSpec
from schemas.nodes import AttemptsKnown, NodeDrained, NodeRegistered, NodeRemoved, NodeReported
from schemas.plans import PlanProposed
from schemas.reservations import (
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from schemas.tasks import TaskFailed, TaskFinished, TaskStarted
from schemas.topics import ROUTER_JOBS

__all__ = [
    "FORMS",
    "Cluster",
    "ClusterNode",
    "ConfigPatch",
    "InputBody",
    "Malformed",
    "knob_of_text",
    "read_cluster",
    "read_input",
    "read_workload_line",
    "warnings_of",
]

InputBody = (
    JobSpec
    | RoutedJob
    | AskedRoute
    | JobRerun
    | JobCancelled
    | JobChanged
    | NodeRegistered
    | NodeReported
    | AttemptsKnown
    | NodeDrained
    | NodeLeft
    | NodeRemoved
    | TaskStarted
    | TaskFinished
    | TaskFailed
    | ConfigPatch
    | ReservationRequested
    | ReservationUpdated
    | ReservationDeleted
    | SeriesRequested
    | SeriesEnded
    | PlanProposed
    | TokenMade
    | TokenRevoked
)

FORMS: dict[str, tuple[type[Input], int]] = {
    model.__name__: (model, 1)
    for model in (
        JobSubmission,
        JobCancellation,
        JobChange,
        JobRouting,
        RouteSubmission,
        NodeInput,
        TaskInput,
        ConfigInput,
        ReservationInput,
        AccessInput,
        BeatInput,
        WorkloadLine,
        ClusterFile,
        NodeUp,
        NodeDown,
        NodeAsk,
        NodeFetch,
        NodeReply,
    )
}
"""What people and agents write, and agents are told over MQTT, by name: its model and version. Published beside the
bodies."""

_READERS: dict[str, Callable[[object, str], InputBody]] = {
    "access": read_access,
    "jobs": read_job,
    "nodes": read_node,
    "tasks": read_task,
    "config": read_config,
    "reservations": read_reservation,
    ROUTER_JOBS: read_route,
}


def read_input(topic: str, document: object, author: str) -> InputBody:
    """What a message of an input topic says, in base units and with every default filled in.

    A job spec's `job` is "" where the submitter named none. Raises Malformed with the field's path and the fix.
    """
    return _READERS[topic](document, author)


def warnings_of(document: dict[str, object]) -> list[str]:
    """What a job spec, workload line, config or cluster file says that is allowed and yet most likely not meant.

    For documents that were read without fault.
    """
    if "nodes" in document:
        return cluster_warnings(document)
    return job_warnings(document) if "stages" in document else config_warnings(document)
