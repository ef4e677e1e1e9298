"""Routes of the log: its records as a table, and what services decided in a round."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, FastAPI, Path, Query
from fastapi.responses import Response

from largesse.bus.port import PositionGap
from largesse.log.decisions import DecisionGap
from largesse.log.fencing import Accepted
from largesse.log.record_lines import WantedRecords
from largesse.task_output import NUMBER_MAX
from schemas import RoundAbandoned, RoundClosed, RoundOpened
from schemas.edge.base import at_key
from schemas.edge.read import Malformed
from schemas.registry import NEWEST
from services.gateway.documents import Document
from services.gateway.documents.models.records import LogRecords, Round
from services.gateway.documents.records import decision_document, record_row, round_document
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, malformed
from services.gateway.log_pages import Looked, backwards, forwards
from services.gateway.log_places import Place

if TYPE_CHECKING:
    from services.gateway.http.api import Api

RECORDS_MAX = 1_000
RECORDS_DEFAULT = 200
ROUND_RECORDS_MAX = 10_000

Seq = Annotated[int | None, Query(ge=1, le=NUMBER_MAX)]
Names = Annotated[list[str] | None, Query(description="may be given several times")]

_RECORDS: Responses = {200: answer(LogRecords, "records of the log"), **problems(422)}
_ROUND: Responses = {200: answer(Round, "the round"), **problems(404, 422)}


def add_records(app: FastAPI, api: "Api") -> None:
    """Records, rounds."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/records", tags=["log"], dependencies=ready, responses=_RECORDS)
    async def list_records(
        first: Annotated[Seq, Query(alias="from", description="the first record, by default that of the log")] = None,
        last: Annotated[Seq, Query(alias="to", description="the last record, by default the newest")] = None,
        limit: Annotated[int, Query(ge=1, le=RECORDS_MAX)] = RECORDS_DEFAULT,
        types: Annotated[Names, Query(alias="type")] = None,
        job: Names = None,
        node: Names = None,
        queue: Names = None,
        user: Names = None,
        reservation: Names = None,
        order: Literal["asc", "desc"] = "asc",
        whole: Annotated[bool, Query(description="with each record as it was written")] = False,
    ) -> Response:
        """Records of the log in order, or the last ones first (`order=desc`), with what each says in a line. Those that
        say only that time goes on are left out unless `type` names them. `next`: the record at which the next page
        begins (`from`, with `order=desc` `to`); null: there is none. A page may be short, or empty, and have one."""
        for name in types or ():
            if name not in NEWEST:
                known = ", ".join(sorted(NEWEST))
                raise malformed(Malformed(at_key("type"), f"{name!r} is no type of record: one of {known}"))
        wanted = WantedRecords(types or [], job or [], node or [], queue or [], user or [], reservation or [])
        end = api.follower.state.seq
        asked = Looked(wanted, first or 1, min(last or end, end), limit, _known(api))
        async with api.log_reads:
            page = await (forwards if order == "asc" else backwards)(api.follower.places, asked)
        rows = [record_row(each, whole=whole) for each in page.found]
        return as_json({"records": rows, "next": page.following, "end": end})

    @app.get("/v1/rounds/{number}", tags=["log"], dependencies=ready, responses=_ROUND)
    async def get_round(number: Annotated[int, Path(ge=1, le=NUMBER_MAX)]) -> Response:
        """A round from its opening to its end, with what each service decided, as it was written."""
        async with api.log_reads:
            records, ended, place = await _records_of_round(api, number)
            decisions = await _decisions(api, place, ended) if ended is not None else []
        return as_json(round_document(number, records, ended, decisions))


def _known(api: "Api") -> Callable[[str], tuple[str, str] | None]:
    """Queue and user of a job that the gateway knows."""

    def known(name: str) -> tuple[str, str] | None:
        state = api.follower.state
        if (live := state.jobs.get(name)) is not None:
            return live.spec.queue, live.spec.user or live.author
        ended = state.ended.get(name)
        return None if ended is None else (ended.queue, ended.user or ended.author)

    return known


async def _records_of_round(api: "Api", number: int) -> tuple[list[Accepted], Accepted | None, Place]:
    """From its opening to its end, as far as the log goes. Raises Problem where it has no such round."""
    follower, found = api.follower, list[Accepted]()
    place = await follower.places.before(lambda order: order.round < number)
    async for accepted in follower.places.records(place, follower.state.seq):
        record = accepted.record
        if record.round < number or not (found or isinstance(record.body, RoundOpened)):
            continue
        if record.round > number or len(found) == ROUND_RECORDS_MAX:
            break
        found.append(accepted)
        if isinstance(record.body, RoundClosed | RoundAbandoned):
            return found, accepted, place
    if not found:
        raise Problem(
            404, "unknown_round", f"the log has no round {number}; the last is {follower.state.round}", "number"
        )
    return found, None, place


async def _decisions(api: "Api", place: Place, ended: Accepted) -> list[Document]:
    """What the closing names, each as far as it is kept."""
    if not isinstance(ended.record.body, RoundClosed):
        return []
    reader, found = api.follower.decisions_from(place), []
    for named in ended.record.body.hashes:
        content = None
        with suppress(DecisionGap, PositionGap):
            (winner,) = await reader.winners(ended.record, [named], 0)
            content = winner.content
        found.append(decision_document(named, content))
    return found
