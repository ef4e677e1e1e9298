"""What the records of a log say of what still lives behind a closing, for those who follow jobs, nodes and reservations
by records and are no cores. A checkpoint has it beside the states, so that a what-if can go on from there.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from largesse.log.codec import decode, encode
from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobEnded,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Plans,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    RoundClosed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from schemas.plans import UNASKED
from schemas.presets import PRESETS
from services.simulator.cluster import AUTHOR as SIMULATOR

LAYOUT = 1

OF_JOBS: dict[type, tuple[str, ...]] = {
    RoundClosed: ("grants",),
    TaskStarted: ("items",),
    TaskFinished: ("items", "spare"),
    TaskFailed: ("items", "spare"),
    NodeLost: ("lost", "spare"),
    NodeRegistered: ("lost", "attempts", "spare"),
}
"""By type of record, its lists in which each item is of one job."""
_BARE: dict[type, dict[str, object]] = {
    RoundClosed: {"struck": [], "revoked": [], "wake_ms": None, "hashes": [], "ports": []},
}


@dataclass(slots=True)
class Said:
    """What a record says of one job: the record with nothing else. `places`: where its items stand, list by list."""

    seq: int
    content: str
    places: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """A node. `first`, `registered`, `reported`: its first and its newest registration, and its newest report, without
    attempts; `forgotten`: by which record, of a simulated one.
    """

    heard_ms: int = 0
    first: str = ""
    registered: str = ""
    reported: str = ""
    forgotten: str = ""


@dataclass(slots=True)
class Promise:
    """A reservation: its request, and the newest update. `gone`: it is over, and jobs of it still run."""

    said: list[str]
    unanswered: int = 1
    accepted: bool = False
    broken: bool = False
    gone: bool = False


@dataclass(slots=True)
class State:
    """`configs`: records with settings, by seq: those in force (`policy`, `queues`), the newest under which nodes were
    shared (`shared`), and those under which live jobs were admitted (`under`). `of`: by live job, its reservation.
    `over`: how many jobs have ended.
    """

    jobs: dict[str, list[Said]] = field(default_factory=dict)
    under: dict[str, int] = field(default_factory=dict)
    of: dict[str, str] = field(default_factory=dict)
    configs: dict[int, str] = field(default_factory=dict)
    policy: int = 0
    queues: int = 0
    shared: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    over: int = 0


def start() -> State:
    """Nothing was said."""
    return State()


# ---------------------------------------------------------------- the log
def fold(state: State, record: Record) -> None:
    """The next record of the log."""
    body = record.body
    if type(body) in OF_JOBS:
        _note_items(state, record, OF_JOBS[type(body)])
    if isinstance(body, TaskStarted | TaskFinished | TaskFailed):
        for item in body.items:
            state.nodes.setdefault(item.node, Node()).heard_ms = record.time
    elif isinstance(body, NodeRegistered | NodeReported):
        _note_node(state, record)
    elif isinstance(body, NodeForgotten):
        _forget_node(state, record)
    elif isinstance(body, JobAdmitted):
        _admit(state, record)
    elif isinstance(body, JobEnded):
        _end(state, body)
    elif isinstance(body, ConfigChanged):
        _configure(state, record)
    elif isinstance(body, ReservationRequested | ReservationUpdated | ReservationDeleted):
        _note_promise(state, record)
    elif isinstance(body, Plans):
        _note_answers(state, body)


def _text(record: Record) -> str:
    return encode(record).decode()


def _note_items(state: State, record: Record, fields: tuple[str, ...]) -> None:
    body: Any = record.body
    found: dict[str, list[list[int]]] = {}
    for at, name in enumerate(fields):
        for place, item in enumerate(getattr(body, name)):
            if item.job in state.jobs:
                found.setdefault(item.job, [[] for _ in fields])[at].append(place)
    for job, places in found.items():
        mine = {name: [getattr(body, name)[at] for at in places[i]] for i, name in enumerate(fields)}
        short = replace(body, **_BARE.get(type(body), {}), **mine)
        state.jobs[job].append(Said(record.seq, _text(replace(record, body=short)), places))


def _note_node(state: State, record: Record) -> None:
    body = record.body
    node = state.nodes.setdefault(body.node, Node())
    node.heard_ms = record.time
    if isinstance(body, NodeReported):
        node.reported = _text(record)
        return
    node.registered = _text(replace(record, body=replace(body, lost=[], attempts=[], spare=[])))
    node.first = node.first or node.registered
    node.forgotten = ""


def _forget_node(state: State, record: Record) -> None:
    """Of a simulated node remains that it was one: what tasks of live jobs took there is read otherwise."""
    node = state.nodes.get(record.body.node)
    if node is not None and node.first and decode(node.first.encode()).body.author == SIMULATOR:
        node.forgotten = _text(record)
    else:
        state.nodes.pop(record.body.node, None)


def _admit(state: State, record: Record) -> None:
    spec = record.body.spec
    state.jobs[spec.job] = [Said(record.seq, _text(record))]
    state.under[spec.job] = state.policy
    if spec.reservation is not None:
        state.of[spec.job] = spec.reservation


def _end(state: State, body: JobEnded) -> None:
    for end in body.jobs:
        state.over += 1
        del state.jobs[end.job], state.under[end.job]
        if (name := state.of.pop(end.job, None)) is not None:
            _let_go(state, name)
    _let_go_of_configs(state)


def _configure(state: State, record: Record) -> None:
    body = record.body
    state.configs[record.seq] = _text(record)
    if body.policy is not None:
        state.policy = record.seq
        if PRESETS[body.policy.preset].counts_slots:
            state.shared = record.seq
    if body.queues is not None:
        state.queues = record.seq
    _let_go_of_configs(state)


def _let_go_of_configs(state: State) -> None:
    in_force = (state.policy, state.queues, state.shared)
    if any(seq not in in_force for seq in state.configs):
        needed = dict.fromkeys([*in_force, *state.under.values()], True)
        state.configs = {seq: text for seq, text in state.configs.items() if seq in needed}


# ---------------------------------------------------------------- reservations, as long as admission has them
def _note_promise(state: State, record: Record) -> None:
    body = record.body
    if isinstance(body, ReservationRequested):
        state.promises[body.reservation] = Promise([_text(record)])
        state.of = {job: name for job, name in state.of.items() if name != body.reservation}
        return
    promise = state.promises.get(body.reservation)
    if promise is not None:
        promise.unanswered += 1
        if isinstance(body, ReservationUpdated):
            promise.said = [promise.said[0], _text(record)]


def _note_answers(state: State, body: Plans) -> None:
    again: dict[str, bool] = {}
    for answer in body.answers:
        promise = state.promises.get(answer.reservation)
        if promise is None or promise.gone:
            continue
        if answer.reason in UNASKED:
            if answer.reason == "broken" and answer.retry_until_ms is not None:
                again[answer.reservation] = True
            elif answer.reason == "moved" and promise.broken:
                promise.accepted, promise.broken = True, False
            continue
        promise.unanswered -= 1
        if answer.accepted:
            promise.accepted, promise.broken = True, False
        is_refused = not promise.accepted and not promise.unanswered and not promise.broken
        if answer.reason == "deleted" or (not answer.accepted and is_refused):
            promise.gone = True
            _let_go(state, answer.reservation)
    for name in body.gone:
        promise = state.promises.get(name)
        if promise is not None:
            promise.accepted, promise.broken = False, name in again
            if not promise.unanswered and not promise.broken:
                promise.gone = True
                _let_go(state, name)


def _let_go(state: State, name: str) -> None:
    promise = state.promises.get(name)
    if promise is not None and promise.gone and name not in state.of.values():
        del state.promises[name]


# ---------------------------------------------------------------- what is left of it
def records_of(state: State) -> list[Record]:
    """What there is to say again, in order, to whoever follows the log from its first record."""
    texts = [*state.configs.values()]
    texts += [text for promise in state.promises.values() for text in promise.said]
    for node in state.nodes.values():
        texts += [text for text in (node.first, node.registered, node.reported, node.forgotten) if text]
    found = {record.seq: record for record in (decode(text.encode()) for text in texts)}
    items: dict[int, dict[str, list[tuple[int, object]]]] = {}
    for said in (each for job in state.jobs.values() for each in job):
        record = decode(said.content.encode())
        found.setdefault(said.seq, record)
        lists = items.setdefault(said.seq, {})
        for name, places in zip(OF_JOBS.get(type(record.body), ()), said.places, strict=False):
            lists.setdefault(name, []).extend(zip(places, getattr(record.body, name), strict=True))
    for seq, lists in items.items():
        whole = {name: [item for _, item in sorted(pairs, key=_place)] for name, pairs in lists.items()}
        if whole:
            found[seq] = replace(found[seq], body=replace(found[seq].body, **whole))
    return [record for _, record in sorted(found.items())]


def _place(pair: tuple[int, object]) -> int:
    return pair[0]


def heard_ms(state: State) -> dict[str, int]:
    """When each node was heard of last."""
    return {name: node.heard_ms for name, node in state.nodes.items() if not node.forgotten}
