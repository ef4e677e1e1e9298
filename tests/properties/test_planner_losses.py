"""After a loss of capacity the planner breaks what loses least: a solver (HiGHS) judges, on small cells."""

import pytest

from services.planner.planning import least_loss as search
from tests.properties import lossy_cells

CASES, CASES_DAILY = range(150), range(50, 125)
"""Fixed: a larger scan, by hand, covered 1,500 cells."""
BROKEN_ONE_IN = 7
"""At least one case in so many has to break a promise, or the cases ask too little."""


@pytest.fixture(scope="module")
def cells(daily):
    found = {case: lossy_cells.played(case) for case in (CASES_DAILY if daily else CASES)}
    return {case: each for case, each in found.items() if each is not None}


def test_after_a_loss_every_promise_that_is_kept_meets_its_request_inside_what_is_left(cells):
    assert {case: each.faults for case, each in cells.items() if each.faults} == {}


def test_no_plan_loses_less_than_what_a_repair_breaks(cells):
    pytest.importorskip("highspy", reason="the extra `planner` is not installed")
    broken = {case: each for case, each in cells.items() if each.broken}
    assert len(broken) * BROKEN_ONE_IN >= len(cells), "the cases do not ask enough"
    least = {case: lossy_cells.least_loss(each) for case, each in broken.items()}
    assert least == {case: each.lost for case, each in broken.items()}


def test_with_no_budget_for_the_complete_search_the_repair_stands_as_it_was(cells, monkeypatch):
    breaking = [case for case, each in cells.items() if each.broken]
    monkeypatch.setattr(search, "TOTAL_WORK_MAX", 0)

    without = {case: lossy_cells.played(case) for case in breaking}

    assert {case: each.faults for case, each in without.items() if each.faults} == {}
    assert all(without[case].lost >= cells[case].lost for case in breaking)
    assert any(without[case].lost > cells[case].lost for case in breaking)


@pytest.mark.parametrize("most", [1, 2])
def test_a_complete_search_takes_as_many_promises_as_it_may_and_leaves_the_others_as_they_are(cells, monkeypatch, most):
    breaking = [case for case, each in cells.items() if each.broken]
    monkeypatch.setattr(search, "PROMISES_MAX", most)
    monkeypatch.setattr("services.planner.planning.repair.PROMISES_MAX", most)

    fewer = {case: lossy_cells.played(case) for case in breaking}

    assert {case: each.faults for case, each in fewer.items() if each.faults} == {}
    assert all(fewer[case].lost >= cells[case].lost for case in breaking)
