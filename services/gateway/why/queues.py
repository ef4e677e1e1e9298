"""What a queue has, what it is due, and why it has more or less than its siblings."""

from schemas import Queue
from schemas.quantities import SHARE_UNITS, quantity_text
from schemas.queue_tree import is_below, walk, with_default
from schemas.reasons import Reason
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.documents.promised_waits import span
from services.gateway.documents.queueing import named
from services.gateway.documents.queues import queue_document
from services.gateway.view.pending import Pending
from services.gateway.view.preempted import ending_for
from services.gateway.view.starts import Starts
from services.gateway.view.state import ShortRow, State

SIBLINGS_SHOWN_MAX = 5
TAKINGS_SHOWN_MAX = 3


def paths_of(state: State) -> dict[str, Queue]:
    """The queues that can be asked about, by path; "" is the cell."""
    if state.queues is not None:
        return dict(walk(with_default(state.queues) if state.queues.children else state.queues))
    names = dict.fromkeys([*state.shares, *(job.spec.queue for job in state.jobs.values())], True)
    return {"": Queue("root"), **{name: Queue(name.rpartition("/")[2]) for name in names if name}}


def queue_why(state: State, path: str) -> Document:
    """Of one queue: what keeps it from having more first, then each sibling beside it."""
    pending = Pending(state)
    rows = {row["queue"]: row for row in _flat(queue_document(state))}
    row = rows.get(path)
    if row is None:
        row = {"queue": path, "weight": 1, "limits": {"max": {}, "guaranteed": {}}, "fair": None, "allocated": 0.0}
        row |= {"guaranteed": None, "lent": None, "breach": None, "jobs": {"waiting": 0, "running": 0, "parked": 0}}
    waiting = pending.tasks(path)
    reasons = [_main(state, row, waiting, pending)]
    if row.get("breach"):
        reasons.insert(0, _breach(state, row))
    parent = path.rpartition("/")[0] if "/" in path else ""
    siblings = (
        [each for name, each in rows.items() if name and name != path and name.rpartition("/")[0] == parent]
        if path
        else []
    )
    siblings.sort(key=lambda each: (-each["allocated"], each["queue"]))
    reasons += [_beside(row, each, waiting, pending.tasks(each["queue"])) for each in siblings[:SIBLINGS_SHOWN_MAX]]
    reasons += _taken(state, path)
    return {
        "kind": "queue",
        "state": "waiting" if waiting else "satisfied",
        "reasons": reasons,
        "start": None,
        "waited": None,
    }


def _taken(state: State, path: str) -> list[Document]:
    """What is being taken back for a queue, and the last times that it, or one below it, took or lost something so."""
    rows: list[Document] = []
    if tasks := ending_for(state, path):
        text = (
            f"{plural(tasks, 'task')} of others end{'s' * (tasks == 1)} for it, as it holds less than it is guaranteed"
        )
        rows.append({"reason": "guarantee", "text": text, "numbers": {"tasks": tasks}, "unblocks": ["they end"]})
    about = [row for row in state.takings if is_below(row.claimant, path) or is_below(row.loser, path)]
    for row in about[: -TAKINGS_SHOWN_MAX - 1 : -1]:
        text = f"{plural(row.tasks, 'task')} of {named(row.loser)} gave way to {named(row.claimant)}"
        text += f", which held less than it is guaranteed (record {row.seq}, {span(state.time - row.at_ms)} ago)"
        lost = {"seq": row.seq, "at_ms": row.at_ms, "claimant": row.claimant, "at": row.at, "loser": row.loser}
        word: Reason = "taken_back" if is_below(row.loser, path) else "guarantee"
        rows.append({"reason": word, "text": text, "numbers": lost | {"tasks": row.tasks}, "unblocks": []})
    return rows


def _flat(row: Document) -> list[Document]:
    return [row, *(each for child in row["children"] for each in _flat(child))]


def _numbers(row: Document, waiting: int) -> Document:
    return {
        "held": row["allocated"],
        "fair": row["fair"],
        "guaranteed": row["guaranteed"],
        "lent": row["lent"],
        "borrowed": row.get("borrowed"),
        "weight": row["weight"],
        "max": row["limits"]["max"],
        "waiting_tasks": waiting,
        "jobs": row["jobs"],
    }


def _main(state: State, row: Document, waiting: int, pending: Pending) -> Document:
    path, held, fair = row["queue"], row["allocated"], row["fair"]
    has = f"{named(path)} holds {_percent(held)}"
    has += f" of the cell and is due {_percent(fair)}" if fair is not None else " of the cell"
    unblocks: list[str] = []
    full = _full(state, path, pending) if waiting else None
    word: Reason
    if full is not None:
        word, text = "max", f"{has}; it is at its max of {full[0]} {full[1]}"
        unblocks = [f"raise max of {full[0]} of {named(path)}"]
    elif not waiting:
        parked = row["jobs"]["parked"]
        word, text = "demand", f"{has}; nothing of it waits for room"
        if parked:
            word = "running_limit"
            text = f"{has}; {plural(parked, 'job')} of it wait{'s' * (parked == 1)} for running_jobs_max"
            unblocks = ["raise running_jobs_max"]
    elif _is_unplaced(row):
        word, text = "no_room", f"{has} until it can use the {_percent(row['guaranteed'])} that are guaranteed"
        text += f"; {plural(waiting, 'task')} of it wait{'s' * (waiting == 1)}, and no room was found for a next one"
        unblocks = ["tasks that run end where the next one fits"]
    elif fair is not None and held >= fair:
        word, text = (
            "weight",
            f"{has}; {plural(waiting, 'task')} of it wait{'s' * (waiting == 1)} beyond what it is due",
        )
        unblocks = [f"raise the weight of {named(path)}", "other queues ask for less"]
    else:
        word, text = "no_room", f"{has}; {plural(waiting, 'task')} of it wait{'s' * (waiting == 1)} for room"
        unblocks = ["tasks that run end"]
    numbers = _numbers(row, waiting)
    if (short := state.short.get(path)) is not None and held < (fair or 0.0):
        text += f"; {_since_text(state, short)}"
        numbers["short"] = {
            "since_ms": short.since_ms,
            "seq": short.seq,
            "held": short.held / SHARE_UNITS,
            "due": short.due / SHARE_UNITS,
        }
    ends = Starts(state, pending).ends("")
    if ends and waiting and word in ("no_room", "weight"):
        unblocks.append(f"the next running task ends in about {span(ends[0] - state.time)}")
    return {"reason": word, "text": text, "numbers": numbers, "unblocks": unblocks}


def _is_unplaced(row: Document) -> bool:
    """Whether a queue would have its guarantee, if room were found for what it asks for: until then it is due less."""
    fair, guaranteed = row["fair"], row["guaranteed"] or 0
    return fair is not None and row["allocated"] >= fair and fair < guaranteed


def _since_text(state: State, short: ShortRow) -> str:
    """Since when a queue has had less than it is due, by which record, and what had changed."""
    text = f"it has had less than it is due for {span(state.time - short.since_ms)} (since record {short.seq}"
    if short.due_before is not None and short.due > short.due_before:
        text += f", where its due rose from {_percent(short.due_before / SHARE_UNITS)}"
        text += f" to {_percent(short.due / SHARE_UNITS)}"
    elif short.held_before is not None and short.held < short.held_before:
        text += f", where what it holds fell from {_percent(short.held_before / SHARE_UNITS)}"
        text += f" to {_percent(short.held / SHARE_UNITS)}"
    return f"{text})"


def _full(state: State, path: str, pending: Pending) -> tuple[str, str] | None:
    """The resource that a queue has no more of by its max."""
    most = state.ceilings.get(path)
    if not most:
        return None
    held: dict[str, int] = {}
    for leaf, used in state.used.items():
        if not path or leaf == path or leaf.startswith(f"{path}/"):
            for kind, amount in used.items():
                held[kind] = held.get(kind, 0) + amount
    smallest: dict[str, int] = {}
    for job, at, _ in pending.below(path):
        stage = job.graph.stages[at]
        for kind, amount in stage.demand.items():
            needed = amount * (stage.tasks if stage.gang else 1)
            smallest[kind] = min(smallest.get(kind, needed), needed)
    for kind, amount in most.items():
        if kind in smallest and held.get(kind, 0) + max(1, smallest[kind]) > amount:
            return kind, quantity_text(kind, amount)
    return None


def _breach(state: State, row: Document) -> Document:
    breach = row["breach"]
    text = (
        f"{named(row['queue'])} has held {_percent(breach['allocated'])} of the {_percent(breach['guaranteed'])} "
        f"that it is guaranteed for {span(state.time - breach['since_ms'])}"
    )
    if breach["winner"]:
        text += f"; most of what is missing is held by {named(breach['winner'])}"
    return {"reason": "guarantee", "text": text, "numbers": dict(breach), "unblocks": ["tasks of other queues end"]}


def _beside(row: Document, other: Document, waiting: int, other_waiting: int) -> Document:
    """One sentence why one of two siblings has more."""
    more, less, less_waiting = row, other, other_waiting
    if other["allocated"] > row["allocated"]:
        more, less, less_waiting = other, row, waiting
    pair = (
        f"{named(more['queue'])} holds {_percent(more['allocated'])} and "
        f"{named(less['queue'])} {_percent(less['allocated'])}"
    )
    word: Reason
    if more["allocated"] == less["allocated"]:
        word, why = "weight", "as much"
        text = f"{named(row['queue'])} and {named(other['queue'])} both hold {_percent(row['allocated'])}"
        return {"reason": word, "text": text, "numbers": {"queue": other["queue"], "why": why}, "unblocks": []}
    if not less_waiting:
        word, why = "demand", f"{named(less['queue'])} asks for no more"
    elif less["limits"]["max"] and less["fair"] is not None and less["allocated"] >= less["fair"]:
        word, why = "max", f"{named(less['queue'])} is bounded by its max"
    elif _is_unplaced(less):
        why = f"no room was found for what {named(less['queue'])} asks for next"
        word = "no_room"
    elif more["limits"]["guaranteed"] and (more["guaranteed"] or 0) > (less["guaranteed"] or 0):
        word, why = "guarantee", f"{named(more['queue'])} is guaranteed {_percent(more['guaranteed'] or 0)}"
    elif more["weight"] > less["weight"]:
        word, why = "weight", f"its weight is {more['weight']} beside {less['weight']}"
    elif (less["fair"] or 0) > less["allocated"]:
        word, why = (
            "no_room",
            f"{named(less['queue'])} is due {_percent(less['fair'] or 0)}, and waits for tasks to end",
        )
    else:
        word, why = "weight", f"they are due {_percent(more['fair'] or 0)} and {_percent(less['fair'] or 0)}"
    numbers = {"queue": other["queue"], "held": other["allocated"], "fair": other["fair"], "weight": other["weight"]}
    return {"reason": word, "text": f"{pair}: {why}", "numbers": numbers, "unblocks": []}


def _percent(part: float) -> str:
    tenths = (round(part * SHARE_UNITS) * 2_000 // SHARE_UNITS + 1) // 2
    return f"{tenths // 10}.{tenths % 10} %" if tenths % 10 else f"{tenths // 10} %"
