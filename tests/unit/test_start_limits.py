"""When limits let tasks start: as what counts for the same limit ends, after those that wait for it before them."""

import pytest

from schemas import JobSpec, Queue
from services.gateway.view.predictions import Start
from services.gateway.view.start_limits import latest_of
from services.gateway.view.state import PoolsRow
from services.gateway.why.find import why_document
from tests.builders import job
from tests.builders import stage as built
from tests.gateway_watch import Watched, stage
from tests.promised_cell import HOUR, reserved, step
from tests.unit.test_gateway_reserved import cell as promised_cell

MINUTE = 60_000


def start(cell, name):
    """When it is told to start: earliest, likely, latest; None: nothing is told."""
    found = why_document(cell.view, name)["start"]
    return found and tuple(found[f"{each}_ms"] for each in ("earliest", "likely", "latest"))


def tree(**limits):
    return Queue("root", children=[Queue("ads", **limits), Queue("ml")])


def runs(cell, name, minutes, queue="ads", cpu=1, node="n0", **more):
    """A job of one task that runs for so many minutes."""
    return cell.submit(name, stage(cpu=cpu, estimate_ms=minutes * MINUTE), queue=queue, **more).start(
        name, "s", node=node
    )


def test_behind_a_max_a_task_waits_for_what_counts_for_it_and_for_those_before_it():
    cell = Watched(cpu=8, queues=tree(max={"cpu": 2_000}))
    runs(runs(runs(cell, "a", 1), "b", 3), "other", 9, queue="ml")
    cell.submit("first", stage(estimate_ms=MINUTE), queue="ads").submit(
        "second", stage(cpu=2, estimate_ms=MINUTE), queue="ads"
    )

    assert start(cell, "first") == (MINUTE,) * 3
    # It takes all of the max: both have to end.
    assert start(cell, "second") == (3 * MINUTE,) * 3


def test_a_gang_waits_until_there_is_room_below_the_max_for_all_of_it():
    cell = Watched(cpu=8, queues=tree(max={"cpu": 3_000}))
    runs(runs(runs(cell, "a", 1), "b", 3), "c", 5).submit("g", stage(tasks=2, gang=True), queue="ads")

    assert start(cell, "g")[0] == 3 * MINUTE


def test_of_the_queues_below_a_max_each_gets_its_part():
    below = [Queue("prod", weight=3_000_000), Queue("test", weight=1_000_000)]
    ads = Queue("ads", children=below, max={"cpu": 2_000})
    cell = Watched(cpu=8, queues=Queue("root", children=[ads, Queue("ml")]), preset="hdrf")
    for at in (1, 2):
        runs(cell, f"r{at}", at, queue="ads/prod")
    for at in range(4):
        cell.submit(f"t{at}", stage(estimate_ms=MINUTE), queue="ads/test")
        cell.submit(f"p{at}", stage(estimate_ms=MINUTE), queue="ads/prod")

    for name in ("t3", "p3"):
        earliest, likely, latest = start(cell, name)
        assert earliest == MINUTE < likely <= latest
    assert start(cell, "p3")[1] <= start(cell, "t3")[1]


def test_behind_a_limit_of_a_user_only_that_users_tasks_count():
    cell = Watched(cpu=8, queues=tree(user_running_max=2))
    runs(cell, "a", 2, user="ann")
    runs(cell, "b", 4, user="ann")
    runs(cell, "c", 1, user="bob")
    cell.submit("first", stage(estimate_ms=MINUTE), queue="ads", user="ann")
    cell.submit("second", stage(estimate_ms=MINUTE), queue="ads", user="ann")

    assert start(cell, "first") == (2 * MINUTE,) * 3
    assert start(cell, "second")[:2] == (2 * MINUTE, 4 * MINUTE)


def test_a_job_that_waits_for_its_turn_starts_when_enough_jobs_of_the_queue_have_ended():
    cell = Watched(cpu=8, queues=tree(running_jobs_max=2))
    runs(runs(runs(cell, "a", 2), "b", 5), "other", 1, queue="ml")
    cell.submit("next", stage(), queue="ads").submit("then", stage(), queue="ads")
    cell.take(JobSpec("urgent", "ads", [stage()], priority=3)).settle()

    assert [start(cell, name)[1] for name in ("urgent", "next")] == [2 * MINUTE, 5 * MINUTE]
    assert start(cell, "then")[1] > 5 * MINUTE


def test_a_job_with_tasks_that_wait_ends_later_than_those_that_run():
    cell = Watched(cpu=2, queues=tree(running_jobs_max=1))
    cell.submit("wide", stage(tasks=6, estimate_ms=MINUTE), queue="ads").start("wide", "s", count=2)
    cell.submit("next", stage(), queue="ads")

    assert start(cell, "next")[1] == 3 * MINUTE


def test_where_no_job_of_the_queue_says_how_long_it_takes_nothing_is_told():
    cell = Watched(cpu=8, queues=tree(running_jobs_max=1)).submit("a", stage(tasks=99), queue="ads").start("a", "s")
    assert start(cell.submit("next", stage(), queue="ads"), "next") is None


def test_behind_the_running_max_of_its_stage_a_task_waits_for_another_of_it():
    cell = runs(Watched(cpu=8), "a", 1, queue="default")
    cell.submit("j", stage(tasks=3, running_max=2, estimate_ms=3 * MINUTE)).start("j", "s", count=2)

    assert start(cell, "j/s/2") == (3 * MINUTE,) * 3


def test_a_reserved_task_is_told_when_its_lease_begins():
    story = promised_cell(step(HOUR, 2 * HOUR, 2))
    story.take(reserved("j", built()))
    story.take(job("other", built(tasks=4, duration_ms=1_000), queue="b"))
    story.settle()

    assert start(story, "j") == (HOUR,) * 3


def test_where_room_is_promised_a_task_waits_until_it_fits():
    story = promised_cell(step(0, HOUR, 4))
    story.take(reserved("mine", built(tasks=4, duration_ms=HOUR)))
    story.settle()
    story.take(job("j", built(tasks=2, duration_ms=MINUTE), queue="b"))
    story.settle()

    assert start(story, "j")[0] >= HOUR


def test_a_class_gets_its_pool_back_as_its_own_tasks_end():
    cell = Watched(cpu=8, queues=tree())
    runs(runs(cell, "a", 3, cpu=4), "b", 1, queue="ml", cpu=4).submit("j", stage(cpu=2), queue="ads")
    view, key = cell.view, next(iter(cell.view.waits))
    view.pools = [PoolsRow(0, [500_000, 500_000])]
    view.jobs["a"].job_class = view.jobs["j"].job_class = 1
    view.jobs["b"].job_class = 0
    assert start(cell, "j")[0] == MINUTE
    view.waits[key] = "pool"

    assert start(cell, "j") == (3 * MINUTE,) * 3


@pytest.mark.parametrize(
    ("starts", "last"),
    [
        ([Start(1, 2, 3), Start(2, 2, 2)], Start(2, 2, 3)),
        ([Start(1, None, None), Start(2, 2, 2)], Start(2, None, None)),
    ],
)
def test_it_starts_once_all_of_them_let_it(starts, last):
    assert latest_of(starts) == last
    assert latest_of(reversed(starts)) == last


def test_a_limit_that_leaves_room_changes_nothing():
    plain = runs(Watched(cpu=2, queues=tree()), "a", 2, cpu=2).submit("j", stage(estimate_ms=MINUTE), queue="ads")
    wide = tree(max={"cpu": 64_000}, user_running_max=50)
    limited = runs(Watched(cpu=2, queues=wide), "a", 2, cpu=2).submit("j", stage(estimate_ms=MINUTE), queue="ads")

    assert start(plain, "j") == start(limited, "j") == (2 * MINUTE,) * 3
