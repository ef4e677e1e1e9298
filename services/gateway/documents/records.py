"""Records of the log as rows of a table, and the decisions of a round beside each other."""

from collections.abc import Sequence
from json import loads

from largesse.log.fencing import Accepted
from largesse.log.record_lines import line_of
from schemas import DecisionHash
from services.gateway.documents import Document


def record_row(accepted: Accepted, *, whole: bool = False) -> Document:
    """One record. `line`: what it says, as `largesse tail` words it. `whole`: with the record as it was written."""
    record = accepted.record
    row: Document = {
        "seq": record.seq,
        "time_ms": record.time,
        "round": record.round,
        "type": record.type,
        "line": line_of(record),
    }
    if whole:
        row["record"] = loads(accepted.content)
    return row


def decision_document(named: DecisionHash, content: bytes | None) -> Document:
    """One decision of a round, as the closing names it. `content`: as it was written; None: it is kept no longer."""
    return {
        "topic": named.topic,
        "shard": named.shard,
        "of": named.of,
        "hash": named.hash,
        "record": None if content is None else loads(content),
    }


def round_document(
    number: int, records: Sequence[Accepted], ended: Accepted | None, decisions: Sequence[Document]
) -> Document:
    """A round: its opening and what the log has up to its end, with the decisions that its closing names."""
    opened = records[0]
    return {
        "round": number,
        "state": "open" if ended is None else "closed" if ended.record.type == "RoundClosed" else "abandoned",
        "opened_ms": opened.record.time,
        "ended_ms": None if ended is None else ended.record.time,
        "records": [record_row(each, whole=each is opened or each is ended) for each in records],
        "decisions": list(decisions),
    }
