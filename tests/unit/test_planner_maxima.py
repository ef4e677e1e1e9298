"""What is promised to queues stays within their maxima, and within those of the queues above them."""

import pytest

from schemas import Queue
from tests.builders import configured, registered, reservation, reservation_update
from tests.planner_cell import Cell, answers

TREE = Queue(
    "root",
    children=[
        Queue(
            "research", max={"cpu": 6_000}, children=[Queue("train", max={"cpu": 4_000}), Queue("dev"), Queue("dev2")]
        ),
        Queue("data"),
    ],
)


def cell(tree=TREE, **knobs):
    return Cell(configured(queues=tree, **knobs), registered("n1", cpu=12_000))


def units(most, least=1, work=60, window=60):
    return f"window(0, {window}m, atom(b='1 cpu', g={least}, h={most}, l=10m, w={work}m))"


def peak(story, queue):
    """Most units that are promised to a queue at a time."""
    promises = [each for each in story.story.state.promises.values() if each.queue.startswith(queue)]
    leases = [lease for each in promises for lease in each.leases]
    return max((sum(o.gangs for o in leases if o.begin <= each.begin < o.end) for each in leases), default=0)


@pytest.mark.parametrize(
    ("queue", "most", "named"),
    [
        (
            "research/train",
            5,
            'queue "research/train" and those below it would have more promised than their max (cpu 4)',
        ),
        ("research/dev", 8, 'queue "research" and those below it would have more promised than their max (cpu 6)'),
    ],
)
def test_a_gang_beyond_the_maximum_is_refused_and_the_queue_named(queue, most, named):
    story = cell().then(reservation("r", units(most, most, work=most * 10), queue=queue))
    (answer,) = story.settle(at=0).answers
    assert (answer.accepted, answer.reason) == (False, "limit")
    assert named in answer.detail
    assert not story.promised


def test_a_gang_beyond_the_maximum_of_the_root_is_refused():
    tree = Queue("root", max={"cpu": 5_000}, children=[Queue("a"), Queue("b")])
    story = cell(tree).then(reservation("r", units(6, 6), queue="b"))
    (answer,) = story.settle(at=0).answers
    assert (answer.accepted, answer.reason) == (False, "limit")
    assert "all queues together, the root of the tree, would have more promised than their max (cpu 5)" in answer.detail
    story.then(reservation("s", units(3, 3), queue="a"), reservation("t", units(3, 3, work=165), queue="b"))
    assert sorted(answers(story.settle(at=0)).values()) == ["accepted", "limit"]


@pytest.mark.parametrize(
    ("queue", "most", "named"),
    [("research/train", 5, 'queue "research/train"'), ("research/dev", 7, 'queue "research"')],
)
def test_other_terms_beyond_a_maximum_are_refused_and_the_old_ones_stay(queue, most, named):
    story = cell().then(reservation("r", units(4, 4, work=40), queue="research/train"))
    story.settle(at=0)
    before = story.promised
    story.then(reservation_update("r", units(most, most, work=10 * most), queue=queue))
    (answer,) = story.settle(at=0).answers
    assert (answer.accepted, answer.reason) == (False, "limit")
    assert named in answer.detail
    assert story.promised == before


def test_what_it_has_itself_does_not_count_against_other_terms():
    story = cell().then(reservation("r", units(4, 4, work=200), queue="research/train"))
    story.settle(at=0)
    story.then(reservation_update("r", units(3, 3, work=150), queue="research/train"))
    assert answers(story.settle(at=0)) == {"r": "accepted"}
    assert sum(step.units for step in story.plans[-1].profiles[0].steps) == 3


def test_what_can_be_narrower_is_planned_within_the_maximum():
    story = cell(reservation_agent="early").then(reservation("r", units(8, work=160), queue="research/train"))
    assert answers(story.settle(at=0)) == {"r": "accepted"}
    assert peak(story, "research") == 4


@pytest.mark.parametrize("agent", ["default", "gree", "gree-l", "early"])
def test_queues_below_a_maximum_share_it(agent):
    story = cell(reservation_agent=agent)
    story.then(
        *(reservation(f"r{i}", units(4, work=80), queue=f"research/{'dev' if i % 2 else 'dev2'}") for i in range(6))
    )
    found = answers(story.settle(at=0))
    kinds = list(found.values())
    assert 3 <= kinds.count("accepted") <= 4
    assert kinds.count("accepted") + kinds.count("limit") == 6
    assert peak(story, "research") <= 6


def test_queues_elsewhere_have_what_is_left():
    story = cell(reservation_agent="gree").then(
        reservation("a", units(6, 6, work=330), queue="research/dev"),
        reservation("b", units(6, 6, work=330), queue="data"),
    )
    assert answers(story.settle(at=0)) == {"a": "accepted", "b": "accepted"}


def test_a_tree_that_comes_later_counts_for_what_is_asked_then():
    story = cell(Queue("root", children=[Queue("data")]))
    story.then(reservation("a", units(10, 10, work=300), queue="data"))
    story.settle(at=0)
    story.then(configured(queues=Queue("root", children=[Queue("data", max={"cpu": 8_000})])))
    story.then(reservation("b", units(9, 9, work=90), queue="data"))
    assert answers(story.settle(at=0)) == {"b": "limit"}
    assert list(story.promised) == ["a"]


def test_a_request_without_room_in_the_cell_is_not_blamed_on_a_queue():
    story = cell().then(reservation("a", units(11, 11, work=11 * 55), queue="data"))
    story.settle(at=0)
    story.then(reservation("b", units(4, 4, work=40), queue="research/train"))
    assert answers(story.settle(at=0)) == {"b": "no_room"}
