"""`submit --dry-run` and `POST /v1/jobs?dry_run=true`: the process that answers, and what people read of it."""

import json
import sys

import pytest

from schemas.topics import INPUTS
from services.cli.trying import trial_rows, trial_text
from services.gateway.documents.models.jobs import Submitted
from services.gateway.http.dry_runs import jobs, lending
from tests.gateway_cell import JOB, STAGE, run_in_memory
from tests.unit.cli_here import largesse
from tests.unit.test_cli_asking import a_gateway

DRY = {"dry_run": "true"}


async def ends(cell):
    return [await cell.bus.bounds(topic, 0) for topic in INPUTS]


@pytest.mark.slow
def test_a_dry_run_says_where_a_job_would_start_and_writes_nothing():
    async def story(cell):
        before = await ends(cell)
        tried = await cell.post(JOB | {"stages": [STAGE | {"tasks": 6}]}, params=DRY)
        after = await ends(cell)
        return tried, before, after, cell.follower.state

    tried, before, after, view = run_in_memory(story)
    document = tried.json()
    assert tried.status_code == 200
    assert after == before
    assert not view.jobs
    assert (document["job"], document["state"], document["dry_run"]) == ("j", "waiting", True)
    assert (document["queue"], document["class"]) == ("default", "large")
    assert document["places"] == [{"stage": "s", "node": "n1", "tasks": 4}]
    assert document["waiting"] == 2
    assert document["start"]["earliest_ms"] >= document["at"]["time"]
    assert Submitted.model_validate(document).start is not None
    assert document["reasons"][0]["reason"] == "no_room"


REFUSED = [
    pytest.param(JOB | {"queue": "nowhere"}, id="no such queue"),
    pytest.param(JOB | {"stages": [STAGE | {"demand": {"cpu": "99"}}]}, id="a task that no node could hold"),
    pytest.param(JOB | {"reservation": "r"}, id="no such reservation"),
    pytest.param(JOB | {"rerun": True}, id="a job that never was"),
    pytest.param(JOB | {"stages": [STAGE | {"labels": {"zone": "b"}}]}, id="labels that no node has"),
    pytest.param(JOB | {"stages": [STAGE | {"taks": 2}]}, id="a slip"),
]


@pytest.mark.slow
@pytest.mark.parametrize("document", REFUSED)
def test_what_would_be_refused_is_refused_in_the_same_words(document):
    async def story(cell):
        tree = {"name": "root", "children": [{"name": "ads"}]}
        await cell.http.put("/v1/config", json={"queues": tree})
        return await cell.post(document, params=DRY), await cell.post(document)

    tried, real = run_in_memory(story)
    assert real.status_code in (409, 422)
    assert (tried.status_code, tried.json()) == (real.status_code, real.json())


def test_a_process_that_ends_without_an_answer_is_told_with_its_last_words(monkeypatch):
    monkeypatch.setattr(jobs, "TRIAL", (sys.executable, "-c", "raise SystemExit('no memory left')"))

    answer = run_in_memory(lambda cell: cell.post(JOB, params=DRY))
    assert answer.status_code == 500
    assert "no memory left" in answer.json()["detail"]


def test_a_process_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(jobs, "TRIAL", (sys.executable, "-c", "import time; time.sleep(3_600)"))
    monkeypatch.setattr(lending, "TRIAL_WAIT_S", 0.05)

    answer = run_in_memory(lambda cell: cell.post(JOB, params=DRY))
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:largesse:effect")


# ---------------------------------------------------------------- what people read
ANSWER = {
    "job": "train",
    "state": "waiting",
    "dry_run": True,
    "warnings": [],
    "at": {"seq": 120, "time": 1_000_000},
    "class": "large",
    "queue": "ml/prod",
    "shares": {"queue": "ml/prod", "guaranteed": 0.5, "fair": 0.25, "allocated": 0.125, "resource": "cpu"},
    "places": [{"stage": "map", "node": "node-1", "tasks": 4}, {"stage": "map", "node": "node-2", "tasks": 2}],
    "waiting": 3,
    "start": {"earliest_ms": 1_000_000, "likely_ms": 1_000_000, "latest_ms": 1_000_000},
    "reasons": [
        {"reason": "room", "text": "no node has room for it: 2 of cpu are free", "numbers": {}, "unblocks": []},
        {"reason": "starting", "text": "6 tasks start on 2 nodes", "numbers": {}, "unblocks": []},
    ],
}
LATER = ANSWER | {
    "places": [],
    "waiting": 9,
    "start": {"earliest_ms": 1_040_000, "likely_ms": 1_100_000, "latest_ms": None},
}


@pytest.fixture
def columns(monkeypatch):
    def set_to(count):
        monkeypatch.setenv("COLUMNS", str(count))

    set_to(60)
    return set_to


def test_it_reads_well_in_sixty_columns(columns):
    text = trial_text(ANSWER)
    assert max(map(len, text.splitlines())) <= 60
    assert [line.rstrip() for line in text.splitlines()] == [
        "job        train",
        "state      would be admitted",
        "class      large",
        "queue      ml/prod: has 12.5 % of the cell now, guaranteed",
        "           50.0 %, fair 25.0 %",
        "starts     6 tasks in the next round, 3 would wait",
        "stage map  4 on node-1, 2 on node-2",
        "waits      no node has room for it: 2 of cpu are free",
        "",
        "dry run: nothing has been submitted",
    ]


def test_what_cannot_start_now_is_told_when_it_is_expected(columns):
    assert "starts at the earliest in 40.0 s, likely in 100.0 s" in " ".join(trial_text(LATER).split())
    assert "not known when" in trial_text(LATER | {"start": None})


def test_a_job_that_is_known_word_for_word_says_so(columns):
    known = {"job": "j", "state": "repeated", "job_state": "running", "dry_run": True, "warnings": []}
    assert "in the cell already, word for word" in trial_text(known)
    assert trial_rows(known).splitlines() == ["job\tj", "state\trepeated"]


def test_a_pipe_gets_a_row_a_line():
    rows = [line.split("\t") for line in trial_rows(ANSWER).splitlines()]
    assert ["place", "map node-1 4"] in rows
    assert ["fair", "0.25"] in rows
    assert all(len(row) == 2 for row in rows)


@pytest.mark.parametrize("json_too", [False, True])
def test_the_command_asks_for_a_dry_run_and_submits_nothing(tmp_path, json_too):
    (tmp_path / "j.json").write_text(json.dumps(JOB))
    with a_gateway({("POST", "/v1/jobs"): [(200, ANSWER, {})]}) as (url, asked):
        said = largesse("submit", tmp_path / "j.json", "--dry-run", "--url", url, *(["--json"] if json_too else []))

    assert said.code == 0
    assert [path for _, path, _ in asked] == ["/v1/jobs?dry_run=true"]
    if json_too:
        assert json.loads(said.out) == ANSWER
    else:
        assert said.out == trial_rows(ANSWER)


def test_a_refusal_names_file_field_and_reason_and_the_exit_code_is_one(tmp_path):
    (tmp_path / "j.json").write_text(json.dumps(JOB))
    problem = {"type": "urn:largesse:refused:unknown_queue", "detail": 'queue "x" is unknown', "field": "queue"}
    with a_gateway({("POST", "/v1/jobs"): [(422, problem, {})]}) as (url, _):
        said = largesse("submit", tmp_path / "j.json", "--dry-run", "--url", url)

    assert said.code == 1
    assert "j.json: queue" in said.err


def test_what_is_not_submitted_cannot_be_watched(tmp_path):
    (tmp_path / "j.json").write_text(json.dumps(JOB))
    said = largesse("submit", tmp_path / "j.json", "--dry-run", "--watch", "--url", "http://127.0.0.1:1")

    assert said.code == 2
    assert "--watch" in said.err
