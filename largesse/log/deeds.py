"""What people and programs have asked of a cell, from its records: who, what, and whether the cell refused it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from largesse.log.record_lines import line_of
from schemas import (
    Checkpoint,
    ConfigChanged,
    InputRefused,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobRejected,
    NodeDrained,
    NodeRemoved,
    Policy,
    Queue,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    RoundAbandoned,
    SeriesEnded,
    SeriesRequested,
    TokenMade,
    TokenRevoked,
)
from schemas.quantities import MILLIONTHS, vector_text
from schemas.queue_tree import walk

Area = Literal["jobs", "reservations", "nodes", "config", "access", "inputs", "rounds"]
AREAS: tuple[Area, ...] = get_args(Area)
"""What a deed was about."""

_VERBS: dict[type, tuple[Area, str]] = {
    JobAdmitted: ("jobs", "submit"),
    JobRejected: ("jobs", "submit"),
    JobCancelled: ("jobs", "cancel"),
    JobChanged: ("jobs", "change"),
    ReservationRequested: ("reservations", "reserve"),
    ReservationUpdated: ("reservations", "change"),
    ReservationDeleted: ("reservations", "give back"),
    SeriesRequested: ("reservations", "reserve"),
    SeriesEnded: ("reservations", "give back"),
    NodeDrained: ("nodes", "drain"),
    NodeRemoved: ("nodes", "remove"),
    ConfigChanged: ("config", "change"),
    TokenMade: ("access", "make token"),
    TokenRevoked: ("access", "revoke token"),
    InputSkipped: ("inputs", "skip"),
    Checkpoint: ("rounds", "note checkpoint"),
    RoundAbandoned: ("rounds", "abandon"),
}
_NOBODY = ("", "unknown")


@dataclass(frozen=True, slots=True)
class Deed:
    """What one record says that somebody did. `author`: who sent it, as the log has it. `user`: for whom it was, ""
    where it names nobody else. `verb`: in one word or two; `text`: to what, and what has become otherwise.
    """

    seq: int
    time: int
    author: str
    user: str
    area: Area
    verb: str
    is_refused: bool
    text: str

    def document(self) -> dict[str, object]:
        """The deed as JSON. `time` in Unix ms."""
        return {each.name.removeprefix("is_"): getattr(self, each.name) for each in fields(self)}


@dataclass(slots=True)
class Deeds:
    """Finds deeds in the records of a log, shown every one in order: a config says only what is in force."""

    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None

    def of(self, record: Record) -> Deed | None:
        """What somebody did, by this record; None where nobody did."""
        body = record.body
        if isinstance(body, InputRefused):
            area: Area = body.topic if body.topic in AREAS else "nodes"
            return _deed(record, area, "send", body.author, "", line_of(record), is_refused=True)
        if isinstance(body, ConfigChanged):
            text = "; ".join(self._moved(body)) or "nothing is otherwise"
            return _deed(record, "config", "change", body.author, "", text)
        if isinstance(body, RoundAbandoned) and body.reason != "operator":
            return None
        if type(body) not in _VERBS:
            return None
        area, verb = _VERBS[type(body)]
        if isinstance(body, NodeDrained) and not body.draining:
            verb = "resume"
        elif isinstance(body, JobAdmitted) and body.run > 1:
            verb = "run again"
        user = body.spec.user if isinstance(body, JobAdmitted | JobRejected) else getattr(body, "user", "")
        is_refused = isinstance(body, JobRejected)
        return _deed(record, area, verb, body.author, user or "", line_of(record), is_refused=is_refused)

    def _moved(self, body: ConfigChanged) -> Iterator[str]:
        """What a config makes otherwise, and takes it as the one in force."""
        if body.policy is not None:
            for each in fields(Policy):
                was, now = getattr(self.policy, each.name), getattr(body.policy, each.name)
                if was != now:
                    yield f"{each.name} {_said(was)} -> {_said(now)}"
            self.policy = body.policy
        if body.queues is not None:
            yield from _moved_queues(self.queues, body.queues)
            self.queues = body.queues


def _deed(
    record: Record, area: Area, verb: str, author: str, user: str, text: str, *, is_refused: bool = False
) -> Deed:
    author = "" if author in _NOBODY else author
    for name in (user, author):
        text = text.removesuffix(f" (by {name})")
    return Deed(record.seq, record.time, author, "" if user == author else user, area, verb, is_refused, text)


def _moved_queues(before: Queue | None, after: Queue) -> Iterator[str]:
    was = dict(walk(before)) if before is not None else {}
    now = dict(walk(after))
    for path, queue in now.items():
        name = path or "root"
        if path not in was:
            said = [text for text in _settings(queue).values() if text]
            yield f"new queue {name}" + (f" ({', '.join(said)})" if said else "")
            continue
        old, new = _settings(was[path]), _settings(queue)
        moved = [f"{old[key] or f'no {key}'} -> {new[key] or f'no {key}'}" for key in new if old[key] != new[key]]
        if moved:
            yield f"queue {name}: {', '.join(moved)}"
    for path in was:
        if path not in now:
            yield f"queue {path} is gone"


def _settings(queue: Queue) -> dict[str, str]:
    """What is said of a queue itself, by setting; "" where nothing is."""
    found = {"weight": f"weight {queue.weight / MILLIONTHS:g}"}
    for name in ("guaranteed", "max"):
        amounts = getattr(queue, name)
        found[name] = f"{name} {vector_text(amounts)}" if amounts else ""
    for name in ("policy", "submitters"):
        value = getattr(queue, name)
        found[name] = f"{name} {_said(value)}" if value else ""
    for name in ("running_jobs_max", "user_jobs_max", "user_running_max", "altruism_permille"):
        value = getattr(queue, name)
        found[name] = "" if value is None else f"{name} {value}"
    return found


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
