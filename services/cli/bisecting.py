"""`largesse bisect`: the first record of a log after which something holds."""

from services.cli.ending import Refused, Wrong, note, out, out_json
from services.cli.progress import progress_of
from services.cli.replaying import reading, source_of, watched
from services.cli.show import listed, moment, plural, span
from services.replay.bisect.language import BadExpression, read_expression
from services.replay.bisect.scan import Bisected
from services.replay.bisect.scan import bisect as scan


def bisect(log: str, expression: str, *, every: bool, json: bool) -> None:
    """Shows where it holds. Raises Refused where it never does; Wrong."""
    try:
        condition = read_expression(expression)
    except BadExpression as error:
        line = expression.replace("\n", " ").replace("\t", " ")
        raise Wrong(f"EXPRESSION: {error.reason}\n  {line}\n  {' ' * error.place}^") from None
    source = source_of(log)
    with reading(), progress_of("looking", "records") as tell:
        found = scan(watched(source, tell), condition, every=every)
    for subject, name in found.unseen:
        note(f"there is no {subject} {name!r} in what was read of this log")
    if json:
        out_json(found.document())
    elif found.spans:
        out(_text(found, every=every))
    if not found.spans:
        raise Refused(f"it never holds in {plural(found.records, 'record')}")


def _text(found: Bisected, *, every: bool) -> str:
    first = found.spans[0]
    if not every:
        return f"record {first.first:,} at {moment(first.first_ms)}"
    rows = [
        (f"{each.first:,}", f"{each.last:,}", moment(each.first_ms), span(each.last_ms - each.first_ms))
        for each in found.spans
        if each.last is not None and each.last_ms is not None
    ]
    return listed(("from", "to", "since", "for"), rows, kinds="nnkn").rstrip("\n")
