"""The line of leaves: when a class has room again its leaves are served by claim, and only as far as a round gets."""

from typing import get_args

import pytest

from schemas.sharing import ServingOrder
from services.leftover.placement.board import Board, LeafLevel
from services.leftover.placement.leaf_queue import LeafQueue
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.orders import JOB_ORDERS
from services.leftover.placement.task_span import TaskSpan

LEAVES = 300


@pytest.fixture
def board():
    """One node of one core, taken; a job of one-core tasks in each leaf; nobody holds anything but `holder`."""
    table = NodeTable([{"cpu": 1}])
    table.add("n", "e", {"cpu": 1}, {}, [], True)
    board = Board(table, "fair")
    task = board.classes.class_for({"cpu": 1}, {}, {}, 0)
    board.add_job("holder", 0, "", 0)
    board.wait("holder", [TaskSpan("s", 0, task, 0, 1, 1, 0)])
    assert [p.job for p in board.place()] == ["holder"]
    for i in range(LEAVES):
        leaf = f"q{i:03}"
        board.add_job(leaf, 1 + i, leaf, 0)
        board.wait(leaf, [TaskSpan("s", 0, task, 0, 9, 1, 0)])
        board.serve(leaf, LEAVES - i)  # Who was served longest ago comes last by name.
    assert board.place() == []
    return board


def turn(board, job):
    """The core is free again; who gets it."""
    board.node_table.give(0, [(0, 1)], [])
    board.hold(job, [(0, 1)], -1)
    placed = [placement.job for placement in board.place()]
    assert len(placed) == 1
    return placed[0]


def test_leaves_take_turns_while_their_class_is_blocked_again_and_again(board):
    served, job = [], "holder"
    for seq in range(LEAVES + 1, 2 * LEAVES + 4):
        job = turn(board, job)
        board.serve(job, seq)
        served.append(job)
    names = [f"q{i:03}" for i in reversed(range(LEAVES))]
    assert served == [*names, *names[:3]]


def test_a_claim_that_moves_while_its_leaf_waits_for_room_counts(board):
    board.serve("q007", 0)
    assert turn(board, "holder") == "q007"
    board.serve("q007", 9_999)
    board.set_levels([LeafLevel("q290", 0)])
    board.serve("q290", 0)
    board.set_levels([LeafLevel("q299", 0)])
    assert turn(board, "q007") == "q298"


UNIT = 100_000_000


def last_core_goes_to(levels, **held):
    """On a node of ten cores these leaves hold so many and wait for more; one core is left. Who gets it."""
    table = NodeTable([{"cpu": 10}])
    table.add("n", "e", {"cpu": 10}, {}, [], True)
    board = Board(table, "fair")
    task = board.classes.class_for({"cpu": 1}, {}, {}, 0)
    for admitted, (leaf, count) in enumerate({**held, "rest": 9 - sum(held.values())}.items()):
        board.add_job(leaf, admitted, leaf, 0)
        board.wait(leaf, [TaskSpan("s", 0, task, 0, count, 1, 0)])
    assert sum(placement.count for placement in board.place()) == 9
    for leaf, count in held.items():
        board.wait(leaf, [TaskSpan("s", 0, task, count, 9, 1, 0)])
    board.set_levels(levels)
    return [placement.job for placement in board.place()]


def test_who_is_below_its_guarantee_comes_before_who_holds_less_of_what_it_is_due():
    levels = [LeafLevel("a", 4 * UNIT, 4 * UNIT, guaranteed=4 * UNIT), LeafLevel("b", 8 * UNIT, 8 * UNIT)]
    assert last_core_goes_to(levels, a=3, b=2) == ["a"]
    levels[0] = LeafLevel("a", 4 * UNIT, 4 * UNIT, guaranteed=4 * UNIT - 100)
    assert last_core_goes_to(levels, a=3, b=2) == ["b"], "the whole task has to be within the guarantee"


def test_within_its_own_due_a_leaf_goes_by_that_and_not_by_what_others_leave_it():
    levels = [LeafLevel("a", 6 * UNIT, 6 * UNIT), LeafLevel("b", 8 * UNIT, 3 * UNIT)]
    assert last_core_goes_to(levels, a=3, b=2) == ["a"], "a half of its own, the other two thirds"
    assert last_core_goes_to(levels, a=5, b=3) == ["a"], "the other is beyond its own"


def test_no_move_is_missed_however_many_there_were(board):
    for seq in reversed(range(5 * LEAVES)):
        board.serve("q000", seq)
        board.serve("q001", 10_000 + seq)
        assert board.place() == []
    assert turn(board, "holder") == "q000"


def test_a_job_that_leaves_while_its_leaf_waits_for_room_is_not_served(board):
    board.remove_job("q299")
    assert turn(board, "holder") == "q298"


def test_a_round_costs_the_leaves_it_serves_not_those_that_wait(board, monkeypatch):
    offered = []
    offer = LeafQueue.offer
    monkeypatch.setattr(
        LeafQueue, "offer", lambda self, leaf, *given: (offered.append(leaf.name), offer(self, leaf, *given))
    )
    assert turn(board, "holder") == "q299"
    assert list(dict.fromkeys(offered)) == ["q299"]


@pytest.mark.parametrize("order", ["drf", "giving", "fsp", "srtf"])
def test_tasks_that_only_follow_once_others_of_their_class_have_started_find_the_room_that_is_left(order):
    """Each job has an optional stage of the class of its required one. With so many jobs the two stand far apart in the
    ready queue, and the entry of the optional ones stays where it is when it gets another class.
    """
    table = NodeTable([{"cpu": 4_000}])
    table.add("n", "e", {"cpu": 4_000}, {}, [], True)
    board = Board(table, "fair", orders={"": order})
    for i in range(60):
        small, large = (
            board.classes.class_for({"cpu": 1 + i}, {}, {}, 0),
            board.classes.class_for({"cpu": 9_000 + i}, {}, {}, 0),
        )
        board.add_job(f"j{i}", 1 + i, "", 0)
        spans = [
            TaskSpan(name, at, task, 0, 1, 1, 0)
            for at, (name, task) in enumerate(zip("abc", [small, large, small], strict=True))
        ]
        spans[1].optional = spans[2].optional = True
        board.wait(f"j{i}", spans)

    assert sorted(placement.stage for placement in board.place()) == ["a"] * 60 + ["c"] * 60


def test_every_order_has_its_row():
    assert sorted(JOB_ORDERS) == sorted(get_args(ServingOrder))
