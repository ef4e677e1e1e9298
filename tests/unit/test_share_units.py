"""Shares in billionths: worked out in small numbers they are what the exact share comes to."""

import pytest
from hypothesis import strategies as st

from schemas.quantities import QUANTITY_MAX, SHARE_UNITS
from services.fairness.accounts.amounts import part_units
from services.fairness.tree import ONE_BITS, share_units
from tests.strategies import for_all


@st.composite
def parts(draw):
    """An amount and what there is, often with a share that lies next to a whole number of billionths."""
    have = draw(st.integers(1, 1 << 40) | st.integers(1 << 28, QUANTITY_MAX))
    near = have * draw(st.integers(0, 2 * SHARE_UNITS)) // SHARE_UNITS + draw(st.integers(-1, 1))
    return max(0, draw(st.just(near) | st.integers(0, QUANTITY_MAX))), have


@for_all(parts())
def test_a_part_in_small_numbers_is_the_share_as_it_is_told(part):
    amount, have = part

    assert part_units(amount, have) == share_units((amount << ONE_BITS) // have)


@pytest.mark.parametrize("have", [1, 2**28, 2**29 - 1, 2**29, 2**30, 10**9, 2**31 + 1, 10**12 + 1, QUANTITY_MAX])
def test_a_part_just_below_a_whole_billionth_is_told_alike(have):
    for units in (1, 2, 999_999_999, SHARE_UNITS):
        least = -(-have * units // SHARE_UNITS)
        for amount in range(max(0, least - 12), least + 2):
            assert part_units(amount, have) == share_units((amount << ONE_BITS) // have)
