"""Plans of reservations in a terminal: one row each, bars as high as what is promised at the time."""

from collections.abc import Sequence
from typing import Any

from services.cli.client import Gateway
from services.cli.ending import out, out_json
from services.cli.show import described, drawing, listed, moment

Document = dict[str, Any]

COLUMNS = 48
"""Of a chart: each is a part of the time from the first lease to the end of the last."""

_BARS = " ▁▂▃▄▅▆▇█"

STATES_SHOWN = ("requested", "accepted")


def list_reservations(gateway: Gateway, json: bool) -> None:
    """All reservations that the gateway shows."""
    found = gateway.get("/v1/reservations", "reservations")["reservations"]
    if json:
        out_json(found)
        return
    begin, end = extent([step for each in found if each["state"] in STATES_SHOWN for step in each["steps"]])
    rows = [
        (
            each["reservation"],
            each["user"],
            each["queue"],
            each["state"],
            chart(each["steps"], begin, end) if each["state"] in STATES_SHOWN else told_of(each),
        )
        for each in found
    ]
    draw = drawing()
    head = "promised" if begin == end else f"promised {moment(begin)} to {moment(end)}"
    heads = ("reservation", "user", "queue", "state", head if draw is listed else "promised")
    out("no reservations" if not rows and draw is listed else draw(heads, rows, kinds="kkkkl"))


def one_reservation(found: Document) -> str:
    """One reservation with its answer, and its plan line by line."""
    answer = found["answer"]
    rows: list[tuple[str, object]] = [
        ("reservation", found["reservation"]),
        ("owner", found["user"]),
        ("queue", found["queue"]),
        ("state", found["state"]),
        ("requested", moment(found["requested_ms"])),
    ]
    if answer is not None:
        rows.append(("answer", answer_text(answer)))
    if found["moved"]:
        rows.append(("moved", f"{found['moved']} times, last {found['moved_why']}"))
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
        text += f"\n{chart(found['steps'], begin, end)}\n\n"
        text += listed(("from", "to", "atom", "units"), leases, kinds="kkkl")
    return text


def answer_text(answer: Document) -> str:
    """The planner's answer in a line."""
    if answer["accepted"]:
        return "yes" if not answer["form"] else f"yes, planned {answer['form']}"
    text = f"no ({answer['reason']}): {answer['detail']}"
    if answer["offer_from_ms"] is not None:
        text += f"; from {moment(answer['offer_from_ms'])} to {moment(answer['offer_to_ms'])} it would be accepted"
    if answer["size_permille"] is not None:
        text += f"; {answer['size_permille'] / 10:g} % of its size would be accepted"
    return text


def told_of(found: Document) -> str:
    """What became of a reservation that holds nothing."""
    return answer_text(found["answer"]) if found["answer"] and not found["answer"]["accepted"] else ""


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
        meeting = [step for step in steps if step["from_ms"] < last and step["to_ms"] > first]
        moments = {max(first, step["from_ms"]) for step in meeting}
        held = (sum(s["units"] for s in meeting if s["from_ms"] <= at < s["to_ms"]) for at in sorted(moments))
        heights[column] = max(held, default=0)
    most = max(heights, default=0)
    return "".join(_BARS[-(-height * (len(_BARS) - 1) // most)] if most else " " for height in heights)


def _amounts(unit: dict[str, str]) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in unit.items())
