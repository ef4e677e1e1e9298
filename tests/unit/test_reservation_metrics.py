"""Metrics of reservations: by state, what is promised at the moment, and how often promises were moved."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from schemas import Plans
from schemas.plans import PlanAnswer
from services.gateway.documents.metrics import CellMetrics
from tests.promised_cell import step
from tests.unit.test_gateway_reserved import cell


def read(story):
    """(Metric, value of its label) -> value."""
    text = asyncio.run(CellMetrics().exposition(story.view)).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, *each.labels.values()): each.value for each in samples}


def test_what_is_promised_now_is_that_of_the_leases_that_hold():
    story = cell(step(0, 60_000, 1), step(30_000, 90_000, 2))
    found = {}
    for at_ms in (0, 30_000, 60_000, 90_000):
        story.at(at_ms).round()
        found[at_ms] = read(story)["largesse_promised", "cpu"]

    assert found == {0: 1, 30_000: 3, 60_000: 2, 90_000: 0}


@pytest.mark.parametrize("on", ["on", "off"])
def test_nothing_is_promised_where_reservations_are_off(on):
    assert read(cell(step(0, 60_000, 1), reservations=on))["largesse_promised", "cpu"] == (on == "on")


def test_every_state_is_counted_also_those_that_no_reservation_is_in():
    story = cell(step(0, 60_000, 1))
    states = ("requested", "accepted", "rejected", "broken", "ended", "deleted")
    assert {each: read(story)["largesse_reservations", each] for each in states} == {
        each: each == "accepted" for each in states
    }

    story.put(Plans(2, [PlanAnswer("r", accepted=True, reason="moved")], [], []))
    assert read(story)["largesse_promises_moved",] == 1
    story.put(Plans(3, [PlanAnswer("r", accepted=False, reason="broken")], [], ["r"]))
    assert (read(story)["largesse_reservations", "accepted"], read(story)["largesse_reservations", "broken"]) == (0, 1)
    assert read(story)["largesse_promised", "cpu"] == 0
