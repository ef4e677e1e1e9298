"""Further runs of jobs that have ended: which may be, what they keep, and how they are asked for."""

import json
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from schemas import AntiAffinity, InputRefused, JobAdmitted, JobChanged, JobRerun, JobSpec, Spread
from schemas.edge.job_document import job_document
from schemas.edge.read import Malformed, read_input
from services.gateway.documents.jobs import job_document as shown_job
from services.gateway.view import reruns
from services.gateway.view.places import place_of
from tests.builders import config, job, stage
from tests.cells import AUTHOR, SlowCell, indexes, one_node_cell, place, running_cell
from tests.gateway_cell import JOB, STAGE, run_in_memory
from tests.gateway_watch import Watched
from tests.gateway_watch import stage as task_stage
from tests.properties.histories import Play, seeded_histories
from tests.strategies import for_all
from tests.unit.cli_here import largesse
from tests.unit.test_cli_asking import a_gateway

GRAPH = job(
    "g",
    stage("load", 2, retries=5),
    stage("side", 1),
    stage("map", 2, after=["load"]),
    stage("join", 1, after=["map", "side"]),
)


def failed_at_join():
    """A cell in which all stages of the graph have succeeded but the last, whose task has failed."""
    cell = running_cell(GRAPH)
    while "g" in cell.admission.jobs:
        held = cell.granted[-4:]
        for grant in held:
            if grant.stage == "join":
                cell.fail(grant)
            else:
                cell.finish(grant)
        cell.settle()
    return cell


# ---------------------------------------------------------------- what is said at the edge
def test_a_submission_may_ask_for_another_run():
    document = {
        "job": "j",
        "rerun": True,
        "from_stage": "b",
        "stages": [STAGE | {"stage": "a"}, STAGE | {"stage": "b"}],
    }

    found = read_input("jobs", document, "ann")
    assert (type(found), found.from_stage, found.spec.job) == (JobRerun, "b", "j")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"rerun": True}, "job: is missing: name the job that is to run again"),
        ({"job": "j", "from_stage": "s"}, 'from_stage: is of a job that runs again: write "rerun": true, too'),
        (
            {"job": "j", "rerun": True, "from_stage": "maps"},
            'from_stage: there is no stage "maps"; did you mean "map"?',
        ),
    ],
)
def test_a_malformed_request_names_the_field(document, problem):
    with pytest.raises(Malformed) as fault:
        read_input("jobs", {**document, "stages": [STAGE | {"stage": "map"}]}, "ann")
    assert str(fault.value) == problem


@for_all(seeded_histories(), st.data())
def test_a_spec_as_a_document_reads_back_to_the_same(history, data):
    play = Play(SlowCell())
    for step in history.steps:
        if step[0] == "submit":
            play.step(*step)
    for spec in play.specs.values():
        more = {
            "retries": data.draw(st.integers(0, 3)),
            "timeout_ms": data.draw(st.sampled_from([None, 5, 60_000])),
            "cwd": data.draw(st.sampled_from([None, "/tmp"])),
            "env": data.draw(st.sampled_from([{}, {"A": "b c"}])),
        }
        stages = [replace(each, **more) for each in spec.stages]
        if data.draw(st.booleans()):
            stages = [replace(each, durations_ms=[], command=["sh", "-c", "true"]) for each in stages]
        full = replace(spec, stages=stages, user=data.draw(st.sampled_from(["", "ann"])), hold=data.draw(st.booleans()))

        assert read_input("jobs", job_document(full), "") == full


def test_every_field_of_a_job_is_in_its_document():
    rules = {"anti_affinity": AntiAffinity("db", False), "spread": Spread("zone", 3, False)}
    each = stage(true_demand={"cpu": 3}, running_max=2, **rules)
    reads = stage("reads", after=[each.stage], inputs=[each.stage], durations_ms=[], command=["true"])
    spec = JobSpec("j", "ads/prod", [each, reads], 7, "ann", "r", "0.1", 30, "never", True)

    assert read_input("jobs", job_document(spec), "") == spec


# ---------------------------------------------------------------- what is refused
def test_a_job_that_lives_that_nobody_knows_or_that_is_another_does_not_run_again():
    cell = one_node_cell(job("lives"), job("other"), job("ends"))
    cell.settle()
    cell.cancel("ends")
    cell.settle()
    asked = {
        "lives": JobRerun(job("lives")),
        "nobody": JobRerun(job("nobody")),
        "ends": JobRerun(job("ends")),
    }
    found = {name: cell.take(each) for name, each in asked.items()}
    cell.finish(*[grant for grant in cell.granted if grant.job == "ends"])
    found["another"] = cell.take(JobRerun(job("ends", stage(tasks=2))))
    found["big"] = cell.take(JobRerun(job("ends")))

    reasons = {name: body.reason for name, body in found.items() if isinstance(body, InputRefused)}
    assert reasons == {
        "lives": 'job "lives" has not ended: cancel it first, or wait',
        "nobody": 'no job "nobody" has ended here of late: submit it without "rerun"',
        "ends": 'attempts of job "ends" are still ending: ask again in a moment',
        "another": '"ends" is another job: a job runs again as it was submitted; choose a new name',
    }
    assert isinstance(found["big"], JobAdmitted)


def test_limits_count_for_another_run_as_for_a_submission():
    cell = one_node_cell(job("j", stage(tasks=3)))
    cell.cancel("j")
    cell.settle()
    cell.take(config(job_tasks_max=2))

    refused = cell.take(JobRerun(job("j", stage(tasks=3))))
    assert (refused.field, "job_tasks_max" in refused.reason) == ("stages", True)


def test_a_name_that_is_forgotten_is_submitted_and_not_run_again():
    cell = one_node_cell(config(name_kept_ms=0), job("j"))
    cell.cancel("j")
    cell.settle()

    assert "submit it without" in cell.take(JobRerun(job("j"))).reason


# ---------------------------------------------------------------- what runs, and under which number
def test_the_whole_job_runs_again_and_attempts_go_on_counting():
    cell = running_cell(job("j", stage(tasks=2, retries=2)))
    first = cell.granted[0]
    cell.fail(first)
    cell.at(cell.time + 60_000).settle()
    cell.cancel("j")
    cell.finish(*[grant for grant in cell.granted if grant is not first])
    cell.settle()
    before = len(cell.granted)

    body = cell.take(JobRerun(job("j", stage(tasks=2, retries=2))))
    cell.settle()
    assert (body.run, body.attempts, body.kept, body.author) == (2, 2, [], AUTHOR)
    assert [(grant.first, grant.count, grant.attempt) for grant in cell.granted[before:]] == [(0, 2, 3)]


def test_stages_that_succeeded_stay_and_the_rest_runs_again():
    cell = failed_at_join()
    assert cell.ended()["g"] == "failed"
    before = len(cell.granted)

    body = cell.take(JobRerun(GRAPH, "map"))
    cell.settle()
    assert (body.kept, body.from_stage) == (["load", "side"], "map")
    assert indexes(cell.granted[before:]) == [("map", 0), ("map", 1)]
    cell.finish(*cell.granted[before:])
    last = cell.settle()
    assert indexes(last) == [("join", 0)]
    cell.finish(*last)
    cell.settle()
    assert cell.ended()["g"] == "succeeded"
    assert cell.take(JobRerun(GRAPH)).run == 3


def test_what_did_not_succeed_before_a_stage_runs_too():
    cell = running_cell(GRAPH)
    cell.finish(*[grant for grant in cell.granted if grant.stage == "load"])
    cell.cancel("g")
    cell.fail(*[grant for grant in cell.granted if grant.stage == "side"], reason="killed")
    cell.settle()

    assert cell.take(JobRerun(GRAPH, "join")).kept == ["load"]


def test_another_run_waits_held_where_the_job_says_so_and_is_what_was_submitted():
    spec = replace(job("j"), hold=True)
    cell = running_cell(spec)
    cell.take(JobChanged("j", priority=4))
    cell.cancel("j")
    cell.settle()
    body = cell.take(JobRerun(spec))

    assert cell.settle() == []
    assert (body.run, cell.admission.jobs["j"].spec.priority) == (2, 0)
    cell.take(JobChanged("j", hold=False))
    assert [place(grant)[4] for grant in cell.settle()] == [1]


# ---------------------------------------------------------------- what is shown
def test_kept_stages_show_what_they_did_and_where():
    cell = Watched()
    spec = JobSpec("j", "default", [task_stage("a", 2), task_stage("b", after=["a"])])
    cell.take(spec).settle().start("j", "a", 2).finish("j", "a", 2).start("j", "b").fail("j", "b")
    assert (cell.job("j")["state"], cell.job("j")["run"]) == ("failed", 1)
    first = cell.view.ended["j"].admitted
    cell.take(JobRerun(spec, "b")).settle()

    live = cell.job("j")
    assert (live["run"], live["state"], cell.tasks("j"), cell.tasks("j", 1)) == (
        2,
        "waiting",
        {"succeeded": 2},
        {"starting": 1},
    )
    assert place_of(cell.view, "j", "a", 1, None).admitted == first
    assert place_of(cell.view, "j", "b", 0, None).admitted != first
    cell.start("j", "b", attempt=2).finish("j", "b", attempt=2)
    over = shown_job(cell.view, "j")
    assert (over["run"], over["state"], over["tasks"]["succeeded"]) == (2, "succeeded", 3)
    assert place_of(cell.view, "j", "a", 1, None).admitted == first


def test_over_http_a_job_runs_again_as_it_was_submitted():
    async def story(cell):
        await cell.post(JOB | {"hold": True, "priority": 3})
        lives = await cell.http.post("/v1/jobs/j/rerun", json={})
        await cell.http.patch("/v1/jobs/j", json={"priority": 9})
        await cell.http.delete("/v1/jobs/j")
        found = [await cell.http.post("/v1/jobs/j/rerun", json=body) for body in ({"from_stage": "x"}, {"from": 1}, {})]
        unknown = await cell.http.post("/v1/jobs/nobody/rerun", json={})
        now = (await cell.get("/v1/jobs/j")).json()
        await cell.http.delete("/v1/jobs/j")
        posted = await cell.post(JOB | {"hold": True, "priority": 3, "rerun": True})
        cell.follower.state.specs.clear()
        await cell.http.delete("/v1/jobs/j")
        cell.follower.state.specs.clear()
        gone = await cell.http.post("/v1/jobs/j/rerun", json={})
        return lives, *found, unknown, posted, gone, now

    *answers, now = run_in_memory(story)
    assert [(each.status_code, each.json().get("field")) for each in answers] == [
        (409, "job"),
        (422, "from_stage"),
        (422, "from"),
        (201, None),
        (404, None),
        (201, None),
        (409, "job"),
    ]
    assert 'there is no stage "x"' in answers[1].json()["detail"]
    assert '"rerun": true' in answers[-1].json()["detail"]
    assert (now["run"], now["priority"]) == (2, 3)


def test_commands_ask_for_another_run(tmp_path):
    (tmp_path / "j.json").write_text(json.dumps(JOB))
    made = (201, {"job": "j", "state": "waiting", "warnings": []}, {})
    with a_gateway({("POST", "/v1/jobs/j/rerun"): [made], ("POST", "/v1/jobs"): [made]}) as (url, asked):
        said = [
            largesse("rerun", "j", "--from-stage", "s", "--url", url),
            largesse("rerun", "j", "--json", "--url", url),
            largesse("submit", tmp_path / "j.json", "--rerun", "--from-stage", "s", "--url", url),
        ]
        wrong = largesse("submit", tmp_path / "j.json", "--from-stage", "s", "--url", url)

    assert [each.code for each in said] == [0, 0, 0]
    assert (said[0].out, said[1].json["job"], said[2].out) == ("j\n", "j", "j\n")
    assert [body for _, _, body in asked[:2]] == [b'{"from_stage":"s"}', b"{}"]
    assert b'"rerun":true,"from_stage":"s"' in asked[2][2]
    assert (wrong.code, "give --rerun, too" in wrong.err) == (2, True)


def test_what_was_submitted_is_kept_for_the_last_jobs_alone(monkeypatch):
    cell = Watched()
    for name in ("a", "b", "c"):
        cell.submit(name, task_stage()).start(name, "s").finish(name, "s")
        monkeypatch.setattr(reruns, "SPECS_CHARACTERS_MAX", 2 * len(cell.view.specs["a" if name == "a" else "b"]))

    assert list(cell.view.specs) == ["b", "c"]
    assert cell.view.specs_kept == sum(map(len, cell.view.specs.values()))
