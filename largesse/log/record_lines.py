"""A record of the log in one line for people, and the names in it by which it can be found."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from json import dumps

from largesse.log import route_lines
from schemas import (
    AttemptsKnown,
    Checkpoint,
    ConfigChanged,
    Grant,
    InputRefused,
    InputRepeated,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobRejected,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    PlanProposed,
    Plans,
    Record,
    Releases,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    Revocation,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SeriesEnded,
    SeriesRequested,
    TaskFailed,
    TaskFinished,
    TaskRange,
    TaskStarted,
    TimeReached,
    TokenMade,
    TokenRevoked,
)
from schemas.access import role_text
from schemas.quantities import quantity_texts
from schemas.rounds import SequencerAlive
from schemas.routes import RouteAsked
from schemas.tasks import TaskEnd, TaskFailure
from schemas.wording import plural

ITEMS_SHOWN_MAX = 4
"""Of what a record lists: how many more there are is said."""

SILENT = ("SequencerAlive", "TimeReached")
"""Records that say nothing but that time goes on: they are shown where they are asked for by type."""


@dataclass(slots=True)
class Names:
    """What a record speaks of."""

    jobs: dict[str, bool] = field(default_factory=dict)
    nodes: dict[str, bool] = field(default_factory=dict)
    queues: dict[str, bool] = field(default_factory=dict)
    users: dict[str, bool] = field(default_factory=dict)
    reservations: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class WantedRecords:
    """Which records: of any of the types, and of any of the names of each kind that is given."""

    types: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    reservations: list[str] = field(default_factory=list)

    def has(self, record: Record, names: Names) -> bool:
        """Whether a record is one of them. A queue stands for those below it, too."""
        if record.type not in self.types if self.types else record.type in SILENT:
            return False
        return all(
            not asked or any(name in found for name in asked)
            for asked, found in (
                (self.jobs, names.jobs),
                (self.nodes, names.nodes),
                (self.users, names.users),
                (self.reservations, names.reservations),
            )
        ) and (
            not self.queues
            or any(found == queue or found.startswith(f"{queue}/") for queue in self.queues for found in names.queues)
        )


@dataclass(slots=True)
class JobPlaces:
    """Queue and user of live jobs: what speaks of a job speaks of those, too. Told of every record in order. `known`:
    of jobs whose admission it was not told of; None: it is not known there either.
    """

    known: Callable[[str], tuple[str, str] | None] = lambda name: None
    _of: dict[str, tuple[str, str]] = field(default_factory=dict)

    def names_in(self, record: Record) -> Names:
        """What this record, the next one, speaks of."""
        body, names = record.body, Names()
        if isinstance(body, JobAdmitted | JobRejected | RouteAsked):
            user = body.spec.user or body.author  # Who sent it, where it names nobody.
            names.jobs[body.spec.job] = names.queues[body.spec.queue] = names.users[user] = True
            if isinstance(body, JobAdmitted | RouteAsked):
                self._of[body.spec.job] = body.spec.queue, user
        for job in _jobs_in(body):
            names.jobs[job] = True
            if (place := self._of.get(job) or self.known(job)) is not None:
                names.queues[place[0]] = names.users[place[1]] = True
        for node in _nodes_in(body):
            names.nodes[node] = True
        for name in ("reservation", "series"):
            if found := getattr(body, name, ""):
                names.reservations[found] = True
        if isinstance(body, ReservationRequested | ReservationUpdated | SeriesRequested):
            names.queues[body.queue] = names.users[body.user] = True
        elif isinstance(body, TokenMade):
            names.users[body.user] = True
        elif isinstance(body, Plans):
            listed = [answer.reservation for answer in body.answers] + [each.reservation for each in body.profiles]
            names.reservations |= dict.fromkeys([*listed, *body.gone], True)
        elif isinstance(body, JobChanged) and body.queue is not None and body.job in self._of:
            names.queues[body.queue] = True
            self._of[body.job] = body.queue, self._of[body.job][1]
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                self._of.pop(end.job, None)
        return names


def named_in(record: Record) -> Iterable[str]:
    """Jobs and nodes that a record speaks of."""
    body = record.body
    if isinstance(body, JobAdmitted | JobRejected):
        return [body.spec.job]
    return [*_jobs_in(body), *_nodes_in(body)]


def _jobs_in(body: object) -> Iterable[str]:
    match body:
        case RoundClosed(grants=grants, revoked=revoked, struck=struck):
            granted = [*grants, *(each.grant for each in struck)]
            return [each.job for each in granted] + [each.job for each in revoked]
        case TaskStarted() | TaskFinished() | TaskFailed():
            return [item.job for item in body.items]
        case NodeLost() | NodeRegistered():
            known = [each.job for each in body.attempts] if isinstance(body, NodeRegistered) else []
            return [each.job for each in body.lost] + known
        case JobEnded():
            return [end.job for end in body.jobs]
        case JobCancelled() | JobChanged() | InputRepeated():
            return [body.job] if body.job else []
    return route_lines.named(body)


def _nodes_in(body: object) -> Iterable[str]:
    match body:
        case RoundClosed(grants=grants, revoked=revoked, struck=struck):
            granted = [*grants, *(each.grant for each in struck)]
            return [each.node for each in granted] + [each.node for each in revoked]
        case TaskStarted() | TaskFinished() | TaskFailed():
            return [item.node for item in body.items]
    node = getattr(body, "node", "")
    return [node] if node else ()


def line_of(record: Record) -> str:
    """What a record says, in one line without its seq, time and type."""
    say = _SAY.get(type(record.body))
    return say(record.body) if say is not None else dumps(asdict(record.body))


def _some(texts: list[str], nothing: str = "") -> str:
    more = len(texts) - ITEMS_SHOWN_MAX
    shown = ", ".join(texts[:ITEMS_SHOWN_MAX])
    return (f"{shown} and {more:,} more" if more > 0 else shown) or nothing


def _tasks(item: Grant | TaskRange | TaskEnd | TaskFailure | Revocation) -> str:
    last = item.first + item.count - 1
    indexes = str(item.first) if item.count == 1 else f"{item.first}-{last}"
    again = f" attempt {item.attempt}" if item.attempt > 1 else ""
    return f"{item.job}/{item.stage}/{indexes}{again}"


def _by(author: str) -> str:
    return f" (by {author})" if author not in ("", "unknown") else ""


def _admitted(body: JobAdmitted) -> str:
    spec = body.spec
    tasks = sum(stage.tasks for stage in spec.stages)
    again = f", run {body.run}" + (f" from stage {body.from_stage}" if body.from_stage else "") if body.run > 1 else ""
    size = f"{plural(len(spec.stages), 'stage')}, {plural(tasks, 'task')}"
    return f"{spec.job} in {spec.queue}: {size}{again}{_by(spec.user or body.author)}"


def _rejected(body: JobRejected) -> str:
    return f"{body.spec.job} in {body.spec.queue}: {body.reason}: {body.field}: {body.detail}{_by(body.author)}"


def _changed(body: JobChanged) -> str:
    said = [f"{name} {getattr(body, name)}" for name in ("priority", "queue") if getattr(body, name) is not None]
    if body.hold is not None:
        said.insert(0, "held" if body.hold else "released")
    return f"{body.job}: {', '.join(said)}{_by(body.author)}"


def _ended(body: JobEnded) -> str:
    return _some([f"{end.job} {end.outcome}" + (f" ({end.detail})" if end.detail else "") for end in body.jobs])


def _closed(body: RoundClosed) -> str:
    parts = []
    if body.grants:
        parts.append(_some([f"{_tasks(grant)} on {grant.node}" for grant in body.grants]))
    if body.revoked:
        parts.append("takes back " + _some([f"{_tasks(each)} on {each.node}{_claimed(each)}" for each in body.revoked]))
    if body.struck:
        parts.append("strikes " + _some([f"{_tasks(each.grant)} ({each.reason})" for each in body.struck]))
    return "; ".join(parts) or "starts nothing"


def _claimed(each: Revocation) -> str:
    return "" if each.claim is None else f" for queue {each.claim.queue}"


def _opened(body: RoundOpened) -> str:
    pools = ", pools " + "/".join(f"{ppm / 10_000:.0f} %" for ppm in body.pools_ppm) if body.pools_ppm else ""
    return f"rules {body.rules}{pools}"


def _started(body: TaskStarted) -> str:
    return _some([f"{_tasks(item)} on {item.node}" for item in body.items])


def _finished(body: TaskFinished) -> str:
    texts = []
    for item in body.items:
        took = f" in {max(item.run_ms) / 1_000:.1f} s" if item.run_ms else ""
        texts.append(f"{_tasks(item)} on {item.node}{took}")
    return _some(texts)


def _failed(body: TaskFailed) -> str:
    texts = []
    for item in body.items:
        code = f" {item.exit_code}" if item.exit_code is not None else ""
        texts.append(
            f"{_tasks(item)} on {item.node}: {item.reason}{code}" + (f" ({item.detail})" if item.detail else "")
        )
    return _some(texts)


def _capacity(body: NodeRegistered | NodeReported) -> str:
    has = ", ".join(f"{kind} {amount}" for kind, amount in quantity_texts(body.capacity).items())
    closed = f"; takes no tasks: {body.unschedulable}" if body.unschedulable else ""
    lost = getattr(body, "lost", [])
    return f"{body.node}: {has}{closed}" + (f"; loses {_some([_tasks(each) for each in lost])}" if lost else "")


def _lost(body: NodeLost) -> str:
    why = "its agent has left" if body.left else "its lease ran out"
    return f"{body.node}: {why}" + (f"; loses {_some([_tasks(each) for each in body.lost])}" if body.lost else "")


def _drained(body: NodeDrained) -> str:
    what = "drains" if body.draining else "takes tasks again"
    within = f" within {body.within_ms / 1_000:.0f} s" if body.within_ms is not None else ""
    return f"{body.node} {what}{within}" + (f": {body.reason}" if body.reason else "") + _by(body.author)


def _configured(body: ConfigChanged) -> str:
    said = [f"policy with preset {body.policy.preset}"] if body.policy is not None else []
    return " and ".join([*said, *(["queues"] if body.queues is not None else [])]) + _by(body.author)


def _planned(body: Plans) -> str:
    answers = [f"{each.reservation} {'accepted' if each.accepted else 'refused'}" for each in body.answers]
    parts = [_some(answers)] if answers else []
    if body.profiles:
        parts.append("plans " + _some([each.reservation for each in body.profiles]))
    if body.gone:
        parts.append("no promise any more: " + _some(body.gone))
    return "; ".join(parts) or "nothing is new"


def _asked(body: ReservationRequested | ReservationUpdated | SeriesRequested) -> str:
    name = body.series if isinstance(body, SeriesRequested) else body.reservation
    return f"{name} for {body.queue}: {body.rdl}{_by(body.user or body.author)}"


def _token(body: TokenMade) -> str:
    until = f" until {body.expires_ms}" if body.expires_ms is not None else ""
    return f"{body.name} of {body.user}: {_some([role_text(role) for role in body.roles])}{until}{_by(body.author)}"


def _repeated(body: InputRepeated) -> str:
    return f"{body.job or body.reservation}, which the cell has{_by(body.author)}"


def _cancelled(body: JobCancelled) -> str:
    return f"{body.job}{f', which moves to cell {body.moved_to}' if body.moved_to else ''}{_by(body.author)}"


def _refused(body: InputRefused) -> str:
    return f"{body.topic}: {body.field + ': ' if body.field else ''}{body.reason}{_by(body.author)}"


_SAY: dict[type, Callable[..., str]] = {
    JobAdmitted: _admitted,
    JobRejected: _rejected,
    JobCancelled: _cancelled,
    JobChanged: _changed,
    JobEnded: _ended,
    RoundOpened: _opened,
    RoundClosed: _closed,
    RoundAbandoned: lambda body: f"{body.reason}{_by(body.author)}",
    TaskStarted: _started,
    TaskFinished: _finished,
    TaskFailed: _failed,
    NodeRegistered: _capacity,
    NodeReported: _capacity,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeRemoved: lambda body: f"{body.node}{_by(body.author)}",
    NodeForgotten: lambda body: str(body.node),
    AttemptsKnown: lambda body: f"{body.node}: {plural(len(body.attempts), 'range')} of attempts",
    ConfigChanged: _configured,
    Plans: _planned,
    PlanProposed: lambda body: _some([plan.reservation for plan in body.plans]),
    Releases: lambda body: f"a forecast by {body.forecaster}: {plural(len(body.curves), 'curve')}",
    ReservationRequested: _asked,
    ReservationUpdated: _asked,
    SeriesRequested: _asked,
    ReservationDeleted: lambda body: f"{body.reservation}{_by(body.user or body.author)}",
    SeriesEnded: lambda body: f"{body.series}{_by(body.user or body.author)}",
    InputRefused: _refused,
    InputRepeated: _repeated,
    InputSkipped: lambda body: f"{body.topic} at offset {body.offset}: {body.reason}{_by(body.author)}",
    Checkpoint: lambda body: f"{plural(len(body.states), 'state')} behind seq {body.closing}{_by(body.author)}",
    TokenMade: _token,
    TokenRevoked: lambda body: f"{body.name}{_by(body.author)}",
    TimeReached: lambda body: "",
    SequencerAlive: lambda body: "",
    **route_lines.SAY,
}
