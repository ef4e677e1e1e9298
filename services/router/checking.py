"""Whether every decision in a router's log follows from the records before it: read again, and decided again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas import Record
from schemas.routes import CellsJudged, JobRouted, MoveAsked, RouteDeclined, RouteEnded
from services.router.core import CELL, State, fold, start
from services.router.core.decide import decide, due


@dataclass(slots=True)
class Checked:
    """`state`: after the last record, which is `seq`. `decided`: how many decisions were compared; `wrong`: those that
    differ."""

    state: State = field(default_factory=start)
    cell: str = CELL
    seq: int = 0
    records: int = 0
    decided: int = 0
    wrong: list[str] = field(default_factory=list)


def check(records: Iterable[Record]) -> Checked:
    """Of a whole log, claims left out. Raises AssertionError where a record contradicts those before it."""
    found = Checked()
    judged: dict[str, CellsJudged] = {}
    for record in records:
        body = record.body
        found.records += 1
        found.seq = record.seq
        match body:
            case CellsJudged():
                judged[body.job] = body
            case JobRouted() | RouteDeclined() | MoveAsked():
                last = judged.pop(body.job, None)
                again = None if last is None else decide(found.state, last, record.time)
                _compare(found, record, again)
            case RouteEnded(cell=""):
                _compare(found, record, due(found.state))
        fold(found.state, record)
    return found


def _compare(found: Checked, record: Record, again: object) -> None:
    found.decided += 1
    if again != record.body:
        found.wrong.append(f"{record.id}: {record.body} is in the log, and decided again it is {again}")
