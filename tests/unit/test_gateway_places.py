"""Where tasks run and ran, what they used, and where their results lie: as the gateway's view tells it."""

import pytest

from schemas import (
    NodeRegistered,
    NodeReported,
    TaskFailed,
    TaskFailure,
    TaskFinished,
)
from schemas.edge.nodes import NodeLeft
from schemas.nodes import ResultsKept
from schemas.tasks import TaskEnd
from services.gateway.documents.job_lists import job_documents
from services.gateway.documents.nodes import node_document
from services.gateway.view import places
from services.gateway.view.places import OutputPlace, admitted_of, place_of
from tests.gateway_watch import CPU, Watched, stage


def test_a_nodes_address_is_that_of_its_last_registration():
    cell = Watched(nodes=0).take(NodeRegistered("n", "e1", CPU, address="here:1"))
    cell.take(NodeReported("n", "e1", {"cpu": 2_000}))
    assert node_document(cell.view, "n")["address"] == "here:1"

    cell.take(NodeRegistered("n", "e2", CPU))
    assert node_document(cell.view, "n")["address"] == ""


def test_it_is_known_where_each_task_ran_last_and_where_it_failed():
    cell = Watched(nodes=2, cpu=1).submit("j", stage(tasks=3, retries=1))
    assert [place_of(cell.view, "j", "s", index, None) for index in range(3)] == [
        OutputPlace("n0", cell.view.jobs["j"].admitted),
        OutputPlace("n1", cell.view.jobs["j"].admitted),
        None,
    ]

    cell.start("j", "s", node="n0").fail("j", "s", node="n0").settle(60_000)
    again = place_of(cell.view, "j", "s", 0, None)
    assert place_of(cell.view, "j", "s", 0, 1).node == "n0"
    assert again is None or again == place_of(cell.view, "j", "s", 0, 2)
    assert place_of(cell.view, "j", "s", 2, None).node in ("n0", "n1")


def where(cell, name, stage=0):
    document = cell.job(name)["stages"][stage]
    return document["nodes"], document["indexes"]


def test_a_stage_says_on_which_nodes_its_tasks_are_now():
    cell = Watched(nodes=2, cpu=2).submit("j", stage("s", tasks=5), stage("t", after=["s"]))
    assert where(cell, "j") == ({"n0": 2, "n1": 2}, {"n0": [0, 1], "n1": [2, 3]})
    assert where(cell, "j", 1) == ({}, {})

    cell.start("j", "s", count=2, node="n0").take(TaskFinished([TaskEnd("j", "s", 0, 1, 1, "n0", "e1", [5])]))
    assert where(cell, "j") == ({"n0": 1, "n1": 2}, {"n0": [1], "n1": [2, 3]})

    cell.take(NodeLeft("n1", "e1"))
    assert where(cell, "j") == ({"n0": 1}, {"n0": [1]})


@pytest.mark.parametrize(("tasks", "indexes"), [(100, {"n0": list(range(100))}), (101, None)])
def test_indexes_of_tasks_are_shown_of_stages_with_few(tasks, indexes):
    cell = Watched(cpu=101).submit("j", stage(tasks=tasks))

    assert where(cell, "j") == ({"n0": tasks}, indexes)
    assert "nodes" not in next(iter(job_documents(cell.view, limit=1)))


def test_no_task_of_an_ended_job_is_anywhere():
    cell = Watched().submit("j", stage()).start("j", "s").finish("j", "s")

    assert where(cell, "j") == ({}, {})


def test_what_each_attempt_used_is_told_while_its_job_lives_and_after():
    cell = Watched().submit("j", stage(tasks=3, retries=1)).start("j", "s", count=3)
    failed = TaskFailure("j", "s", 2, 1, 1, "n0", "e1", "memory", None, "", [7], peak_mib=[2_048], cpu_ms=[9])
    cell.take(TaskFailed([failed]))
    cell.take(TaskFinished([TaskEnd("j", "s", 0, 2, 1, "n0", "e1", [5, 6], peak_mib=[512, 64], cpu_ms=[300, 40])]))
    usage = cell.job("j")["stages"][0]["usage"]

    assert (usage["peak_memory"], usage["cpu_ms"]) == ("512Mi", 340)
    assert usage["attempts"][1] == {
        "index": 1, "attempt": 1, "node": "n0", "run_ms": 6, "peak_memory": "64Mi", "cpu_ms": 40
    }  # fmt: skip
    (failure,) = cell.job("j")["failures"]
    assert (failure["reason"], failure["run_ms"], failure["peak_memory"], failure["cpu_ms"]) == ("memory", 7, "2Gi", 9)

    cell.settle(60_000).start("j", "s", first=2, attempt=2).finish("j", "s", first=2, attempt=2)
    usage = cell.job("j")["stages"][0]["usage"]

    assert (cell.job("j")["state"], usage["cpu_ms"]) == ("succeeded", 340)
    assert [each["cpu_ms"] for each in usage["attempts"]] == [300, 40, None]
    assert [each["attempt"] for each in usage["attempts"]] == [1, 1, 2]


def test_of_many_tasks_it_is_told_what_they_used_together():
    cell = Watched(cpu=101).submit("j", stage(tasks=101)).start("j", "s", count=101)
    times = list(range(101, 0, -1))
    many = TaskEnd("j", "s", 0, 101, 1, "n0", "e1", times, peak_mib=list(range(101)), cpu_ms=[2] * 101)
    cell.take(TaskFinished([many])).settle()

    assert cell.job("j")["stages"][0]["usage"] == {
        "peak_memory": "100Mi",
        "peak_cpu": None,
        "cpu_ms": 202,
        "attempts": None,
        "percentiles": [
            {"percent": 50, "run_ms": 51, "peak_memory": "50Mi", "cpu_ms": 2},
            {"percent": 95, "run_ms": 96, "peak_memory": "95Mi", "cpu_ms": 2},
            {"percent": 100, "run_ms": 101, "peak_memory": "100Mi", "cpu_ms": 2},
        ],
    }


def test_the_largest_peak_of_cpu_is_told_while_a_job_lives_and_after():
    cell = Watched().submit("j", stage(tasks=3)).start("j", "s", count=3)
    cell.take(TaskFinished([TaskEnd("j", "s", 0, 2, 1, "n0", "e1", [5, 6], {"cpu": 1_250})]))
    assert cell.job("j")["stages"][0]["usage"]["peak_cpu"] == "1250m"

    cell.take(TaskFinished([TaskEnd("j", "s", 2, 1, 1, "n0", "e1", [5], {"cpu": 900})])).settle()

    assert (cell.job("j")["state"], cell.job("j")["stages"][0]["usage"]["peak_cpu"]) == ("succeeded", "1250m")


def test_no_peak_of_cpu_is_told_where_none_was_measured():
    cell = Watched().submit("j", stage()).start("j", "s")
    cell.take(TaskFinished([TaskEnd("j", "s", 0, 1, 1, "n0", "e1", [5], {"memory": 3})])).settle()

    assert cell.job("j")["stages"][0]["usage"]["peak_cpu"] is None


def test_a_job_says_where_its_results_lie_and_until_when():
    kept = ResultsKept("/var/agent", 1_000, 1, 1, 1)
    cell = Watched(nodes=0).take(NodeRegistered("n0", "e1", {"cpu": 4_000}, results=kept)).settle()
    cell.take(NodeReported("n0", "e1", {"cpu": 4_000})).submit("a/b", stage(tasks=2))
    admitted = cell.view.jobs["a/b"].admitted
    assert cell.job("a/b")["results"] == [
        {"node": "n0", "folder": f"/var/agent/jobs/a%2Fb/{admitted}-*", "until_ms": None}
    ]

    cell.start("a/b", "s", count=2).finish("a/b", "s", count=2)

    ended_ms = cell.job("a/b")["ended_ms"]
    assert cell.job("a/b")["results"] == [
        {"node": "n0", "folder": f"/var/agent/ended/*/a%2Fb/{admitted}-*", "until_ms": ended_ms + 1_000}
    ]


def test_a_node_that_does_not_say_what_it_keeps_is_left_out():
    cell = Watched().submit("j", stage()).start("j", "s")

    assert cell.job("j")["results"] == []


def test_where_tasks_of_ended_jobs_ran_is_known_for_so_many_of_them(monkeypatch):
    monkeypatch.setattr(places, "PLACES_KEPT_MAX", 3)
    cell = Watched(cpu=4, name_kept_ms=0)
    for name in ("a", "b"):
        cell.submit(name, stage(tasks=2)).start(name, "s", count=2).finish(name, "s", count=2).settle()

    assert cell.job("a")["state"] == cell.job("b")["state"] == "succeeded"
    assert place_of(cell.view, "a", "s", 0, None) is None
    assert place_of(cell.view, "b", "s", 1, None) == OutputPlace("n0", cell.view.ended["b"].admitted)
    assert cell.view.places_kept == 2
    cell.settle(1).submit("b", stage(tasks=1))
    assert (cell.view.places, cell.view.places_kept) == ({}, 0)
    assert place_of(cell.view, "b", "s", 0, None) == OutputPlace("n0", cell.view.jobs["b"].admitted)


def test_output_is_that_of_the_job_which_has_the_name_now():
    """An earlier one may have been another user's, and its node still keeps what it printed."""
    cell = Watched(cpu=4, name_kept_ms=0)
    cell.submit("b", stage()).start("b", "s").finish("b", "s").settle()
    before = cell.view.ended["b"].admitted
    assert admitted_of(cell.view, "b", "s") == before

    cell.settle(1).submit("b", stage())
    assert admitted_of(cell.view, "b", "s") == cell.view.jobs["b"].admitted > before
    assert admitted_of(cell.view, "b", "other") is None
    assert admitted_of(cell.view, "nobodys", "s") is None
