"""Why things are as they are in a cell: the closed vocabulary of reasons, with what helps against each."""

from dataclasses import dataclass
from typing import Literal, get_args

PendingReason = Literal[
    "after",
    "held",
    "running_limit",
    "queue_max",
    "back_off",
    "no_room",
    "no_node",
    "gang_no_room",
    "pool",
    "behind_head",
    "locality",
    "spread",
    "failed_there",
    "lease",
    "promise_used",
    "promised",
    "running_max",
    "user_running_max",
    "next_round",
]
"""Why tasks wait, as documents and metrics say it."""

Reason = (
    PendingReason
    | Literal["labels", "kept"]
    | Literal["starting", "running", "lost_attempts", "over", "taken_back"]
    | Literal["node_lost", "draining", "unschedulable", "failing", "full", "open", "devices_out"]
    | Literal["guarantee", "weight", "demand", "max"]
    | Literal["answered", "unanswered", "moved"]
)
"""These, and what else `why` names: finer causes of `no_room`, what the time of jobs goes to, and what holds for nodes,
queues and reservations."""


@dataclass(frozen=True, slots=True)
class ReasonText:
    """What a reason means, and what helps."""

    means: str
    action: str


REASONS: dict[str, ReasonText] = {
    "after": ReasonText("stages before it have not ended", "wait for them; why JOB/STAGE says what they wait for"),
    "held": ReasonText("a user holds the job", "largesse release JOB"),
    "running_limit": ReasonText(
        "running_jobs_max of its queue, or of one above it, is reached",
        "wait for a job of the queue to end, give it priority, or raise running_jobs_max",
    ),
    "queue_max": ReasonText(
        "max of its queue, or of one above it, is reached", "raise that max, or use a queue that has room"
    ),
    "back_off": ReasonText("a task failed and is retried after a pause", "find out why it failed: largesse logs"),
    "no_room": ReasonText(
        "the nodes that could run it are full", "ask for less, add nodes, or wait for running tasks to end"
    ),
    "labels": ReasonText(
        "there is room, on nodes without the labels that it asks for", "ask for other labels, or label more nodes"
    ),
    "kept": ReasonText(
        "there is room, and it is gathered for tasks that need more of it at once",
        "wait for those to start, or ask for less than is left beside it",
    ),
    "no_node": ReasonText("no available node could run it, even if it were empty", "ask for less, or add such a node"),
    "gang_no_room": ReasonText(
        "there is no room for all tasks of the gang at once", "make the gang smaller, or wait for room"
    ),
    "pool": ReasonText("its class of jobs has used up its pool", "wait for jobs of its class to end"),
    "behind_head": ReasonText(
        "an earlier job does not fit yet, and none may overtake it", "wait for that job to start"
    ),
    "locality": ReasonText("it waits for nodes that it prefers", "lower locality_wait_ms, or prefer nothing"),
    "spread": ReasonText(
        "its anti_affinity or spread bars the nodes that have room", "relax the rule, or make it not required"
    ),
    "failed_there": ReasonText("it has failed on the nodes that have room", "wait for another node, or add one"),
    "lease": ReasonText("the lease of its reservation has not begun", "wait for it, or submit without a reservation"),
    "promise_used": ReasonText("its reservation has nothing left for it now", "reserve more, or wait"),
    "promised": ReasonText("the room is promised to a reservation", "wait for the lease to end, or allow revocation"),
    "running_max": ReasonText("running_max of its stage is reached", "raise running_max of the stage"),
    "user_running_max": ReasonText(
        "user_running_max of its queue, or of one above it, is reached",
        "wait for tasks of the user to end, or raise it",
    ),
    "next_round": ReasonText("no round has considered it yet", "wait: rounds follow each other in milliseconds"),
    "starting": ReasonText("it is granted, and the node has not said that it runs", "look at the node and its agent"),
    "running": ReasonText("it runs", "nothing: it ends when its tasks do"),
    "lost_attempts": ReasonText(
        "it ran, and nothing came of it: the attempts failed, were lost or were taken back", "see its failed attempts"
    ),
    "over": ReasonText("it has ended", "largesse rerun JOB runs it again"),
    "taken_back": ReasonText(
        "it ran on room that others are promised or guaranteed, and that was needed",
        "see the claim that its text names; revocable: never keeps it from room that is promised",
    ),
    "node_lost": ReasonText("the node is lost: its agent is silent, or has left", "start the agent again"),
    "draining": ReasonText("the node drains", "largesse node resume NODE"),
    "unschedulable": ReasonText("the agent takes no new tasks", "mend what the agent names"),
    "failing": ReasonText("tasks failed there in a row, so it is placed last", "look at what failed there"),
    "devices_out": ReasonText("devices of the node are out: nothing starts on them", "see to them, as their why says"),
    "full": ReasonText("what is free is too little for what waits", "wait for tasks there to end"),
    "open": ReasonText("it takes new tasks", "nothing"),
    "guarantee": ReasonText("the queue is guaranteed a part of the cell", "change guaranteed of the queue"),
    "weight": ReasonText("queues share by their weights", "change the weight of the queue"),
    "demand": ReasonText("the queue asks for no more", "submit jobs"),
    "max": ReasonText("the queue has reached its max", "raise max of the queue"),
    "answered": ReasonText("the planner has answered the reservation", "largesse reserve why NAME shows the plan"),
    "unanswered": ReasonText("the planner has not answered yet", "wait: it answers within seconds"),
    "moved": ReasonText("the promise was moved", "largesse reserve why NAME says why"),
}
"""By reason. Every word of the vocabulary is here."""

PENDING = get_args(PendingReason)


def reasons_document() -> dict[str, list[dict[str, object]]]:
    """The vocabulary for programs. `pending`: whether tasks may wait for it."""
    rows: list[dict[str, object]] = [
        {"reason": word, "means": text.means, "action": text.action, "pending": word in PENDING}
        for word, text in REASONS.items()
    ]
    return {"reasons": rows}
