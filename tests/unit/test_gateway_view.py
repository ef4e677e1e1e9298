import asyncio
from collections import Counter
from importlib import import_module

import pytest

from largesse.log.codec import decode
from largesse.log.snapshots import dump, load
from schemas import (
    AntiAffinity,
    NodeDrained,
    NodeRegistered,
)
from schemas.edge.nodes import NodeLeft
from schemas.edge.read import read_cluster, read_workload_line
from schemas.nodes import KnownAttempt
from schemas.quantities import quantity_texts
from services.admission.core.judge import lose
from services.gateway import view
from services.gateway.documents.cell import config_document
from services.gateway.documents.classes import classes_document
from services.gateway.documents.job_lists import WantedJobs, job_documents
from services.gateway.documents.jobs import job_document
from services.gateway.documents.nodes import node_document, node_documents
from services.gateway.documents.queues import queue_document
from services.gateway.documents.tally import Tally
from services.gateway.view.state import State
from services.simulator.drawn import drawn_cluster, drawn_jobs
from services.simulator.engine import Cell
from services.simulator.run import Options, simulate
from tests.cells import holds_of
from tests.gateway_watch import CPU, Watched, stage

FOLDING = import_module("services.gateway.view.fold")  # The module: the package has a function of that name.


def test_a_job_goes_from_waiting_to_running_to_its_end():
    cell = Watched().submit("j", stage(tasks=2))
    assert (cell.job("j")["state"], cell.tasks("j")) == ("waiting", {"starting": 2})

    cell.start("j", "s", count=2)
    assert (cell.job("j")["state"], cell.tasks("j")) == ("running", {"running": 2})

    cell.finish("j", "s", count=2)
    assert (cell.job("j")["state"], cell.tasks("j")) == ("succeeded", {"succeeded": 2})
    assert cell.view.jobs == cell.view.holds == {}


def test_every_waiting_task_says_why():
    cell = Watched(nodes=1, cpu=2).submit("wide", stage("a", tasks=3), stage("b", after=["a"]))

    assert cell.why("wide", 0) == [("no_room", 1)]
    assert cell.why("wide", 1) == [("after", 1)]
    assert cell.job("wide")["stages"][1]["why"][0]["text"] == "waits for a"
    assert cell.job("wide")["why"] == "no node has room for it now; 1 node could run it and is full"


def test_a_gang_says_that_it_needs_room_for_all():
    cell = Watched(nodes=1, cpu=4).submit("one", stage(tasks=2)).submit("gang", stage(tasks=4, gang=True))

    assert cell.why("gang") == [("gang_no_room", 4)]


def test_a_task_that_waits_for_better_nodes_says_so():
    cell = Watched(nodes=1, cpu=4)
    cell.take(NodeRegistered("best", "e1", {"cpu": 1_000}, {"disk": "ssd"})).settle()
    cell.submit("j", stage(tasks=3, prefer={"disk": "ssd"}, locality_wait_ms=5_000))

    assert cell.why("j") == [("locality", 2)]
    assert waiting_tasks(cell) == {("default", "locality"): 2}
    assert (
        cell.job("j")["why"]
        == "waits for a node with the labels that it prefers; after its locality_wait_ms it takes any"
    )
    assert node_document(cell.view, "n0")["kept"] is None

    cell.settle(after_ms=5_000)
    assert cell.tasks("j") == {"starting": 3}


def test_a_task_that_a_rule_keeps_from_a_node_says_so():
    cell = Watched(nodes=1).submit("j", stage(tasks=3, anti_affinity=AntiAffinity()))

    assert cell.why("j") == [("spread", 2)]
    assert waiting_tasks(cell) == {("default", "spread"): 2}


def waiting_tasks(cell):
    tally = asyncio.run(Tally().look(cell.view))
    return {key: waiting.tasks for key, waiting in tally.waiting.items()}


def test_a_task_that_failed_says_when_it_is_tried_again():
    cell = Watched(retry_backoff_ms=8_000).submit("j", stage(retries=1)).start("j", "s").fail("j", "s", detail="exit 1")

    assert cell.why("j") == [("back_off", 1)]
    assert cell.job("j")["why"] == "task s/0 failed (exit_code), and is retried in 8 s"
    assert cell.job("j")["failures"][0]["detail"] == "exit 1"

    cell.settle(after_ms=8_000)
    assert cell.tasks("j") == {"starting": 1, "failed_attempts": 1}


def test_a_pause_names_the_last_task_that_made_it():
    cell = Watched(retry_backoff_ms=8_000).submit("j", stage(tasks=3, retries=1)).start("j", "s", count=3)
    cell.fail("j", "s", index=1, reason="cannot_start").fail("j", "s", index=0, reason="lost")

    assert cell.job("j")["why"] == "task s/1 failed (cannot_start), and is retried in 8 s"


def test_a_job_that_failed_says_which_task_and_why():
    cell = Watched().submit("j", stage(tasks=2)).start("j", "s", count=2).fail("j", "s", index=1, detail="no such file")

    job = cell.job("j")
    assert (job["state"], job["detail"]) == ("failed", "s/1 exit_code: no such file")
    # What still runs of it holds its room until the node gives it back.
    assert node_documents(cell.view)[0]["free"] == {"cpu": "3"}
    cell.fail("j", "s", index=0, reason="killed")
    assert node_documents(cell.view)[0]["free"] == {"cpu": "4"}


def test_a_job_that_failed_says_how_many_tasks_ended_with_it_and_how_many_never_started():
    cell = Watched(cpu=2).submit("j", stage("m", tasks=3), stage("r", tasks=4, after=["m"])).start("j", "m", count=2)
    assert "killed" not in cell.job("j")["stages"][0]

    cell.fail("j", "m", index=1)

    job = cell.job("j")
    assert job["state"] == "failed"
    assert [(each["killed"], each["never_started"]) for each in job["stages"]] == [(1, 1), (0, 4)]


def test_a_refused_job_stays_in_view_with_the_field():
    cell = Watched(cpu=2).submit("huge", stage(cpu=64))

    job = cell.job("huge")
    assert (job["state"], job["reason"]) == ("rejected", "exceeds_capacity")
    assert job["detail"].startswith("stages[0].demand: ")
    assert job_documents(cell.view, WantedJobs(["rejected"]), limit=10) != []


def test_a_name_that_is_taken_leaves_the_other_job_as_it_is():
    cell = Watched().submit("j", stage()).submit("j", stage(tasks=2))

    assert cell.job("j")["state"] == "waiting"
    assert cell.job("j")["tasks"]["total"] == 1


def test_a_gang_that_breaks_starts_again_as_a_whole():
    cell = Watched().submit("g", stage(tasks=3, gang=True, retries=1)).start("g", "s", count=3)
    cell.finish("g", "s", count=1)
    assert cell.tasks("g") == {"running": 2, "succeeded": 1}

    cell.fail("g", "s", index=1)
    assert cell.tasks("g") == {"waiting": 2, "running": 1, "failed_attempts": 1}


def test_a_lost_node_holds_nothing_and_its_tasks_wait_again():
    cell = (
        Watched(nodes=2, cpu=1)
        .submit("j", stage(tasks=2))
        .start("j", "s", node="n0")
        .start("j", "s", node="n1", first=1)
    )
    cell.cell.put(lose(cell.cell.admission, "n0"))

    nodes = {node["node"]: node for node in node_documents(cell.view)}
    assert (nodes["n0"]["state"], nodes["n0"]["running"]) == ("lost", 0)
    assert cell.job("j")["failures"][0]["reason"] == "lost"
    assert cell.tasks("j") == {"running": 1, "waiting": 1}


def test_a_node_that_goes_has_left_and_is_in_view_until_it_is_forgotten():
    cell = Watched(nodes=2, cpu=1, node_kept_ms=5_000)
    cell.take(NodeLeft("n0", "e1"))
    assert [node["state"] for node in node_documents(cell.view)] == ["left", "ready"]

    cell.settle(4_999)
    assert [node["node"] for node in node_documents(cell.view)] == ["n0", "n1"]
    cell.settle(1)
    assert [node["node"] for node in node_documents(cell.view)] == ["n1"]
    cell.take(NodeRegistered("n0", "e2", CPU))
    assert [(node["node"], node["state"]) for node in node_documents(cell.view)] == [("n1", "ready"), ("n0", "ready")]


def test_room_that_is_kept_for_a_large_task_shows_at_its_node_until_the_task_starts():
    cell = Watched(nodes=2, cpu=2, headroom="always").submit("small", stage(tasks=4)).submit("large", stage(cpu=2))
    cell.submit("more", stage(estimate_ms=120_000))
    kept = {node["node"]: node["kept"] for node in node_documents(cell.view)}
    assert sorted(kept.values(), key=str) == [None, {"why": "headroom", "demand": {"cpu": "2"}}]

    for name in [name for name, room in kept.items() if room]:
        for index in range(4):
            hold = cell.view.holds[f"small/s/{index}"]
            if hold.node == name:
                cell.start("small", "s", first=index, node=name).finish("small", "s", first=index, node=name)
    assert cell.view.holds["large/s/0"].node in kept
    assert [node["kept"] for node in node_documents(cell.view)] == [None, None]


def test_a_restarted_agent_keeps_what_it_names_and_loses_the_rest():
    cell = Watched(cpu=4).submit("j", stage(tasks=4)).start("j", "s", count=3)
    known = [
        KnownAttempt("j", "s", 0, 1, 1, "running"),
        KnownAttempt("j", "s", 1, 1, 1, "succeeded", [5]),
        KnownAttempt("j", "s", 3, 1, 1, "running"),
    ]
    cell.take(NodeRegistered("n0", "e2", {"cpu": 4000}, attempts=known))

    assert cell.tasks("j") == {"running": 2, "succeeded": 1, "waiting": 1}
    assert node_documents(cell.view)[0]["epoch"] == "e2"


def test_a_drained_node_says_so():
    cell = Watched().take(NodeDrained("n0", True)).settle()

    assert node_documents(cell.view)[0]["state"] == "draining"


TREE = {
    "name": "root",
    "children": [
        {"name": "ads", "weight": 3, "children": [{"name": "prod"}, {"name": "test"}]},
        {"name": "ml", "weight": 0.5},
    ],
}
QUEUES = read_cluster({"nodes": [{"name": "n", "capacity": {"cpu": "1"}}], "queues": TREE}).queues


def test_the_queue_tree_says_what_is_held_and_what_is_due():
    cell = (
        Watched(cpu=4, queues=QUEUES)
        .submit("p", stage(tasks=2), queue="ads/prod")
        .submit("m", stage(tasks=9), queue="ml")
    )
    tree = queue_document(cell.view)
    ads, ml, default = tree["children"]

    assert (ads["queue"], ads["weight"], ads["held"], ads["jobs"]["waiting"]) == ("ads", 3, 0.5, 1)
    assert (ml["weight"], ml["held"], ml["target"]) == (0.5, 0.5, 0.5)
    assert (default["queue"], tree["held"], tree["jobs"]["waiting"]) == ("default", 1.0, 2)


def test_jobs_are_found_by_queue_user_and_state():
    cell = Watched(queues=QUEUES).submit("a", stage(), queue="ads/prod", user="eve").submit("b", stage(), queue="ml")

    def found(**by):
        return [job["job"] for job in job_documents(cell.view, WantedJobs(**by), limit=10)]

    assert found() == ["a", "b"]
    assert found(queue="ads") == found(user="eve") == ["a"]
    assert found(user=job_document(cell.view, "b")["author"]) == ["b"]  # It names no user.
    assert found(states=["running"]) == []
    cell.start("b", "s").finish("b", "s")
    assert found() == ["a", "b"]
    assert found(states=["succeeded"]) == ["b"]
    assert found(states=["succeeded", "waiting"]) == ["a", "b"]
    ended_ms = job_document(cell.view, "b")["ended_ms"]
    assert found(since_ms=ended_ms, states=["succeeded"]) == ["b"]
    assert found(since_ms=ended_ms + 1) == []
    cell.submit("c", stage(), queue="ml")
    assert found() == ["a", "c", "b"]  # Those that live come first.
    cell.submit("d", stage(), queue="ml", reservation="r")
    assert (found(reservation="r"), found(reservation="other")) == (["d"], [])


def test_jobs_are_found_by_class():
    cell = Watched(cpu=10).submit("a", stage()).submit("b", stage(tasks=2)).submit("c", stage())
    cell.start("c", "s").finish("c", "s")

    def found(name):
        return [job["job"] for job in job_documents(cell.view, WantedJobs(job_class=name), limit=10)]

    assert (found("small"), found("large"), found("medium")) == (["a", "c"], ["b"], [])


def test_classes_show_their_pools_what_they_hold_and_what_is_to_come():
    cell = Watched(cpu=10, classes="on", reserve_ratio_permille_min=200)
    cell.submit("a", stage(estimate_ms=5_000)).submit("b", stage(tasks=8, estimate_ms=3_000)).start("b", "s")
    cell.settle(1_000).submit("c", stage(tasks=8))
    small, large = (document := classes_document(cell.view, asyncio.run(Tally().look(cell.view))))["classes"]

    assert (small["class"], small["threshold"], large["class"], large["threshold"]) == ("small", 0.1, "large", None)
    assert (small["pool"], large["pool"], small["room"]) == (0.2, 0.8, {"cpu": "2"})
    assert (small["held"], large["held"]) == ({"cpu": "1"}, {"cpu": "9"})
    assert large["jobs"] == {"running": 1, "waiting": 1}
    assert [each["amount"] for each in large["coming"]] == [{}, {"cpu": "1"}, {"cpu": "1"}, {"cpu": "1"}]
    assert document["history"] == [{"since_ms": 0, "pools": [0.2, 0.8]}]
    assert (document["pools"], document["forecaster"]) == ("on", "durations")
    assert [score["forecaster"] for score in document["scores"]] == ["ramp", "durations"]


def test_without_pools_classes_are_only_names():
    cell = Watched(cpu=10, classes="off").submit("a", stage())
    document = classes_document(cell.view, asyncio.run(Tally().look(cell.view)))

    assert document["pools"] == "off"
    assert [(each["class"], each["pool"]) for each in document["classes"]] == [("small", None), ("large", None)]
    assert (document["history"], document["scores"], document["forecaster"]) == ([], [], None)


def test_the_config_document_is_what_the_edge_takes_back():
    cell = Watched(queues=QUEUES, theta_permille=250)
    document = config_document(cell.view)

    assert document["queues"]["children"][1] == {"name": "ml", "weight": 0.5, "children": []}
    assert document["set"]["theta_permille"] == 250


def test_the_view_comes_back_from_its_snapshot():
    cell = Watched(queues=QUEUES).submit("a", stage(tasks=3, retries=1), queue="ml").start("a", "s").fail("a", "s")
    restored = load(State, dump(cell.view))

    assert dump(restored) == dump(cell.view)
    assert job_document(restored, "a") == cell.job("a")


def test_ended_jobs_stay_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(FOLDING, "ENDED_JOBS_MAX", 2)
    cell = Watched()
    for name in "abc":
        cell.submit(name, stage()).start(name, "s").finish(name, "s")

    assert [job["job"] for job in job_documents(cell.view, limit=10)] == ["c", "b"]
    assert cell.job("a") is None


@pytest.mark.rotating(4)
@pytest.mark.slow
@pytest.mark.parametrize("preset", ["fifo", "largesse"])
@pytest.mark.parametrize("seed", [3, 53, pytest.param(1, marks=pytest.mark.whole)])
def test_the_view_agrees_with_the_sequencer_all_along(seed, preset):
    state = view.start()
    cells: list[Cell] = []

    def hear(topic, header, content):
        record = decode(content)
        if type(record.body) in view.FOLDS:
            view.fold(state, record)

    def compare(cell):
        cells[:] = [cell]
        judge = cell.admission
        free = {name: quantity_texts(node.free) for name, node in judge.nodes.items()}
        assert {node["node"]: node["free"] for node in node_documents(state)} == free
        assert {key: hold.started for key, hold in state.holds.items()} == {
            key: hold.started for key, hold in holds_of(judge).items()
        }
        assert {name: job.progress for name, job in state.jobs.items()} == {
            name: job.progress for name, job in judge.jobs.items()
        }
        for name in state.jobs:
            document = job_document(state, name)
            assert document is not None
            for each in document["stages"]:
                counts = each["tasks"]
                assert counts["total"] == sum(counts[k] for k in ("waiting", "starting", "running", "succeeded"))
                assert sum(why["tasks"] for why in each["why"]) == counts["waiting"]
                key = f"{name}/{each['stage']}/"
                there = Counter(hold.node for at, hold in state.holds.items() if at.startswith(key))
                assert each["nodes"] == there
                assert sum(there.values()) == counts["starting"] + counts["running"]

    options = Options({"preset": preset}, listener=hear, before_round=compare)
    result = simulate(drawn_jobs(seed), drawn_cluster(seed), options)

    assert len(cells) == 1
    assert {job["job"]: job["outcome"] for job in result["per_job"]} == {
        job["job"]: job["state"] for job in job_documents(state, limit=10_000) if job["state"] != "rejected"
    }
    assert not any(amount for used in state.used.values() for amount in used.values())


def test_a_workload_line_is_a_job_too():
    _, spec = read_workload_line(
        {"job": "w", "submit_ms": 0, "stages": [{"stage": "s", "tasks": 1, "duration_ms": 5, "demand": {"cpu": "1"}}]}
    )

    assert Watched().take(spec).settle().job("w")["state"] == "waiting"
