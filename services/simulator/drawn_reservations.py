"""Random reservations by a seed, with jobs that run under them: what a drawn history has more under preset `rayon`."""

from schemas import (
    JobSpec,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from schemas.edge.read import read_input, read_workload_line
from schemas.presets import Preset
from services.simulator.drawn import QUEUES, Dice, drawn_jobs

Arrival = JobSpec | ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded

RESERVATIONS_MIN, RESERVATIONS_MORE = 6, 14
KNOBS: dict[str, int | str] = {"reservation_step_ms": 2_000, "reservation_horizon_ms": 3_600_000}
"""Steps as short as the drawn tasks."""


def drawn_arrivals(seed: int, preset: Preset) -> list[tuple[int, Arrival]]:
    """(submit_ms, what comes) of a drawn history."""
    jobs: list[tuple[int, Arrival]] = [*drawn_jobs(seed)]
    return jobs if preset != "rayon" else jobs + drawn_reservations(seed) + drawn_series(seed)


def drawn_reservations(seed: int) -> list[tuple[int, Arrival]]:
    """Requests, changes and deletions, and a job for each atom."""
    dice = Dice(seed)
    found: list[tuple[int, Arrival]] = []
    for i in range(RESERVATIONS_MIN + dice.upto(RESERVATIONS_MORE, "reservations")):
        at_ms = dice.upto(120_000, i, "reserved")
        name, queue = f"res-{i}", QUEUES[dice.upto(len(QUEUES) - 1, i, "reserved queue")]
        document = {"reservation": name, "user": "ann", "queue": queue, "rdl": _window(dice, i, at_ms)}
        found.append((at_ms, _read({"request": document})))
        for k in range(1 + dice.upto(1, i, "reserved jobs")):
            found.append(read_workload_line(_job(dice, i, k, at_ms, queue)))
        if dice.one_in(4, i, "update"):
            later = document | {"rdl": _window(dice, i + 1_000, at_ms)}
            found.append((at_ms + dice.upto(20_000, i, "update at"), _read({"update": later})))
        if dice.one_in(5, i, "delete"):
            gone = {"reservation": name, "user": "ann"}
            found.append((at_ms + 20_000 + dice.upto(60_000, i, "delete at"), _read({"delete": gone})))
    return found


def drawn_series(seed: int) -> list[tuple[int, Arrival]]:
    """Recurring reservations, some of which end, and jobs that name them."""
    dice = Dice(seed)
    found: list[tuple[int, Arrival]] = []
    for i in range(1 + dice.upto(1, "series")):
        at_ms, period_s = dice.upto(30_000, i, "series at"), 60 * (1 + dice.upto(3, i, "period"))
        name, queue = f"series-{i}", QUEUES[dice.upto(len(QUEUES) - 1, i, "series queue")]
        window = {"op": "window", "s": 0, "e": 30 + dice.upto(30, i, "series lasts"), "of": _atom(dice, i, 9)}
        terms = {"every": period_s, "start_s": at_ms // 1_000, "rdl": window}
        found.append((at_ms, _read({"series": {"series": name, "user": "ann", "queue": queue, **terms}})))
        for k in range(dice.upto(4, i, "series jobs")):
            submit_ms = at_ms + dice.upto(240_000, i, k, "series job at")
            line = _job(dice, i, k, submit_ms, queue) | {"job": f"recurring-{i}-{k}", "reservation": name}
            found.append(read_workload_line(line | {"reservation_atom": ""}))
        if dice.one_in(3, i, "series ends"):
            gone = {"series": name, "user": "ann"}
            found.append((at_ms + dice.upto(200_000, i, "series ends at"), _read({"end_series": gone})))
    return found


def _read(message: dict[str, object]) -> Arrival:
    body = read_input("reservations", message, "drawn")
    assert isinstance(
        body, ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded
    )
    return body


def _window(dice: Dice, i: int, at_ms: int) -> dict[str, object]:
    begin = at_ms // 1_000 + dice.upto(60, i, "begin")
    kind = ("order", "all", "any", "order_no_gap")[dice.upto(3, i, "kind")]
    held = {"op": kind, "of": [_atom(dice, i, k) for k in range(1 + dice.upto(2, i, "atoms"))]}
    return {"op": "window", "s": begin, "e": begin + 60 + dice.upto(240, i, "lasts"), "of": held}


def _atom(dice: Dice, i: int, k: int) -> dict[str, object]:
    least, lease = 1 + dice.upto(3, i, k, "g"), 2 + dice.upto(20, i, k, "l")
    most = least * (1 + dice.upto(4, i, k, "h"))
    unit = {"cpu": str(1 + dice.upto(3, i, k, "b")), "memory": f"{1 + dice.upto(7, i, k, 'm')}Gi"}
    return {"op": "atom", "b": unit, "g": least, "h": most, "l": lease, "w": least * lease * (1 + dice.upto(5, i, k))}


def _job(dice: Dice, i: int, k: int, at_ms: int, queue: str) -> dict[str, object]:
    tasks, lasts_ms = 1 + dice.upto(15, i, k, "reserved tasks"), 500 + dice.upto(8_000, i, k, "reserved lasts")
    stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1", "memory": "1Gi"}, "duration_ms": lasts_ms}
    return {
        "job": f"reserved-{i}-{k}",
        "submit_ms": at_ms,
        "queue": queue,
        "user": "ann",
        "reservation": f"res-{i}",
        "reservation_atom": str(k) if dice.one_in(2, i, k, "bound") else "",
        "stages": [stage],
    }
