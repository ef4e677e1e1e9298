"""The pools of the classes: algorithm 3 of DRESS, as mended, on a cell of 1,000 containers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.quantities import MILLIONTHS
from services.admission.reserve_ratio import Bounds, bounded, class_demand, first_pools, next_pools

CELL = {"containers": 1_000}
FREE = Bounds(start=100_000, least=0, most=MILLIONTHS)


def of_class(forecast, *requests):
    """What a class can count on, and its waiting jobs, in containers."""
    waiting = Counter(request * 1_000 for request in requests)
    return class_demand({"containers": forecast}, {"containers": sum(requests)}, CELL, sorted(waiting.items()))


def pools(before, *demands, bounds=FREE):
    """The pools afterwards, in containers; `before` without the last one."""
    known = [part * 1_000 for part in before]
    after = next_pools([*known, MILLIONTHS - sum(known)], demands, bounds)
    assert sum(after) == MILLIONTHS
    return [pool // 1_000 for pool in after]


@pytest.mark.parametrize(
    ("small", "large", "delta"),
    [
        pytest.param(of_class(100), of_class(0, 500), 0, id="nobody small waits: the large ones get all"),
        pytest.param(of_class(60, 30), of_class(0, 500), 70, id="the small pool gives what it does not need"),
        pytest.param(of_class(60, 60), of_class(0, 500), 100, id="what covers exactly changes nothing"),
        pytest.param(of_class(20, 50, 50), of_class(600), 180, id="the large surplus covers all that is lacking"),
        pytest.param(of_class(20, 50, 50), of_class(130, 100), 130, id="or as much of it as there is"),
        pytest.param(of_class(20, 50, 50), of_class(100, 100), 100, id="no surplus, no growth"),
        pytest.param(of_class(20, 30, 40), of_class(25, 500), 110, id="a moved job uses its own pool's rest first"),
        pytest.param(of_class(20, 30), of_class(10, 500), 110, id="one that fits exactly into both rests is moved"),
        pytest.param(of_class(20, 31), of_class(10, 500), 100, id="one that is larger than both rests is not"),
        pytest.param(of_class(50, 50, 60), of_class(60, 60, 900), 100, id="jobs that fit exactly leave no rest"),
        pytest.param(of_class(0, 10, 10, 10), of_class(25, 500), 120, id="as many as fit are moved"),
        pytest.param(of_class(5, 30), of_class(90, 60, 500), 125, id="the large jobs that fit are fitted first"),
    ],
)
def test_the_ratio_follows_what_is_forecast_and_waited_for(small, large, delta):
    assert pools([100], small, large) == [delta, 1_000 - delta]


def test_what_is_available_counts_once():
    """Lines 7, 10 and 14 add it to a forecast that has it already: 50 would then cover 80."""
    assert pools([100], of_class(50, 80), of_class(0, 500)) == [100, 900]


def test_each_pool_is_filled_with_its_own_forecast():
    """Line 14 adds the small pool's forecast to the large one's, so that 40 would be left of it."""
    assert pools([100], of_class(40, 50), of_class(0, 500)) == [100, 900]


def test_every_large_job_is_fitted_by_its_own_request_and_the_last_one_too():
    """Line 20 takes away the second job's request, and the loops leave the last job out."""
    assert pools([100], of_class(0, 10), of_class(30, 20, 500)) == [110, 890]
    assert pools([100], of_class(0, 10), of_class(30, 30, 500)) == [100, 900]


@pytest.mark.parametrize(
    ("bounds", "delta"),
    [
        (Bounds(100_000, 50_000, 500_000), 50),
        (Bounds(100_000, 120_000, 500_000), 120),
        (Bounds(100_000, 0, 0), 0),
    ],
)
def test_the_ratio_never_falls_below_its_bound(bounds, delta):
    assert pools([100], of_class(100), of_class(0, 500), bounds=bounds) == [delta, 1_000 - delta]


def test_the_ratio_never_rises_above_its_bound():
    bounds = Bounds(100_000, 0, 150_000)

    assert pools([100], of_class(0, 300), of_class(900), bounds=bounds) == [150, 850]


def test_with_three_classes_the_smallest_takes_from_the_largest_first():
    lacking = of_class(0, 60)

    assert pools([100, 100], lacking, lacking, of_class(90)) == [160, 130, 710]


def test_with_three_classes_what_one_gives_another_can_have():
    assert pools([100, 100], of_class(0, 60), of_class(80), of_class(0)) == [160, 20, 820]


def test_classes_begin_with_equal_parts_of_the_ratio():
    assert first_pools(2, FREE) == [100_000, 900_000]
    assert first_pools(3, FREE) == [50_000, 50_000, 900_000]


def test_no_kind_that_is_short_is_covered_by_another():
    demand = class_demand({"cpu": 10, "gpu": 0}, {"cpu": 1, "gpu": 1}, {"cpu": 100, "gpu": 10, "none": 0}, [])

    assert (demand.gap, demand.rest) == (-100_000, 0)


PARTS = st.integers(0, MILLIONTHS)
REQUESTS = st.dictionaries(st.integers(1, 2_000), st.integers(1, 5), max_size=6)


@st.composite
def cells(draw):
    """Pools of two to four classes, what each can count on and waits for, and bounds."""
    classes = draw(st.integers(2, 4))
    bounds = Bounds(draw(PARTS), draw(PARTS), draw(PARTS))
    before = bounded(draw(st.lists(PARTS, min_size=classes - 1, max_size=classes - 1)), FREE)
    demands = []
    for _ in range(classes):
        waiting = draw(REQUESTS)
        pending = sum(request * jobs for request, jobs in waiting.items())
        requests = sorted((request * 1_000, jobs) for request, jobs in waiting.items())
        forecast = draw(st.integers(0, 1_000))
        demands.append(class_demand({"containers": forecast}, {"containers": pending}, CELL, requests))
    return before, demands, bounds


@given(cells())
def test_pools_sum_to_the_cell_and_stay_in_bounds(cell):
    before, demands, bounds = cell
    after = next_pools(before, demands, bounds)
    reserved = MILLIONTHS - after[-1]

    assert len(after) == len(before)
    assert sum(after) == MILLIONTHS
    assert min(after) >= 0
    each = len(after) - 1
    assert min(bounds.least, bounds.most) // each * each <= reserved <= bounds.most


@given(cells())
def test_a_class_that_gets_more_lacks_it_and_one_that_gives_can_spare_it(cell):
    before, demands, _ = cell
    after = next_pools(before, demands, FREE)

    for old, new, demand in list(zip(before, after, demands, strict=True))[:-1]:
        assert new <= old + max(0, -demand.gap)
        if after[-1] == 0:
            continue  # All there is is given away: who asks for little goes first, and others may be cut.
        assert new >= old - max(0, demand.gap) or demand.gap <= 0
        assert new == old or demand.gap != 0


@given(cells())
def test_what_the_last_class_gives_away_it_had_to_spare(cell):
    before, demands, _ = cell
    after = next_pools(before, demands, FREE)
    given_up = sum(max(0, old - new) for old, new in zip(before[:-1], after[:-1], strict=True))

    if demands[-1].gap >= 0:
        assert before[-1] - after[-1] <= max(demands[-1].gap, 0) + given_up
    else:
        assert before[-1] - after[-1] <= max(demands[-1].rest, 0) + given_up
