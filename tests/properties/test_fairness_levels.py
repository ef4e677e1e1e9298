"""Levels under limits and under policies of subtrees: what has to hold whatever the tree and whoever asks."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import assume
from hypothesis import strategies as st

from largesse.lifecycle.queue_policy import groups
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import below
from schemas.sharing import LIST_POLICIES
from tests.builders import queue, tree
from tests.cells import targets
from tests.properties.fairness_books import Books, covered, walked
from tests.properties.test_fairness_queues import CAPACITIES, DEMANDS, LIMITS, moves, played, shapes
from tests.strategies import for_all

NEARLY = 8
"""Billionths that a sum of levels may be off."""

ONE_KIND = ({"cpu": 1_000}, {"cpu": 4_000}, {"cpu": 300})

asks = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(DEMANDS), st.integers(1, 60)), min_size=1, max_size=9)
asks_of_one_kind = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(ONE_KIND), st.integers(1, 60)), min_size=1, max_size=9
)


def asked(shape, given, preset="hdrf", capacity=CAPACITIES[0]):
    books = Books(shape, preset)
    books.set_capacity(capacity)
    for each in given:
        books.job(*each)
    books.look()
    return books


def unit_demand(books):
    """By queue that has a level, what is asked for there."""
    found = {}
    for leaf, group in groups(books.tree, books.preset).items():
        for kind, amount in books.demand.get(leaf, {}).items():
            vector = found.setdefault(group.path, {})
            vector[kind] = vector.get(kind, 0) + amount
    return found


def got(books, path):
    """The share of each kind that the levels below a queue come to, in billionths."""
    total = {}
    for unit, vector in unit_demand(books).items():
        if not path or f"{unit}/".startswith(f"{path}/"):
            level = books.state.levels.units.get(unit)
            parts = level.kinds if level is not None else {}
            if not parts:
                add_level(books, total, targets(books.state).get(unit, 0), vector, base_in(books, unit))
            else:
                assert parts.keys() == {",".join(key) for key in books.demand_by_set[unit]}
                for key, each in books.demand_by_set[unit].items():
                    add_level(books, total, parts[",".join(key)], each, {})
    return total


def base_in(books, unit):
    """What a unit holds and does not wait for, where it is a leaf with a maximum that asks for more."""
    return books.base(unit) if books.is_over(unit) and unit not in books.state.levels.dues() else {}


def add_level(books, total, level, vector, base):
    """What a level comes to: first the base, then the rest of what is asked for, each in its own proportion."""
    cell = {kind: have for kind, have in books.capacity.items() if have}
    based = {kind: Fraction(base.get(kind, 0)) / have for kind, have in cell.items()}
    rest = {kind: Fraction(vector.get(kind, 0)) / have - based[kind] for kind, have in cell.items()}
    level, most = Fraction(level) / SHARE_UNITS, max(based.values(), default=0)
    if level <= most:
        based = {kind: share * level / most if most else share for kind, share in based.items()}
        part = Fraction(0)
    else:
        part = min(((level - based[kind]) / more for kind, more in rest.items() if more > 0), default=Fraction(0))
    for kind in cell:
        total[kind] = total.get(kind, 0) + (based[kind] + part * rest[kind]) * SHARE_UNITS


# ---------------------------------------------------------------- maxima
@for_all(
    shapes(policies=("", "", "", "hdrf", "drf", "collapsed", "naive-hdrf")),
    st.sampled_from(["hdrf", "drf", "collapsed", "naive-hdrf", "capacity"]),
    moves,
    st.sampled_from(CAPACITIES),
)
def test_no_queue_is_to_have_more_than_its_maximum(shape, preset, moves, capacity):
    books = Books(shape, preset)
    books.set_capacity(capacity)
    played(books, moves)
    assume(not churning(shape, preset))  # What is held already may be more.

    for path, each in walked(shape):
        for kind, share in got(books, path).items():
            if kind in each.max:
                assert share <= each.max[kind] * SHARE_UNITS / books.capacity[kind] + NEARLY, (path, kind)
            assert path or share <= SHARE_UNITS + NEARLY


def churning(shape, preset, path=""):
    """Paths of the queues in and below which levels go by what is held."""
    if (shape.policy or preset) == "naive-hdrf":
        return [path, *[below(path, each) for each, _ in walked(shape) if each]]
    return [
        each for child in shape.children for each in churning(child, shape.policy or preset, below(path, child.name))
    ]


moves_of_one_kind = st.lists(
    st.one_of(
        *[st.tuples(st.just("job"), st.integers(0, 9), st.sampled_from(ONE_KIND), st.integers(1, 30))] * 3,
        st.tuples(st.just("end"), st.integers(0, 30), st.integers(1, 10)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        *[st.tuples(st.just("decide"), st.tuples(st.integers(0, 9), st.integers(1, 9)))] * 3,
    ),
    min_size=5,
    max_size=30,
)


@for_all(
    shapes(
        limits=({}, {"cpu": 2_000}),
        maxima=({}, {"cpu": 3_000}, {"cpu": 9_000}, {"cpu": 20_000}),
        policies=("", "", "hdrf", "drf", "collapsed", "naive-hdrf", "capacity"),
    ),
    st.sampled_from(["naive-hdrf", "capacity", "hdrf"]),
    moves_of_one_kind,
)
def test_where_levels_go_by_what_is_held_no_queue_is_to_have_more_than_its_maximum_or_what_it_holds(
    shape, preset, moves
):
    assume(churning(shape, preset))
    books = Books(shape, preset)
    books.set_capacity(CAPACITIES[0])
    for what, *given in moves:
        getattr(books, what)(*given)
    books.put(books.answer())

    used = books.sums(lambda live: len(live.held))
    queues = dict(walked(shape))
    for path in churning(shape, preset):
        held = books.share(books.below_of(used, path)) * SHARE_UNITS
        most = queues[path].max.get("cpu", books.capacity["cpu"]) * SHARE_UNITS / books.capacity["cpu"]
        assert got(books, path).get("cpu", 0) <= max(held, most) + NEARLY, path


@for_all(shapes(limits=({},), maxima=({},)), st.sampled_from(["hdrf", "drf", "collapsed"]), moves)
def test_a_maximum_that_nobody_reaches_changes_nothing(shape, preset, moves):
    def wide(each):
        return replace(each, children=[wide(child) for child in each.children], max={"cpu": 10**9, "memory": 10**9})

    plain, limited = (played_in(each, preset, moves) for each in (shape, wide(shape)))
    assert plain.published == limited.published


def played_in(shape, preset, moves):
    books = Books(shape, preset)
    books.set_capacity(CAPACITIES[0])
    return played(books, moves)


@for_all(shapes(maxima=({}, {}, {"cpu": 3_000}, {"cpu": 9_000}), limits=({},), policies=("",)), asks_of_one_kind)
def test_what_a_maximum_leaves_goes_to_those_who_ask(shape, given):
    """Of a single kind: levels come to all that is asked for within maxima, or to the whole cell."""
    books = asked(shape, given)

    def within(path, each):
        parts = [within(f"{path}/{child.name}".lstrip("/"), child) for child in each.children]
        own = sum(parts) if parts else books.demand.get(path, {}).get("cpu", 0)
        return min(own, each.max.get("cpu", own))

    wanted = min(within("", shape), CAPACITIES[0]["cpu"]) * SHARE_UNITS // CAPACITIES[0]["cpu"]
    assert abs(sum(targets(books.state).values()) - wanted) <= NEARLY


# ---------------------------------------------------------------- guarantees
def promised(books):
    """Path -> the share that a queue's guarantee and those below it cover of what it asks for, less in proportion where
    too much is promised.
    """
    claims = {}

    def claim(path, each):
        vector = books.below_of(books.demand, path)
        here = covered(vector, books.named(each.guaranteed), most=1) or {}
        total = {}
        for child in each.children:
            for kind, amount in claim(f"{path}/{child.name}".lstrip("/"), child).items():
                total[kind] = total.get(kind, 0) + amount
        claims[path] = {kind: max(here.get(kind, 0), total.get(kind, 0)) for kind in {**here, **total}}
        return claims[path]

    pledged = books.share(claim("", books.tree))
    return {path: books.share(vector) / max(1, pledged) for path, vector in claims.items()}


@for_all(
    shapes(limits=({}, {}, {"cpu": 3_000}, {"cpu": 9_000}, {"cpu": 20_000}), maxima=({},), policies=("",)),
    asks_of_one_kind,
)
def test_of_a_single_kind_every_queue_gets_what_it_is_guaranteed(shape, given):
    books = asked(shape, given)
    for path, share in promised(books).items():
        assert got(books, path).get("cpu", 0) >= share * SHARE_UNITS - NEARLY, path


@for_all(
    shapes(
        limits=({}, {}, {"cpu": 3_000}, {"cpu": 9_000}, {"cpu": 20_000}, {"cpu": 40_000}), maxima=({},), policies=("",)
    ),
    asks_of_one_kind,
)
def test_of_a_single_kind_what_guarantees_do_not_cover_goes_by_weight_to_those_who_have_least_for_theirs(shape, given):
    """Nobody gets a task beyond its guarantee while a sibling that asks for more has less for its weight."""
    books = asked(shape, given)
    cores = {path: got(books, path).get("cpu", 0) / SHARE_UNITS * books.capacity["cpu"] for path, _ in walked(shape)}
    promises = {path: share * books.capacity["cpu"] for path, share in promised(books).items()}
    wants = {path: books.below_of(books.demand, path).get("cpu", 0) for path in cores}
    for path, each in walked(shape):
        paths = {below(path, child.name): child.weight for child in each.children}
        for rich, heavy in paths.items():
            for poor, light in paths.items():
                if cores[rich] > promises[rich] + 0.01 and cores[poor] < wants[poor] - 0.01:
                    assert cores[rich] / heavy <= cores[poor] / light * 1.000_001 + 0.01 / min(heavy, light), (
                        rich,
                        poor,
                    )


@for_all(shapes(maxima=({},), policies=("",)), asks)
def test_every_queue_gets_what_it_is_guaranteed_where_promises_do_not_cross(shape, given):
    """Guarantees in different kinds can only be kept for sure where their dominant shares go together, too."""
    books = asked(shape, given)
    found = promised(books)
    for path, each in walked(shape):
        if each.children:
            together = sum(found[f"{path}/{child.name}".lstrip("/")] for child in each.children)
            assume(together <= (found[path] if path else 1))
    for path, share in found.items():
        assert max(got(books, path).values(), default=0) >= share * SHARE_UNITS - NEARLY, path


@for_all(st.lists(st.tuples(st.sampled_from(LIMITS), st.sampled_from([1, 2, 7])), min_size=2, max_size=6), asks)
def test_of_leaves_side_by_side_every_promise_is_kept_in_whatever_kinds_if_all_can_be(leaves, given):
    shape = tree(*[replace(queue(f"q{at}", weight), guaranteed=most) for at, (most, weight) in enumerate(leaves)])
    books = asked(shape, given)
    covers = {
        path: covered(books.demand.get(path, {}), books.named(each.guaranteed), most=1) or {}
        for path, each in walked(shape)
        if path
    }
    together = {}
    for vector in covers.values():
        for kind, amount in vector.items():
            together[kind] = together.get(kind, 0) + amount
    assume(books.share(together) <= 1)
    for path, vector in covers.items():
        assert max(got(books, path).values(), default=0) >= books.share(vector) * SHARE_UNITS - NEARLY, path


# ---------------------------------------------------------------- policies of subtrees
@for_all(
    shapes(limits=({},), maxima=({},), policies=("",)),
    asks_of_one_kind,
    st.integers(0, 9),
    st.sampled_from([*LIST_POLICIES, "collapsed", "hdrf", "drf"]),
)
def test_another_policy_for_a_subtree_leaves_the_rest_as_it_was(shape, given, at, policy):
    """Of a single kind; with more of them a subtree that serves others takes other kinds."""
    inner = [path for path, each in walked(shape) if path and each.children]
    assume(inner)
    top = inner[at % len(inner)]

    def changed(each, path):
        children = [changed(child, f"{path}/{child.name}".lstrip("/")) for child in each.children]
        return replace(each, children=children, policy=policy if path == top else each.policy)

    before, after = asked(shape, given), asked(changed(shape, ""), given)
    outside = {path for path in targets(before.state) if not path.startswith(f"{top}/")}
    assert {path for path in targets(after.state) if path != top and not path.startswith(f"{top}/")} == outside
    for path in outside:
        assert abs(targets(before.state)[path] - targets(after.state)[path]) <= NEARLY
    assert abs(got(before, top).get("cpu", 0) - got(after, top).get("cpu", 0)) <= NEARLY
    if policy in LIST_POLICIES:
        assert not any(path.startswith(f"{top}/") for path in targets(after.state))


def test_queues_with_another_policy_stand_among_the_leaves_of_a_flat_tree_as_one():
    shape = tree(queue("in", 5, queue("x"), replace(queue("l", 1, "y", "z"), policy="fifo")), queue("b"))
    books = asked(shape, [(at, {"cpu": 1_000}, 60) for at in range(4)], "drf")

    assert {path: level * 3 // SHARE_UNITS for path, level in targets(books.state).items()} == {
        "in/x": 0,
        "in/l": 0,
        "b": 0,
    }
    assert sum(targets(books.state).values()) == 999_999_999


# ---------------------------------------------------------------- shortcuts
steps = st.lists(
    st.one_of(
        *[st.tuples(st.just("job"), st.integers(0, 9), st.sampled_from(DEMANDS), st.integers(1, 3))] * 3,
        st.tuples(st.just("job"), st.integers(0, 9), st.just({"cpu": 1_000, "memory": 1_600}), st.integers(1, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("decide"), st.tuples(st.integers(0, 9), st.integers(1, 9))),
    ),
    min_size=5,
    max_size=20,
)


@for_all(shapes(), st.sampled_from(["hdrf", "hdrf", "drf", "collapsed", "naive-hdrf"]), asks, steps)
def test_in_a_full_cell_levels_are_those_of_a_filling_from_nothing_after_every_change(shape, preset, given, changes):
    """What would not alter the outcome is not filled again: with caches dropped before every round it is the same."""
    books = [asked(shape, given, preset), asked(shape, given, preset)]
    for each in books:
        each.forgetful = each is books[1]
        for leaf in range(10):
            each.job(leaf, {"cpu": 1_000, "memory": 1_600}, 9)  # Of both kinds as much of the cell, and too much.
        for what, *values in changes:
            getattr(each, what)(*values)
            each.decide()

    assert targets(books[0].state) == targets(books[1].state)
    assert books[0].published == books[1].published
