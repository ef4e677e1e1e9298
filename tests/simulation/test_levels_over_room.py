"""What a queue is due but cannot place goes to its siblings first: whole cells, with tasks that fit on few nodes, with
labels, and with gangs that wait."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from schemas import NodeRegistered
from schemas.queue_tree import walk
from services.admission.core.judge import lose
from services.fairness.filling.levels import CAPPINGS_MAX
from tests.builders import queue
from tests.cells import targets
from tests.simulation.placed_cells import AUTHOR, Load, PlacedCell
from tests.strategies import for_all

LASTS_MS = (700, 1_100, 1_900)
LONGEST_MS = max(LASTS_MS)
SETTLED_MS = CAPPINGS_MAX * LONGEST_MS
"""By then what one leaf leaves has gone to others: each may have to be passed over in its turn, as tasks end."""

FEW_LARGE = {f"n{i}": ({"cpu": 16 if i < 5 else 8}, {"disk": "ssd"} if i < 5 else {}) for i in range(50)}
ONE_CORE = Load({"cpu": 1}, tasks=9_000)
HELD_BACK = {
    "tasks that fit on 5 of 50 nodes": Load({"cpu": 12}),
    "tasks with a label of 5 of 50 nodes": Load({"cpu": 1}, labels={"disk": "ssd"}, tasks=9_000),
    "gangs that wait": Load({"cpu": 8}, tasks=6, gang=True, jobs=60),
}
TREE = [queue("g1", 1, queue("a"), queue("b")), queue("g2", 1, queue("c"))]


@pytest.mark.parametrize("headroom", ["aged", "off"])
@pytest.mark.parametrize("held_back", HELD_BACK.values(), ids=HELD_BACK.keys())
def test_a_group_has_its_half_though_one_of_its_queues_finds_no_room(held_back, headroom):
    """It had 33 to 40 % where every level counted what could not be placed."""
    cell = PlacedCell(TREE, FEW_LARGE, {"g1/a": held_back, "g1/b": ONE_CORE, "g2/c": ONE_CORE}, headroom=headroom)
    cell.over(12_000)

    found = cell.over(30_000)
    idle = 1 - found["g1"] - found["g2"]  # All that gangs can use is held for them, in their group's share.
    assert found["g1"] + idle >= 0.48
    assert found["g2"] >= 0.48


def levels_of(cell):
    return targets(cell.cell.fairness), cell.cell.fairness.levels.dues()


def labelled(**knobs):
    nodes = {"n0": ({"cpu": 10}, {"disk": "ssd"}), "n1": ({"cpu": 40}, {}), "n2": ({"cpu": 50}, {})}
    loads = {leaf: Load({"cpu": 1}, durations_ms=LASTS_MS) for leaf in ("g1/b", "g2/c")}
    loads["g1/a"] = Load({"cpu": 1}, labels={"disk": "ssd"}, durations_ms=LASTS_MS)
    return PlacedCell(TREE, nodes, loads, **knobs)


def test_levels_say_what_can_be_placed_and_beside_it_what_is_due():
    cell = labelled()
    assert levels_of(cell)[1] == {}
    cell.run_until(LONGEST_MS)

    levels, dues = levels_of(cell)
    assert dues == {"g1/a": 250_000_000}
    assert levels == {"g1/a": 100_000_000, "g1/b": 400_000_000, "g2/c": 500_000_000}


def test_a_claim_is_back_the_moment_there_is_room():
    cell = labelled()
    cell.run_until(20_000)
    before = cell.held["g1/a", "cpu"]
    cell.cell.take(NodeRegistered("n3", "e", {"cpu": 20}, {"disk": "ssd"}), AUTHOR)
    cell.cell.settle()
    assert before == 10
    assert cell.held["g1/a", "cpu"] >= 25  # Then all have five sixths of what they are due.

    cell.run_until(20_000 + 2 * LONGEST_MS)
    assert levels_of(cell)[1] == {}
    assert cell.held["g1/a", "cpu"] == 30


def test_what_a_leaf_can_place_is_less_once_it_was_passed_over_with_less():
    cell = labelled()
    cell.run_until(20_000)
    cell.cell.put(lose(cell.cell.admission, "n0"))
    cell.forget("n0")
    cell.cell.settle()
    assert levels_of(cell)[0]["g1/a"] == 1_000_000_000 * 10 // 90

    cell.run_until(20_000 + LONGEST_MS)
    assert levels_of(cell)[0]["g1/a"] == 0
    assert levels_of(cell)[0]["g1/b"] == 500_000_000


def test_a_guarantee_that_cannot_be_placed_is_said_to_be_that():
    cell = labelled()
    fairness = cell.cell.fairness
    assert fairness.watch.broken == {}

    cell.run_until(2 * LONGEST_MS)
    assert [(queue, each.standing.value) for queue, each in fairness.watch.broken.items()] == [("g1/a", "unplaced")]


def test_a_leaf_that_is_first_for_whatever_comes_free_is_not_taken_to_find_no_room():
    """It waits for others to end, but nobody is served before it meanwhile."""
    loads = {leaf: Load({"cpu": 1}, durations_ms=(20_000, 23_000, 26_000)) for leaf in ("g1/b", "g2/c")}
    loads["g1/a"] = Load({"cpu": 1}, from_ms=100)
    cell = PlacedCell(TREE, {"n": ({"cpu": 40}, {})}, loads)
    cell.run_until(60_000, lambda: None)

    assert cell.cell.fairness.caps.by_unit == {}
    assert cell.held["g1/a", "cpu"] == 10


def test_what_a_sibling_cannot_place_either_goes_on():
    """a1 can place 5 of 20, so a2 and b are due 30 each; a2 can place 22, so b has 33 and c half of the cell less."""
    nodes = {
        "n0": ({"cpu": 5}, {"only": "a1"}),
        "n1": ({"cpu": 22}, {"only": "a2"}),
        "n2": ({"cpu": 93}, {}),
    }
    loads = {leaf: Load({"cpu": 1}, durations_ms=LASTS_MS) for leaf in ("g1/b", "g2/c")}
    for leaf in ("a1", "a2"):
        loads[f"g1/{leaf}"] = Load({"cpu": 1}, labels={"only": leaf}, durations_ms=LASTS_MS)
    tree = [queue("g1", 1, queue("a1"), queue("a2"), queue("b")), queue("g2", 1, queue("c"))]
    cell = PlacedCell(tree, nodes, loads)
    cell.run_until(CAPPINGS_MAX * LONGEST_MS)

    held = {leaf: amount for (leaf, _), amount in cell.held.items()}
    assert (held["g1/a1"], held["g1"], held["g2"]) == (5, 60, 60)
    assert held["g1/a2"] in (21, 22)  # Room for a last task comes where it ends by itself: none is gathered for one.


# ---------------------------------------------------------------- drawn cells
@st.composite
def trees(draw):
    names = iter(range(100))

    def node(levels):
        name = f"q{next(names)}"
        children = draw(st.integers(2, 3)) if levels and draw(st.booleans()) else 0
        return queue(name, draw(st.integers(1, 4)), *[node(levels - 1) for _ in range(children)])

    return [node(draw(st.integers(1, 3))) for _ in range(draw(st.integers(2, 3)))]


free = st.just(Load({"cpu": 1}, tasks=6_000, durations_ms=LASTS_MS))
held_back = st.one_of(
    st.builds(
        Load, st.builds(lambda cpu: {"cpu": cpu}, st.sampled_from([4, 7, 9, 14])), durations_ms=st.just(LASTS_MS)
    ),
    st.builds(Load, st.just({"cpu": 1}), labels=st.just({"disk": "ssd"}), durations_ms=st.just(LASTS_MS)),
    st.builds(
        Load,
        st.builds(lambda cpu: {"cpu": cpu}, st.integers(2, 4)),
        tasks=st.integers(4, 8),
        jobs=st.just(300),
        gang=st.just(True),
        durations_ms=st.just(LASTS_MS),
    ),
)


@st.composite
def cells(draw):
    tree = draw(trees())
    root = queue("root", 1, *tree)
    leaves = [path for path, node in walk(root) if not node.children]
    loads = {leaf: draw(st.one_of(free, held_back)) for leaf in leaves}
    nodes = {
        f"n{i}": ({"cpu": draw(st.integers(6, 8))}, {"disk": "ssd"} if i == 0 else {})
        for i in range(draw(st.integers(15, 30)))
    }
    nodes["large"] = {"cpu": 14}, {}
    return root, loads, PlacedCell(tree, nodes, loads, headroom="off")


def guaranteed(root):
    """Of the cell, by queue: along its path, its weight among its siblings'. All of them ask for more than there is."""
    found = {"": Fraction(1)}
    for path, node in walk(root):
        total = sum(child.weight for child in node.children)
        for child in node.children:
            found[f"{path}/{child.name}".strip("/")] = found[path] * Fraction(child.weight, total)
    return found


class Watch:
    """Queues in which something waits that fits anywhere, and since when each has less than it is guaranteed, by more
    than a task (for a gang: all of it) of each leaf below it."""

    def __init__(self, root, loads, cell):
        self.cell, self.least, self.below = cell, {}, {}
        self.longest_ms = Counter()
        cores = cell.capacity["cpu"]
        for path, part in guaranteed(root).items():
            inside = {leaf: load for leaf, load in loads.items() if f"{leaf}/".startswith(f"{path}/" if path else "")}
            if path and any(load.demand == {"cpu": 1} and not load.labels for load in inside.values()):
                slack = sum(load.demand["cpu"] * (load.tasks if load.gang else 1) for load in inside.values())
                self.least[path] = part * cores - slack

    def __call__(self):
        now = self.cell.cell.time
        for path, least in self.least.items():
            if self.cell.held[path, "cpu"] >= least:
                self.below.pop(path, None)
            elif now >= SETTLED_MS:
                since = self.below.setdefault(path, now)
                self.longest_ms[path] = max(self.longest_ms[path], now - since)


@for_all(cells())
def test_no_group_that_can_place_something_stays_below_its_guarantee(drawn):
    root, loads, cell = drawn
    watch = Watch(root, loads, cell)
    cell.run_until(SETTLED_MS + 6 * LONGEST_MS, watch)

    assert {path: ms for path, ms in watch.longest_ms.items() if ms > LONGEST_MS} == {}


class Caps:
    """By leaf, how often its cap has moved, and how often it has begun."""

    def __init__(self, cell):
        self.cell, self.known = cell, {}
        self.moves, self.begins = Counter(), Counter()

    def __call__(self):
        capped = {leaf: dict(cap.amounts) for leaf, cap in self.cell.cell.fairness.caps.by_unit.items()}
        for leaf, amounts in capped.items():
            self.begins[leaf] += leaf not in self.known
            self.moves[leaf] += leaf in self.known and amounts != self.known[leaf]
        self.known = capped


@for_all(cells())
def test_caps_do_not_flap(drawn):
    """One moves at most once for each task of its leaf that starts or ends; and as levels move when others do, all
    together begin at most once for each task of theirs, beside the first time."""
    _, _, cell = drawn
    caps = Caps(cell)
    cell.run_until(SETTLED_MS + 6 * LONGEST_MS, caps)

    started = Counter()
    for name, (leaf, _) in cell.lasts.items():
        started[leaf] += cell.started[name]
    assert {leaf: moves for leaf, moves in caps.moves.items() if moves > 2 * started[leaf]} == {}
    assert sum(caps.begins.values()) <= sum(1 + 2 * started[leaf] for leaf in caps.begins)
