"""Why: a main reason for everything, with its numbers and what would remove it; the same over HTTP and in a log."""

import json
from dataclasses import replace
from typing import get_args

import pytest

from schemas import AntiAffinity, JobCancelled, JobChanged, JobSpec, NodeDrained, NodeRegistered, Queue
from schemas.reasons import PENDING, REASONS, Reason, reasons_document
from services.gateway.documents.lacking import complete_text
from services.gateway.documents.models.why import Reasons, Why
from services.gateway.why.find import UnknownId, why_document
from tests.gateway_cell import JOB, run_in_memory
from tests.gateway_watch import Watched, stage
from tests.simulation.why_truth import recorded
from tests.unit.cli_here import largesse
from tests.unit.cli_process import ROOT


def why(cell, name, kind=None):
    document = why_document(cell.view, name, kind)
    assert Why(**document).model_dump(exclude_unset=True) == document
    return document


def main(cell, name):
    return why(cell, name)["reasons"][0]


def words(cell, name):
    return [row["reason"] for row in why(cell, name)["reasons"]]


def full(cpu=4, **knobs):
    return Watched(cpu=cpu, **knobs).submit("fills", stage(cpu=cpu, estimate_ms=60_000)).start("fills", "s")


# ---------------------------------------------------------------- the vocabulary
def test_the_vocabulary_is_closed_and_says_of_every_word_what_it_means_and_what_helps():
    all_words = [word for part in get_args(Reason) for word in get_args(part)]
    assert set(REASONS) == set(all_words)
    assert all(text.means and text.action for text in REASONS.values())
    assert [row["reason"] for row in Reasons(**reasons_document()).model_dump()["reasons"] if row["pending"]] == [
        *PENDING
    ]


# ---------------------------------------------------------------- jobs that wait
def test_no_room_says_how_much_less_would_fit_and_when_what_runs_ends():
    cell = Watched(nodes=2).submit("fills", stage(cpu=3, tasks=2, estimate_ms=60_000))
    cell.start("fills", "s", node="n0").start("fills", "s", node="n1", first=1)
    cell.submit("j", stage(cpu=2)).settle(10_000).submit("later", stage(cpu=4))

    found = why(cell, "j")
    row = found["reasons"][0]
    assert row["reason"] == "no_room"
    assert row["unblocks"][0] == "1 less cpu fits on 2 nodes"
    assert (row["numbers"]["full"], row["numbers"]["room_for_tasks"]) == ({"cpu": 2}, 0)
    (group,) = row["numbers"]["groups"]
    assert (group["nodes"], group["capacity"], group["free"]) == (2, {"cpu": "4"}, {"cpu": "2"})
    assert found["start"]["earliest_ms"] == 60_000
    assert found["waited"] == {"no_room": 10_000}
    cell.finish("fills", "s", node="n0")
    assert main(cell, "j")["reason"] == "starting"


def test_room_without_the_labels_that_a_task_asks_for_is_no_lack_of_room():
    cell = Watched(nodes=0)
    for zone in ("a", "b"):
        cell.take(NodeRegistered(zone, "e1", {"cpu": 4_000}, {"zone": zone}))
    cell.submit("fills", stage(cpu=4, labels={"zone": "a"})).submit("j", stage(cpu=1, labels={"zone": "a"}))

    row = main(cell, "j")
    assert (row["reason"], row["numbers"]["other_labels"]) == ("labels", 1)
    assert words(cell, "j")[1] == "no_room"


def test_no_node_says_for_what_nodes_fail():
    cell = Watched(nodes=2).take(NodeRegistered("big", "e1", {"cpu": 16_000}))
    cell.submit("j", stage(cpu=8, tasks=2)).start("j", "s", node="big", count=2)
    cell.submit("large", stage(cpu=8)).take(NodeDrained("big", True, "ann")).settle()
    row = main(cell, "large")
    assert (row["reason"], row["numbers"]["too_small"], row["numbers"]["closed"]) == ("no_node", {"cpu": 2}, 1)


def test_a_gang_says_how_many_of_it_fit():
    cell = Watched(nodes=2).submit("fills", stage(cpu=3)).submit("j", stage(cpu=2, tasks=4, gang=True))
    row = main(cell, "j")
    assert (row["reason"], row["numbers"]["room_for_tasks"]) == ("gang_no_room", 2)
    assert "a gang of 2, 2 fewer, fits" in row["unblocks"]


def test_a_hold_a_limit_of_running_jobs_and_one_of_a_stage_name_their_removal():
    tree = Queue("root", children=[Queue("ads", running_jobs_max=1), Queue("ml")])
    cell = Watched(queues=tree).submit("first", stage(tasks=3, running_max=1), queue="ads")
    cell.submit("second", stage(), queue="ads").submit("held", stage(), queue="ml")
    cell.take(JobChanged("held", hold=True, author="ann")).settle()

    limited = main(cell, "second")
    assert (limited["reason"], limited["numbers"]) == (
        "running_limit",
        {"stage": "s", "tasks": 1, "queue": "ads", "most": 1, "ahead": 0},
    )
    assert "raise running_jobs_max of queue ads" in limited["unblocks"]
    assert main(cell, "first")["unblocks"] == ["raise running_max of stage s"]


def test_a_maximum_of_a_queue_names_the_queue_the_resource_and_what_comes_behind_it():
    tree = Queue("root", children=[Queue("ads", max={"cpu": 2_000}), Queue("ml")])
    cell = Watched(cpu=4, queues=tree).submit("first", stage(cpu=2), queue="ads")
    cell.submit("j", stage(cpu=2), queue="ads").settle(5_000)
    row = main(cell, "j")
    assert (row["reason"], row["numbers"]["queue"], row["numbers"]["max"]) == ("queue_max", "ads", "2")
    assert words(cell, "j") == ["queue_max"]

    cell.submit("other", stage(cpu=2), queue="ml").settle(5_000)
    assert words(cell, "j") == ["queue_max", "no_room"]
    assert why(cell, "j")["waited"] == {"queue_max": 10_000}


def test_a_user_limit_is_named_and_so_is_one_behind_full_nodes():
    tree = Queue("root", children=[Queue("ads", user_running_max=1), Queue("ml")])
    cell = Watched(cpu=2, queues=tree).submit("a", stage(), queue="ads", user="ann")
    cell.submit("b", stage(tasks=2), queue="ads", user="ann").settle(3_000).submit("later", stage(), queue="ml")
    assert main(cell, "b")["reason"] == "user_running_max"
    assert why(cell, "b")["waited"] == {"user_running_max": 3_000}

    other = Watched(cpu=1, queues=tree).submit("fills", stage(), queue="ml")
    other.submit("c", stage(tasks=2), queue="ads", user="ann")
    assert words(other, "c")[0] in ("no_room", "user_running_max")
    assert set(words(other, "c")) == {"no_room", "user_running_max"}


def test_limits_that_are_reached_too_stand_beside_the_main_one():
    tree = Queue("root", children=[Queue("ads", max={"cpu": 2_000}, user_running_max=2), Queue("ml")])
    cell = Watched(cpu=8, queues=tree).submit("first", stage(tasks=3, running_max=2), queue="ads", user="ann")
    rows = why(cell, "first")["reasons"]
    assert [(row["reason"], row["numbers"].get("queue")) for row in rows[:3]] == [
        ("running_max", None),
        ("queue_max", "ads"),
        ("user_running_max", "ads"),
    ]
    assert all(row["numbers"]["also"] for row in rows[1:3])

    cell.submit("second", stage(cpu=1), queue="ads", user="bob")
    assert words(cell, "second") == ["queue_max"]
    cell.submit("third", stage(cpu=2, tasks=4), queue="ads", user="bob").submit("fills", stage(cpu=4), queue="ml")
    behind = why(cell, "second")["reasons"][1]
    assert (behind["reason"], behind["numbers"]["behind"], behind["numbers"]["waiting"]) == ("no_room", True, "9")


def test_stages_wait_for_others_and_a_failure_makes_a_pause():
    cell = Watched().submit("j", stage("map", retries=3), stage("reduce", after=["map"]))
    cell.start("j", "map").settle(2_000)
    assert words(cell, "j/reduce") == ["after"]
    assert why(cell, "j/reduce")["reasons"][0]["numbers"]["left"] == {"map": 1}
    cell.fail("j", "map")
    found = why(cell, "j")
    assert found["reasons"][0]["reason"] == "back_off"
    assert found["waited"] == {"lost_attempts": 2_000}
    assert found["start"]["earliest_ms"] == found["reasons"][0]["numbers"]["until_ms"]
    lost = next(row for row in found["reasons"] if row["reason"] == "lost_attempts")
    assert lost["numbers"]["why"] == "exit_code"
    assert lost["numbers"]["seq"] == cell.view.jobs["j"].failures[-1].seq > 0


def test_a_rule_that_keeps_tasks_apart_is_named():
    cell = Watched(nodes=1).submit("j", stage(tasks=2, anti_affinity=AntiAffinity()))
    assert main(cell, "j")["reason"] in ("spread", "no_node", "next_round")


# ---------------------------------------------------------------- jobs that run or have ended
def test_a_task_that_runs_says_where_by_which_record_and_how_long_it_waited():
    cell = full()
    cell.submit("j", stage()).settle(4_000).finish("fills", "s")
    cell.start("j", "s")
    found = why(cell, "j/s/0")
    assert (found["kind"], found["state"]) == ("task", "running")
    numbers = found["reasons"][0]["numbers"]
    assert (numbers["node"], numbers["attempt"], numbers["granted_ms"]) == ("n0", 1, 4_000)
    assert why(cell, "j")["reasons"][0]["reason"] == "running"


def test_a_task_that_waits_or_has_ended_says_so_whatever_others_of_its_stage_do():
    cell = Watched(nodes=1, cpu=2).submit("j", stage(cpu=2, tasks=3)).settle().start("j", "s").settle(1_000)
    assert (why(cell, "j/s/0")["state"], why(cell, "j/s")["state"]) == ("running", "running")
    found = why(cell, "j/s/1")
    assert found["state"] == "waiting"
    assert "running" not in [row["reason"] for row in found["reasons"]]

    cell.finish("j", "s").settle(1_000)
    found = why(cell, "j/s/0")
    assert (found["state"], found["reasons"][0]["reason"]) == ("ended", "over")
    numbers = found["reasons"][0]["numbers"]
    assert (numbers["node"], numbers["overtook"]) == ("n0", [])
    assert why(cell, "j/s/1")["state"] != "ended"


def test_room_that_is_gathered_for_longer_than_was_expected_is_late():
    assert complete_text(None, 5) == ""
    assert complete_text(60_000, 60_000) == ", complete at about 1970-01-01T00:01:00Z"
    assert complete_text(60_000, 60_001).startswith(", which was expected to be complete at 1970-01-01T00:01:00Z")


def test_what_the_time_of_an_ended_job_went_to_adds_up_to_its_completion():
    cell = full().submit("j", stage(retries=2)).settle(4_000).finish("fills", "s")
    cell.settle(500).start("j", "s").settle(2_000).fail("j", "s")
    cell.settle(10_000).start("j", "s", attempt=2).settle(3_000).finish("j", "s", attempt=2)

    found = why(cell, "j")
    assert (found["state"], found["reasons"][0]["reason"]) == ("succeeded", "over")
    assert found["waited"]["no_room"] == 4_000
    assert (found["waited"]["lost_attempts"], found["waited"]["running"]) == (2_000, 3_000)
    assert sum(found["waited"].values()) == cell.view.time
    assert found["ended_by"]["seq"] == cell.view.ended["j"].seq


def test_a_job_that_is_cancelled_says_so():
    cell = full().submit("j", stage()).settle(1_000).take(JobCancelled("j", "ann")).settle()
    found = why(cell, "j")
    assert found["state"] == "cancelled"
    assert found["waited"] == {"no_room": 1_000}


# ---------------------------------------------------------------- queues, nodes, what is not there
def test_a_queue_says_what_it_holds_and_why_a_sibling_has_more():
    tree = Queue("root", children=[Queue("ads", weight=3_000_000), Queue("ml")])
    cell = Watched(cpu=4, queues=tree, preset="hdrf")
    cell.submit("a", stage(tasks=8), queue="ads").submit("b", stage(tasks=8), queue="ml").settle(1_000)

    found = why(cell, "ml", "queue")
    assert found["reasons"][0]["numbers"]["waiting_tasks"] > 0
    beside = found["reasons"][1]
    assert beside["numbers"]["queue"] == "ads"
    assert beside["text"].startswith("queue ads holds")
    assert why(cell, "root")["id"] == "root"
    assert words(Watched(queues=tree), "ads")[0] == "demand"


def test_a_queue_says_since_when_and_since_which_record_it_has_less_than_it_is_due():
    tree = Queue("root", children=[Queue("ads"), Queue("ml")])
    cell = Watched(cpu=4, queues=tree, preset="hdrf").submit("a", stage(tasks=8, estimate_ms=60_000), queue="ads")
    cell.start("a", "s", count=4).settle(7_000)
    assert "short" not in main(cell, "ml")["numbers"]
    cell.submit("b", stage(tasks=8), queue="ml")
    since = cell.view.opened
    cell.settle(5_000)

    row = main(cell, "ml")
    assert (row["numbers"]["short"]["since_ms"], row["numbers"]["short"]["seq"]) == (7_000, since)
    assert f"it has had less than it is due for 5 s (since record {since}" in row["text"]
    cell.finish("a", "s", count=4)
    assert "short" not in main(cell, "ml")["numbers"]


def test_a_queue_whose_next_task_fits_nowhere_is_not_told_that_it_asks_for_more_than_it_is_due():
    tree = Queue("root", children=[Queue("ads"), Queue("ml", guaranteed={"cpu": 4_000})])
    cell = Watched(nodes=2, cpu=4, queues=tree, preset="hdrf")
    cell.submit("a", stage(cpu=3, tasks=2, estimate_ms=60_000), queue="ads").start("a", "s", count=2)
    cell.submit("b", stage(cpu=4, tasks=2), queue="ml").settle(1_000)
    # As fairness says it while others use what is guaranteed.
    cell.view.shares["ml"] = replace(cell.view.shares["ml"], fair=0)

    row = main(cell, "ml")
    assert row["reason"] == "no_room"
    assert "is due 0 % until it can use the 50 % that are guaranteed" in row["text"]
    assert not [text for text in row["unblocks"] if "weight" in text]
    (beside,) = [row for row in why(cell, "ml", "queue")["reasons"] if row["numbers"].get("queue") == "ads"]
    assert (beside["reason"], beside["text"].partition(": ")[2]) == (
        "no_room",
        "no room was found for what queue ml asks for next",
    )


def test_a_task_that_runs_says_which_jobs_it_overtook_and_by_which_rule():
    cell = full().submit("large", stage(cpu=3)).submit("small", stage(cpu=1), stage("more", cpu=1))
    cell.take(JobChanged("large", hold=True, author="ann")).settle()
    cell.finish("fills", "s").start("small", "s")
    assert why(cell, "small/s/0")["reasons"][0]["numbers"]["overtook"] == []  # Nobody overtakes what is held.

    cell = Watched(cpu=4).submit("fills", stage(cpu=3, estimate_ms=60_000)).start("fills", "s")
    cell.submit("large", stage(cpu=3)).submit("small", stage(cpu=1)).start("small", "s")
    row = why(cell, "small/s/0")["reasons"][0]
    assert row["numbers"]["overtook"] == [
        {"job": "large", "queue": "default", "rule": "room", "why": "asks for more cpu"}
    ]
    assert row["text"].endswith("it went before 1 job submitted before it that waits still: large (asks for more cpu)")
    assert why(cell, "fills/s/0")["reasons"][0]["numbers"]["overtook_jobs"] == 0


def test_a_task_of_a_higher_priority_says_that_it_overtook_by_that():
    cell = (
        Watched(cpu=4).submit("fills", stage(cpu=4, estimate_ms=60_000)).start("fills", "s").submit("low", stage(cpu=4))
    )
    cell.take(JobSpec("high", "default", [stage(cpu=4)], priority=5)).settle().finish("fills", "s").start("high", "s")

    (row,) = why(cell, "high/s/0")["reasons"][0]["numbers"]["overtook"]
    assert (row["job"], row["rule"], row["why"]) == ("low", "priority", "has priority 0 beside 5")


def test_a_task_that_has_ended_says_which_record_granted_it_and_which_jobs_it_overtook():
    cell = Watched(cpu=4).submit("fills", stage(cpu=3, estimate_ms=60_000)).start("fills", "s")
    cell.submit("large", stage(cpu=3)).submit("small", stage(cpu=1), stage("more", cpu=1)).start("small", "s")
    (granted,) = {why(cell, "small/s/0")["reasons"][0]["numbers"]["granted"]}
    cell.finish("small", "s")

    row = why(cell, "small/s/0")["reasons"][0]
    overtook = {"job": "large", "queue": "default", "rule": "room", "why": "asks for more cpu"}
    assert (row["reason"], row["numbers"]["granted"], row["numbers"]["overtook"]) == ("over", granted, [overtook])
    assert row["text"].endswith("that waits still: large (asks for more cpu)")
    assert f"record {granted} granted it" in row["text"]

    cell.start("small", "more").finish("small", "more")
    found = why(cell, "small/s/0")
    assert (found["state"], found["reasons"][0]["numbers"]["overtook"]) == ("succeeded", [overtook])
    assert "overtook" not in why(cell, "small")["reasons"][0]["numbers"]
    cell.finish("fills", "s").start("large", "s")
    assert why(cell, "small/s/0")["reasons"][0]["numbers"]["overtook"] == []


def test_a_node_says_what_runs_there_and_why_nothing_new_does():
    cell = full().submit("j", stage())
    assert words(cell, "n0") == ["full", "running"]
    cell.take(NodeDrained("n0", True, "ann", "new disk")).settle()
    row = main(cell, "n0")
    assert (row["reason"], row["text"], row["unblocks"]) == (
        "draining",
        "n0 drains by ann: new disk",
        ["largesse node resume n0"],
    )
    assert words(Watched(), "n0") == ["demand", "running"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jj", 'no job, reservation, queue or node "jj" is known here'),
        ("j/t", 'job j has no stage "t": s'),
        ("j/s/1", 'stage s of job j has tasks 0 to 0, and no "1"'),
        ("n00", 'no job, reservation, queue or node "n00" is known here; did you mean "n0"?'),
    ],
)
def test_what_is_not_there_is_told(name, said):
    cell = Watched().submit("j", stage())
    with pytest.raises(UnknownId) as fault:
        why(cell, name)
    assert str(fault.value).startswith(said)


# ---------------------------------------------------------------- over HTTP, and in a log
def test_the_gateway_tells_why():
    async def story(cell):
        await cell.post({**JOB, "stages": [{**JOB["stages"][0], "tasks": 8}]})
        await cell.follower.until(lambda view: view.jobs["j"].starting == [4], 60)
        found = (await cell.get("/v1/jobs/j/why")).json()
        assert (await cell.get("/v1/why", id="j")).json()["reasons"] == found["reasons"]
        assert found["reasons"][0]["reason"] in ("no_room", "next_round")
        assert (await cell.get("/v1/jobs/j/why", stage="s", index=7)).json()["kind"] == "task"
        assert (await cell.get("/v1/nodes/n1/why")).json()["kind"] == "node"
        assert (await cell.get("/v1/queues/default/why")).json()["kind"] == "queue"
        assert len((await cell.get("/v1/reasons")).json()["reasons"]) == len(REASONS)
        unknown = await cell.get("/v1/reservations/r/why")
        assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:largesse:unknown_reservation")

    run_in_memory(story)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log"
    recorded(path, 1, 30)
    return path


def test_a_log_tells_why_at_any_point_on_sixty_columns(log):
    said = largesse("why", "job-12", "--log", log, "--at", 200, terminal=True, columns=60)
    assert said.code == 0
    assert said.out.startswith("job-12: job, ")
    assert max(map(len, said.out.splitlines())) <= 60

    piped = largesse("why", "job-12", "--log", log, "--at", 200).out.splitlines()
    assert piped[0] == "id\tjob-12\tjob"
    assert piped[1].startswith("at\t200\t")
    document = json.loads(largesse("why", "job-12", "--log", log, "--at", 200, "--json").out)
    assert document["at"]["seq"] == 200
    assert [row.split("\t")[1] for row in piped if row.startswith("reason\t")] == [
        row["reason"] for row in document["reasons"]
    ]
    ended = json.loads(largesse("why", "job-12", "--log", log, "--json").out)
    assert sum(ended["waited"].values()) == (
        ended["reasons"][0]["numbers"]["ended_ms"] - ended["reasons"][0]["numbers"]["submitted_ms"]
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nobody"], 1, "is known here"),
        (["job-1", "--at", "9999999"], 2, "the log ends at record"),
        (["job-1", "--at", "noon"], 2, "--at: 'noon' is neither"),
        (["job-1", "--url", "http://127.0.0.1:1"], 2, "--log: cannot be combined with --url"),
    ],
)
def test_what_cannot_be_told_of_a_log_is_said(log, words, code, said):
    found = largesse("why", *words, "--log", log)
    assert (found.code, said in found.err) == (code, True)


def test_the_page_has_every_word():
    page = (ROOT / "docs" / "why.md").read_text()
    for word, text in REASONS.items():
        assert f"| `{word}` | {text.means} | {text.action} |" in page
