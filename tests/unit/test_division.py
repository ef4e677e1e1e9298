"""A quantity divided by weights, between bounds."""

from fractions import Fraction

import pytest
from hypothesis import strategies as st

from services.fairness.accounts.division import Claimant, divided
from tests.strategies import for_all

BIG = 1 << 128


@pytest.mark.parametrize(
    ("whole", "among", "given"),
    [
        pytest.param(90, [(1, 0, 99), (2, 0, 99)], [30, 60], id="by weight"),
        pytest.param(90, [(1, 50, 99), (1, 0, 99), (1, 0, 99)], [50, 20, 20], id="whoever has at least more first"),
        pytest.param(90, [(1, 0, 10), (1, 0, 99), (1, 0, 99)], [10, 40, 40], id="whoever has at most less, too"),
        pytest.param(90, [(1, 60, 60), (1, 0, 20), (1, 5, 99)], [60, 15, 15], id="both"),
        pytest.param(90, [(1, 60, 99), (1, 60, 99), (5, 0, 99)], [60, 60, 0], id="too much is due"),
        pytest.param(90, [(1, 0, 10), (7, 3, 20)], [10, 20], id="all have all"),
        pytest.param(90, [(7, 0, 30), (1, 60, 75)], [30, 60], id="what one has at most and another at least is all"),
        pytest.param(0, [(1, 0, 10)], [0], id="nothing is there"),
        pytest.param(90, [], [], id="nobody is there"),
    ],
)
def test_divided(whole, among, given):
    assert divided(whole, [Claimant(*each) for each in among]) == given


bounds = st.tuples(st.integers(1, 10**12), st.integers(0, BIG), st.integers(0, BIG)).map(
    lambda each: Claimant(each[0], *sorted(each[1:]))
)


@for_all(st.integers(0, 2 * BIG), st.lists(bounds, min_size=1, max_size=9))
def test_the_rate_is_one_for_all_between_their_bounds(whole, among):
    given = divided(whole, among)

    assert all(each.least <= part <= each.most for each, part in zip(among, given, strict=True))
    least, most = sum(each.least for each in among), sum(each.most for each in among)
    slack = len(among) + (sum(each.weight for each in among) >> 30)
    assert abs(sum(given) - max(least, min(whole, most))) <= slack
    for part, each in zip(given, among, strict=True):
        for other_part, other in zip(given, among, strict=True):
            if part < each.most and other_part > other.least:  # Else one would rather have been given what another has.
                assert Fraction(other_part, other.weight) <= Fraction(part, each.weight) + slack
