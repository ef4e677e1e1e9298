"""What `replay --what-if` and `whatif` print: what happened, and what would have, side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.cli.show import in_blocks, listed, percent, plural, rendered, span, table
from services.simulator.metrics import spread
from services.simulator.result import Spread

Document = dict[str, Any]

LOSERS_SHOWN_MAX = 10
GROUPS_SHOWN_MAX = 20

OF_JOBS = (
    ("completion, mean", "jct_ms", "mean"),
    ("  median", "jct_ms", "p50"),
    ("  p95", "jct_ms", "p95"),
    ("waiting, mean", "waiting_ms", "mean"),
    ("  p95", "waiting_ms", "p95"),
)
"""Of the jobs that have ended in every world."""
OF_WORLDS: tuple[tuple[str, Callable[[Document], float], Callable[[float], str]], ...] = (
    ("makespan", lambda world: world["makespan_ms"], span),
    ("Jain's index, mean", lambda world: world["jain"]["mean"], lambda value: f"{value:.3f}"),
)
"""Of all that ran there."""


def shown(answers: dict[str, Document]) -> str:
    """The answers, by name, to questions about one log."""
    first = next(iter(answers.values()))
    shared = f"after record {first['from_seq']:,}" if first["from_seq"] else "from the first record on"
    # Of an earlier version's answer nobody knows where it began.
    begun = f", going on from the states behind record {first['begun_seq']:,}" if first.get("begun_seq") else ""
    text = f"decided again {shared}{begun}: {plural(len(first['jobs']), 'job')}\n{_changes(answers)}\n"
    alike = _alike(answers)
    heads, rows = ["", "recorded", *answers], _rows(answers, alike)
    remarks = dict.fromkeys(remark for answer in answers.values() for remark in answer["explained"])
    if len(answers) == 1:
        kinds = "k" + "n" * len(heads)
        text += rendered(
            table([*heads, "change"], [[name, *cells, change] for name, cells, change in rows], kinds=kinds)
        )
        text += _groups(first) + _losers(first)
    else:
        text += in_blocks(heads, [[name, *cells] for name, cells, _ in rows])
    if any(alike.others):
        remarks = dict.fromkeys([_of_whom(alike, "both" if len(answers) == 1 else "all"), *remarks])
    return text + (
        "\n" + rendered(table(("", ""), [("note:", remark) for remark in remarks], gap=1)) if remarks else ""
    )


# ---------------------------------------------------------------- measures
@dataclass(frozen=True, slots=True)
class _Alike:
    """The jobs that have ended in every world. By world, the recorded one first: their times (None: unknown), and how
    many others have ended there."""

    jobs: int
    times: list[Document]
    others: list[int]


def _alike(answers: dict[str, Document]) -> _Alike:
    first = next(iter(answers.values()))
    worlds = [("recorded", first), *(("decided", answer) for answer in answers.values())]
    ended, waited = ([_ms(answer, f"{world}{of}_ms") for world, answer in worlds] for of in ("", "_waiting"))
    common = [key for key in ended[0] if all(key in each for each in ended)]
    # A gateway of an earlier version does not say how long they waited.
    started = [key for key in common if all(key in each for each in waited)]
    times = [
        {"jct_ms": _spread(took, common), "waiting_ms": _spread(waits, started)}
        for took, waits in zip(ended, waited, strict=True)
    ]
    return _Alike(len(common), times, [len(each) - len(common) for each in ended])


def _ms(answer: Document, field: str) -> dict[tuple[str, int], int]:
    """A length of time of the jobs that have it, by name and time of submission."""
    return {(job["job"], job["submit_ms"]): job[field] for job in answer["jobs"] if job.get(field) is not None}


def _spread(ms: dict[tuple[str, int], int], of: list[tuple[str, int]]) -> Spread | None:
    return spread([ms[key] for key in of]) if of else None


def _of_whom(alike: _Alike, worlds: str) -> str:
    """Whose times they are, where worlds differ in who has ended."""
    of = f"times of completion and waiting are of the {plural(alike.jobs, 'job')} that ended in {worlds}"
    return f"{of}; makespan, Jain's index and use are of all that ran"


Row = tuple[str, list[str], str]
"""A name, a cell of each world, and by how much the second differs from the first."""


def _rows(answers: dict[str, Document], alike: _Alike) -> list[Row]:
    worlds = [next(iter(answers.values()))["recorded"], *(answer["decided"] for answer in answers.values())]
    rows: list[Row] = [("jobs that ended", [f"{alike.jobs + others:,}" for others in alike.others], "")]
    if any(alike.others):
        rows.append(("  there alone" if len(worlds) == 2 else "  not in all", [f"{n:,}" for n in alike.others], ""))
    for name, kind, part in OF_JOBS:
        numbers = [None if times[kind] is None else times[kind][part] for times in alike.times]
        rows.append((name, *_cells(numbers, span)))
    has_ended = [alike.jobs + others > 0 for others in alike.others]
    for name, value_of, text_of in OF_WORLDS:
        values = [value_of(world) if ended else None for world, ended in zip(worlds, has_ended, strict=True)]
        cells, change = _cells(values, text_of)
        rows.append((name, cells, "" if any(alike.others) else change))
    for resource in worlds[0]["utilisation"]:
        rows.append((f"{resource} in use", [percent(world["utilisation"].get(resource, 0)) for world in worlds], ""))
    if any("deadlines" in world for world in worlds):
        met = ["{met} of {of}".format(**world.get("deadlines", {"met": 0, "of": 0})) for world in worlds]
        rows.append(("deadlines kept", met, ""))
    return rows


def _cells(numbers: list[float | None], text_of: Callable[[float], str]) -> tuple[list[str], str]:
    """As texts, and by how much the second differs from the first."""
    before, after = numbers[:2]
    change = "" if before is None or after is None else _change(before, after)
    return ["-" if number is None else text_of(number) for number in numbers], change


def _changes(answers: dict[str, Document]) -> str:
    """What is different in all of them."""
    first, *others = [answer["changed"] for answer in answers.values()]
    alike = {name: both for name, both in first.items() if all(other.get(name) == both for other in others)}
    if not first and not others:
        return "nothing is different\n"
    lines = []
    for name, (before, after) in alike.items():
        if isinstance(after, list):
            lines.append(f"  {name}: {', '.join(map(str, after))}\n")
        else:
            lines.append(f"  {name}: {before} -> {after}\n")
    return "".join(lines)


def _change(before: float, after: float) -> str:
    if before == after:
        return "same"
    return f"{100 * (after - before) / before:+.1f} %" if before else ""


def _groups(answer: Document) -> str:
    """By queue and by user: what it cost whom."""
    text = ""
    for by, what in (("queue", "queues"), ("user", "users")):
        rows = [
            (
                group[by] or "-",
                f"{group['jobs']:,}",
                span(group["recorded_ms"]),
                span(group["decided_ms"]),
                span(group["later_ms"]) if group["later_ms"] else "",
                span(group["earlier_ms"]) if group["earlier_ms"] else "",
            )
            for group in answer[what]
        ]
        if not rows:
            continue
        heads = (by, "jobs", "recorded", "decided", "later, in all", "earlier, in all")
        text += "\n" + listed(heads, rows[:GROUPS_SHOWN_MAX], kinds="knnnnn")
        if len(rows) > GROUPS_SHOWN_MAX:
            text += f"and {len(rows) - GROUPS_SHOWN_MAX:,} more {what}, all in --json\n"
    return text


def _losers(answer: Document) -> str:
    """The jobs that end later than they did."""
    both = [job for job in answer["jobs"] if job["recorded_ms"] is not None and job["decided_ms"] is not None]
    losers = [job for job in both if job["decided_ms"] > job["recorded_ms"]]
    if not losers:
        return "\nno job ends later\n" if both else ""
    losers.sort(key=lambda job: (job["recorded_ms"] - job["decided_ms"], job["job"]))
    rows = [
        (
            job["job"],
            job["queue"],
            span(job["recorded_ms"]),
            span(job["decided_ms"]),
            span(job["decided_ms"] - job["recorded_ms"]),
        )
        for job in losers[:LOSERS_SHOWN_MAX]
    ]
    sooner = sum(job["decided_ms"] < job["recorded_ms"] for job in both)
    head = f"\n{plural(len(losers), 'job')} end later, {sooner:,} earlier"
    head = head.replace("1 job end ", "1 job ends ")
    more = ", the worst:" if len(losers) > LOSERS_SHOWN_MAX else ":"
    return f"{head}{more}\n" + listed(("job", "queue", "recorded", "decided", "later by"), rows, kinds="kknnn")
