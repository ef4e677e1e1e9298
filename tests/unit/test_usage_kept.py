"""What a stage has used comes back from the text in which it is kept of a job that has ended."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.view.jobs import StageUse
from services.gateway.view.used import use_of, use_text

numbers = st.integers(-1, 2**53)
columns = st.lists(numbers, max_size=5)


@given(st.builds(StageUse, columns, columns, columns, columns, numbers, columns))
def test_what_was_used_comes_back_from_its_text(used):
    assert use_of(use_text(used)) == used
