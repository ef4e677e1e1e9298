"""What runs on a node, and why nothing new does."""

from schemas import Vector
from schemas.quantities import quantity_texts
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.documents.lacking import complete_text
from services.gateway.documents.nodes import node_document, state_of_node
from services.gateway.documents.promised_waits import moment
from services.gateway.view.jobs import waiting_of
from services.gateway.view.room import free_of, has_labels
from services.gateway.view.state import NodeRow, State

CLASSES_LOOKED_AT = 1_000
JOBS_SHOWN_MAX = 5
DEVICES_SHOWN_MAX = 8
KEPT_FOR = {"headroom": "a large task", "gang": "a gang", "promise": "a reservation", "locality": "its data"}


def node_why(state: State, name: str) -> Document:
    """Of one node: what keeps new tasks from it first, then what runs there."""
    node = state.nodes[name]
    reasons = [_closed(state, name, node)] if state_of_node(node) != "ready" else _open(state, name, node)
    return {
        "kind": "node",
        "state": state_of_node(node),
        "reasons": [*reasons, *_out(name, node), _running(state, name, node)],
        "start": None,
        "waited": None,
    }


def _closed(state: State, name: str, node: NodeRow) -> Document:
    document = node_document(state, name)
    assert document is not None
    if node.lost:
        text = f"{name} has left the cell" if node.left else f"{name} is lost: its agent is silent"
        help_text = ["start the agent again"] + ([] if node.left else [f"largesse node remove {name} if it is gone"])
        return {"reason": "node_lost", "text": text, "numbers": {}, "unblocks": help_text}
    if node.draining:
        drain = document["drain"] or {"author": "", "reason": "", "until_ms": None}
        text = f"{name} drains" + (f" by {drain['author']}" if drain["author"] else "")
        text += f": {drain['reason']}" if drain["reason"] else ""
        if drain["until_ms"] is not None:
            text += f"; what runs there is ended at {moment(drain['until_ms'])}"
        return {"reason": "draining", "text": text, "numbers": drain, "unblocks": [f"largesse node resume {name}"]}
    text = f"{name} takes no new tasks: {node.unschedulable}"
    return {"reason": "unschedulable", "text": text, "numbers": {}, "unblocks": ["mend what its agent names"]}


def _out(name: str, node: NodeRow) -> list[Document]:
    """Which of its devices are out, if any are."""
    if not node.out or node.lost:
        return []
    listed = "; ".join(f"{device.index}: {device.out}" for device in node.out[:DEVICES_SHOWN_MAX])
    more = f"; and {len(node.out) - DEVICES_SHOWN_MAX} more" if len(node.out) > DEVICES_SHOWN_MAX else ""
    of = plural(len(node.devices) + len(node.out), "device")
    text = f"{len(node.out)} of {of} of {name} {'is' if len(node.out) == 1 else 'are'} out ({listed}{more})"
    numbers = {"devices": {str(device.index): device.out for device in node.out}}
    unblocks = ["see to them, as their why says: the agent notices once they are well"]
    return [{"reason": "devices_out", "text": text, "numbers": numbers, "unblocks": unblocks}]


def _open(state: State, name: str, node: NodeRow) -> list[Document]:
    free = free_of(state.policy, node)
    full, fits, unlike, barred = _looked_at(state, node, free)
    rows: list[Document] = []
    numbers: Document
    kept = state.kept.get(name) or state.vacated.get(name)
    if kept is not None:
        texts = ", ".join(f"{kind} {amount}" for kind, amount in quantity_texts(kept.demand).items())
        text = f"{texts} of {name} is kept for {KEPT_FOR[kept.why]}"
        text += complete_text(kept.complete_ms, state.time)
        numbers = {"why": kept.why, "kept": quantity_texts(kept.demand), "task": quantity_texts(kept.task)}
        rows.append({"reason": "kept", "text": text, "numbers": numbers, "unblocks": ["those tasks start"]})
    failures = state.failures.get(name)
    if failures is not None and failures.until_ms > state.time:
        jobs = ", ".join(list(failures.jobs)[-JOBS_SHOWN_MAX:])
        text = f"{name} is placed last until {moment(failures.until_ms)}: tasks of {jobs} failed there in a row"
        numbers = {"until_ms": failures.until_ms, "jobs": list(failures.jobs)}
        rows.append({"reason": "failing", "text": text, "numbers": numbers, "unblocks": ["a task succeeds there"]})
    numbers = {
        "free": quantity_texts({kind: max(0, amount) for kind, amount in free.items()}),
        "short_of": full,
        "fits": fits,
        "other_labels": unlike,
        "too_large": barred,
    }
    if full and not fits:
        kinds = ", ".join(sorted(full, key=lambda kind: (-full[kind], kind)))
        text = f"{name} is full: what waits and could run there lacks {kinds}"
        rows.append({"reason": "full", "text": text, "numbers": numbers, "unblocks": ["tasks there end"]})
    elif fits:
        text = f"{name} takes new tasks, and has room for some that wait"
        rows.append({"reason": "open", "text": text, "numbers": numbers, "unblocks": []})
    elif unlike or barred:
        text = f"{name} takes new tasks, and nothing that waits could run there"
        rows.append({"reason": "open", "text": text, "numbers": numbers, "unblocks": []})
    else:
        text = f"{name} takes new tasks, and none waits"
        rows.append({"reason": "demand", "text": text, "numbers": numbers, "unblocks": []})
    return rows


def _looked_at(state: State, node: NodeRow, free: Vector) -> tuple[dict[str, int], int, int, int]:
    """Of stages with waiting tasks, how many lack which resource there, fit, ask for other labels, are too large."""
    full: dict[str, int] = {}
    fits = unlike = large = looked = 0
    for job in state.jobs.values():
        for at, asked in enumerate(job.asked):
            if not asked or not waiting_of(job, at):
                continue
            looked += 1
            stage = job.graph.stages[at]
            if not has_labels(node, stage):
                unlike += 1
                continue
            if any(node.capacity.get(kind, 0) < amount for kind, amount in stage.demand.items()):
                large += 1
                continue
            lacks = [kind for kind, amount in stage.demand.items() if free.get(kind, amount) < amount]
            for kind in lacks:
                full[kind] = full.get(kind, 0) + 1
            fits += not lacks
        if looked >= CLASSES_LOOKED_AT:
            break
    return full, fits, unlike, large


def _running(state: State, name: str, node: NodeRow) -> Document:
    jobs: dict[str, int] = {}
    for job_name, job in state.jobs.items():
        tasks = sum(nodes.get(name, 0) for nodes in job.nodes)
        if tasks:
            jobs[job_name] = tasks
    most = sorted(jobs, key=lambda each: (-jobs[each], each))[:JOBS_SHOWN_MAX]
    listed = ", ".join(f"{each} ({jobs[each]})" for each in most)
    more = f" and {plural(len(jobs) - len(most), 'more job')}" if len(jobs) > len(most) else ""
    text = f"{plural(node.holds, 'task')} {'holds' if node.holds == 1 else 'hold'} room there"
    text += f", of {listed}{more}" if listed else ""
    used = {kind: amount for kind, amount in node.used.items() if amount}
    numbers = {"tasks": node.holds, "used": quantity_texts(used), "jobs": {each: jobs[each] for each in most}}
    return {"reason": "running", "text": text, "numbers": numbers, "unblocks": []}
