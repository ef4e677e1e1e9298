"""The core of leftover alone: what it makes of answers to a round that others gave."""

from largesse.ids import shard_of
from schemas import Asks, JobAsk, Level, Shares, StageAsk
from services.leftover import core as leftover
from tests import builders as named
from tests.builders import (
    admitted,
    configured,
    finished,
    queue,
    registered,
    tree,
)
from tests.cells import served
from tests.harness import given


def alone(**jobs):
    """The core with a node of four cores and these jobs: name -> leaf. Each has one stage s of nine tasks."""
    facts = [admitted(named.job(name, named.stage("s", 9), queue=leaf)) for name, leaf in jobs.items()]
    knobs = configured(queues=tree(queue("a"), queue("b")), preset="hdrf")
    return given(leftover, knobs, registered("n1"), *facts)


def ask(name, first=0, count=9):
    return JobAsk(name, [StageAsk("s", first, count, 1, 0)])


def one(*asks, **more):
    """What the only shard says."""
    return [Asks(0, 1, list(asks), **more)]


def test_whom_a_full_answer_leaves_out_asks_for_nothing_any_more():
    story = alone(j="a", k="a")
    story.round(at=0, asks=one(ask("j"), ask("k")))
    story.close().then(finished("j/s", 0, 2))

    (answer,) = story.round(at=1, asks=one(ask("k", 2, 7), full=True))
    assert served(answer.grants) == {"k": 2}

    story.close().then(finished("k/s", 0, 4))
    assert served(story.round(at=2)[0].grants) == {"k": 4}


def test_a_full_answer_speaks_for_its_own_shard_only():
    names = {shard_of(f"j{i}", 2): f"j{i}" for i in range(9)}
    story = alone(**dict.fromkeys(names.values(), "a"))
    story.round(at=0, shards=2, asks=[Asks(shard, 2, [ask(names[shard])]) for shard in (0, 1)])
    story.close().then(*[finished(f"{name}/s", 0, 2) for name in names.values()])

    (answer,) = story.round(at=1, shards=2, asks=[Asks(0, 2, [], full=True), Asks(1, 2, [])])

    assert served(answer.grants) == {names[1]: 4}


def test_a_queue_whose_level_is_gone_is_bounded_by_the_whole_cell_alone():
    story = alone(j="a")
    (answer,) = story.round(at=0, shares=[Shares([Level("a", 1)])], asks=one(ask("j", count=2)))
    assert [grant.why for grant in answer.grants] == ["required", "packed"]

    story.close()
    (answer,) = story.round(at=1, shares=[Shares([], gone=["a"])], asks=one(ask("j", 2, 1)))
    assert [grant.why for grant in answer.grants] == ["required"]


def test_who_is_entitled_to_nothing_gets_what_nobody_else_can_use():
    story = alone(j="a", k="b")
    levels = Shares([Level("a", 0), Level("b", 1_000)])
    (answer,) = story.round(at=0, shares=[levels], asks=one(ask("j"), ask("k", count=3)))
    assert [(grant.job, grant.count, grant.why) for grant in answer.grants] == [
        ("k", 1, "required"),
        ("k", 2, "packed"),
        ("j", 1, "packed"),
    ]
