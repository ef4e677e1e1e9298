"""What the router learns of its log: where each job is."""

from largesse.core import Folds
from schemas import JobCancelled, Record
from schemas.routes import (
    CellsHeard,
    CellsJudged,
    JobRouted,
    MoveAnswered,
    MoveAsked,
    RouteAsked,
    RouteDeclined,
    RouteEnded,
    RouteLapsed,
    RouteOutcome,
    RouterSet,
    RouteTaken,
)
from services.router.core.names import digest_of
from services.router.core.state import OVER_KEPT_MS, OVER_MAX, Over, Phase, Route, State, wanted_of


def start(shard: int = 0, of: int = 1) -> State:
    """Before the first record."""
    return State()


def fold(state: State, record: Record) -> None:
    """Folds one record. Raises AssertionError where it contradicts the log before it."""
    learn = FOLDS.get(type(record.body))
    if learn is not None:
        learn(state, record)


def _set(state: State, record: Record[RouterSet]) -> None:
    state.knobs = record.body


def _heard(state: State, record: Record[CellsHeard]) -> None:
    state.heard = record.body


def _asked(state: State, record: Record[RouteAsked]) -> None:
    body = record.body
    assert body.spec.job not in state.jobs, f"job {body.spec.job} is known already"
    state.over.pop(body.spec.job, None)
    state.jobs[body.spec.job] = Route(body.spec, body.author, list(body.cells), record.time)
    state.waiting[body.spec.job] = True


def _judged(state: State, record: Record[CellsJudged]) -> None:
    body = record.body
    if body.considering == "placing":
        state.jobs[body.job].bids = list(body.bids)


def _routed(state: State, record: Record[JobRouted]) -> None:
    body = record.body
    route = _in(state, body.job, "waiting")
    route.cell, route.number, route.before_ms = body.cell, body.number, body.before_ms
    route.to, route.bids = "", []
    _enter(state, body.job, "sent", record.time)
    _expect(state, body.cell, route, 1)


def _taken(state: State, record: Record[RouteTaken]) -> None:
    body = record.body
    route = _in(state, body.job, "sent")
    _expect(state, route.cell, route, -1)
    route.admitted, route.was_taken = body.admitted, True
    _enter(state, body.job, "taken", record.time)


def _lapsed(state: State, record: Record[RouteLapsed]) -> None:
    route = _in(state, record.body.job, "sent")
    _expect(state, route.cell, route, -1)
    _leave_cell(state, record.body.job, route, record.time)


def _moving(state: State, record: Record[MoveAsked]) -> None:
    body = record.body
    route = _in(state, body.job, "taken")
    route.to = body.to
    _enter(state, body.job, "moving", record.time)
    _expect(state, body.to, route, 1)


def _answered(state: State, record: Record[MoveAnswered]) -> None:
    body = record.body
    route = _in(state, body.job, "moving")
    _expect(state, route.to, route, -1)
    if not body.is_free:
        # It stays for now: what is not free once is asked again only after the gap between two moves.
        route.to, route.moved_ms = "", record.time
        _enter(state, body.job, "taken", record.time)
        return
    route.moved_ms = record.time
    route.been.append(route.cell)
    _leave_cell(state, body.job, route, record.time)


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    name = record.body.job
    state.jobs[name].is_cancelled = True
    if state.jobs[name].phase == "waiting":
        state.ending[name] = True


def _declined(state: State, record: Record[RouteDeclined]) -> None:
    _in(state, record.body.job, "waiting")
    _forget_phase(state, record.body.job)
    del state.jobs[record.body.job]  # As with a cell that rejects a job: its name is free.


def _ended(state: State, record: Record[RouteEnded]) -> None:
    body = record.body
    route = state.jobs[body.job]
    if route.phase == "sent":
        _expect(state, route.cell, route, -1)
    elif route.phase == "moving":
        _expect(state, route.to, route, -1)
    _end(state, body.job, body.outcome, body.cell, record.time)


def _in(state: State, name: str, phase: Phase) -> Route:
    route = state.jobs[name]
    assert route.phase == phase, f"job {name} is {route.phase}, not {phase}"
    return route


def _enter(state: State, name: str, phase: Phase, time: int) -> None:
    route = state.jobs[name]
    _forget_phase(state, name)
    route.phase, route.since_ms = phase, time
    if phase == "waiting":
        state.waiting[name] = True
    elif phase == "sent":
        state.sent[name] = True
    elif phase == "taken":
        state.taken[name] = True


def _forget_phase(state: State, name: str) -> None:
    for names in (state.waiting, state.sent, state.taken, state.ending):
        names.pop(name, None)


def _leave_cell(state: State, name: str, route: Route, time: int) -> None:
    route.cell, route.admitted = "", 0
    _enter(state, name, "waiting", time)
    if route.is_cancelled:
        state.ending[name] = True


def _end(state: State, name: str, outcome: RouteOutcome, cell: str, time: int) -> None:
    _forget_phase(state, name)
    route = state.jobs.pop(name)
    state.over[name] = Over(digest_of(route.spec), time, cell, outcome)
    gone: list[str] = []
    too_many = len(state.over) - OVER_MAX
    for each, over in state.over.items():
        if len(gone) >= too_many and time - over.at_ms <= OVER_KEPT_MS:
            break
        gone.append(each)
    for each in gone:
        del state.over[each]


def _expect(state: State, cell: str, route: Route, sign: int) -> None:
    """What the job asks for is on its way to a cell, or (negative) no longer."""
    coming = state.coming.setdefault(cell, {})
    for kind, amount in wanted_of(route.spec).items():
        left = coming.get(kind, 0) + sign * amount
        assert left >= 0, f"less than nothing is on its way to {cell}"
        if left:
            coming[kind] = left
        else:
            coming.pop(kind, None)
    if not coming:
        del state.coming[cell]


FOLDS: Folds[State] = {
    RouterSet: _set,
    CellsHeard: _heard,
    RouteAsked: _asked,
    CellsJudged: _judged,
    JobRouted: _routed,
    RouteTaken: _taken,
    RouteLapsed: _lapsed,
    MoveAsked: _moving,
    MoveAnswered: _answered,
    JobCancelled: _cancelled,
    RouteDeclined: _declined,
    RouteEnded: _ended,
}
