"""Jobs that wait and hold nothing, by since when."""

from hypothesis import strategies as st

from services.leftover.placement.ageing import AgeingJobs
from tests.strategies import for_all

moves = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(1, 9), st.integers(0, 30)),
        st.tuples(st.just("drop"), st.integers(1, 9)),
        st.tuples(st.just("take"), st.integers(0, 30)),
    ),
    max_size=200,
)


@for_all(moves)
def test_those_that_wait_longest_are_taken_first_in_whatever_order_they_came(moves):
    hungry, plain = AgeingJobs(), {}
    for what, *given in moves:
        if what == "set":
            hungry.set(*given)
            plain[given[0]] = given[1]
        elif what == "drop":
            hungry.drop(given[0])
            plain.pop(given[0], None)
        else:
            due = sorted((since, job) for job, since in plain.items() if since <= given[0])
            assert hungry.take(given[0]) == [job for _, job in due]
            for _, job in due:
                del plain[job]


def test_those_that_are_gone_are_not_walked_past_for_ever():
    hungry = AgeingJobs()
    for job in range(100_000):
        hungry.set(job, job)
        if job:
            hungry.drop(job)
    assert hungry._gone < 200
    assert hungry.take(50) == [0]
