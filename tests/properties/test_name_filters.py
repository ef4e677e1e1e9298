"""What a filter of names says: it forgets none, and takes few others for one of them."""

from hypothesis import strategies as st

from services.gateway.name_filters import NameFilter
from tests.strategies import for_all


@for_all(st.lists(st.text(max_size=12), max_size=400))
def test_no_name_that_was_added_is_missed(names):
    known = NameFilter()
    for name in names:
        known.add(name)

    assert all(map(known.may_have, names))


def test_few_names_are_taken_for_others_where_there_are_as_many_as_between_two_places():
    known = NameFilter()
    for number in range(600):
        known.add(f"job-{number}")

    assert sum(known.may_have(f"job-{number}") for number in range(10_000, 20_000)) < 300
    assert not NameFilter().may_have("job-1")
