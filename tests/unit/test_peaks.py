"""The most that leases come to at one time (services/leftover/core/reservations/peaks.py)."""

from hypothesis import strategies as st

from services.leftover.core.reservations.peaks import most_at_a_time, most_of_each
from tests.promised_cell import step
from tests.strategies import for_all

SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 4), st.sampled_from("abc")), max_size=8)


@for_all(SPANS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 5)))
def test_most_at_a_time_is_the_most_of_all_times(drawn, limits):
    spans = [(begin, begin + length, units, name) for begin, length, units, name in drawn]

    def at(time):
        found = {}
        for begin, end, units, name in spans:
            if begin <= time < end:
                found[name] = min(limits.get(name, 99), found.get(name, 0) + units)
        return {name: units for name, units in found.items() if units}

    when, counted = most_at_a_time(spans, limits)
    sums = [sum(at(time).values()) for time in range(15)]
    assert sum(counted.values()) == max(sums)
    assert not counted or (counted == at(when) and when == sums.index(max(sums)))


def test_of_each_kind_of_unit_what_holds_at_the_same_time_is_added():
    steps = [step(0, 10, 2), step(5, 15, 3), step(12, 20, 4), step(12, 20, 1, cpu=2_000), step(0, 3, 9)]

    found = most_of_each(steps, 5)
    assert [(each.units, each.unit["cpu"], each.usage["cpu"]) for each in found] == [
        (7, 1_000, 7_000),
        (1, 2_000, 2_000),
    ]
