"""What is said of queues: worked out anew from plain books it is the same, and caches change cost, never bytes."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from tests.builders import queue, tree
from tests.cells import targets
from tests.properties.fairness_books import Books, walked
from tests.strategies import for_all

DEMANDS = (
    {"cpu": 1_000, "memory": 1_024},
    {"cpu": 4_000, "memory": 512},
    {"cpu": 300},
    {"memory": 12_345},
    {"cpu": 500, "gpu": 250},
    {"gpu": 1_000},
)
CAPACITIES = (
    {"cpu": 40_000, "memory": 65_536, "gpu": 4_000},
    {"cpu": 100_000, "memory": 65_536, "gpu": 0},
    {"cpu": 8_000, "memory": 65_536},
)
LIMITS: tuple[dict[str, int], ...] = (
    *({}, {}, {}),
    *({"cpu": 3_000}, {"cpu": 20_000, "memory": 30_000}, {"gpu": 2_000}, {"memory": 0}),
)

moves = st.lists(
    st.one_of(
        *[st.tuples(st.just("job"), st.integers(0, 9), st.sampled_from(DEMANDS), st.integers(1, 30))] * 3,
        *[st.tuples(st.just("end"), st.integers(0, 30), st.integers(1, 10))] * 3,
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("set_capacity"), st.sampled_from(CAPACITIES)),
        st.tuples(st.just("wait"), st.integers(1, 50)),
        *[st.tuples(st.just("look"), st.tuples(st.integers(0, 9), st.integers(1, 9)))] * 6,
        *[st.tuples(st.just("look"))] * 2,
    ),
    min_size=10,
    max_size=40,
)


POLICIES = ("", "", "", "fifo", "hdrf", "drf", "collapsed", "srtf", "naive-hdrf", "capacity")


@st.composite
def shapes(draw, limits=LIMITS, maxima=LIMITS, policies=POLICIES):
    """A tree of up to three levels, some of its queues with guarantees and maxima."""

    def grow(name, depth):
        children = [grow(f"{name}{i}", depth - 1) for i in range(draw(st.integers(0, 3)))] if depth else []
        guaranteed, most = draw(st.sampled_from(limits)), draw(st.sampled_from(maxima))
        policy = draw(st.sampled_from(policies)) if children else ""
        shape = queue(name, draw(st.sampled_from([1, 1, 2, 7, 0.5])), *children)
        return replace(shape, guaranteed=guaranteed, max=most, policy=policy)

    return tree(*[grow(name, 2) for name in "abc"[: draw(st.integers(1, 3))]])


def played(books, moves):
    for what, *given in moves:
        getattr(books, what)(*given)
    books.look()
    books.look()
    return books


@for_all(shapes(), st.sampled_from(["hdrf", "drf", "fifo", "collapsed", "naive-hdrf", "capacity"]), moves)
def test_what_is_said_of_queues_is_what_follows_from_the_facts(shape, preset, moves):
    books = [Books(shape, preset, forgetful=forgetful) for forgetful in (False, True)]
    for each in books:
        each.set_capacity(CAPACITIES[0])
        played(each, moves)

    assert books[0].published == books[1].published
    assert books[0].state.shares == books[1].state.shares


@for_all(shapes(), moves, st.integers(0, 39))
def test_a_restart_changes_nothing_that_is_said(shape, moves, cut):
    books = [Books(shape) for _ in range(2)]
    for each in books:
        each.set_capacity(CAPACITIES[0])
        for at, (what, *given) in enumerate(moves):
            if at == cut and each is books[1]:
                each.restore()
            getattr(each, what)(*given)
        each.look()

    assert books[0].published == books[1].published


@for_all(shapes(), moves, st.integers(1, 4))
def test_every_so_often_everything_is_said(shape, moves, rounds):
    books = Books(shape, keyframe_rounds=rounds)
    books.set_capacity(CAPACITIES[0])
    played(books, moves)

    assert [body.full for body in books.published] == [
        number % rounds == 0 for number in range(1, len(books.published) + 1)
    ]


@for_all(shapes(), shapes(), moves, moves)
def test_another_tree_forgets_who_is_not_in_it(shape, other, moves, more):
    """Jobs live on in both trees' leaf a; of the rest nothing stays but tasks of a cancelled job."""
    shape, other = (tree(queue("a"), *each.children[1:]) for each in (shape, other))
    books = Books(shape)
    books.set_capacity(CAPACITIES[0])
    played(books, [move for move in moves if move[0] != "job"] + [("job", 0, {"cpu": 1_000}, 40), ("look", (0, 30))])
    books.job(len(list(walked(shape))) - 2, {"cpu": 1_000}, 4)
    books.look((1, 2))
    if len(books.jobs) > 1:
        books.cancel(1)
    books.set_tree(other)
    played(books, more)


CHANCE = st.randoms(use_true_random=False)
"""What Hypothesis draws one by one, so that a history shrinks."""

WIDE = tree(
    queue("many", 2, *[queue(f"m{i}", 1 + i % 3) for i in range(60)]),
    *[queue(f"g{i}", 1, *[queue(f"l{k}", 1 + k) for k in range(4)]) for i in range(8)],
)


@for_all(CHANCE)
def test_among_many_queues_those_that_move_by_a_permille_are_found(daily, chance):
    books = [Books(WIDE, forgetful=forgetful) for forgetful in (False, True)]
    for each in books:
        each.set_capacity({"cpu": 1_000_000, "memory": 2_000_000})  # So large that one task often moves nobody.
    for _ in range(8 if daily else 12):
        steps = [
            ("job", chance.randrange(92), chance.choice(DEMANDS[:4]), chance.choice([1, 3]))
            for _ in range(chance.choice([1, 1, 9]))
        ]
        steps += [("end", chance.randrange(99), 1) for _ in range(chance.choice([0, 2, 6]))]
        steps.append(("look", *[(chance.randrange(99), 1) for _ in range(chance.choice([0, 1, 8]))]))
        for what, *given in steps:
            for each in books:
                getattr(each, what)(*given)

    assert books[0].published == books[1].published
    assert books[0].state.watch.below == books[1].state.watch.below


NARROW = tree(
    queue("a", 3, *[queue(f"a{i}", 1 + i) for i in range(3)]),
    queue("b", 2, replace(queue("b0"), max={"cpu": 3_000_000}), replace(queue("b1"), guaranteed={"cpu": 900_000})),
    replace(queue("c", 2, queue("c0"), queue("c1", 4)), guaranteed={"memory": 2_000_000}),
    replace(queue("d", 1, queue("d0"), queue("d1")), policy="fifo"),
)


@for_all(CHANCE, st.sampled_from([NARROW, replace(NARROW, children=NARROW.children[::3])]))
def test_many_small_moves_that_make_a_permille_together_are_told(daily, chance, shape):
    """In a cell so large that a task is an eighth of a permille and less; all that is asked for just fits, or not."""
    rounds = chance.choice([3, 1_000])
    books = [Books(shape, forgetful=forgetful, keyframe_rounds=rounds) for forgetful in (False, True)]
    first = [("job", at, chance.choice(TASKS), chance.choice([1, 200, 900])) for at in range(9)]
    first += [("job", 0, {"cpu": 1_000}, chance.choice([100, 4_000, 7_000])), ("look", (0, 600), (1, 90), (2, 400))]
    play(books, [("set_capacity", {"cpu": 8_000_000, "memory": 16_000_000}), *first, ("look",), ("look",)])
    for _ in range(25 if daily else 40):
        where = chance.randrange(9)
        what = chance.choice(["job", "job", "end", "end", "cancel", "wait", "none"])
        steps = {
            "job": [("job", where, chance.choice(TASKS), chance.choice([1, 2, 6]))],
            "end": [("end", where, chance.choice([1, 3]))],
            "cancel": [("cancel", 12 + where)] if len(books[0].jobs) > 20 else [],
            "wait": [("wait", chance.choice([1, 40]))],
        }.get(what, [])
        steps.append(("look", *[(chance.randrange(99), chance.choice([1, 3])) for _ in range(chance.randrange(3))]))
        play(books, steps)

    assert books[0].published == books[1].published
    assert books[0].state.watch.below == books[1].state.watch.below


TASKS = ({"cpu": 1_000}, {"cpu": 1_000, "memory": 1_500}, {"cpu": 300}, {"memory": 1_999})


def play(books, steps):
    for what, *given in steps:
        for each in books:
            getattr(each, what)(*given)


def grown(asked, published, fair):
    """Books of a queue x, a queue y over two and some of little weight, with all that is known put in at once."""
    root, y = QueueAccount("", 1), QueueAccount("y", 240)
    those = [QueueAccount("x", 300), y, QueueAccount("w", 440), *[QueueAccount(f"z{i}", 4 * (i + 1)) for i in range(3)]]
    for above, children in ((root, those), (y, [QueueAccount("y/0", 3), QueueAccount("y/1", 1)])):
        for child in children:
            above.grow(child)
    accounts = TreeAccounts(root, [100_000, 50_000])
    for leaf, given in asked.items():
        accounts.put(accounts.queues[leaf], *given)
    accounts.share_out(fair)
    for name, values in published.items():
        accounts.publish(name, values)
    accounts.settle()
    return accounts


@for_all(CHANCE, st.sampled_from([1, 3, 9]))
def test_whatever_moves_a_little_and_in_whatever_order_nothing_to_tell_is_missed(chance, every):
    """Sums and guarantees move by parts of a permille, and news is published only now and then."""
    asked = {leaf: ([0, 0], [0, 0], [0, 0], 0) for leaf in ("x", "y/0", "y/1", "w", "z0", "z1", "z2")}
    published, fair = {}, None
    for leaf in asked:
        level = chance.choice([100, 20_000, 29_000, 29_100, 29_200, 60_000])
        held = chance.choice([0, 100, 20_000, 29_700, 29_800, 29_900])
        waits = chance.choice([0, 1])
        asked[leaf] = ([level, level // chance.choice([2, 4])], [held, held // 4], [60 * waits, 0], waits)
    accounts = grown(asked, published, fair)
    for step in range(120):
        leaf = chance.choice(["x", "x", "x", "y/0", "w"])
        demand, used, waiting, tasks = asked[leaf]
        match chance.choice([0, 1, 2, 3, 3, 4, 5]):
            case 0:
                leaf = chance.choice(["z0", "z1", "z2"])
                asked[leaf] = ([0 if asked[leaf][0][0] else 5_000, 0], [0, 0], [0, 0], 0)
            case 1 | 2:
                demand = [max(0, amount + chance.choice([-70, -40, -9, 0, 10, 35, 70])) for amount in demand]
                asked[leaf] = (demand, used, waiting, tasks)
            case 3:
                used = [max(0, amount + chance.choice([-70, -40, -9, 0, 10, 35, 70])) for amount in used]
                asked[leaf] = (demand, used, waiting, tasks)
            case 4:
                waits = chance.choice([0, 0, 1, 2])
                asked[leaf] = (demand, used, [waits * chance.choice([10, 30, 60, 90]), 0], waits)
            case 5:
                fair = chance.choice([None, {name: chance.choice([290, 291]) * 1_000_000 for name in accounts.queues}])
                accounts.share_out(fair)
        accounts.put(accounts.queues[leaf], *asked[leaf])
        accounts.settle()

        anew = grown(asked, published, fair)
        assert set(accounts.changed) == set(anew.changed)
        assert [accounts.to_publish(accounts.queues[name]) for name in accounts.changed] == [
            anew.to_publish(anew.queues[name]) for name in accounts.changed
        ]
        assert {name for name, account in accounts.queues.items() if account.low} == {
            name for name, account in anew.queues.items() if account.low
        }
        if step % every == 0:
            for name in sorted(accounts.changed):
                published[name] = accounts.to_publish(accounts.queues[name])
                accounts.publish(name, published[name])
            accounts.settle()


@pytest.mark.parametrize("flat", [True, False])
def test_one_leafs_change_costs_its_path_and_not_the_tree(flat, monkeypatch):
    leaves = [QueueAccount(f"l{i}", 1 + i % 5) for i in range(4_096)]
    level = leaves
    while len(level) > 16 and not flat:
        above = [QueueAccount(f"{level[at].name}+", 1) for at in range(0, len(level), 16)]
        for at, account in enumerate(level):
            above[at // 16].grow(account)
        level = above
    root = QueueAccount("", 1)
    for account in level:
        root.grow(account)
    accounts = TreeAccounts(root, [10**9, 10**9])
    for account in leaves[:-1]:
        accounts.put(account, [1_000, 0], [0, 0], [1_000, 0], 1)
    accounts.settle()
    for account in accounts.queues.values():
        accounts.publish(account.name, accounts.to_publish(account))
    accounts.settle()
    assert not accounts.changed

    visits = []
    visit = TreeAccounts._visit
    monkeypatch.setattr(TreeAccounts, "_visit", lambda *given: visits.append(given[1].name) or visit(*given))
    for name, used in ((leaves[7].name, [1_000, 0]), (leaves[-1].name, [0, 0]), (leaves[9].name, [0, 0])):
        asked = [0, 0] if name == leaves[9].name else [1_000, 0]
        accounts.put(accounts.queues[name], asked, used, [0, 0], 0)
        accounts.settle()

    assert len(visits) <= 3 * 6


def test_two_small_moves_that_make_a_permille_together_are_told():
    """x asks for 0.6 permille less, and is then guaranteed 0.5 more: neither is news, but what it lends is."""
    root, x, y, z = (QueueAccount(name, weight) for name, weight in (("", 1), ("x", 500), ("y", 499), ("z", 1)))
    for account in (x, y, z):
        root.grow(account)
    accounts = TreeAccounts(root, [10_000])
    for name, asks in (("x", 3_000), ("y", 9_000), ("z", 9_000)):
        accounts.put(accounts.queues[name], [asks], [0], [0], 0)
    accounts.settle()
    for account in (x, y, z):
        accounts.publish(account.name, accounts.to_publish(account))

    accounts.put(accounts.queues["x"], [2_994], [0], [0], 0)
    accounts.settle()
    assert not accounts.changed
    accounts.put(accounts.queues["z"], [0], [0], [0], 0)
    accounts.settle()
    assert "x" in accounts.changed
    assert accounts.to_publish(x).lent - x.published.lent == 1_100_500


def test_once_everybody_gets_all_what_was_far_from_its_level_is_watched():
    """x asked for far more than its level and now for about that; then all is given, and it asks for more again."""
    root, x, y = (QueueAccount(name, weight) for name, weight in (("", 1), ("x", 1), ("y", 99)))
    for account in (x, y):
        root.grow(account)
    accounts = TreeAccounts(root, [100_000])
    for name in ("x", "y"):
        accounts.put(accounts.queues[name], [60_000], [0], [0], 0)
    accounts.share_out({"x": 306_000_000, "y": 600_000_000})
    accounts.settle()
    for account in (x, y):
        accounts.publish(account.name, accounts.to_publish(account))
    accounts.settle()

    accounts.put(accounts.queues["x"], [30_650], [0], [0], 0)
    accounts.settle()
    assert not accounts.changed
    accounts.share_out(None)
    accounts.settle()
    assert "x" not in accounts.changed
    accounts.put(accounts.queues["x"], [40_000], [0], [0], 0)
    accounts.settle()
    assert "x" in accounts.changed


@pytest.mark.parametrize("forgetful", [True, False])
def test_when_guarantees_take_all_those_who_had_more_by_weight_are_looked_at(forgetful):
    """c begins to ask for a kind that its guarantee covers, and nothing is left by weight to anybody."""
    cores = {"a": 3_000, "b": 3_000, "c": 20_000}
    shape = tree(*[replace(queue(name), guaranteed={"cpu": amount}) for name, amount in cores.items()])
    books = Books(shape, forgetful=forgetful)
    books.set_capacity(CAPACITIES[0])
    books.job(0, {"cpu": 1_000, "memory": 4_343}, 18)
    books.job(1, {"cpu": 1_000}, 1)
    books.job(2, {"cpu": 1_000}, 18)
    books.look()
    books.job(2, {"gpu": 1_000}, 3)
    books.look()


@pytest.mark.parametrize("forgetful", [True, False])
def test_when_everything_is_said_guarantees_are_those_of_now(forgetful):
    """c begins to ask for something, which takes a quarter of a permille from a: no news, but true."""
    books = Books(tree(queue("a", 1_000), queue("b", 999), queue("c", 1)), forgetful=forgetful, keyframe_rounds=3)
    books.set_capacity({"cpu": 1_000_000})
    books.job(0, {"cpu": 1_000}, 900)
    books.job(1, {"cpu": 1_000}, 900)
    books.look()
    books.job(2, {"cpu": 1_000}, 1)
    books.look()
    books.look()

    assert books.published[2].full
    assert {one.queue: one.guaranteed for one in books.published[2].queues}["a"] == 500_000_000


def test_what_is_promised_below_a_queue_is_no_promise_of_its_own():
    """It is guaranteed GPUs, and asks for none: only the queue below it is promised something."""
    below = replace(queue("a0"), guaranteed={"cpu": 3_000})
    above = replace(queue("a", 1, below, queue("a1")), guaranteed={"gpu": 2_000})
    books = Books(tree(above, replace(queue("b"), guaranteed={"cpu": 20_000})))
    books.set_capacity({"cpu": 8_000, "gpu": 4_000})
    books.job(0, {"cpu": 2_500}, 2)
    books.job(2, {"cpu": 1_000}, 7)
    books.look((1, 1))

    assert sorted(books.state.watch.below) == ["a/a0", "b"]


def test_what_a_queue_at_its_maximum_goes_on_from_is_not_rounded_to_base_units():
    """It holds 1,024 MiB, of which a quarter of 511 goes with what it waits for."""
    books = Books(tree(replace(queue("a"), max={"memory": 0}), queue("b")))
    books.set_capacity(CAPACITIES[0])
    books.job(0, {"cpu": 1_000, "memory": 1_024}, 1)
    books.look((0, 1))
    books.job(0, {"cpu": 4_000, "memory": 511}, 9)
    books.job(1, {"cpu": 1_000}, 90)
    books.look()

    assert books.state.shares["a"].guaranteed == targets(books.state)["a"] == 896_250 * 1_000_000 // 65_536
