"""The numbers behind "no room": the nearest node, what a gang finds, for whom room is kept, and shares."""

import pytest

from schemas import HeldRoom, NodeDrained, NodeRegistered, Queue
from schemas.shares import QueueShare
from services.gateway.documents.job_lists import job_documents
from tests.gateway_watch import Watched, stage

NO_ROOM = "no node has room for it now"


def text(cell, name="j"):
    (reason,) = cell.job(name)["stages"][0]["why"]
    return reason["text"]


def filled(*cpus, capacity=4, preset="fifo"):
    """A cell with a node for each of these: so many cores are used there."""
    cell = Watched(nodes=0, preset=preset)
    for i, cpu in enumerate(cpus):
        labels = {"name": f"n{i}"}
        cell.take(NodeRegistered(f"n{i}", "e1", {"cpu": capacity * 1_000, "memory": 8_192}, labels))
        if cpu:
            cell.submit(f"fills-{i}", stage(cpu=cpu, labels=labels))
    return cell


def test_the_node_that_lacks_least_is_named_with_what_it_has():
    cell = filled(3, 1, 4)
    cell.submit("j", stage(cpu=4))
    assert text(cell) == f"{NO_ROOM}; n1 comes nearest, with cpu 3 of 4 free"


def test_nodes_that_could_never_run_it_or_take_none_are_not_named():
    cell = filled(3, 1, 2).take(NodeRegistered("small", "e1", {"cpu": 3_000})).take(NodeDrained("n1", True, "ann"))
    cell.submit("j", stage(cpu=4))
    assert text(cell) == f"{NO_ROOM}; n2 comes nearest, with cpu 2 of 4 free"


def test_a_node_that_lacks_one_kind_comes_before_one_that_lacks_two():
    cell = filled(3, 0)
    cell.submit("wide", stage(cpu=1, labels={"name": "n0"}))
    for i in range(2):
        task = stage(cpu=0, labels={"name": f"n{i}"})
        task.demand.update(memory=6_144)
        cell.submit(f"memory-{i}", task)
    wanted = stage(cpu=4)
    wanted.demand.update(memory=4_096)
    cell.submit("j", wanted)
    assert text(cell) == f"{NO_ROOM}; n1 comes nearest, with memory 2Gi of 4Gi free"


@pytest.mark.parametrize(("used", "room"), [((1, 1), 2), ((2, 1), 2), ((3, 2), 1), ((4, 4), 0)])
def test_of_a_gang_it_is_said_how_many_tasks_find_room(used, room):
    cell = filled(*used)
    cell.submit("j", stage(tasks=3, cpu=2, gang=True))
    plain = "there is no room for all tasks of the gang (3) at once"
    assert text(cell) == f"{plain}; room is free for {room or 'none'} of them"


def test_where_nothing_is_free_nodes_that_could_run_it_are_counted():
    cell = filled(4, 4).take(NodeRegistered("small", "e1", {"cpu": 1_000}))
    cell.submit("j", stage(cpu=3))
    assert text(cell) == f"{NO_ROOM}; 2 nodes could run it and are full"


def test_room_that_is_gathered_for_it_is_named_and_when_that_is_complete():
    cell = filled(2, 2)
    cell.submit("j", stage(cpu=4))
    held = HeldRoom("n1", "headroom", {"cpu": 2_000}, {"cpu": 4_000}, complete_ms=1_000_000)
    cell.view.kept = {"n1": held}
    assert text(cell).endswith("; room for it is gathered on n1, complete at about 1970-01-01T00:16:40Z")
    held.complete_ms = None
    assert text(cell).endswith("; room for it is gathered on n1")


def test_room_that_is_kept_for_others_is_named_with_the_first_that_waits_for_it():
    cell = filled(2, preset="hdrf")
    cell.submit("big", stage(cpu=4)).submit("j", stage(cpu=3))
    cell.view.nodes["n0"].used = {"cpu": 1_000}
    cell.view.kept = {"n0": HeldRoom("n0", "headroom", {"cpu": 3_000}, {"cpu": 4_000})}
    assert "; room on n0 is kept for big/s" in text(cell)


def test_its_queue_is_set_beside_its_share():
    tree = Queue("root", children=[Queue("a", 1_000_000), Queue("b", 3_000_000)])
    cell = Watched(nodes=1, queues=tree, preset="hdrf")
    cell.submit("first", stage(cpu=2), queue="a").submit("other", stage(cpu=2), queue="b")
    cell.submit("j", stage(cpu=2), queue="a")
    cell.view.shares["a"] = QueueShare("a", 250_000_000, 250_400_000, 500_000_000, 0, 0, "cpu")
    assert text(cell).endswith("; queue a holds 50 % of the cell, and its fair share is 25 %")


def test_a_share_that_the_queue_cannot_use_now_is_set_beside_what_is_guaranteed():
    cell = filled(4, preset="hdrf")
    cell.submit("j", stage(cpu=2, tasks=2, gang=True))
    cell.view.shares["default"] = QueueShare("default", 300_000_000, 0, 0, 300_000_000, 0, "")
    assert text(cell).endswith("and its fair share is 0 % until it can use the 30 % that are guaranteed")


def test_with_pools_the_numbers_are_those_of_any_other_wait_for_room():
    cell = filled(4, preset="largesse")
    cell.submit("j", stage(cpu=2))
    (key,) = [key for key, said in cell.view.waits.items() if said == "no_room"]
    cell.view.waits[key] = "pool"
    said = text(cell)
    assert said.startswith("its class of jobs has used up its pool")
    assert said.endswith("; 1 node could run it and is full")


def test_lists_of_jobs_keep_to_the_plain_reason():
    cell = filled(3)
    cell.submit("j", stage(cpu=4))
    (found,) = [each for each in job_documents(cell.view, limit=9) if each["job"] == "j"]
    assert found["why"] == NO_ROOM
