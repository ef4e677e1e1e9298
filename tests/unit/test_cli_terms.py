"""What was asked for with a reservation, in a few words."""

import pytest

from services.cli.plan_chart import one_reservation, one_series
from services.cli.terms import ATOMS_SHOWN_MAX, terms
from services.planner.rdl.document import read_document
from services.planner.rdl.times import clock
from tests.unit.test_cli_reservations import ATOM, reservation

WINDOW = {
    "op": "window",
    "s": 3_600,
    "e": 9_000,
    "of": {"op": "order", "of": [ATOM, ATOM | {"b": {"cpu": "2"}, "w": 90}]},
}
ASKED = 'order(atom(b="1 cpu", g=1, h=1, l=1m, w=1m), atom(b="2 cpu", g=1, h=1, l=1m, w=90s))'


def test_the_window_and_the_request_are_said(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    printed = " ".join(one_reservation(reservation(rdl=WINDOW)).split())

    assert "window 1970-01-01 01:00:00 UTC to 1970-01-01 02:30:00 UTC" in printed
    assert f"asks for {ASKED}" in printed


def test_of_a_series_times_count_from_each_occurrence():
    assert terms(WINDOW, recurs=True) == [("window", "1h to 150m after each occurrence begins"), ("asks for", ASKED)]
    series = {"series": "s", "user": "ann", "queue": "q", "every": "0 2 * * *", "zone": "UTC", "occurrences": 0}
    assert "after each occurrence begins" in " ".join(one_series(series | {"rdl": WINDOW}, []).split())


@pytest.mark.parametrize(
    "rdl",
    [
        WINDOW["of"],
        {"op": "any", "of": [WINDOW, ATOM]},
        {"op": "all", "of": [ATOM, {"op": "order_no_gap", "of": [ATOM, ATOM]}]},
    ],
)
def test_what_is_said_is_rdl_and_means_the_same(rdl):
    def plain(each):
        of = each.get("of", [])
        inner = [plain(one) for one in (of if isinstance(of, list) else [of])]
        return {**{key: str(value) for key, value in each.items() if key != "of"}, "of": inner}

    ((_, text),) = terms(rdl)
    assert plain(read_document(str(text), clock())) == plain(rdl)


def test_of_a_large_request_the_size_is_said_and_an_older_gateway_says_nothing():
    many = {"op": "all", "of": [ATOM] * (ATOMS_SHOWN_MAX + 1)}

    assert terms(many) == [("asks for", "7 atoms, all in --json")]
    assert terms(None) == []
    assert "asks for" not in one_reservation(reservation())
