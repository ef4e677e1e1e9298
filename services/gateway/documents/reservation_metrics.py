"""Metrics of reservations: how many there are by state, what is promised now, and how often promises were moved.

A scrape goes through the reservations that the view shows: those in force, and RESERVATIONS_KEPT_MAX that are over.
"""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import GaugeMetricFamily

from largesse.lifecycle.promises import active
from schemas import Vector
from schemas.quantities import natural_amount
from services.gateway.documents.counting import added
from services.gateway.view.state import ReservationState, State

STATES = get_args(ReservationState)


def of_reservations(state: State, resources: list[str]) -> Iterator[GaugeMetricFamily]:
    """`resources`: those that have metrics."""
    rows = list(state.reservations.values())
    counts = Counter(row.state for row in rows)
    reservations = GaugeMetricFamily("largesse_reservations", "Reservations by state", labels=("state",))
    for each in STATES:
        reservations.add_metric((each,), counts[each])
    yield reservations

    promised: Vector = dict.fromkeys(resources, 0)
    for row in rows:
        if row.state == "accepted" and state.policy.reservations == "on":
            for step in active(row.steps, state.time):
                added(promised, step.usage)
    amounts = GaugeMetricFamily(
        "largesse_promised", "What is promised to reservations now, in cores, bytes, bit/s", labels=("resource",)
    )
    for kind in resources:
        amounts.add_metric((kind,), natural_amount(kind, promised[kind]))
    yield amounts

    yield GaugeMetricFamily(
        "largesse_promises_moved",
        "How often promises of these reservations were moved",
        value=sum(r.moved for r in rows),
    )
    followed = GaugeMetricFamily(
        "largesse_promises_followed",
        "How often plans of these reservations followed jobs that ran ahead or behind",
        labels=("progress",),
    )
    followed.add_metric(("ahead",), sum(r.ahead for r in rows))
    followed.add_metric(("behind",), sum(r.behind for r in rows))
    yield followed
