"""What the gateway says of a cell, as JSON documents: quantities as texts that read back (`"500m"`, `"2Gi"`), Unix
milliseconds, shares as parts of 1.
"""

from dataclasses import asdict
from typing import Any

from largesse.lifecycle.job_classes import class_name
from largesse.lifecycle.job_life import COUNTED, has_failed, is_skipped, rule_of
from largesse.lifecycle.ledger import account_document
from schemas import Stage
from schemas.grants import WaitReason
from schemas.quantities import quantity_texts
from services.gateway.documents import Document
from services.gateway.documents.lacking import Lacking
from services.gateway.documents.promised_waits import NEED_ROOM, moment, promised_text, revocable_document
from services.gateway.documents.queueing import Queueing
from services.gateway.documents.result_folders import results_of
from services.gateway.documents.specs import kept_spec
from services.gateway.documents.usage import counted_document, memory_text, usage_document
from services.gateway.view.jobs import (
    AFTER_JOBS,
    EndedJob,
    EndedStage,
    FailedAttempt,
    LiveJob,
    counted_row,
    held_in,
    succeeded_of,
    waiting_of,
)
from services.gateway.view.places import indexes_of
from services.gateway.view.state import State, said_of, stage_class_key
from services.gateway.view.used import use_of

WHY: dict[WaitReason | str, str] = {
    "after": "waits for {after}",
    "held": "held by {by} since {since}",
    "queue_max": "its queue, or a queue above it, has reached its max",
    "back_off": "{failed}, and is retried in {seconds} s",
    "no_room": "no node has room for it now",
    "no_node": "no available node could run it",
    "gang_no_room": "there is no room for all tasks of the gang ({tasks}) at once",
    "pool": "its class of jobs has used up its pool, and there is no room to be lent to it now",
    "locality": "waits for a node with the labels that it prefers; after its locality_wait_ms it takes any",
    "spread": "the nodes that have room are barred to it by its anti_affinity or spread",
    "failed_there": "it has failed on the nodes that have room, and waits for another",
    "behind_head": "waits behind an earlier job, which does not fit yet",
    "running_max": "running_max of stage {stage} is {most}",
    "next_round": "is considered in the next round",
}
"""Texts for the reasons why tasks wait. Where a queue is the cause, `Queueing` has more precise ones."""

INDEXES_TASKS_MAX = 100
"""For a stage with more tasks, documents say how many are on a node, not which."""

HOW = {
    "succeeded": "it succeeded",
    "failed": "it failed",
    "cancelled": "it was cancelled",
    "rejected": "it was refused",
}
"""Texts for how a job ended."""


def state_of(state: State, name: str) -> str | None:
    """The state of a job; None if it is not in view."""
    live = state.jobs.get(name)
    if live is not None:
        return state_of_live(live)
    ended = state.ended.get(name)
    return None if ended is None else ended.outcome


def job_document(state: State, name: str, *, whole: bool = True) -> Document | None:
    """One job, or None where it is not in view. `whole`: with its stages, where their tasks run, and the attempts that
    failed."""
    live = state.jobs.get(name)
    if live is not None:
        return live_document(state, Queueing(state), live, whole)
    ended = state.ended.get(name)
    return None if ended is None else ended_document(state, ended, whole)


def state_of_live(job: LiveJob) -> str:
    """The state of a job that has not ended."""
    return "waiting" if job.started_ms is None else "running"


def live_document(state: State, queueing: Queueing, job: LiveJob, whole: bool) -> Document:
    """A job that has not ended. `queueing`: of the same state."""
    spec = job.spec
    stages = [_stage(state, queueing, job, at, whole) for at in range(len(spec.stages))]
    why = next((reason["text"] for stage in stages for reason in stage["why"] if reason["reason"] != "after"), None)
    document: Document = {
        "job": spec.job,
        "run": job.run,
        "state": state_of_live(job),
        "queue": spec.queue,
        "class": class_name(state.policy, job.job_class),
        "priority": spec.priority,
        "held": None if job.hold is None else {"by": job.hold.by, "since_ms": job.hold.since_ms},
        "reservation": spec.reservation,
        "reservation_atom": spec.reservation_atom,
        "user": spec.user,
        "author": job.author,
        "submitted_ms": job.submitted_ms,
        "started_ms": job.started_ms,
        "ended_ms": None,
        "tasks": _sum([stage["tasks"] for stage in stages]),
        "why": why,
        "reason": None,
        "detail": "",
    }
    if whole:
        document |= {"stages": stages, "failures": [_failure(failed) for failed in job.failures]}
        document |= {"results": results_of(state, spec.job), "account": _account(state, spec.job)}
    return document


def _counts(
    total: int,
    waiting: int = 0,
    starting: int = 0,
    running: int = 0,
    succeeded: int = 0,
    failed: int = 0,
    skipped: int = 0,
    failed_attempts: int = 0,
) -> Document:
    counts = {"total": total, "waiting": waiting, "starting": starting, "running": running, "succeeded": succeeded}
    return {**counts, "failed": failed, "skipped": skipped, "failed_attempts": failed_attempts}


def _sum(counts: list[Document]) -> Document:
    """Of a job, from its stages."""
    return {name: sum(each[name] for each in counts) for name in counts[0]}


def _stage(state: State, queueing: Queueing, job: LiveJob, at: int, whole: bool) -> Document:
    """`nodes`: where tasks run or start, and how many; `indexes`: which, null where the stage has too many tasks."""
    stage = job.spec.stages[at]
    succeeded, skipped = succeeded_of(job, at), is_skipped(job, at)
    running, starting = job.running[at], job.starting[at]
    waiting = waiting_of(job, at)
    given_up, not_run = job.given_up[at], stage.tasks if skipped else 0
    counts = _counts(stage.tasks, waiting, starting, running, succeeded, given_up, not_run, job.failed[at])
    if job.progress.left[at]:
        at_work = "running" if running or starting else "waiting"
    else:
        at_work = "skipped" if skipped else "failed" if has_failed(job, at) else "succeeded"
    why = why_waiting(state, queueing, job, at, waiting, whole=whole) if waiting else []
    document = {
        "stage": stage.stage,
        "after": stage.after,
        "state": at_work,
        "gang": stage.gang,
        "tasks": counts,
        "failed_tasks": job.failed_tasks[at],
        "why": why,
    }
    if whole:
        few = stage.tasks <= INDEXES_TASKS_MAX
        document |= {"copies": job.copies[at], "ending": job.ending[at], "nodes": dict(job.nodes[at])}
        document["revocable"] = revocable_document(state, job, at)
        document["indexes"] = indexes_of(state, job, at) if few else None
        document["demand"] = quantity_texts(stage.demand)
        document["labels"] = stage.labels
        document["counted"] = counted_document(counted_row(job, at))
        document["usage"] = usage_document(job.used[at], job.places[at], each=few)
    return document


def why_waiting(
    state: State, queueing: Queueing, job: LiveJob, at: int, waiting: int, *, whole: bool
) -> list[Document]:
    """Why tasks of a stage wait: reasons with how many tasks each holds back. `whole`: with numbers, which take a look
    at every node.
    """
    stage = job.graph.stages[at]
    if job.progress.parents[at]:
        left = [name for name in stage.after if job.progress.left[job.graph.position[name]]]
        return [_reason("after", waiting, after=", ".join(left))]
    if job.hold is not None:
        if (others := waits_text(state, job)) is not None:
            return [{"reason": "held", "tasks": waiting, "text": others}]
        return [_reason("held", waiting, by=job.hold.by, since=moment(job.hold.since_ms))]
    if not job.began:
        return [{"reason": "running_limit", "tasks": waiting, "text": queueing.held_back(job)}]
    asked = min(waiting, job.asked[at])
    limited, why_limited = queueing.users.held(job, at, asked)
    asked -= limited
    reasons = []
    if asked and (reserved := queueing.reserved.why(job, at)):
        reasons.append({"reason": reserved[0], "tasks": asked, "text": reserved[1]})
    elif asked and (wait := state.promised.get(f"{job.spec.job}/{stage.stage}")):
        reasons.append({"reason": "promised", "tasks": asked, "text": promised_text(state, wait)})
    elif asked and (text := queueing.at_max(job.spec.queue, stage)):
        reasons.append({"reason": "queue_max", "tasks": asked, "text": text})
    elif asked:
        found = _reason(said_of(state, stage_class_key(job.spec, stage)) or "next_round", asked)
        if found["reason"] == "queue_max" and (text := queueing.was_at_max(job.spec.queue, stage)):
            found["text"] = text
        if found["reason"] in NEED_ROOM and (text := queueing.promised.text(stage)):
            found |= {"reason": "promised", "text": text}
        if found["reason"] in ("no_node", "gang_no_room") and (text := _no_node(queueing, stage, found["reason"])):
            found["text"] = text
        elif whole and found["reason"] in (*NEED_ROOM, "pool"):
            found["text"] += Lacking(state).text(job.spec.queue, stage)
        reasons.append(found)
    held = held_in(job, at, waiting)
    if rest := waiting - asked - limited - held:
        left_ms = job.retry_ms[at] - state.time
        if left_ms > 0:
            seconds = -(-left_ms // 1_000)
            reasons.append(_reason("back_off", rest, failed=_who_failed(job, at), seconds=seconds))
        else:
            reasons.append(_reason("next_round", rest))
    if limited:
        reasons.append({"reason": "user_running_max", "tasks": limited, "text": why_limited})
    if held:
        reasons.append(_reason("running_max", held, stage=stage.stage, most=stage.running_max))
    return reasons


def _no_node(queueing: Queueing, stage: Stage, reason: str) -> str | None:
    """Why no node, or not all together, can run what waits of a stage now, more precisely; None: no more is known."""
    if reason == "no_node" and (text := queueing.never(stage)):
        return text
    if text := queueing.drained(stage):
        return text
    if reason == "no_node" and stage.gang:
        return f"the available nodes could not run all tasks of the gang ({stage.tasks}) at once"
    return None


def _who_failed(job: LiveJob, at: int) -> str:
    """The last task of a stage whose failure makes it pause, and why it failed. It need not be among those kept."""
    stage = job.spec.stages[at].stage
    for failed in reversed(job.failures):
        if failed.stage != stage:
            continue
        ruled = rule_of(job, at, failed.index)
        if ruled is not None:
            rule, count = ruled
            retry_text = f"retry {count} of {rule.limit} for {', '.join(rule.on)}"
            return f"task {stage}/{failed.index} failed ({failed.reason}: {retry_text})"
        if failed.reason in COUNTED:
            return f"task {stage}/{failed.index} failed ({failed.reason})"
    return "failed"


def waits_text(state: State, job: LiveJob) -> str | None:
    """Which jobs a job waits for, and how they have to end; None: for none."""
    if job.hold is None or job.hold.by != AFTER_JOBS:
        return None
    others = [f"{after.job} ({after.on})" for after in job.spec.after_jobs if after.job in state.jobs]
    return f"comes after {', '.join(others)}" if others else "comes after jobs that have ended: release or cancel it"


def _reason(reason: str, tasks: int, **values: Any) -> Document:
    return {"reason": reason, "tasks": tasks, "text": WHY[reason].format(tasks=tasks, **values)}


def ended_document(state: State, job: EndedJob, whole: bool) -> Document:
    """A job that is over."""
    ended = job.stages
    counts = [_counts_of_ended(stage) for stage in ended]
    document: Document = {
        "job": job.job,
        "run": job.run,
        "state": job.outcome,
        "queue": job.queue,
        "class": job.job_class,
        "priority": job.priority,
        "held": None,
        "reservation": job.reservation,
        "reservation_atom": job.reservation_atom,
        "user": job.user,
        "author": job.author,
        "submitted_ms": job.submitted_ms,
        "started_ms": job.started_ms,
        "ended_ms": job.ended_ms,
        "tasks": _sum(counts),
        "why": None,
        "reason": job.reason,
        "detail": job.detail,
    }
    if whole:
        spec = kept_spec(state, job.job)
        stages = [
            {
                "stage": stage.stage,
                "after": stage.after,
                "state": _state_of_ended(stage),
                "tasks": counts[at],
                "failed_tasks": stage.failed_tasks,
                "killed": stage.killed,
                "never_started": stage.never_started,
                "why": [],
                "copies": 0,
                "ending": 0,
                "nodes": {},
                "indexes": {},
                "revocable": None,
                "demand": None if spec is None else _demand(spec.stages[at], stage),
                "labels": {} if spec is None else spec.stages[at].labels,
                "counted": counted_document(stage.counted),
                "usage": _usage(state, job, at, stage.tasks),
            }
            for at, stage in enumerate(ended)
        ]
        document |= {"stages": stages, "failures": [_failure(failed) for failed in job.failures]}
        document |= {"results": results_of(state, job.job), "account": _account(state, job.job)}
    return document


def _counts_of_ended(stage: EndedStage) -> Document:
    skipped = stage.tasks if stage.skipped else 0
    return _counts(stage.tasks, 0, 0, 0, stage.succeeded, stage.given_up, skipped, stage.failed)


def _state_of_ended(stage: EndedStage) -> str:
    if stage.skipped:
        return "skipped"
    if stage.given_up > stage.max_failed:
        return "failed"
    return "succeeded" if stage.succeeded + stage.given_up == stage.tasks else "unfinished"


def _account(state: State, name: str) -> Document | None:
    """What a job gave away and received; None where it has no account."""
    entry = state.ledger.get(name)
    return None if entry is None else account_document(entry)


def _demand(submitted: Stage, ended: EndedStage) -> Document:
    """What a task of a stage that is over held."""
    counts = {} if ended.counted is None else ended.counted[1]
    return quantity_texts({kind: counts.get(kind, amount) for kind, amount in submitted.demand.items()})


def _usage(state: State, job: EndedJob, at: int, tasks: int) -> Document | None:
    """Of a stage of an ended job; None where it is forgotten."""
    used, places = state.used_by.get(job.job), state.places.get(job.job)
    if used is None or places is None:
        return None
    return usage_document(use_of(used[at]), places[at], each=tasks <= INDEXES_TASKS_MAX)


def _failure(failed: FailedAttempt) -> Document:
    document = asdict(failed)
    return {**document, "peak_memory": memory_text(document.pop("peak_mib"))}
