"""What queues are guaranteed by now, worked out beside their accounts, against a visit to each account."""

from services.fairness.accounts.guarantees import guarantees_of
from services.fairness.core.accounts import accounts_of
from tests.properties.fairness_books import Books
from tests.properties.test_fairness_queues import CAPACITIES, moves, shapes
from tests.strategies import for_all


@for_all(shapes(), moves)
def test_guarantees_that_levels_carry_are_those_that_a_visit_to_each_account_finds(shape, moves):
    books = Books(shape)
    books.set_capacity(CAPACITIES[0])
    for what, *given in moves:
        getattr(books, what)(*given)
    accounts = accounts_of(books.state)
    if accounts is None:
        return
    names = list(accounts.queues)
    found = guarantees_of(accounts, names)

    accounts.look_at(names)
    assert found == [accounts.to_publish(accounts.queues[name]).guaranteed for name in names]
