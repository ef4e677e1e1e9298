"""`largesse replay` of the router's log: where all jobs are that named no cell, and whether all of it decides alike."""

from collections import Counter
from itertools import takewhile

from services.cli.ending import Refused, Wrong, out, out_json
from services.cli.show import rendered, table
from services.replay.source import Source
from services.router.checking import Checked, check


def replay(source: Source, *, verify: bool, until: int | None, json: bool) -> None:
    """Tells where the log leads, or decides it again. Raises Refused where that differs; Wrong."""
    records = (step.accepted.record for step in source.steps())
    checked = check(takewhile(lambda record: until is None or record.seq <= until, records))
    if until is not None and until > checked.seq:
        raise Wrong(f"--until: the log ends at record {checked.seq}")
    if verify:
        tell_verified(checked, json)
        return
    phases = Counter(route.phase for route in checked.state.jobs.values())
    over = Counter(each.outcome for each in checked.state.over.values())
    if json:
        out_json({"cell": checked.cell, "seq": checked.seq, "jobs": dict(phases), "over": dict(over)})
        return
    counts = sorted([*phases.items(), *over.items()])
    jobs = ", ".join(f"{count} {what}" for what, count in counts) or "none"
    rows: list[tuple[str, object]] = [("cell", checked.cell), ("records of the log", checked.seq)]
    out(rendered(table(("", ""), [*rows, ("decisions", checked.decided), ("jobs", jobs)])))


def tell_verified(checked: Checked, json: bool) -> None:
    """What was decided again. Raises Refused where something differs."""
    if json:
        out_json({"records": checked.records, "decided": checked.decided, "wrong": checked.wrong})
    for line in [] if json else checked.wrong:
        out(line)
    if checked.wrong:
        raise Refused(f"{len(checked.wrong)} of {checked.decided} decisions of the router differ")
    if not json:
        out(f"{checked.decided} decisions in {checked.records} records of the router's log: each decided again, alike")
