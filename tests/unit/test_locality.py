"""Delay scheduling in stories: how long tasks wait for nodes that they prefer, and what is said of it."""

import pytest

from schemas import AntiAffinity, JobSpec, Spread
from tests.builders import config, job, node, queue, stage, tree
from tests.cells import SlowCell, indexes

WAIT_MS = 3_000
NEAR, FAR = {"disk": "ssd"}, {"disk": "hdd"}


def cell(*jobs, nodes=None, queues=(), **knobs):
    """A cell with a node `near` that jobs prefer and one `far` with more room."""
    story = SlowCell()
    story.take(config(tree(*queues) if queues else None, seed=1, **{"preset": "hdrf", **knobs}))
    story.take(*(nodes or [node("near", cpu=1_000, labels=NEAR), node("far", cpu=8_000, labels=FAR)]), *jobs)
    return story


def picky(tasks=1, wait_ms=WAIT_MS, **given):
    return stage(tasks=tasks, prefer=NEAR, locality_wait_ms=wait_ms, **given)


def where(grants):
    return [(grant.node, grant.count) for grant in grants]


def reasons(story):
    return {(wait.reason, wait.near) for wait in story.leftover.reasons.values()}


@pytest.mark.parametrize("preset", ["hdrf", "drf", "fifo", "srtf", "tetris", "carbyne", "largesse"])
def test_a_task_waits_for_a_node_that_it_prefers_and_then_takes_any(preset):
    story = cell(job("j", picky(tasks=2)), preset=preset)
    assert where(story.settle()) == [("near", 1)]
    assert reasons(story) == {("locality", True)}
    assert [(held.node, held.why) for held in story.leftover.awaited.values()] == [("far", "locality")]

    story.at(story.next_ms())
    assert story.time == WAIT_MS
    assert where(story.settle()) == [("far", 1)]
    assert not story.leftover.awaited
    assert not story.leftover.delays


def test_without_a_wait_a_preference_leans_only():
    story = cell(job("j", picky(tasks=2, wait_ms=0)))
    assert where(story.settle()) == [("near", 1), ("far", 1)]


def test_the_policy_says_how_long_where_the_stage_does_not():
    story = cell(job("j", picky(tasks=2, wait_ms=None)), locality_wait_ms=500)
    assert where(story.settle()) == [("near", 1)]
    story.at(500)
    assert where(story.settle()) == [("far", 1)]


def test_a_node_that_comes_free_within_the_wait_is_taken():
    story = cell(job("j", picky(tasks=2)))
    first = story.settle()
    story.at(WAIT_MS - 1)
    story.finish(*first)
    assert where(story.settle()) == [("near", 1)]


def test_the_wait_begins_when_there_is_room_elsewhere():
    story = cell(
        job("full", stage(tasks=8, labels=FAR)), job("j", picky(tasks=2)), nodes=[
            node("near", cpu=1_000, labels=NEAR), node("far", cpu=8_000, labels=FAR)]
    )  # fmt: skip
    grants = story.settle()
    assert reasons(story) == {("no_room", True)}
    story.at(10_000)
    story.finish(*[grant for grant in grants if grant.node == "far"])
    assert story.settle() == []
    story.at(10_000 + WAIT_MS - 1)
    assert story.settle() == []
    story.at(10_000 + WAIT_MS)
    assert where(story.settle()) == [("far", 1)]


def test_as_many_go_anywhere_as_could_have_all_along():
    story = cell(
        job("j", picky(tasks=6)),
        job("other", stage(tasks=1, labels=FAR)),
        nodes=[node("near", cpu=1_000, labels=NEAR), node("far", cpu=3_000, labels=FAR)],
    )
    grants = story.settle()  # Of five that wait, two find room elsewhere.
    story.at(1_000)
    story.finish(*[grant for grant in grants if grant.job == "other"])
    assert story.settle() == []  # Now three do.
    story.at(WAIT_MS)
    assert where(story.settle()) == [("far", 2)]
    story.at(1_000 + WAIT_MS)
    assert where(story.settle()) == [("far", 1)]


def test_tasks_that_start_beside_them_take_nothing_off_the_wait_of_others():
    story = cell(job("j", picky(tasks=4)))
    assert where(story.settle()) == [("near", 1)]
    assert story.leftover.delays == {"j": {"map": [[0, 3]]}}
    story.at(WAIT_MS)
    assert where(story.settle()) == [("far", 3)]


def test_room_that_others_leave_free_is_used_by_those_that_do_not_wait():
    story = cell(job("j", picky(tasks=2)), job("any", stage(tasks=8)))
    assert {grant.node for grant in story.settle() if grant.job == "any"} == {"far"}


def test_a_gang_waits_for_preferred_nodes_as_a_whole():
    nodes = [node("n1", cpu=1_000, labels=NEAR), node("n2", cpu=1_000, labels=NEAR), node("far", labels=FAR)]
    story = cell(job("one", stage(labels=NEAR)), job("g", picky(tasks=2, gang=True)), nodes=nodes)
    grants = story.settle()
    assert [grant.job for grant in grants] == ["one"]
    story.at(100)
    story.finish(*grants)
    assert sorted(where(story.settle())) == [("n1", 1), ("n2", 1)]


def test_a_gang_goes_anywhere_once_it_has_waited():
    story = cell(job("g", picky(tasks=2, gang=True)))
    assert story.settle() == []
    assert reasons(story) == {("locality", True)}
    story.at(WAIT_MS)
    assert sum(count for _, count in where(story.settle())) == 2


def test_nobody_waits_for_labels_that_no_node_has():
    story = cell(job("j", stage(prefer={"zone": "mars"}, locality_wait_ms=WAIT_MS)))
    assert where(story.settle()) == [("far", 1)]


def test_nodes_with_most_of_the_preferred_labels_are_waited_for():
    nodes = [node("one", labels=NEAR, cpu=1_000), node("none", labels=FAR)]
    story = cell(job("j", stage(tasks=2, prefer={**NEAR, "zone": "a"}, locality_wait_ms=WAIT_MS)), nodes=nodes)
    assert where(story.settle()) == [("one", 1)]


def test_a_drained_node_is_not_waited_for():
    story = cell(job("j", picky()))
    story.drain("near")
    assert where(story.settle()) == [("far", 1)]


def test_a_restart_forgets_no_wait():
    story = cell(job("j", picky(tasks=2)))
    story.settle()
    story.restore()
    story.at(WAIT_MS)
    assert where(story.settle()) == [("far", 1)]


def test_jobs_that_end_leave_no_wait_behind():
    story = cell(job("j", picky(tasks=2)))
    story.settle()
    story.cancel("j")
    story.settle()
    assert not story.leftover.delays
    assert not story.leftover.awaited


def test_a_queue_at_its_maximum_makes_no_room_elsewhere():
    capped = queue("a")
    capped.max = {"cpu": 1_000}
    story = cell(job("j", picky(tasks=2), queue="a"), queues=[capped])
    assert where(story.settle()) == [("near", 1)]
    assert not story.leftover.delays
    assert reasons(story) == {("queue_max", True)}


# ---------------------------------------------------------------- anti-affinity and spread
def nodes_of(count, **given):
    return [node(f"n{i}", labels={"zone": "ab"[i % 2]}, **given) for i in range(count)]


def test_tasks_of_a_stage_run_on_different_nodes():
    story = cell(job("j", stage(tasks=4, anti_affinity=AntiAffinity())), nodes=nodes_of(3))
    grants = story.settle()
    assert sorted(where(grants)) == [("n0", 1), ("n1", 1), ("n2", 1)]
    assert reasons(story) == {("spread", False)}
    story.finish(grants[1])
    assert where(story.settle()) == [(grants[1].node, 1)]


def test_tasks_of_one_group_run_on_different_nodes_whatever_their_jobs():
    apart = AntiAffinity("replicas")
    story = cell(
        job("j", stage(tasks=1, anti_affinity=apart), queue="a"),
        job("k", stage(tasks=1, cpu=500, anti_affinity=apart), queue="a"),
        job("l", stage(tasks=1, anti_affinity=apart), queue="b"),
        nodes=nodes_of(1),
        queues=[queue("a"), queue("b")],
    )
    assert {grant.job for grant in story.settle()} == {"j", "l"}  # A group is known in its queue only.
    story.cancel("j")
    assert story.settle() == []  # It is being killed, and still there.


def test_tasks_that_had_better_be_apart_share_nodes_once_there_are_no_others():
    story = cell(job("j", stage(tasks=5, anti_affinity=AntiAffinity(required=False))), nodes=nodes_of(2))
    assert sorted(where(story.settle())) in ([("n0", 2), ("n1", 3)], [("n0", 3), ("n1", 2)])


def test_tasks_are_spread_over_the_values_of_a_label():
    nodes = [*nodes_of(2, cpu=8_000), node("n2", cpu=1_000, labels={"zone": "b"}), node("bare", cpu=8_000)]
    story = cell(job("j", stage(tasks=9, cpu=2_000, spread=Spread("zone"))), nodes=nodes)
    assert sorted(where(story.settle())) == [("n0", 4), ("n1", 4)]


def test_a_full_value_holds_the_others_back_by_the_skew_that_is_allowed():
    nodes = [node("a", cpu=1_000, labels={"zone": "a"}), node("b", cpu=8_000, labels={"zone": "b"})]
    story = cell(job("j", stage(tasks=9, spread=Spread("zone", 2))), nodes=nodes)
    grants = story.settle()
    assert sorted(where(grants)) == [("a", 1), ("b", 3)]
    assert reasons(story) == {("spread", False)}
    story.finish(*grants)
    assert sorted(where(story.settle())) == [("a", 1), ("b", 3)]


def test_a_spread_that_is_not_required_fills_all_nodes():
    nodes = [node("a", cpu=1_000, labels={"zone": "a"}), node("b", cpu=8_000, labels={"zone": "b"}), node("c")]
    story = cell(job("j", stage(tasks=20, spread=Spread("zone", required=False))), nodes=nodes)
    assert sum(count for _, count in where(story.settle())) == 13


def test_a_gang_is_placed_apart_as_one():
    gang = stage(tasks=3, gang=True, anti_affinity=AntiAffinity(), spread=Spread("zone", 1))
    full = job("full", stage(tasks=4, labels={"zone": "b"}), priority=1)
    story = cell(full, job("g", gang), nodes=nodes_of(4, cpu=2_000))
    grants = story.settle()
    assert {grant.job for grant in grants} == {"full"}
    assert reasons(story) == {("spread", False)}
    story.finish(*[grant for grant in grants if grant.node == "n1"])
    assert len({grant.node for grant in story.settle() if grant.job == "g"}) == 3


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        pytest.param(
            {"tasks": 3, "gang": True, "anti_affinity": AntiAffinity()},
            ("gang_too_wide", "stages[0].anti_affinity", "a gang of 3 tasks, one a node; 2 nodes could run one"),
            id="a gang wider than there are nodes",
        ),
        pytest.param(
            {"tasks": 7, "gang": True, "spread": Spread("zone")},
            (
                "gang_too_wide",
                "stages[0].spread",
                "a gang of 7 tasks; room by zone: a 2, b 8; with a max_skew of 1 that is 5 together",
            ),
            id="a gang that the smallest value does not let grow",
        ),
        pytest.param(
            {"spread": Spread("rack")},
            ("exceeds_capacity", "stages[0].spread.label", 'no node that could run a task has the label "rack"'),
            id="a label that no node has",
        ),
    ],
)
def test_what_rules_make_impossible_is_refused(given, refusal):
    nodes = [node("a", cpu=2_000, labels={"zone": "a"}), node("b", cpu=8_000, labels={"zone": "b"})]
    story = cell(JobSpec("j", "default", [stage(**given)]), nodes=nodes)
    (said,) = story.bodies_in_log("JobRejected")
    assert (said.reason, said.field, said.detail) == refusal


def test_a_restart_forgets_nobody_that_is_kept_apart():
    story = cell(job("j", stage(tasks=3, anti_affinity=AntiAffinity(), spread=Spread("zone"))), nodes=nodes_of(2))
    grants = story.settle()
    story.restore()
    story.finish(grants[0])
    assert where(story.settle()) == [(grants[0].node, 1)]
    assert indexes(story.granted) == [("map", 0), ("map", 1), ("map", 2)]
