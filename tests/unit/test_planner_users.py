"""What one user may have promised at a time, in all queues together."""

import pytest

from schemas import Policy, Queue
from schemas.knobs import with_knobs
from schemas.policy import NEW_CELL_KNOBS
from services.cli.hosting import first_config, is_unused
from services.gateway.view.state import State as View
from services.planner.core.promisable import owner_most
from tests.builders import configured, node_lost, registered, reservation, reservation_update
from tests.planner_cell import Cell, answers

TREE = Queue("root", children=[Queue("a"), Queue("b")])


def cell(permille=800, cpu=10_000, **knobs):
    return Cell(configured(queues=TREE, reservation_user_permille=permille, seed=0, **knobs), registered("n1", cpu=cpu))


def asked(name, units, user="ann", queue="a", minutes=50, least=None):
    atom = f"atom(b='1 cpu', g={least or units}, h={units}, l=10m, w={units * minutes}m)"
    return reservation(name, f"window(0, 1h, {atom})", user, queue)


def peak(story, user):
    promises = [each for each in story.story.state.promises.values() if each.user == user]
    leases = [(lease.begin, lease.end, lease.gangs) for each in promises for lease in each.leases]
    return max((sum(n for a, b, n in leases if a <= at < b) for at, _, _ in leases), default=0)


def test_one_user_does_not_get_all_and_the_answer_names_the_knob():
    story = cell().then(asked("r", 9))
    (answer,) = story.settle(at=0).answers
    assert (answer.accepted, answer.reason) == (False, "limit")
    assert 'user "ann" would have more promised at a time than one user may' in answer.detail
    assert "(cpu 8" in answer.detail
    assert "knob reservation_user_permille" in answer.detail
    assert answer.size_permille is not None


def test_all_queues_count_together_and_others_get_the_rest():
    story = cell().then(asked("r", 5), asked("s", 4, queue="b"), asked("t", 4, user="bob"))
    assert answers(story.settle(at=0)) == {"r": "accepted", "s": "limit", "t": "accepted"}
    assert peak(story, "ann") <= 8


def test_what_can_be_narrower_is_planned_within_the_limit():
    story = cell(reservation_agent="early").then(asked("r", 10, minutes=40, least=1))
    assert answers(story.settle(at=0)) == {"r": "accepted"}
    assert peak(story, "ann") == 8


def test_other_terms_count_without_those_before():
    story = cell().then(asked("r", 6))
    story.settle(at=0)
    atom = "window(0, 1h, atom(b='1 cpu', g={0}, h={0}, l=10m, w={1}m))"
    story.then(reservation_update("r", atom.format(8, 400), queue="b"))
    assert answers(story.settle(at=0)) == {"r": "accepted"}
    story.then(reservation_update("r", atom.format(9, 450), queue="b"))
    assert answers(story.settle(at=0)) == {"r": "limit"}
    assert story.story.state.promises["r"].queue == "b"


def test_a_request_without_room_in_the_cell_is_not_blamed_on_the_limit():
    story = cell().then(asked("r", 8), asked("s", 4, user="bob"))
    assert answers(story.settle(at=0)) == {"r": "accepted", "s": "no_room"}


@pytest.mark.parametrize("permille", [1_000, 800])
def test_a_loss_of_capacity_breaks_no_promise_for_the_limit(permille):
    """Seven units at a time were within the limit of nine cores, and six are beyond that of the six that are left."""
    story = Cell(
        configured(queues=TREE, reservation_user_permille=permille, reservation_agent="early", seed=0),
        *(registered(f"n{i}", cpu=1_000) for i in range(9)),
    )
    story.then(asked("r", 7, least=1, minutes=20))
    story.settle(at=0)
    story.then(*(node_lost(f"n{i}") for i in range(3)))
    assert all(answer.accepted for body in [story.round(1_000)] if body for answer in body.answers)
    assert "r" in story.promised


def test_cells_of_before_have_no_limit():
    assert Policy().reservation_user_permille == 1_000
    assert owner_most(Policy(), [10]) is None
    story = cell(1_000).then(asked("r", 10))
    assert answers(story.settle(at=0)) == {"r": "accepted"}


# ---------------------------------------------------------------- the first config of a cell
def view(policy=None, queues=None):
    state = View()
    state.policy, state.queues = policy or Policy(), queues
    return state


def test_a_cell_is_new_until_its_bus_has_a_file(tmp_path):
    assert is_unused(tmp_path / "data")
    (tmp_path / "data" / "bus").mkdir(parents=True)  # As `up` makes it.
    assert is_unused(tmp_path / "data")
    (tmp_path / "data" / "bus" / "lock").touch()
    assert not is_unused(tmp_path / "data")


def test_a_new_cell_has_the_limit_written_into_its_first_config():
    assert first_config({}, view(), is_new=True) == {"set": NEW_CELL_KNOBS, "initial": True}
    said = {"set": {"preset": "rayon"}, "queues": {"name": "root"}}
    found = first_config(said, view(), is_new=True)
    assert found == {"set": {"preset": "rayon", **NEW_CELL_KNOBS}, "queues": {"name": "root"}, "initial": True}


def test_what_the_cluster_file_says_goes_first():
    said = {"set": {"reservation_user_permille": 1_000}}
    assert first_config(said, view(), is_new=True) == {**said, "initial": True}


def test_an_earlier_cell_gets_nothing_that_its_operator_has_not_said():
    said = {"set": {"preset": "rayon"}}
    assert first_config({}, view(), is_new=False) is None
    assert first_config(said, view(), is_new=False) == {**said, "initial": True}
    assert first_config(said, view(queues=TREE), is_new=False) == {**said, "initial": True}


def test_a_file_that_comes_with_the_second_start_is_still_the_first_config_of_its_operator():
    said = {"set": {"preset": "rayon"}}
    bare = with_knobs(Policy(), NEW_CELL_KNOBS)
    assert first_config(said, view(bare), is_new=False) == {**said, "initial": False}
