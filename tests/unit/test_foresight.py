"""What would be taken back for a promise for sure does not start, and says so (docs/reservations.md)."""

from collections import Counter
from dataclasses import replace

import pytest

from schemas import PromisedWait, Spread
from tests.builders import job, node, stage
from tests.promised_cell import (
    GRACE,
    HOUR,
    advance,
    cell,
    give_back,
    lasting,
    promise,
    reserved,
    step,
    taken_back,
    unestimated,
    why,
)

MINUTE = 60_000


def told(story):
    """What is said of stages that wait for room that is not promised, in order."""
    return [wait for body in story.bodies_of("Grants") for wait in body.promised]


def tasks_of(story, name):
    """How many tasks of a job have started, by whether they are revocable."""
    found = Counter()
    for grant in story.granted:
        if grant.job == name:
            found[grant.revocable] += grant.count
    return found


def test_what_cannot_end_before_a_lease_of_the_whole_cell_does_not_start():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 4))
    story.take(job("long", stage(tasks=2, duration_ms=2 * HOUR)), job("short", stage(tasks=4, duration_ms=MINUTE)))

    story.settle()
    assert (tasks_of(story, "long"), tasks_of(story, "short")) == ({}, {False: 4})
    assert told(story) == [PromisedWait("long", "map", "r", HOUR, HOUR + MINUTE, 2 * HOUR)]


def test_who_needs_longer_than_one_that_waits_is_not_looked_at_and_says_the_same():
    second = 4 * HOUR + 30 * MINUTE
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 4), step(second, second + HOUR, 4))
    jobs = [job(f"long{i}", stage(tasks=2, duration_ms=(2 + i) * HOUR)) for i in range(5)]
    story.take(*jobs)
    assert story.settle() == []
    assert sorted(wait.job for wait in told(story)) == [each.job for each in jobs]

    advance(story, HOUR + MINUTE)
    assert {name for name in ("long0", "long1") if tasks_of(story, name)} == {"long0", "long1"}
    assert not any(tasks_of(story, f"long{i}") for i in (2, 3, 4))
    said = {wait.job: wait for wait in told(story)}
    assert {(said[f"long{i}"].reservation, said[f"long{i}"].from_ms) for i in (2, 3, 4)} == {("r", second)}


def test_it_starts_when_the_lease_is_over():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 4))
    story.take(job("long", stage(tasks=2, duration_ms=2 * HOUR)))
    advance(story, HOUR - GRACE)
    story.take(reserved("mine", stage(tasks=4, duration_ms=MINUTE)))
    advance(story, HOUR + MINUTE)
    assert tasks_of(story, "long") == {}

    story.finish(*story.granted)
    story.settle()
    assert tasks_of(story, "long") == {False: 2}
    assert told(story)[-1] == PromisedWait("long", "map")


def test_it_is_told_of_the_first_gap_that_is_long_enough():
    leases = [step(at * HOUR, at * HOUR + MINUTE, 4) for at in (1, 2, 5)]
    story = promise(cell(), *leases)
    story.take(job("long", stage(duration_ms=2 * HOUR)), job("longer", stage(duration_ms=4 * HOUR)))
    story.settle()

    assert [(wait.job, wait.fits_ms) for wait in told(story)] == [("long", 2 * HOUR + MINUTE), ("longer", None)]


def test_as_many_start_as_leave_room_for_the_promise():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 3))
    story.take(job("long", stage(tasks=4, duration_ms=2 * HOUR)), job("short", stage(tasks=4, duration_ms=MINUTE)))

    story.settle()
    assert (tasks_of(story, "long"), tasks_of(story, "short")) == ({False: 1}, {False: 3})


def test_another_node_is_taken_where_only_that_leaves_room():
    """By itself the node with the least room left would be taken; it is the only one that holds the unit."""
    story = promise(cell(nodes=[node("n1", cpu=4_000), node("n2", cpu=6_000)]), step(HOUR, 2 * HOUR, 1, cpu=4_000))
    story.take(job("first", stage(cpu=4_000, duration_ms=2 * HOUR)), job("next", stage(cpu=4_000, duration_ms=MINUTE)))

    assert sorted(why(story.settle())) == [("first", 1, "required", False), ("next", 1, "required", False)]


def test_a_gang_starts_as_a_whole_or_not():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 3))
    story.take(job("gang", stage(tasks=2, gang=True, duration_ms=2 * HOUR)), job("one", stage(duration_ms=2 * HOUR)))

    assert why(story.settle()) == [("one", 1, "required", False)]
    assert [(wait.job, wait.reservation) for wait in told(story)] == [("gang", "r")]


def test_what_may_be_taken_back_starts_wherever_there_is_room_and_names_the_lease():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 4))
    story.take(lasting("long", stage(tasks=2, duration_ms=2 * HOUR)))
    (grant,) = story.settle()

    said = grant.revocable_by, grant.revocable_from_ms, grant.revocable_until_ms
    assert (grant.revocable, *said) == (True, "r", HOUR, HOUR + MINUTE)


def test_what_is_taken_back_names_the_reservation():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 4))
    story.take(lasting("long", stage(tasks=4, duration_ms=2 * HOUR)))
    story.settle()
    story.take(reserved("mine", stage(tasks=4)))
    advance(story, HOUR - GRACE)

    revoked = [item for body in story.bodies_in_log("RoundClosed") for item in body.revoked]
    assert {item.reservation for item in revoked} == {"r"}


def test_what_is_never_to_be_taken_back_waits_where_nothing_is_known_of_it():
    story = promise(cell(), step(HOUR, HOUR + MINUTE, 4))
    open_ended = unestimated("open", tasks=2)
    story.take(replace(open_ended, revocable="never"))

    assert story.settle() == []
    assert told(story) == [PromisedWait("open", "map", "r", HOUR, HOUR + MINUTE, None)]


def test_nor_does_it_use_what_is_promised_now_and_not_used():
    story = promise(cell(), step(0, HOUR, 3))
    story.take(replace(job("sure", stage(tasks=4, duration_ms=MINUTE)), revocable="never"))
    story.take(job("any", stage(tasks=4, duration_ms=MINUTE)))

    story.settle()
    assert (tasks_of(story, "sure"), tasks_of(story, "any")) == ({False: 1}, {True: 3})


@pytest.mark.parametrize(
    ("begins", "starts"),
    [
        pytest.param(HOUR + 2 * MINUTE, False, id="not before a lease as far off as it has run"),
        pytest.param(HOUR + 4 * MINUTE, True, id="but in a gap that is a minute longer"),
    ],
)
def test_what_nothing_is_known_of_starts_and_is_then_taken_to_need_longer(begins, starts):
    """It starts two minutes before the first lease; the second is as far from the end of that, or farther."""
    leases = step(2 * MINUTE, HOUR, 4), step(begins, begins + HOUR, 4)
    story = promise(cell(), *leases)
    story.take(unestimated("open", tasks=4))
    story.settle()
    story.take(reserved("mine", stage(tasks=4, duration_ms=MINUTE)))
    advance(story, 2 * MINUTE - GRACE)
    assert [task[0] for task in taken_back(story)] == ["open"]
    give_back(story)
    advance(story, 2 * MINUTE)
    advance(story, HOUR)
    story.finish(*[grant for grant in story.granted if grant.job == "mine"])
    story.settle()

    assert bool([grant for grant in story.granted if grant.attempt == 2]) == starts
    assert [(wait.reservation, wait.taken_back) for wait in told(story)[-1:]] == ([] if starts else [("r", 1)])


def test_a_rule_for_nodes_holds_where_another_node_is_taken():
    """Tasks that are spread stay so."""
    nodes = [node(f"n{i}", labels={"zone": "ab"[i % 2]}) for i in range(4)]
    story = promise(cell(nodes=nodes), step(HOUR, HOUR + MINUTE, 8))
    spread = replace(stage(tasks=8, duration_ms=2 * HOUR), spread=Spread("zone"))
    story.take(job("long", spread))

    zones = {grant.node: 0 for grant in story.settle()}
    for grant in story.granted:
        zones[grant.node] += grant.count
    by_zone = [sum(zones.get(f"n{i}", 0) for i in each) for each in ((0, 2), (1, 3))]
    assert sum(by_zone) == 8
    assert abs(by_zone[0] - by_zone[1]) <= 1


@pytest.mark.parametrize("how", ["restored", "forgetful"])
def test_a_cell_answers_alike_from_its_snapshot_and_without_caches(how):
    stories = []
    for other in (False, True):
        story = promise(cell(), step(HOUR, HOUR + MINUTE, 3))
        story.forgetful = other and how == "forgetful"
        story.take(job("long", stage(tasks=4, duration_ms=2 * HOUR)), unestimated("open", tasks=2))
        story.settle()
        story.take(reserved("mine", stage(tasks=3)))
        advance(story, HOUR - GRACE)
        if other and how == "restored":
            story.restore()
        give_back(story)
        advance(story, 2 * HOUR)
        stories.append(story)

    assert stories[0].digest == stories[1].digest


def series(story, count, units):
    """So many leases of an hour, one after the other, each of a reservation of its own."""
    for at in range(1, count + 1):
        promise(story, step(at * HOUR, (at + 1) * HOUR, units), name=f"r.{at:02}")
    return story


@pytest.mark.parametrize("revocable", ["auto", "never"])
def test_leases_that_follow_each_other_far_ahead_need_room_for_one_at_a_time(revocable):
    story = series(cell(), 40, 2)
    unknown = unestimated("unknown", tasks=4)
    unknown.revocable = revocable
    story.take(unknown)

    story.settle()
    assert tasks_of(story, "unknown")[False] == 2
    assert tasks_of(story, "unknown")[True] == (2 if revocable == "auto" else 0)
    first = [grant for grant in story.granted if grant.revocable]
    assert {grant.revocable_by for grant in first} == ({"r.01"} if first else set())


def test_two_leases_at_once_far_ahead_are_named_with_their_time():
    story = series(cell(), 30, 2)
    late = 28 * HOUR + MINUTE
    promise(story, step(late, late + MINUTE, 1), name="late")
    story.take(unestimated("unknown", tasks=2))

    story.settle()
    assert tasks_of(story, "unknown") == {False: 1, True: 1}
    [lent] = [grant for grant in story.granted if grant.revocable]
    assert (lent.revocable_by, lent.revocable_from_ms) == ("r.28", 28 * HOUR)
