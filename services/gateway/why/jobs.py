"""Why a job, a stage or a task waits, runs where it runs, or ended as it did."""

from schemas import JobSpec
from schemas.reasons import REASONS
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.documents.jobs import HOW, state_of_live
from services.gateway.documents.promised_waits import moment, span
from services.gateway.documents.specs import kept_spec
from services.gateway.documents.starts import start_document
from services.gateway.view.jobs import EndedJob, FailedAttempt, LiveJob, StageUse, waiting_of
from services.gateway.view.places import indexes_of
from services.gateway.view.preempted import taken_for_text
from services.gateway.view.state import Allocation, State
from services.gateway.view.used import use_of
from services.gateway.view.waited import waited_until
from services.gateway.why.overtaken import Ahead, overtaken, overtaken_text
from services.gateway.why.waits import Waits

WHY_GRANTED = {
    "required": "its job needs it now to end in time",
    "optional": "its job could do without it for now, and there was room",
    "packed": "it fits well into room that others gave away",
    "reserved": "its reservation is promised the room",
    "speculative": "it is a copy of a slow task",
}
"""By `why` of a grant. The first is also that of jobs that are not planned."""
PLAIN = "it was its turn, and there was room"
FAILURES_SHOWN_MAX = 3
OVERTAKEN_MAX = 100


def live_why(state: State, job: LiveJob, stage: str | None, index: int | None) -> Document:
    """Of a job that has not ended, or of a stage or a task of it."""
    waits = Waits(state)
    stages = range(len(job.graph.stages)) if stage is None else [job.graph.position[stage]]
    if stage is not None and index is not None:
        held = _holds(state, f"{job.spec.job}/{stage}/{index}")
        if held:
            return {
                "kind": "task",
                "state": "running" if held[0].started else "starting",
                "reasons": _ending(state, job, f"{stage}/{index}")
                + [_granted(state, job, stage, each) for each in held]
                + _failed(job.failures, stage, index),
                "start": None,
                "waited": None,
            }
        if (over := _over(state, job, stage, index)) is not None:
            return over
    reasons: list[Document] = []
    behind: list[Document] = []
    start = None
    for at in stages:
        for reason in waits.of_stage(job, at):
            if reason["reason"] == "after":
                behind.append(reason)
                continue
            if not reasons:
                start = waits.starts.of(job, at, reason["reason"])
            reasons.append(reason)
    # A task that is asked for by itself waits here, whatever others of its stage do.
    at_work = sum(job.running[at] + job.starting[at] for at in stages) if index is None else 0
    waiting = sum(waiting_of(job, at) for at in stages)
    if at_work:
        reasons.append(_at_work(state, job, stages))
    reasons += behind
    if not reasons:
        text = "all of it has ended, and the record that says so follows"
        reasons.append({"reason": "over", "text": text, "numbers": {}, "unblocks": []})
    reasons += _struck(job) + _failed(job.failures, stage, index)
    waited, beside = waited_until(state, job, state.time)
    document: Document = {
        "kind": "job" if stage is None else "stage" if index is None else "task",
        "state": state_of_live(job) if stage is None else _state_of_stage(at_work, waiting),
        "reasons": _ranked(reasons),
        "start": start and start_document(state, start),
        "waited": waited if stage is None else None,
    }
    if stage is None:
        document["waited_beside"] = beside
    return document


def _over(state: State, job: LiveJob, stage: str, index: int) -> Document | None:
    """Of a task that holds nothing: whether it has ended. None: it waits."""
    at = job.graph.position[stage]
    node = job.places[at][index] if index < len(job.places[at]) else ""
    failed = _failed(job.failures, stage, index)
    if not node or (failed and waiting_of(job, at)):
        return None
    over: Document = {
        "reason": "over",
        "text": f"it has ended: its last attempt was on {node}",
        "numbers": {"node": node},
        "unblocks": [],
    }
    if at not in job.kept and (granted := _granted_of(job.used[at], index)):
        ahead = Ahead(job.admitted, job.spec.priority, job.spec.queue, job.graph.stages[at], _why_of(job.spec))
        _note_overtaken(state, over, granted, ahead)
    return {"kind": "task", "state": "ended", "reasons": [over, *failed], "start": None, "waited": None}


def _granted_of(used: StageUse, index: int) -> int:
    """The record that granted a task its last attempt; 0: it has not succeeded."""
    return used.granted[index] if index < len(used.granted) else 0


def _why_of(spec: JobSpec) -> str:
    """Why tasks of a job were granted, as far as that is known of those that have ended."""
    return "required" if spec.reservation is None else "reserved"


def _note_overtaken(state: State, row: Document, granted: int, task: Ahead) -> None:
    """Adds to the reason of a task that has ended which record granted it, and whom it overtook."""
    before = overtaken(state, task)
    row["text"] += f"; record {granted} granted it (--at {granted} shows all that waited then)"
    row["text"] += overtaken_text(before)
    row["numbers"] |= {"granted": granted, "overtook": before[:OVERTAKEN_MAX], "overtook_jobs": len(before)}


def ended_why(state: State, job: EndedJob, stage: str | None, index: int | None) -> Document:
    """Of a job that is over."""
    waited, beside = job.waited
    text = HOW[job.outcome] + (f": {job.detail}" if job.detail else "")
    reasons: list[Document] = [
        {
            "reason": "over",
            "text": text,
            "numbers": {"submitted_ms": job.submitted_ms, "started_ms": job.started_ms, "ended_ms": job.ended_ms},
            "unblocks": [f"largesse rerun {job.job}"] if job.outcome in ("failed", "cancelled") else [],
        }
    ]
    if stage is not None and index is not None and job.job in state.places:
        at = next(at for at, each in enumerate(job.stages) if each.stage == stage)
        places, spec = state.places[job.job][at], kept_spec(state, job.job)
        if index < len(places) and places[index]:
            reasons[0]["numbers"]["node"] = places[index]
        granted = 0 if at in job.kept else _granted_of(use_of(state.used_by[job.job][at]), index)
        if granted and spec is not None:
            ahead = Ahead(job.admitted, job.priority, job.queue, spec.stages[at], _why_of(spec))
            _note_overtaken(state, reasons[0], granted, ahead)
    document: Document = {
        "kind": "job" if stage is None else "stage" if index is None else "task",
        "state": job.outcome,
        "reasons": reasons + _failed(job.failures, stage, index),
        "start": None,
        "waited": waited,
        "ended_by": {"seq": job.seq, "text": text},
    }
    if stage is None:
        document["waited_beside"] = beside
    return document


def _state_of_stage(at_work: int, waiting: int) -> str:
    return "running" if at_work else "waiting" if waiting else "ended"


def _ranked(reasons: list[Document]) -> list[Document]:
    """Each reason once for each text, in the order in which they are found."""
    found: dict[tuple[str, str], Document] = {}
    for reason in reasons:
        key = reason["reason"], reason["text"]
        known = found.get(key)
        if known is None:
            found[key] = reason
        elif "tasks" in reason["numbers"] and "tasks" in known["numbers"]:
            known["numbers"]["tasks"] += reason["numbers"]["tasks"]
    return list(found.values())


def _holds(state: State, key: str) -> list[Allocation]:
    """The attempts of a task that hold room, that by which it is counted first."""
    hold = state.holds.get(key)
    return ([] if hold is None else [hold]) + list(state.copies.get(key, ()))


def _granted(state: State, job: LiveJob, stage: str, hold: Allocation) -> Document:
    spec, wanted = job.spec, job.graph.stages[job.graph.position[stage]]
    before = overtaken(state, Ahead(job.admitted, spec.priority, spec.queue, wanted, hold.why))
    why = WHY_GRANTED[hold.why] if hold.why in WHY_GRANTED and hold.why != "required" else PLAIN
    word = "running" if hold.started else "starting"
    waited_ms = hold.granted_ms - job.submitted_ms
    text = f"attempt {hold.attempt} {'runs' if hold.started else 'is to start'} on {hold.node}: {why}"
    text += f" (granted by record {hold.granted} at {moment(hold.granted_ms)}, {span(waited_ms)} after its submission)"
    text += overtaken_text(before)
    numbers = {
        "node": hold.node,
        "attempt": hold.attempt,
        "why": hold.why,
        "granted": hold.granted,
        "granted_ms": hold.granted_ms,
        "started_ms": hold.started_ms,
        "overtook": before[:OVERTAKEN_MAX],
        "overtook_jobs": len(before),
    }
    return {"reason": word, "text": text, "numbers": numbers, "unblocks": []}


def _ending(state: State, job: LiveJob, task: str) -> list[Document]:
    """That a task which runs is being taken back, and for whom."""
    row = state.taken.get(job.spec.job, {}).get(task)
    if row is None:
        return []
    numbers = {"seq": row.seq, "claimant": row.claimant, "at": row.at, "attempt": row.attempt}
    text = f"attempt {row.attempt} has to end: {taken_for_text(row, '')}"
    return [{"reason": "taken_back", "text": text, "numbers": numbers, "unblocks": []}]


def _at_work(state: State, job: LiveJob, stages: "range | list[int]") -> Document:
    running, starting = sum(job.running[at] for at in stages), sum(job.starting[at] for at in stages)
    nodes: dict[str, int] = {}
    whys: dict[str, int] = {}
    for at in stages:
        stage = job.graph.stages[at].stage
        for node, indexes in indexes_of(state, job, at).items():
            nodes[node] = nodes.get(node, 0) + len(indexes)
            for index in indexes:
                for hold in _holds(state, f"{job.spec.job}/{stage}/{index}")[:1]:
                    whys[hold.why] = whys.get(hold.why, 0) + 1
    texts = [f"{plural(running, 'task')} {'runs' if running == 1 else 'run'}"] if running else []
    texts += [f"{plural(starting, 'task')} {'starts' if starting == 1 else 'start'}"] if starting else []
    text = f"{' and '.join(texts)} on {plural(len(nodes), 'node')}"
    return {
        "reason": "running" if running else "starting",
        "text": text,
        "numbers": {"running": running, "starting": starting, "nodes": nodes, "granted_why": whys},
        "unblocks": [],
    }


def _struck(job: LiveJob) -> list[Document]:
    return [
        {
            "reason": "next_round",
            "text": (
                f"{plural(row.count, 'task')} of stage {row.stage} had a place on {row.node}, "
                f"and lost it at once ({row.reason}, record {row.seq})"
            ),
            "numbers": {"seq": row.seq, "at_ms": row.at_ms, "node": row.node, "strike": row.reason},
            "unblocks": [REASONS["next_round"].action],
        }
        for row in reversed(job.strikes)
    ][:1]


def _failed(failures: list[FailedAttempt], stage: str | None, index: int | None) -> list[Document]:
    """The last attempts that ended without success: by which record, and for whom."""
    found = [
        failed
        for failed in reversed(failures)
        if (stage is None or failed.stage == stage) and (index is None or failed.index == index)
    ]
    rows: list[Document] = []
    for failed in found[:FAILURES_SHOWN_MAX]:
        word = "taken_back" if failed.reason == "revoked" else "lost_attempts"
        by = f" (record {failed.seq})" if failed.seq else ""
        text = f"attempt {failed.attempt} of {failed.stage}/{failed.index} on {failed.node} ended: {failed.reason}"
        text += f", {failed.detail}" if failed.detail else ""
        rows.append(
            {
                "reason": word,
                "text": text + by,
                "numbers": {
                    "seq": failed.seq,
                    "at_ms": failed.at_ms,
                    "node": failed.node,
                    "why": failed.reason,
                    "run_ms": failed.run_ms,
                },
                "unblocks": [REASONS[word].action],
            }
        )
    return rows
