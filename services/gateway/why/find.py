"""What `why` can be asked about, by name: a job, a stage, a task, a reservation, a queue, a node."""

from itertools import chain, islice
from typing import Literal, get_args

from schemas.wording import nearest
from services.gateway.documents import Document
from services.gateway.view.state import State
from services.gateway.why.jobs import ended_why, live_why
from services.gateway.why.nodes import node_why
from services.gateway.why.queues import paths_of, queue_why
from services.gateway.why.reservations import reservation_why

Kind = Literal["job", "reservation", "queue", "node"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In this order a name is looked for where no kind is given."""
ROOT = "root"
NEAREST_AMONG = 200


class UnknownId(Exception):
    """There is nothing of that name: says what is near."""


def why_document(state: State, name: str, kind: Kind | None = None) -> Document:
    """Why it is as it is: `JOB`, `JOB/STAGE`, `JOB/STAGE/INDEX`, or the name of a reservation, a queue or a node.

    Raises UnknownId.
    """
    for each in KINDS if kind is None else (kind,):
        found = _FINDERS[each](state, name)
        if found is not None:
            ended = {"ended_by": found.pop("ended_by")} if "ended_by" in found else {}
            head = {"id": name, "kind": found.pop("kind"), "at": {"seq": state.seq, "time": state.time}}
            return head | found | ended
    raise UnknownId(_unknown_text(state, name, kind))


def _job(state: State, name: str) -> Document | None:
    job, _, rest = name.partition("/")
    live, over = state.jobs.get(job), state.ended.get(job)
    if live is None and over is None:
        return None
    stage, slash, index = rest.partition("/")
    known = live.graph.position if live is not None else {each.stage: True for each in over.stages} if over else {}
    if rest and stage not in known:
        if job in paths_of(state):
            return None  # A queue has the name, and those below it.
        raise UnknownId(f'job {job} has no stage "{stage}": {", ".join(known)}')
    number: int | None = None
    if slash:
        tasks = live.graph.tasks[live.graph.position[stage]] if live is not None else _tasks(state, job, stage)
        if not index.isascii() or not index.isdecimal() or int(index) >= tasks:
            raise UnknownId(f'stage {stage} of job {job} has tasks 0 to {tasks - 1}, and no "{index}"')
        number = int(index)
    if live is not None:
        return live_why(state, live, stage or None, number)
    assert over is not None
    return ended_why(state, over, stage or None, number)


def _tasks(state: State, job: str, stage: str) -> int:
    return next(each.tasks for each in state.ended[job].stages if each.stage == stage)


def _reservation(state: State, name: str) -> Document | None:
    row = state.reservations.get(name)
    return None if row is None else reservation_why(state, row)


def _queue(state: State, name: str) -> Document | None:
    paths = paths_of(state)
    path = "" if name == ROOT and ROOT not in paths else name
    return queue_why(state, path) if path in paths else None


def _node(state: State, name: str) -> Document | None:
    return node_why(state, name) if name in state.nodes else None


_FINDERS = {"job": _job, "reservation": _reservation, "queue": _queue, "node": _node}


def _unknown_text(state: State, name: str, kind: Kind | None) -> str:
    head = name.partition("/")[0]
    names: dict[Kind, list[str]] = {
        "job": list(islice(chain(state.jobs, reversed(state.ended)), NEAREST_AMONG)),
        "reservation": list(state.reservations),
        "queue": [path for path in paths_of(state) if path],
        "node": list(islice(state.nodes, NEAREST_AMONG)),
    }
    what = "job, reservation, queue or node" if kind is None else kind
    near = nearest(head, (each for of in KINDS if kind in (None, of) for each in names[of]))
    return f'no {what} "{name}" is known here' + (f'; did you mean "{near}"?' if near else "")
