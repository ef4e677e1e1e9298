"""Fairness in stories: levels of queues as jobs, capacity and the tree change; the same levels by every shortcut."""

from dataclasses import replace

from hypothesis import strategies as st

from tests.builders import config, job, known, node, queue, report, single, stage, tree
from tests.cells import SlowCell, targets
from tests.properties.cell_laws import fair_levels
from tests.properties.fairness_books import Books
from tests.strategies import for_all


def cell(*queues, cpu=10_000, memory=10_240, **knobs):
    """A cell with one node and a tree of these queues."""
    story = SlowCell()
    story.take(config(tree(*queues), **knobs), node("n1", cpu=cpu, memory=memory))
    return story


def levels(story):
    """The levels in force after a round, in permille of the cell."""
    story.settle()
    return {name: target // 1_000_000 for name, target in targets(story.fairness).items()}


def wants(name, tasks, *, queue_name, cpu=1_000, memory=0, **more):
    return job(name, stage(tasks=tasks, cpu=cpu, memory=memory, **more), queue=queue_name)


# ---------------------------------------------------------------- levels
def test_who_is_alone_is_entitled_to_what_it_asks_for():
    story = cell(queue("a"), queue("b"))
    assert levels(story) == {}

    story.take(wants("j", 4, queue_name="a"))
    assert levels(story) == {"a": 400}

    story.take(wants("k", 3, queue_name="a"))
    assert levels(story) == {"a": 700}


def test_who_asks_for_too_much_shares_by_weight():
    story = cell(queue("a", 3), queue("b"))
    story.take(wants("j", 50, queue_name="a"), wants("k", 50, queue_name="b"))
    assert levels(story) == {"a": 750, "b": 250}


def test_what_a_queue_leaves_goes_to_its_siblings_before_it_goes_up():
    story = cell(queue("in", 1, queue("x"), queue("y")), queue("b"))
    story.take(wants("j", 50, queue_name="in/x"), wants("k", 50, queue_name="b"))
    assert levels(story) == {"in/x": 500, "b": 500}

    story.take(wants("l", 1, queue_name="in/y"))
    assert levels(story) == {"in/x": 400, "in/y": 100, "b": 500}


def test_drf_takes_the_leaves_side_by_side_whatever_stands_above_them():
    queues = [queue("in", 1, queue("x"), queue("y")), queue("b")]
    jobs = [wants(f"j{name}", 50, queue_name=name) for name in ("in/x", "in/y", "b")]

    flat, deep = cell(*queues, preset="drf"), cell(*queues, preset="hdrf")
    flat.take(*jobs)
    deep.take(*jobs)

    assert set(levels(flat).values()) == {333}
    assert levels(deep) == {"in/x": 250, "in/y": 250, "b": 500}


def test_fifo_and_a_cell_without_a_tree_have_no_levels():
    story = cell(queue("a"), preset="fifo")
    story.take(wants("j", 1, queue_name="a"))
    assert levels(story) == {}

    story = SlowCell()
    story.take(node("n1"), wants("j", 1, queue_name="a"))
    assert levels(story) == {}


def test_dominant_shares_count_each_queue_in_its_own_kind():
    story = cell(queue("a"), queue("b"), cpu=9_000, memory=18 * 1_024)
    story.take(
        wants("j", 99, queue_name="a", cpu=1_000, memory=4 * 1_024),
        wants("k", 99, queue_name="b", cpu=3_000, memory=1_024),
    )
    assert levels(story) == {"a": 666, "b": 666}  # The example of the DRF paper.


def test_a_queue_that_asks_for_nothing_any_more_is_gone():
    story = cell(queue("a"), queue("b"))
    story.take(wants("j", 2, queue_name="a"), wants("k", 99, queue_name="b"))
    assert levels(story) == {"a": 200, "b": 800}

    story.finish(*[grant for grant in story.granted if grant.job == "j"])
    assert levels(story) == {"b": 1_000}
    assert [body.gone for body in story.bodies_of("Shares") if body.gone] == [["a"]]


def test_a_queue_that_was_held_back_and_now_asks_for_less_gives_the_rest_away():
    story = cell(queue("a"), queue("b"))
    story.take(wants("big", 40, queue_name="a"), wants("j", 4, queue_name="a"), wants("k", 50, queue_name="b"))
    assert levels(story) == {"a": 500, "b": 500}

    story.cancel("big")
    assert levels(story) == {"a": 400, "b": 600}
    story.take(wants("big again", 2, queue_name="a"))
    assert levels(story) == {"a": 500, "b": 500}


def test_only_levels_that_moved_are_said():
    story = cell(queue("a"), queue("b"))
    story.take(wants("j", 2, queue_name="a"), wants("k", 2, queue_name="b"))
    story.settle()
    story.take(wants("l", 1, queue_name="b"))
    story.open()

    assert [(level.queue, level.target) for level in story.answer("shares").levels] == [("b", 300_000_000)]


def test_every_so_often_all_levels_are_said_again():
    story = cell(queue("a"), queue("b"), keyframe_rounds=3)
    story.take(wants("j", 2, queue_name="a"), wants("k", 3, queue_name="b"))
    story.settle()
    for i in range(6):
        story.take(wants(f"n{i}", 1, queue_name="b"))
        story.settle()

    full = [body.full for body in story.bodies_of("Shares")]
    assert full.count(True) == len(full) // 3
    assert all([level.queue for level in body.levels] == ["a", "b"] for body in story.bodies_of("Shares") if body.full)


# ---------------------------------------------------------------- demand
def test_a_stage_asks_only_once_its_parents_have_ended():
    story = cell(queue("a"))
    graph = job("j", stage("map", tasks=2), stage("red", tasks=5, after=["map"], memory=0), queue="a")
    story.take(graph)
    assert levels(story) == {"a": 200}

    story.finish(single(story.granted[0], 0))
    assert levels(story) == {"a": 100}
    story.finish(single(story.granted[0], 1))
    assert levels(story) == {"a": 500}


def test_a_task_that_failed_still_asks():
    story = cell(queue("a"))
    story.take(wants("j", 3, queue_name="a", retries=2))
    assert levels(story) == {"a": 300}

    story.fail(single(story.granted[0], 1))
    assert levels(story) == {"a": 300}
    story.fail(single(story.granted[0], 0), reason="lost")
    assert levels(story) == {"a": 300}


def test_what_had_succeeded_of_a_broken_gang_asks_again():
    story = cell(queue("a"))
    story.take(wants("g", 3, queue_name="a", gang=True, retries=1))
    assert levels(story) == {"a": 300}
    grant = story.granted[0]

    story.finish(single(grant, 0))
    assert levels(story) == {"a": 200}
    story.fail(single(grant, 1))
    assert levels(story) == {"a": 300}
    story.finish(single(grant, 2))
    assert levels(story) == {"a": 300}


def test_a_job_that_is_over_asks_for_nothing_though_its_tasks_still_run():
    story = cell(queue("a"))
    story.take(wants("j", 3, queue_name="a"))
    story.settle()
    story.cancel("j")
    assert levels(story) == {}


# ---------------------------------------------------------------- running limits
def test_a_job_that_a_running_limit_holds_back_asks_for_nothing_until_it_may_run():
    story = cell(replace(queue("a"), running_jobs_max=1), queue("b"))
    story.take(wants("j1", 2, queue_name="a"), wants("j2", 3, queue_name="a"), wants("k", 1, queue_name="b"))
    assert levels(story) == {"a": 200, "b": 100}

    story.finish(*[grant for grant in story.granted if grant.job == "j1"])
    assert levels(story) == {"a": 300, "b": 100}


def test_a_job_that_is_cancelled_before_or_behind_the_gate_leaves_nothing():
    story = cell(replace(queue("a"), running_jobs_max=1))
    story.take(wants("j1", 2, queue_name="a"), wants("j2", 3, queue_name="a"), wants("j3", 4, queue_name="a"))
    assert levels(story) == {"a": 200}

    story.cancel("j2")
    assert levels(story) == {"a": 200}
    story.cancel("j1")
    assert levels(story) == {"a": 400}


def test_a_raised_limit_lets_jobs_ask():
    story = cell(replace(queue("a"), running_jobs_max=1))
    story.take(wants("j1", 2, queue_name="a"), wants("j2", 3, queue_name="a"))
    assert levels(story) == {"a": 200}

    story.take(config(tree(replace(queue("a"), running_jobs_max=2))))
    assert levels(story) == {"a": 500}


# ---------------------------------------------------------------- capacity and tree
def test_capacity_moves_every_level():
    story = cell(queue("a"), queue("b"))
    story.take(wants("j", 5, queue_name="a"), wants("k", 99, queue_name="b"))
    assert levels(story) == {"a": 500, "b": 500}

    story.take(node("n2", cpu=10_000))
    assert levels(story) == {"a": 250, "b": 750}
    story.take(report("n2", cpu=30_000))
    assert levels(story) == {"a": 125, "b": 875}
    story.lose("n2")
    assert levels(story) == {"a": 500, "b": 500}


def test_a_draining_node_is_still_shared_out():
    story = cell(queue("a"))
    story.take(wants("j", 5, queue_name="a"))
    story.drain()
    assert levels(story) == {"a": 500}


def test_a_restarted_agents_word_is_counted():
    story = cell(queue("a"))
    story.take(wants("j", 4, queue_name="a"))
    story.settle()
    grant = story.granted[0]

    ended = [known(single(grant, 0), "succeeded"), known(single(grant, 1))]
    story.take(node("n1", cpu=10_000, memory=10_240, epoch="e2", attempts=ended))

    assert levels(story) == {"a": 300}


def test_a_kind_that_is_gone_holds_back_no_queue():
    story = cell(queue("a"), queue("b"))
    story.take(node("g", cpu=10_000, gpus=(1_000,)))
    story.take(wants("j", 99, queue_name="a"), wants("gpus", 9, queue_name="a", gpu=1_000))
    story.take(wants("k", 99, queue_name="b"))
    assert levels(story)["a"] >= 500

    story.lose("g")

    assert levels(story) == {"a": 500, "b": 500}


def test_another_tree_counts_everything_anew():
    story = cell(queue("a"), queue("b", 1, queue("c")))
    story.take(wants("j", 50, queue_name="a"), wants("k", 50, queue_name="b/c"))
    assert levels(story) == {"a": 500, "b/c": 500}

    story.take(config(tree(queue("a", 3), queue("b", 1, queue("c"), queue("d")))))
    assert levels(story) == {"a": 750, "b/c": 250}
    story.take(config(preset="drf"))
    assert levels(story) == {"a": 750, "b/c": 250}
    story.take(config(preset="fifo"))
    assert levels(story) == {}


# ---------------------------------------------------------------- shortcuts
TREES = {
    "flat": tree(queue("a"), queue("b", 7), queue("c", 0.5)),
    "deep": tree(queue("in", 2, queue("a"), queue("deeper", 3, queue("b", 2), queue("c"))), queue("d")),
}
DEMANDS = (  # Few, so that leaves often ask in the same direction as before.
    {"cpu": 1_000, "memory": 1_024},
    {"cpu": 1_000, "memory": 1_024},
    {"cpu": 4_000, "memory": 512},
    {"cpu": 3},
    {"memory": 12_345},
    {"cpu": 500, "gpu": 250},
    {"gpu": 1_000},
    {"cpu": 10**9 + 7, "memory": 10**9},
)
CAPACITIES = (
    {"cpu": 40_000, "memory": 65_536, "gpu": 4_000},
    {"cpu": 100_000, "memory": 65_536, "gpu": 0},
    {"cpu": 40_000, "memory": 65_536},
    {"cpu": 10**10 + 19, "memory": 3 * 10**9},
    {"cpu": 1, "memory": 7},
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("job"), st.integers(0, 3), st.sampled_from(DEMANDS), st.integers(1, 30)),
        st.tuples(st.just("end"), st.integers(0, 30), st.integers(1, 30)),
        st.tuples(st.just("end"), st.integers(0, 30), st.integers(1, 30)),
        st.tuples(st.just("set_capacity"), st.sampled_from(CAPACITIES)),
        st.tuples(st.just("look"), st.tuples(st.integers(0, 9), st.integers(1, 20))),
        st.tuples(st.just("look"), st.tuples(st.integers(0, 9), st.integers(1, 20))),
        st.tuples(st.just("look")),
    ),
    min_size=20,
    max_size=60,
)


class Levelled(Books):
    """After each round the levels are those of a filling from nothing, with units that are capped asking for what they
    can place."""

    def check(self, body):
        super().check(body)
        levels = {queue: target for queue, target in targets(self.state).items() if queue not in body.gone}
        levels |= {level.queue: level.target for level in body.levels}
        assert levels == dict.fromkeys(levels, 0) | fair_levels(
            self.preset, self.tree, self.capacity, self.placed_by_set(body)
        )


@for_all(moves, st.sampled_from(sorted(TREES)), st.sampled_from(["hdrf", "drf"]))
def test_shortcuts_never_change_a_level(moves, shape, preset):
    books = [Levelled(TREES[shape], preset, forgetful=forgetful) for forgetful in (False, True)]
    for each in books:
        each.set_capacity(CAPACITIES[0])
        for what, *numbers in moves:
            getattr(each, what)(*numbers)
        each.look()

    assert books[0].published == books[1].published


def test_a_level_is_rounded_alike_whether_or_not_all_fits():
    capacity = 10**10 + 19
    amount = -pow(10**9, -1, capacity) % capacity  # Its share lies just below a billionth.
    books = Levelled(TREES["flat"])
    books.set_capacity({"cpu": capacity, "memory": 1})
    books.job(0, {"cpu": amount}, 1)
    books.look()
    books.job(1, {"memory": 5}, 1)
    books.look()
