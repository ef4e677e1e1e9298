"""What `largesse diff` prints for a person."""

from services.cli.show import listed, moment, plural, rendered, span, table
from services.replay.log_diff import LogDiff

JOBS_SHOWN_MAX = 20
VALUE_SHOWN_MAX = 300


def text_of(found: LogDiff) -> str:
    """Where the logs part, and the jobs for which it made a difference, those it changed most first."""
    differs = found.difference
    if differs is None:
        return f"the logs are the same: {plural(found.records[0], 'record')}\n"
    rows: list[tuple[str, object]] = [
        ("first difference", f"record {differs.seq:,}, round {differs.round:,}: {differs.what}")
    ]
    if differs.path:
        rows += [("where", f"{differs.topic} {differs.path}"), ("first log", _cut(differs.recorded))]
        rows += [("second log", _cut(differs.decided))]
    if found.round is not None:
        places = [f"record {seq:,} at {moment(ms)}" for seq, ms in zip(found.round.seqs, found.round.times, strict=True)
                  if seq is not None and ms is not None]  # fmt: skip
        rows.append(("first other grants", f"round {found.round.round:,}: {' and '.join(places)}"))
    else:
        rows.append(("first other grants", "none: both start the same tasks at the same times"))
    text = rendered(table(("", ""), rows))
    if not found.jobs:
        return f"{text}\nall {plural(found.jobs_in_all, 'job')} went the same way\n"
    jobs = sorted(found.jobs, key=lambda job: -abs(_later_ms(job)))
    shown = [
        (
            str(job["job"]),
            str(job["queue"]),
            _took(job["a_ms"], job["a_outcome"]),
            _took(job["b_ms"], job["b_outcome"]),
            f"{'+' if _later_ms(job) > 0 else '-'}{span(abs(_later_ms(job)))}" if _later_ms(job) else "",
        )
        for job in jobs
    ]
    text += f"\n{len(jobs):,} of {plural(found.jobs_in_all, 'job')} went another way:\n"
    text += listed(("job", "queue", "first", "second", "later by"), shown[:JOBS_SHOWN_MAX], kinds="kknnn")
    more = len(jobs) - JOBS_SHOWN_MAX
    return text + (f"and {more:,} more, all in --json\n" if more > 0 else "")


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_SHOWN_MAX else text[:VALUE_SHOWN_MAX] + "..."


def _later_ms(job: dict[str, object]) -> int:
    a, b = job["a_ms"], job["b_ms"]
    return b - a if isinstance(a, int) and isinstance(b, int) else 0


def _took(ms: object, outcome: object) -> str:
    if not isinstance(ms, int):
        return "-" if outcome is None else str(outcome)
    return span(ms) if outcome == "succeeded" else f"{outcome}, {span(ms)}"
