"""`largesse why`: why a job waits, runs or ended as it did; also of a reservation, a queue or a node."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from services.cli.client import Gateway, Row
from services.cli.ending import Refused, Wrong, out, out_json
from services.cli.show import folded, in_zone, moment, on_terminal, plain, plural, span, tabbed

if TYPE_CHECKING:
    from services.gateway.view.state import State

Kind = Literal["job", "reservation", "queue", "node"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked about; `log`: a recorded log, else the cell; `at`: a moment of either."""

    name: str
    kind: Kind | None
    log: str | None
    at: str | None


def why(asked: Asked, url: str | None, *, json: bool) -> None:
    """Prints the answer. Raises Refused where there is nothing of that name; Wrong; what `Gateway` raises."""
    if not asked.name:
        raise Wrong("ID: is empty: a shell variable may not be set")
    if asked.log is not None and url is not None:
        raise Wrong("--log: cannot be combined with --url")
    document = _of_log(asked) if asked.log is not None else _of_cell(asked, url)
    if json:
        out_json(document)
    else:
        out(why_text(document) if on_terminal() else why_rows(document))


def _of_cell(asked: Asked, url: str | None) -> Row:
    found: Row = Gateway(url, at=asked.at).get("/v1/why", "id", "reasons", id=asked.name, kind=asked.kind)
    return found


def _of_log(asked: Asked) -> Row:
    from services.gateway.why.find import UnknownId, why_document

    try:
        return why_document(_state_at(asked), asked.name, asked.kind)
    except UnknownId as fault:
        raise Refused(str(fault)) from None


def _state_at(asked: Asked) -> "State":
    """The gateway's view at the moment that is asked for. Raises Wrong."""
    from services.cli.moments import point_of
    from services.cli.progress import progress_of
    from services.cli.replaying import begins_text, reading, source_of, watched
    from services.replay.viewing import view_at

    assert asked.log is not None
    moment = point_of("--at", asked.at)
    with reading(), progress_of("reading", "records") as tell:
        source = source_of(asked.log)
        if source.start is not None and moment.is_before(source.start.seq, source.start.time):
            raise Wrong(f"--at: {begins_text(source.start)}")
        state = view_at(watched(source, tell), moment)
    if moment.seq is not None and moment.seq > state.seq:
        raise Wrong(f"--at: the log ends at record {state.seq}")
    if not state.seq:
        raise Wrong("--at: the log begins later" if asked.at is not None else "the log has no record")
    return state


# ---------------------------------------------------------------- texts
def why_text(document: Row) -> str:
    """For a terminal, folded to its width."""
    return "".join(line + "\n" for line in _lines(document))


def _lines(document: Row) -> Iterator[str]:
    at = document["at"]
    yield from folded(plain(f"{document['id']}: {document['kind']}, {document['state']}"), "  ")
    yield from folded(f"as of record {at['seq']:,}, {moment(at['time'])}", "  ")
    for reason in document["reasons"]:
        yield ""
        yield from folded(plain(f"{reason['reason']}: {in_zone(reason['text'])}"), "  ")
        for text in reason["unblocks"]:
            yield from folded(plain(f"  > {in_zone(text)}"), "    ")
    if start := document["start"]:
        yield ""
        yield from folded(f"starts: {start_text(start, at['time'])}", "  ")
    if waited := document["waited"]:
        yield ""
        yield from folded(f"time so far or in all, {span(sum(waited.values()))}: {_waited_text(waited)}", "  ")
    if beside := document.get("waited_beside"):
        yield from folded(f"meanwhile others of its tasks waited: {_waited_text(beside)}", "  ")
    if ended := document.get("ended_by"):
        yield from folded(f"ended by record {ended['seq']:,}", "  ")


def start_text(start: Row, now_ms: int) -> str:
    """When something starts, counted from `now_ms`."""
    texts = []
    for name, text in (("earliest", "at the earliest"), ("likely", "likely"), ("latest", "at the latest")):
        if (at_ms := start[f"{name}_ms"]) is not None:
            texts.append(f"{text} in {span(max(0, at_ms - now_ms))}")
    return ", ".join(texts) + _accuracy_text(start.get("accuracy"))


def _accuracy_text(accuracy: Row | None) -> str:
    """How wrong such predictions were. A gateway of an earlier version does not say."""
    if accuracy is None:
        return ""
    jobs, percent = accuracy["jobs"], -(-accuracy["error_permille"] // 10)
    return (
        f"; of the last {plural(jobs, 'job')} that waited, half were told their start to within {percent} % "
        f"of the wait, and {accuracy['inside']} started in the span"
    )


def _waited_text(waited: dict[str, int]) -> str:
    parts = sorted(waited.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{reason} {span(ms)}" for reason, ms in parts)


def why_rows(document: Row) -> str:
    """For a pipe: a row a line; what a reason needs to go away stands behind it."""
    at = document["at"]
    rows = [("id", document["id"], document["kind"]), ("at", str(at["seq"]), moment(at["time"]))]
    rows.append(("state", document["state"], ""))
    for reason in document["reasons"]:
        rows.append(("reason", reason["reason"], in_zone(reason["text"])))
        rows += [("unblocks", reason["reason"], in_zone(text)) for text in reason["unblocks"]]
    start = dict(document["start"] or {})
    accuracy = start.pop("accuracy", None) or {}
    rows += [("start", name.removesuffix("_ms"), moment(at_ms)) for name, at_ms in start.items() if at_ms is not None]
    rows += [("accuracy", name, str(number)) for name, number in accuracy.items()]
    for what, parts in (("waited", document["waited"]), ("beside", document.get("waited_beside"))):
        rows += [(what, reason, f"{ms} ms") for reason, ms in (parts or {}).items()]
    if ended := document.get("ended_by"):
        rows.append(("ended_by", str(ended["seq"]), ended["text"]))
    return tabbed(("", "", ""), rows)
