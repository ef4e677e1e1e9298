"""Every word of the published vocabulary of reasons is said of something: a cell for each in which it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from schemas import (
    AntiAffinity,
    Device,
    JobChanged,
    JobSpec,
    NodeDrained,
    NodeRegistered,
    NodeReported,
    Plans,
    Queue,
    ReservationRequested,
    Stage,
)
from schemas.edge.nodes import NodeLeft
from schemas.grants import HeldRoom
from schemas.plans import PlanAnswer
from schemas.reasons import REASONS
from schemas.tasks import DeviceShare
from services.gateway.documents.models.why import Why
from services.gateway.view.room import free_devices
from services.gateway.view.state import State
from services.gateway.why.find import why_document
from services.gateway.why.room import census
from tests import builders
from tests.builders import job, node
from tests.gateway_watch import Watched, stage
from tests.promised_cell import GRACE, HOUR, advance, give_back, lasting, promise, reserved, step
from tests.unit.test_gateway_failing_nodes import watched as with_failures
from tests.unit.test_gateway_metrics import Viewed
from tests.unit.test_gateway_reserved import cell as promised_cell


def tree(*queues: Queue) -> Queue:
    return Queue("root", children=[*queues, Queue("ml")])


def full(cpu=4, **knobs):
    return Watched(cpu=cpu, **knobs).submit("fills", stage(cpu=cpu, estimate_ms=60_000)).start("fills", "s")


def told(*given, nodes=(), **knobs):
    story = Viewed()
    story.take(builders.config(None, **knobs), *(nodes or [node()]), *given)
    story.settle()
    return story


# ---------------------------------------------------------------- jobs that wait
def after():
    return Watched().submit("j", stage("map"), stage("s", after=["map"]))


def held():
    return full().submit("j", stage()).take(JobChanged("j", hold=True, author="ann")).settle()


def running_limit():
    cell = Watched(queues=tree(Queue("ads", running_jobs_max=1)))
    return cell.submit("first", stage(), queue="ads").submit("j", stage(), queue="ads")


def queue_max():
    cell = Watched(queues=tree(Queue("ads", max={"cpu": 1_000})))
    return cell.submit("first", stage(), queue="ads").submit("j", stage(), queue="ads")


def user_running_max():
    cell = Watched(queues=tree(Queue("ads", user_running_max=1)))
    return cell.submit("first", stage(), queue="ads", user="ann").submit("j", stage(), queue="ads", user="ann")


def back_off():
    return Watched().submit("j", stage(retries=2)).start("j", "s").fail("j", "s")


def no_node():
    cell = Watched().take(NodeRegistered("big", "e1", {"cpu": 16_000}))
    return cell.submit("other", stage(cpu=16)).submit("j", stage(cpu=8)).take(NodeDrained("big", True, "ann")).settle()


def labels():
    cell = Watched(nodes=0)
    for zone in ("a", "b"):
        cell.take(NodeRegistered(zone, "e1", {"cpu": 4_000}, {"zone": zone}))
    cell.submit("fills", stage(cpu=4, labels={"zone": "a"}))
    return cell.submit("j", stage(labels={"zone": "a"}))


def kept():
    cell = Watched(cpu=4, headroom_after_ms=1_000).submit("fills", stage(cpu=2, estimate_ms=60_000)).start("fills", "s")
    cell.submit("wide", stage(cpu=4))
    for number in range(4):
        cell.settle(1_000).submit(f"small-{number}", stage(estimate_ms=600_000))
    return cell.submit("j", stage(estimate_ms=600_000)).settle(1_000)


def pool():
    bounds = {"reserve_ratio_permille_min": 300, "reserve_ratio_permille_max": 300}
    wide = job("j", builders.stage(tasks=20))
    story = told(wide, nodes=[node(cpu=10_000)], preset="dress", theta_permille=200, **bounds)
    story.take(job("small", builders.stage(cpu=2_000)))
    story.settle()
    return story


def behind_head():
    return told(job("head", builders.stage(cpu=3_000, tasks=2)), job("j"), preset="fifo")


def locality():
    near, far = node("near", cpu=1_000, labels={"disk": "ssd"}), node("far", cpu=8_000)
    picky = builders.stage(tasks=2, prefer={"disk": "ssd"}, locality_wait_ms=3_000)
    return told(job("j", picky), nodes=[near, far], preset="hdrf")


def spread():
    return Watched(nodes=3).submit("j", stage(tasks=4, anti_affinity=AntiAffinity()))


def failed_there():
    cell = Watched(nodes=2, cpu=1, retry_backoff_ms=0).submit("hog", stage())
    (free,) = [name for name, row in cell.view.nodes.items() if not any(row.used.values())]
    return cell.submit("j", stage(retries=3)).fail("j", "s", node=free)


def lease():
    story = promised_cell(step(HOUR, 2 * HOUR, 2))
    story.take(job("other", builders.stage(tasks=4, duration_ms=1_000), queue="b"), reserved("j", builders.stage()))
    story.settle()
    return story


def promise_used():
    story = promised_cell(step(0, HOUR, 2))
    story.take(job("other", builders.stage(tasks=2), queue="b"), reserved("j", builders.stage(tasks=3)))
    story.settle()
    return story


def promised():
    story = promised_cell(step(0, HOUR, 4))
    story.take(reserved("mine", builders.stage(tasks=4)))
    story.settle()
    story.take(job("j", builders.stage(tasks=2, duration_ms=60_000), queue="b"))
    story.settle()
    return story


# ---------------------------------------------------------------- what runs, has run or has ended
def taken_back():
    story = promised_cell(step(HOUR, HOUR + 60_000, 4))
    story.take(lasting("j", builders.stage(tasks=4, duration_ms=2 * HOUR), queue="b"))
    story.settle()
    story.take(reserved("mine", builders.stage(tasks=4)))
    advance(story, HOUR - GRACE)
    give_back(story)
    story.settle()
    return story


# ---------------------------------------------------------------- queues, nodes and reservations
def shared(ads: Queue):
    cell = Watched(cpu=4, queues=tree(ads), preset="hdrf")
    return cell.submit("a", stage(tasks=8), queue="ads").submit("b", stage(tasks=8), queue="ml").settle(1_000)


def unschedulable():
    return Watched().take(NodeReported("n0", "e1", {"cpu": 4_000}, {}, [], "agent", unschedulable="its disk is full"))


def devices_out():
    devices = [Device(0), Device(1, out="Xid 79: fallen off the bus")]
    return Watched().take(NodeReported("n0", "e1", {"cpu": 4_000, "gpu": 1_000}, {}, devices, "agent"))


def moved():
    story = promised_cell(step(HOUR, 2 * HOUR, 2))
    story.put(Plans(2, [PlanAnswer("r", accepted=True, reason="moved", detail="a node was lost")], [], []))
    return promise(story, step(2 * HOUR, 3 * HOUR, 2))


def unanswered():
    story = promised_cell(step(HOUR, 2 * HOUR, 2))
    story.put(ReservationRequested("j", "", "{}", "tester", "a"))
    return story


@dataclass(frozen=True)
class Case:
    """A cell, what is asked about there, and whether the word is its main reason."""

    cell: Callable[[], Any]
    name: str = "j"
    main: bool = True


CASES = {
    "after": Case(after, "j/s"),
    "held": Case(held),
    "running_limit": Case(running_limit),
    "queue_max": Case(queue_max),
    "back_off": Case(back_off),
    "no_room": Case(lambda: full().submit("j", stage())),
    "labels": Case(labels),
    "kept": Case(kept),
    "no_node": Case(no_node),
    "gang_no_room": Case(lambda: Watched(cpu=2).submit("a", stage()).submit("j", stage(tasks=2, gang=True))),
    "pool": Case(pool),
    "behind_head": Case(behind_head),
    "locality": Case(locality),
    "spread": Case(spread),
    "failed_there": Case(failed_there),
    "lease": Case(lease),
    "promise_used": Case(promise_used),
    "promised": Case(promised),
    "running_max": Case(lambda: Watched().submit("j", stage(tasks=3, running_max=1))),
    "user_running_max": Case(user_running_max),
    "next_round": Case(lambda: Watched().take(JobSpec("j", "default", [stage()]))),
    "starting": Case(lambda: Watched().submit("j", stage())),
    "running": Case(lambda: Watched().submit("j", stage()).start("j", "s")),
    "lost_attempts": Case(back_off, main=False),
    "over": Case(lambda: Watched().submit("j", stage()).start("j", "s").finish("j", "s")),
    "taken_back": Case(taken_back, main=False),
    "node_lost": Case(lambda: Watched().take(NodeLeft("n0", "e1")).settle(), "n0"),
    "draining": Case(lambda: Watched().take(NodeDrained("n0", True, "ann")).settle(), "n0"),
    "unschedulable": Case(unschedulable, "n0"),
    "devices_out": Case(devices_out, "n0", main=False),
    "failing": Case(with_failures, "n0"),
    "full": Case(lambda: full().submit("j", stage()), "n0"),
    "open": Case(lambda: Watched().take(JobSpec("j", "default", [stage()])), "n0"),
    "guarantee": Case(lambda: shared(Queue("ads", guaranteed={"cpu": 3_000})), "ml", main=False),
    "weight": Case(lambda: shared(Queue("ads", weight=3_000_000)), "ml", main=False),
    "demand": Case(lambda: Watched(queues=tree(Queue("ads"))), "ads"),
    "max": Case(lambda: shared(Queue("ads", max={"cpu": 1_000})), "ads"),
    "answered": Case(lambda: promised_cell(step(HOUR, 2 * HOUR, 2)), "r"),
    "unanswered": Case(unanswered),
    "moved": Case(moved, "r", main=False),
}


@pytest.mark.parametrize("word", CASES)
def test_a_reason_is_said_where_it_holds(word):
    case = CASES[word]
    state: State = case.cell().view
    document = why_document(state, case.name)

    assert Why(**document).model_dump(exclude_unset=True) == document
    reasons = [row["reason"] for row in document["reasons"]]
    assert word in (reasons[:1] if case.main else reasons[1:])
    assert all(row["text"] for row in document["reasons"])


@pytest.mark.parametrize("case", [lease, promise_used])
def test_a_reserved_task_that_may_have_what_is_free_says_that_nothing_is(case):
    rows = why_document(case().view, "j")["reasons"]

    assert (rows[1]["reason"], rows[1]["numbers"]["also"], rows[1]["numbers"]["room_for_tasks"]) == ("no_room", True, 0)


def test_a_task_that_a_promise_keeps_out_says_where_nodes_are_full_as_well():
    story = promised_cell(step(HOUR, 2 * HOUR, 4))
    story.take(job("j", builders.stage(tasks=2, duration_ms=2 * HOUR), queue="b"))
    story.settle()
    assert [row["reason"] for row in why_document(story.view, "j")["reasons"]] == ["promised"], "there is room"

    rows = why_document(promised().view, "j")["reasons"]
    assert [row["reason"] for row in rows] == ["promised", "no_room"]
    assert (rows[1]["numbers"]["also"], rows[1]["numbers"]["room_for_tasks"]) == (True, 0)


def test_a_task_whose_rules_bar_nodes_says_that_the_room_of_the_others_is_gathered():
    cell = spread()
    assert [row["reason"] for row in why_document(cell.view, "j")["reasons"]] == ["spread", "starting"]
    for name in cell.view.nodes:
        cell.view.kept[name] = HeldRoom(name, "headroom", {"cpu": 3_000}, {"cpu": 4_000})

    rows = why_document(cell.view, "j")["reasons"]
    assert [row["reason"] for row in rows] == ["spread", "kept", "starting"]
    numbers = rows[1]["numbers"]
    assert (numbers["also"], numbers["kept"]) == (True, numbers["room_for_tasks"])


@pytest.mark.parametrize(("promised", "kept"), [(True, 0), (False, 1)])
def test_room_that_is_promised_is_kept_from_tasks_that_ask_for_the_same_without_a_promise(promised, kept):
    cell = Watched()
    like = stage()
    cell.view.vacated["n0"] = HeldRoom("n0", "promise", {"cpu": 4_000}, like.demand)

    assert census(cell.view, like, promised=promised).kept_room == kept


def test_room_on_a_node_beside_whose_tasks_it_may_not_run_is_no_room_for_it():
    cell = Watched(nodes=2).submit("fills", stage(cpu=4)).submit("j", stage(tasks=2, anti_affinity=AntiAffinity()))
    (state, job) = cell.view, cell.view.jobs["j"]
    (node,) = job.nodes[0]
    rows = why_document(state, "j")["reasons"]
    state.waits[next(iter(state.waits))] = "no_room"  # As leftover says it where room there is kept for another.

    found = why_document(state, "j")["reasons"]
    assert [row["reason"] for row in found][:2] == ["spread", "no_room"] != [row["reason"] for row in rows][:2]
    like = job.graph.stages[0]
    assert (census(state, like).room, census(state, like).barred_room) == (2, 0)
    assert (census(state, like, barred={node: 1}).room, census(state, like, barred={node: 1}).barred_room) == (0, 1)
    assert census(state, like, barred={}).room == 1, "every node takes one"


@pytest.mark.parametrize(("gpu", "room"), [(1_000, 1), (500, 4), (1_500, 1), (250, 9)])
def test_what_is_free_of_gpus_is_counted_device_by_device(gpu, room):
    two = [Device(0, 1_000), Device(1, 1_000), Device(2, 1_000)]
    cell = Watched(nodes=0).take(NodeRegistered("g", "e1", {"cpu": 64_000, "gpu": 3_000}, {}, two))
    cell.submit("fills", Stage("s", 3, {"cpu": 1_000, "gpu": 250}))
    state = cell.view
    assert free_devices(state) == {"g": [250, 1_000, 1_000]}

    state.holds["fills/s/1"].devices = [DeviceShare(1, 250)]
    assert free_devices(state) == {"g": [500, 750, 1_000]}
    assert census(state, Stage("s", 99, {"cpu": 1_000, "gpu": gpu})).room == room
    cell.start("fills", "s", 3, node="g").finish("fills", "s", 3, node="g")
    assert free_devices(state) == {"g": [1_000, 1_000, 1_000]}


def test_there_is_a_case_of_every_word_and_none_of_another():
    assert set(CASES) == set(REASONS)
