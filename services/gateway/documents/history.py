"""The series of a cell over log time, from the samples that the view keeps."""

from typing import Literal

from schemas.quantities import quantity_text
from services.gateway.documents import Document
from services.gateway.view.history import QUEUES_MAX, Numbers, numbers_of, samples_at
from services.gateway.view.state import State

_COUNTS: tuple[Literal["jobs", "waiting", "running"], ...] = ("jobs", "waiting", "running")
_AMOUNTS: tuple[Literal["capacity", "held", "promised"], ...] = ("capacity", "held", "promised")


def history_document(state: State, from_ms: int, to_ms: int, points: int) -> Document:
    """How the cell was at `points` times of a span at most, 2 or more: whole multiples of `interval_ms`, and the moment
    of the state itself where that lies in the span. `kept_ms`: the interval at which samples are kept.
    """
    history = state.history
    times, interval_ms = _times(state, from_ms, to_ms, points - 1)
    rows = list(samples_at(state, times))
    if from_ms <= state.time <= to_ms and history.next_ms is not None:
        times.append(state.time)
        rows.append(numbers_of(state))
    queues, left_out = _queues(rows)
    kinds = sorted({kind: True for row in rows for name in _AMOUNTS for kind in row[name]})
    return {
        "seq": state.seq,
        "time_ms": state.time,
        "interval_ms": interval_ms,
        "kept_ms": history.every_ms,
        "times_ms": times,
        "resources": {
            kind: {
                "unit": quantity_text(kind, 1),
                **{name: [row[name].get(kind, 0) for row in rows] for name in _AMOUNTS},
            }
            for kind in kinds
        },
        **{name: [row[name] for row in rows] for name in _COUNTS},
        "queues": queues,
        "queues_left_out": left_out,
    }


def _times(state: State, from_ms: int, to_ms: int, most: int) -> tuple[list[int], int]:
    """At most `most` boundaries in the span at which something is known, and how far apart they are."""
    history = state.history
    every_ms = history.every_ms
    if history.next_ms is None:
        return [], every_ms
    first_ms, end_ms = max(from_ms, history.first_ms), min(to_ms + 1, history.next_ms)
    interval_ms = every_ms
    while (times := range(-(-first_ms // interval_ms) * interval_ms, end_ms, interval_ms))[most:]:
        interval_ms += every_ms
    return list(times), interval_ms


def _queues(rows: list[Numbers]) -> tuple[Document, int]:
    """By queue what it held, was entitled to and was guaranteed, of those that held most, and how many more there were
    at a time."""
    sums: dict[str, int] = {}
    for row in rows:
        for path, (held, _, _) in row["queues"].items():
            sums[path] = sums.get(path, 0) + held
    shown = sorted(sorted(sums, key=lambda path: (-sums[path], path))[:QUEUES_MAX])
    left_out = max((row["left_out"] + sum(path not in shown for path in row["queues"]) for row in rows), default=0)
    found: Document = {}
    for path in shown:
        columns: tuple[list[int | None], list[int | None], list[int | None]] = ([], [], [])
        for row in rows:
            nothing = (None if row["left_out"] else 0, None, None)
            for column, number in zip(columns, row["queues"].get(path, nothing), strict=True):
                column.append(number)
        found[path] = {"held": columns[0], "entitled": columns[1], "guaranteed": columns[2]}
    return found, left_out
