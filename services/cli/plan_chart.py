"""Plans of reservations in a terminal: one row each, bars as high as what is promised at the time."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from services.cli.client import Gateway
from services.cli.ending import out, out_json
from services.cli.show import TEXT_COLUMNS_LEAST, cells, described, drawing, listed, moment, plural, span, width
from services.cli.terms import terms

Document = dict[str, Any]

COLUMNS = 48
"""Of a chart at most: each is a part of the time from the first lease to the end of the last."""
COLUMNS_LEAST = 16
"""A chart that would be narrower beside the other columns stands on a line of its own."""
ANSWERS_BESIDE_COLUMNS = 100
"""On a narrower terminal answers stand below the charts: beside them each would be a column of single words."""

_HEADS = ("reservation", "user", "queue", "state")
_BARS = " ▁▂▃▄▅▆▇█"

_FORMS = {
    "flat": " (as few units at a time as its window allows)",
    "early": " (as soon as possible)",
    "late": " (as late as possible, and then as many units at a time as it may)",
    "milp": " (by the solver)",
}
"""What the form of a plan means."""

STATES_SHOWN = ("requested", "accepted")
JOBS_SHOWN_MAX = 10
"""Jobs of one reservation that are listed."""
STATES_OVER = ("deleted", "ended")
OCCURRENCES_SHOWN = 3
"""Of a series, in a list on a terminal: there may be 64."""
RECURS = "recurs"
"""Stands as the state of a series in a list of reservations."""


def list_reservations(gateway: Gateway, json: bool, *, over: bool = False) -> None:
    """Reservations that the gateway shows, and behind them the series, in the state RECURS. A person sees those that
    are `over`, and more than the next few of a series, only if that is asked for, and those that were rejected behind
    the others.
    """
    found = reservations_in(gateway)
    now_s = int(gateway.moment_ms(told=not json) / 1_000)
    recurring = [_recurring(series, found, now_s) for series in series_in(gateway)]
    if json:
        out_json(gateway.dated("reservations", [*found, *recurring]))
        return
    draw = drawing()
    if draw is not listed:
        rows = [(*_about(each), *_figures(each)) for each in found]
        rows += [(*_about(each), _next_of(each), "", "", _recurs(each)) for each in recurring]
        out(draw((*_HEADS, "from", "to", "units", "answer"), rows))
        return
    told = [each for each in found if over or each["state"] not in STATES_OVER]
    shown = told if over else _first_of_series(told)
    shown.sort(key=lambda each: each["state"] not in STATES_SHOWN)
    texts = [charts(shown)] if shown else []
    if recurring:
        rows = [
            (each["series"], _every(each["every"]), each["zone"], _next_of(each), each["promised"])
            for each in recurring
        ]
        texts.append(listed(("series", "recurs", "zone", "next", "promised"), rows, kinds="klkkr"))
    if len(shown) < len(told):
        few = {each["reservation"] for each in shown}
        names = ", ".join(dict.fromkeys(each["series"] for each in told if each["reservation"] not in few))
        texts.append(f"{plural(len(told) - len(shown), 'later occurrence')} of {names}: --all shows them\n")
    if len(told) < len(found):
        texts.append(f"{plural(len(found) - len(told), 'reservation')} deleted or ended: --all shows them\n")
    out("\n".join(texts) if texts else "no reservations")


def _first_of_series(found: Sequence[Document]) -> list[Document]:
    """Without the occurrences of a series that have the same state as OCCURRENCES_SHOWN before them."""
    counts: dict[tuple[str, str], int] = {}
    left: set[str] = set()
    for each in sorted(found, key=lambda each: str(each["reservation"])):  # Their names are in order of time.
        if series := each.get("series"):
            counts[series, each["state"]] = counts.get((series, each["state"]), 0) + 1
            if counts[series, each["state"]] > OCCURRENCES_SHOWN:
                left.add(each["reservation"])
    return [each for each in found if each["reservation"] not in left]


def reservations_in(gateway: Gateway) -> list[Document]:
    """All reservations that the gateway shows."""
    found: list[Document] = gateway.get("/v1/reservations", "reservations")["reservations"]
    return found


def series_in(gateway: Gateway) -> list[Document]:
    """Reservations that recur and have not been deleted."""
    found: list[Document] = gateway.get("/v1/series", "series")["series"]
    return found


def _recurring(series: Document, found: Sequence[Document], now_s: int) -> Document:
    """A series in the shape of a reservation that holds nothing itself, with its next occurrence and how many are
    promised."""
    at_s = next_s(series, now_s)
    return {
        "reservation": series["series"],
        "state": RECURS,
        "answered_ms": None,
        "answer": None,
        "update_refused": False,
        "unanswered": 0,
        "moved": 0,
        "moved_why": "",
        "ahead": 0,
        "behind": 0,
        "progress": "",
        "retry_until_ms": None,
        "restored": 0,
        "steps": [],
        **series,
        "next_ms": None if at_s is None else at_s * 1_000,
        "promised": sum(each["series"] == series["series"] and each["state"] == "accepted" for each in found),
    }


def next_s(series: Document, now_s: int) -> int | None:
    """When a series has its next occurrence after now, in seconds of Unix time; None: not by what this machine knows
    of time zones."""
    from services.planner.rdl.recurrence import occurrences

    try:
        return next(occurrences(series["every"], series["start_s"], now_s + 1, series["zone"]), None)
    except (ValueError, OverflowError):
        return None


def _next_of(series: Document) -> str:
    return "" if series["next_ms"] is None else moment(series["next_ms"])


def _every(every: str) -> str:
    return f"every {every} s" if every.isdecimal() else every


def _recurs(series: Document) -> str:
    return f"{_every(series['every'])} ({series['zone']}); {plural(series['promised'], 'occurrence')} promised"


def one_series(series: Document, occurrences: Sequence[Document]) -> str:
    """A reservation that recurs, with its occurrences."""
    every = series["every"]
    rows: list[tuple[str, object]] = [
        ("series", series["series"]),
        ("owner", series["user"]),
        ("queue", series["queue"]),
        ("every", f"{every} s from {moment(series['start_s'] * 1000)}" if every.isdecimal() else every),
        ("zone", series["zone"]),
        *([("weight", series["weight"])] if series.get("weight", 1) > 1 else []),
        *terms(series.get("rdl"), recurs=True),
        ("requested", f"{plural(series['occurrences'], 'occurrence')} so far"),
    ]
    text = described(rows)
    return f"{text}\n{charts(occurrences)}" if occurrences else text


def charts(found: Sequence[Document]) -> str:
    """Reservations for a terminal: a chart each, over the time that the last line names."""
    begin, end = extent([step for each in found for step in _promised(each)])
    answers = [refusal_text(each) for each in found]
    names = [(*_HEADS, "promised"), *((*_about(each), "") for each in found)]
    room = width() - sum(2 + max(cells(row[i]) for row in names) for i in range(len(_HEADS)))
    beside = any(answers) and width() >= ANSWERS_BESIDE_COLUMNS
    if beside:
        room -= 2 + max(len("answer"), TEXT_COLUMNS_LEAST)
    columns = min(COLUMNS, room if room >= COLUMNS_LEAST else width() - len("  promised: "))
    drawn = [chart(_promised(each), begin, end, columns) for each in found]
    rows = [(*_about(each), bars, answer) for each, bars, answer in zip(found, drawn, answers, strict=True)]
    if beside:
        text = listed((*_HEADS, "promised", "answer"), rows, kinds="kkkkkl")
    else:
        text = listed((*_HEADS, "promised"), [row[:-1] for row in rows], kinds="kkkkk")
        said = [f"{each['reservation']}: {answer}" for each, answer in zip(found, answers, strict=True) if answer]
        text += "".join(["\n", *(f"{fill(line, width(), subsequent_indent='  ')}\n" for line in said)] if said else [])
    if begin == end:
        return text
    return f"{text}\npromised: {moment(begin)}\n      to: {moment(end)}\n    full: most units of each at a time\n"


def _about(found: Document) -> tuple[str, ...]:
    return found["reservation"], found["user"], found["queue"], found["state"]


def _promised(found: Document) -> list[Document]:
    steps: list[Document] = found["steps"] if found["state"] in STATES_SHOWN else []
    return steps


def _figures(found: Document) -> tuple[object, ...]:
    """The promise for a program: its begin, its end, the most units at any moment, and the answer where it is no."""
    steps = _promised(found)
    if not steps:
        return "", "", "", refusal_text(found)
    begin, end = extent(steps)
    return moment(begin), moment(end), _most(steps, begin, end), refusal_text(found)


def one_reservation(found: Document, *, dry_run: bool = False, jobs: Sequence[Document] = ()) -> str:
    """One reservation with its answer, and its plan line by line. `dry_run`: it is what would be. `jobs`: those that
    name it.
    """
    answer = found["answer"]
    rows: list[tuple[str, object]] = [
        ("reservation", found["reservation"]),
        ("owner", found["user"]),
        ("queue", found["queue"]),
        ("state", f"would be {found['state']}" if dry_run else found["state"]),
    ]
    if found.get("weight", 1) > 1:
        rows.append(("weight", found["weight"]))
    if not dry_run:
        rows.append(("requested", moment(found["requested_ms"])))
    rows += terms(found.get("rdl"))
    if answer is not None:
        rows.append(_answer_row(found, answer, dry_run))
    if found["moved"]:
        rows.append(("moved", f"{plural(found['moved'], 'time')}, last {found['moved_why']}"))
    elif found["moved_why"]:
        rows.append(("others", found["moved_why"]))
    if found.get("restored"):
        rows.append(("restored", f"{plural(found['restored'], 'time')} after its promise was broken"))
    if again := again_text(found):
        rows.append(("again", again))
    if found.get("progress"):
        rows.append(("progress", found["progress"]))
    rows += [("job", _job_text(job, found.get("rdl"))) for job in jobs[:JOBS_SHOWN_MAX]]
    if len(jobs) > JOBS_SHOWN_MAX:
        rows.append(("", f"and {len(jobs) - JOBS_SHOWN_MAX:,} more"))
    text = described(rows)
    if found["steps"]:
        begin, end = extent(found["steps"])
        leases = [
            (
                moment(step["from_ms"]),
                moment(step["to_ms"]),
                step["atom"],
                f"{step['units']} x {_amounts(step['unit'])}",
            )
            for step in found["steps"]
        ]
        text += f"\n{_with_axes(found['steps'], begin, end)}\n\n"
        text += listed(("from", "to", "atom", "units"), leases, kinds="kkkl")
    return text + ("\ndry run: nothing has been changed\n" if dry_run else "")


def _with_axes(steps: Sequence[Document], begin: int, end: int) -> str:
    """A chart of one reservation, with what its height is and from when to when it goes."""
    columns = min(COLUMNS, width())
    ends = moment(begin), moment(end)
    room = columns - cells(ends[0]) - cells(ends[1])
    times = f"{ends[0]}{' ' * room}{ends[1]}" if room > 1 else f"from {ends[0]}\n  to {ends[1]}"
    height = f"units at a time, full height is {_most(steps, begin, end)}"
    return "\n".join((height, chart(steps, begin, end, columns), f"├{'─' * (columns - 2)}┤", times))


def _job_text(job: Document, rdl: Document | None) -> str:
    """How a job of a reservation ended, and by how much after the end of the window."""
    if job["ended_ms"] is None:
        return f"{job['job']} {job['state']}"
    text = f"{job['job']} {job['state']} {moment(job['ended_ms'])}"
    late_ms = job["ended_ms"] - rdl["e"] * 1_000 if rdl is not None and rdl["op"] == "window" else 0
    return f"{text}, {span(late_ms)} after the end of the window" if late_ms > 0 else text


def _answer_row(found: Document, answer: Document, dry_run: bool) -> tuple[str, str]:
    """The answer. A reservation that is accepted was told no only where it was to get other terms."""
    if found["state"] == "accepted" and not answer["accepted"] and not dry_run:
        return "update", f"{answer_text(answer)}; the old terms stay in force"
    return "answer", answer_text(answer)


def answer_text(answer: Document) -> str:
    """The planner's answer in a line."""
    if answer["accepted"]:
        return "yes" if not answer["form"] else f"yes, planned {answer['form']}{_FORMS.get(answer['form'], '')}"
    text = f"no ({answer['reason']}): {answer['detail']}"
    if answer["offer_from_ms"] is not None:
        text += f"; from {moment(answer['offer_from_ms'])} to {moment(answer['offer_to_ms'])} it would be accepted"
    return text


def refusal_text(found: Document) -> str:
    """Why a reservation was refused, or an update of one that still holds what it was promised."""
    answer = found["answer"]
    if not answer or answer["accepted"]:
        return ""
    again = again_text(found)
    text = ("update refused: " if found["state"] == "accepted" else "") + answer_text(answer)
    return f"{text}; it {again}" if again else text


def again_text(found: Document) -> str:
    """Until when a broken promise is tried again; empty where it is not."""
    until_ms = found.get("retry_until_ms")
    return "" if until_ms is None else f"is tried again until {moment(until_ms)}, whenever there is more room"


def extent(steps: Sequence[Document]) -> tuple[int, int]:
    """From the first lease to the end of the last, in milliseconds; (0, 0) of none."""
    if not steps:
        return 0, 0
    return min(step["from_ms"] for step in steps), max(step["to_ms"] for step in steps)


def chart(steps: Sequence[Document], begin: int, end: int, columns: int = COLUMNS) -> str:
    """Units promised over time: each column shows the most at any moment of its part, against the most of all."""
    if begin >= end:
        return ""
    heights = [0] * columns
    for column in range(columns):
        first, last = begin + (end - begin) * column // columns, begin + (end - begin) * (column + 1) // columns
        heights[column] = _most(steps, first, last)
    most = max(heights, default=0)
    return "".join(_BARS[-(-height * (len(_BARS) - 1) // most)] if most else " " for height in heights)


def _most(steps: Sequence[Document], begin: int, end: int) -> int:
    """The most units that are promised at any moment from `begin` to `end`."""
    meeting = [step for step in steps if step["from_ms"] < end and step["to_ms"] > begin]
    moments = {max(begin, step["from_ms"]) for step in meeting}
    return max((sum(s["units"] for s in meeting if s["from_ms"] <= at < s["to_ms"]) for at in moments), default=0)


def _amounts(unit: dict[str, str]) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in unit.items())
