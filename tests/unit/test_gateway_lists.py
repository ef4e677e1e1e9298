"""Windows of lists of jobs and nodes: filtered, sorted and cut by the gateway, which says how many there are in all."""

import pytest

from schemas import JobCancelled, JobSpec, NodeDrained
from services.gateway.documents.job_lists import (
    JOB_SORTS,
    STATES,
    WantedJobs,
    each_job_document,
    job_documents,
    listed_jobs,
)
from services.gateway.documents.nodes import NODE_SORTS, each_node_document, listed_nodes, node_documents
from tests.builders import stage
from tests.gateway_cell import JOB, STAGE, run_in_memory
from tests.gateway_watch import Watched

EVERY_SORT = [f"{sign}{name}" for name in JOB_SORTS for sign in ("", "-")]
EVERY_NODE_SORT = [f"{sign}{name}" for name in NODE_SORTS for sign in ("", "-")]


@pytest.fixture(scope="module")
def many():
    """Jobs of every state, in several queues, of several users, submitted at several times."""
    cell = Watched(nodes=3, cpu=4)
    for number in range(30):
        cell.settle(1_000 * (number % 3))
        queue, user = f"q{number % 4}", ("ann", "", "Bob")[number % 3]
        cell.submit(f"j{(number * 7) % 30:02}", stage("s", 1 + number % 5, cpu=1_000), queue=queue, user=user)
    for name in ("j03", "j11", "j12"):
        cell.take(JobCancelled(name, "ann"))
    cell.submit("huge", stage("s", 2, cpu=64_000))
    cell.take(NodeDrained("n1", True, "ann"))
    return cell.settle().view


def compared(document, sort, time):
    """What a list is sorted by, as the documents say it."""
    started_ms, ended_ms, submitted_ms = (document[f"{each}_ms"] for each in ("started", "ended", "submitted"))
    until = started_ms if started_ms is not None else time if ended_ms is None else ended_ms
    return {
        "name": document["job"],
        "queue": document["queue"],
        "user": document["user"] or document["author"],
        "state": STATES.index(document["state"]),
        "submitted": submitted_ms,
        "waiting": until - submitted_ms,
        "ended": ended_ms,
        "tasks": document["tasks"]["total"],
    }[sort]


def test_the_jobs_that_tests_list_are_of_many_kinds(many):
    states = {document["state"] for document in job_documents(many, limit=99)}
    assert states >= {"waiting", "cancelled", "rejected"}
    assert len(listed_jobs(many)) == 31


@pytest.mark.parametrize("sort", EVERY_SORT)
def test_jobs_are_sorted_as_their_documents_say(many, sort):
    documents = list(each_job_document(many, listed_jobs(many, sort=sort)))
    by, is_down = sort.removeprefix("-"), sort.startswith("-")
    keys = [(compared(document, by, many.time), document["job"]) for document in documents]
    there = [key for key in keys if key[0] is not None]

    assert len(documents) == 31
    assert keys[: len(there)] == there  # What has nothing to compare comes last.
    by_name = sorted(there, key=lambda key: key[1])
    assert there == sorted(by_name, key=lambda key: key[0], reverse=is_down)


@pytest.mark.parametrize("sort", ["", "-waiting", "tasks"])
@pytest.mark.parametrize("text", ["", "j1", "Q2", "bob", "nothing has this"])
def test_windows_are_the_whole_list_cut(many, sort, text):
    """By HTTP the same: see below."""
    wanted = WantedJobs(text=text)
    whole = list(each_job_document(many, listed_jobs(many, wanted, sort)))
    windows = [
        document
        for offset in range(0, 40, 7)
        for document in each_job_document(many, listed_jobs(many, wanted, sort)[offset : offset + 7])
    ]
    assert windows == whole
    expected = [
        each
        for each in job_documents(many, limit=99)
        if any(
            text.casefold() in part.casefold() for part in (each["job"], each["queue"], each["user"] or each["author"])
        )
    ]
    assert sorted(each["job"] for each in whole) == sorted(each["job"] for each in expected)
    assert bool(whole) == (text != "nothing has this")


def test_http_cuts_filters_and_sorts_and_says_how_many_there_are():
    async def story(cell):
        for number in range(9):
            await cell.post({**JOB, "job": f"j{number}", "stages": [{**STAGE, "tasks": 1 + number % 3}]})
        whole = (await cell.get("/v1/jobs", sort="-tasks")).json()
        cut = [(await cell.get("/v1/jobs", sort="-tasks", offset=at, limit=4)).json() for at in (0, 4, 8, 12)]
        found = (await cell.get("/v1/jobs", q="J7", at=str(cell.follower.state.seq))).json()
        refused = [await cell.get("/v1/jobs", **params) for params in ({"sort": "size"}, {"offset": -1})]
        return whole, cut, found, refused

    whole, cut, found, refused = run_in_memory(story)
    assert [each["tasks"]["total"] for each in whole["jobs"]] == [3] * 3 + [2] * 3 + [1] * 3
    assert (whole["total"], whole["offset"]) == (9, 0)
    assert [each["job"] for part in cut for each in part["jobs"]] == [each["job"] for each in whole["jobs"]]
    assert [(part["total"], part["offset"], len(part["jobs"])) for part in cut] == [
        (9, 0, 4),
        (9, 4, 4),
        (9, 8, 1),
        (9, 12, 0),
    ]
    assert ([each["job"] for each in found["jobs"]], found["total"]) == (["j7"], 1)
    assert [answer.status_code for answer in refused] == [422, 422]
    assert "sort" in refused[0].json()["detail"]


@pytest.mark.parametrize("sort", EVERY_NODE_SORT)
def test_nodes_are_sorted_as_their_documents_say(many, sort):
    by, is_down = sort.removeprefix("-"), sort.startswith("-")
    documents = list(each_node_document(many, names=listed_nodes(many, sort=sort)))
    assert len(documents) == 3
    keys = [
        {
            "name": each["node"],
            "state": ("ready", "draining").index(each["state"]),
            "running": each["running"],
            "used": int(each["used"]["cpu"].removesuffix("m")),
        }[by]
        for each in documents
    ]
    assert keys == sorted(keys, reverse=is_down)


def test_nodes_are_found_by_a_part_of_their_name_or_a_label(many):
    assert listed_nodes(many, "N1") == ["n1"]
    assert listed_nodes(many) == [each["node"] for each in node_documents(many)] == ["n0", "n1", "n2"]
    many.nodes["n2"].labels["zone"] = "West"
    assert listed_nodes(many, "zone=west") == ["n2"]
    del many.nodes["n2"].labels["zone"]


def test_http_cuts_the_list_of_nodes():
    async def story(cell):
        return [
            (await cell.get("/v1/nodes", **params)).json()
            for params in ({}, {"offset": 1}, {"q": "n1", "sort": "-used", "limit": 1}, {"q": "n2"})
        ]

    whole, behind, found, none = run_in_memory(story)
    assert ([each["node"] for each in whole["nodes"]], whole["total"], whole["offset"]) == (["n1"], 1, 0)
    assert (behind["nodes"], behind["total"], behind["offset"]) == ([], 1, 1)
    assert found["nodes"] == whole["nodes"]
    assert (none["nodes"], none["total"]) == ([], 0)


def test_a_job_that_names_nobody_is_found_by_its_author():
    cell = Watched()
    cell.take(JobSpec("j", "default", [stage("s", 1)])).settle()
    assert listed_jobs(cell.view, WantedJobs(text="ann")) == ["j"]
