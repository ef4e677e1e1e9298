"""Nodes and their free room, and the node that suits a class best."""

import pytest

from schemas.quantities import on_devices
from services.leftover.placement.candidates import Candidates
from services.leftover.placement.fits import members
from services.leftover.placement.node_table import NodeTable


def room(*nodes):
    """Nodes n0, n1 ...; each a capacity, or (capacity, labels), or (capacity, labels, device sizes)."""
    given = [node if isinstance(node, tuple) else (node,) for node in nodes]
    rooms = NodeTable([each[0] for each in given])
    for i, (capacity, *more) in enumerate(given):
        labels = more[0] if more else {}
        devices = list(enumerate(more[1])) if len(more) > 1 else []
        rooms.add(f"n{i}", "e", capacity, labels, devices, True)
    return rooms


def asks(rooms, demand, labels=None, prefer=None, gang=0):
    return rooms.task_class(0, rooms.shape(demand), labels or {}, prefer or {}, gang)


# ---------------------------------------------------------------- devices
@pytest.mark.parametrize(
    ("milli", "free", "taken"),
    [
        pytest.param(500, [1_000, 1_000], [(0, 500)], id="a fraction on the first of equals"),
        pytest.param(500, [1_000, 600, 700], [(1, 500)], id="a fraction where it is tightest"),
        pytest.param(500, [400, 300], None, id="a fraction is never split"),
        pytest.param(1_000, [600, 1_000], [(1, 1_000)], id="a whole one needs an untouched device"),
        pytest.param(1_000, [900, 900], None, id="two parts make no whole"),
        pytest.param(2_000, [1_000, 500, 1_000], [(0, 1_000), (2, 1_000)], id="whole ones, lowest first"),
        pytest.param(1_500, [1_000, 1_000, 500], [(0, 1_000), (2, 500)], id="whole and fraction"),
        pytest.param(1_500, [1_000, 400], None, id="the fraction needs a device of its own"),
        pytest.param(2_500, [1_000, 1_000, 1_000], [(0, 1_000), (1, 1_000), (2, 500)], id="three devices for 2.5"),
        pytest.param(1, [0, 1], [(1, 1)], id="the last thousandth"),
        pytest.param(1_000, [-200, 1_000], [(1, 1_000)], id="a device that shrank below its tasks has nothing"),
        pytest.param(1_000, [], None, id="no devices"),
    ],
)
def test_devices(milli, free, taken):
    before = list(free)
    assert on_devices(milli, free) == taken
    assert free == before


# ---------------------------------------------------------------- fit
def test_a_task_fits_where_every_kind_has_room():
    rooms = room({"cpu": 4, "memory": 8}, {"cpu": 8, "memory": 2})
    task = asks(rooms, {"cpu": 4, "memory": 4})

    assert [rooms.suits(task, node) is not None for node in rooms.nodes] == [True, False]


def test_a_kind_that_is_not_asked_for_never_blocks():
    rooms = room({"cpu": 4, "memory": 0})
    assert rooms.best(asks(rooms, {"cpu": 4})) == 0


def test_a_kind_that_no_node_has_fits_nowhere():
    rooms = room({"cpu": 4})
    task = asks(rooms, {"cpu": 1, "fpga": 1})
    assert rooms.best(task) is None
    assert not rooms.could_fit(task)


def test_labels_have_to_be_there_word_for_word():
    rooms = room(({"cpu": 4}, {"zone": "a"}), ({"cpu": 4}, {"zone": "b", "disk": "ssd"}))

    assert rooms.best(asks(rooms, {"cpu": 1}, {"zone": "b"})) == 1
    assert rooms.best(asks(rooms, {"cpu": 1}, {"zone": "b", "disk": "hdd"})) is None
    assert rooms.best(asks(rooms, {"cpu": 1}, {"rack": "1"})) is None


def test_a_closed_node_takes_nothing():
    rooms = room({"cpu": 4})
    rooms.nodes[0].open = False
    task = asks(rooms, {"cpu": 1})
    assert rooms.best(task) is None
    assert not rooms.could_fit(task)


def test_what_an_empty_node_could_hold_could_fit_also_by_devices():
    rooms = room(({"gpu": 2_000}, {}, [500, 500, 500, 500]))
    assert rooms.could_fit(asks(rooms, {"gpu": 500}))
    assert not rooms.could_fit(asks(rooms, {"gpu": 2_000}))

    taken = asks(rooms, {"gpu": 500})
    for _ in range(4):
        rooms.take(taken, 0)
    assert rooms.could_fit(asks(rooms, {"gpu": 500}))


# ---------------------------------------------------------------- rank
def test_the_node_with_the_most_room_of_what_is_asked_suits_best():
    rooms = room({"cpu": 4, "memory": 64}, {"cpu": 16, "memory": 8})

    assert rooms.best(asks(rooms, {"cpu": 4, "memory": 1})) == 1
    assert rooms.best(asks(rooms, {"cpu": 1, "memory": 8})) == 0


def test_equals_go_by_registration():
    rooms = room({"cpu": 4}, {"cpu": 4}, {"cpu": 4})
    task = asks(rooms, {"cpu": 1})
    placed = []
    while (number := rooms.best(task)) is not None:
        rooms.take(task, number)
        placed.append(number)
    assert placed == [0, 1, 2] * 4


def test_a_preferred_label_outweighs_any_room_and_more_of_them_more():
    rooms = room({"cpu": 1_000}, ({"cpu": 2}, {"zone": "a"}), ({"cpu": 1}, {"zone": "a", "disk": "ssd"}))
    task = asks(rooms, {"cpu": 1}, prefer={"zone": "a", "disk": "ssd"})
    placed = []
    for _ in range(5):
        placed.append(rooms.best(task))
        rooms.take(task, placed[-1])
    assert placed == [2, 1, 1, 0, 0]


# ---------------------------------------------------------------- give and take
def test_room_that_is_given_back_is_seen_by_every_class():
    rooms = room({"cpu": 2}, {"cpu": 2})
    small, large = asks(rooms, {"cpu": 1}), asks(rooms, {"cpu": 2})
    for number in (0, 1):
        rooms.take(large, number)
    assert rooms.best(small) is rooms.best(large) is None

    rooms.give(1, rooms.pairs({"cpu": 1}), [])

    assert (rooms.best(small), rooms.best(large)) == (1, None)
    rooms.give(1, rooms.pairs({"cpu": 1}), [])
    assert (rooms.best(small), rooms.best(large)) == (1, 1)


def test_views_that_grow_beyond_the_limit_are_given_up_and_answer_the_same(monkeypatch):
    monkeypatch.setattr("services.leftover.placement.node_table.VIEW_ENTRIES_MAX", 40)
    rooms = room(*[{"cpu": 4 + number % 3} for number in range(20)])
    tasks = [rooms.task_class(amount, rooms.shape({"cpu": amount}), {}, {}, 0) for amount in (1, 2, 3)]
    for task in tasks:
        task.waiting = 100

    for task in tasks:
        rooms.best(task)
    assert [task.nodes is None for task in tasks] == [True, False, False]
    taken = []
    for _ in range(10):
        for task in tasks:
            taken.append(rooms.best(task))
            rooms.take(task, taken[-1])

    again = room(*[{"cpu": 4 + number % 3} for number in range(20)])
    for task, number in zip(tasks * 10, taken, strict=True):
        fresh = asks(again, task.demand)
        assert again.best(fresh) == number
        again.take(fresh, number)


def test_what_was_put_back_is_as_it_was():
    rooms = room(({"cpu": 4, "gpu": 2_000}, {}, [1_000, 1_000]))
    task = asks(rooms, {"cpu": 1, "gpu": 1_500})
    number = rooms.best(task)
    devices = rooms.take(task, number)
    assert rooms.best(task) is None

    rooms.put_back(task, number, devices)

    assert rooms.nodes[0].free == [4, 2_000]
    assert rooms.nodes[0].devices == [1_000, 1_000]
    assert rooms.best(task) == 0


def test_what_runs_already_holds_its_room_and_its_devices():
    rooms = room(({"cpu": 4, "gpu": 2_000}, {}, [1_000, 1_000]))
    rooms.occupy("n0", rooms.pairs({"cpu": 3, "fpga": 1, "gpu": 700}), [(1, 700), (9, 5)])

    assert rooms.nodes[0].free == [1, 1_300]
    assert rooms.nodes[0].devices == [1_000, 300]


def test_a_class_never_misses_a_node_however_many_got_room_meanwhile():
    rooms = room({"cpu": 1}, {"cpu": 2})
    often, seldom = asks(rooms, {"cpu": 1}), asks(rooms, {"cpu": 2})
    rooms.take(seldom, 1)
    assert rooms.best(often) == 0
    assert rooms.best(seldom) is None
    for _ in range(3_000):
        rooms.take(often, 0)
        assert rooms.best(often) is None
        rooms.give(0, often.pairs, [])
        assert rooms.best(often) == 0
    rooms.give(1, seldom.pairs, [])

    assert len(rooms.grown.numbers) < 2_000
    assert rooms.best(seldom) == 1


def test_a_class_finds_its_best_node_however_many_others_have_filled_meanwhile():
    rooms = room(*[{"cpu": 40 + n % 3, "memory": 40 + n % 5} for n in range(80)])
    asked = [asks(rooms, {"cpu": 3, "memory": 1}), asks(rooms, {"cpu": 1, "memory": 4}), asks(rooms, {"cpu": 2})]
    for index, task in enumerate(asked):
        task.index, task.waiting = index, 1_000

    placed = 0
    while placed < 4_000:
        able = 0
        for turn, task in enumerate(asked):
            ranks = [(rank, n) for n, node in enumerate(rooms.nodes) if (rank := rooms.suits(task, node)) is not None]
            number = rooms.best(task)
            assert number == min(ranks, default=(0, None))[1]
            for _ in range(30 if turn == placed % 3 else 1):  # One of them fills many nodes at a time.
                if number is not None:
                    rooms.take(task, number)
                    able, placed = able + 1, placed + 1
                    number = rooms.best(task)
        if not able:
            break

    assert all(rooms.best(task) is None for task in asked)


@pytest.mark.parametrize("burst", [1, 3, 40], ids=lambda burst: f"{burst} tasks at a time")
@pytest.mark.parametrize("ended", [10, 100, 1_000], ids=lambda ended: f"{ended} nodes got room")
def test_a_class_finds_its_best_node_however_many_got_room_since_it_last_placed_a_task(burst, ended):
    rooms = room(*[{"cpu": 40 + n % 3, "memory": 40 + n % 5} for n in range(200)])
    asked = [rooms.task_class(i, rooms.shape({"cpu": 2 + i % 3, "memory": 1 + i % 4}), {}, {}, 0) for i in range(5)]
    for task in asked:
        task.waiting = 1_000
    runs = []
    for turn in range(40):
        task = asked[turn % 5 if turn % 7 else 0]
        for _ in range(burst):
            ranks = [(rank, n) for n, node in enumerate(rooms.nodes) if (rank := rooms.suits(task, node)) is not None]
            number = rooms.best(task)
            assert number == min(ranks, default=(0, None))[1]
            if number is not None:
                rooms.take(task, number)
                runs.append((number, task.pairs))
        for at in range(min(ended, len(runs) // 2)):
            rooms.give(*runs.pop(at * 7 % len(runs)), [])


def test_a_view_is_not_brought_up_to_date_for_one_task():
    rooms = room(*[{"cpu": 100, "memory": 100}] * 200)
    task, other = (rooms.task_class(i, rooms.shape({"cpu": 1 + i, "memory": 1}), {}, {}, 0) for i in range(2))
    task.waiting = other.waiting = 1_000
    for _ in range(100):
        rooms.take(task, rooms.best(task))
    view, length = task.nodes, len(task.nodes)

    for number in range(150):
        rooms.take(other, number)
        rooms.give(number, other.pairs, [])
    cursor = task.cursor
    rooms.take(task, rooms.best(task))
    assert (task.nodes, len(task.nodes), task.cursor) == (view, length, cursor)

    for _ in range(20):  # Many tasks start: it pays now.
        rooms.take(task, rooms.best(task))
    assert task.cursor > cursor


@pytest.mark.parametrize("waiting", [1, 16, 17, 100], ids=lambda waiting: f"{waiting} tasks wait")
@pytest.mark.parametrize("opened", [1, 16, 17, 40, 63, 64, 100], ids=lambda opened: f"{opened} nodes got room")
def test_a_blocked_class_goes_to_the_nodes_that_got_room_in_order_of_rank(waiting, opened):
    rooms = room(*[{"cpu": 10, "memory": 10}] * 100)
    for node in range(100):
        rooms.occupy(f"n{node}", [(0, 10), (1, 10)], [])
    task = asks(rooms, {"cpu": 2, "memory": 1})
    task.waiting = waiting
    candidates = Candidates(rooms, [task])
    candidates.note_waiting(task)
    candidates.refresh()
    candidates.block(task)
    for node in range(opened):
        rooms.give(node, [(0, 1 + node * 7 % 10), (1, 1 + node * 3 % 10)], [])
    candidates.refresh()

    found, expected = [], []
    while task.waiting and (number := candidates.best(task)) is not None:
        ranks = [(rank, n) for n, node in enumerate(rooms.nodes) if (rank := rooms.suits(task, node)) is not None]
        expected.append(min(ranks)[1])
        found.append(number)
        rooms.take(task, number)
        task.waiting -= 1

    assert found == expected
    assert not task.waiting or all(rooms.suits(task, node) is None for node in rooms.nodes)


def test_only_classes_that_wait_are_compared_with_nodes_that_got_room():
    rooms = room({"cpu": 10})
    rooms.occupy("n0", [(0, 10)], [])
    waits, nobody = (rooms.task_class(i, rooms.shape({"cpu": 1 + i}), {}, {}, 0) for i in range(2))
    waits.waiting = 1
    candidates = Candidates(rooms, [waits, nobody])
    candidates.note_waiting(waits)
    candidates.refresh()
    candidates.block(waits)
    candidates.block(nobody)

    rooms.give(0, [(0, 5)], [])
    candidates.refresh()
    assert members(candidates.live) == [waits.index]

    waits.waiting, nobody.waiting = 0, 1
    candidates.note_waiting(waits)
    candidates.note_waiting(nobody)
    rooms.give(0, [(0, 5)], [])
    candidates.refresh()
    assert members(candidates.live) == [nobody.index]


def test_a_class_that_no_longer_fits_on_any_node_that_got_room_is_left_out_after_the_next_failure():
    rooms = room({"cpu": 10})
    rooms.occupy("n0", [(0, 10)], [])
    large, larger, small = (
        rooms.task_class(i, rooms.shape({"cpu": cpu}), {}, {}, 0) for i, cpu in enumerate((4, 5, 1))
    )
    candidates = Candidates(rooms, [large, larger, small])
    for task in (large, larger, small):
        task.waiting = 3
        candidates.note_waiting(task)
    candidates.refresh()
    for task in (large, larger, small):
        candidates.block(task)
    rooms.give(0, [(0, 6)], [])
    candidates.refresh()

    rooms.take(large, candidates.best(large))
    assert candidates.best(larger) is None
    candidates.block(larger)

    assert members(candidates.live) == [small.index]
