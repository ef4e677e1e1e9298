"""Changes of jobs over HTTP, on the bus and from the command line, and what is shown of held jobs."""

import asyncio
from dataclasses import replace

from largesse.log.reader import publish_input
from schemas import JobChanged
from services.gateway.documents.job_lists import job_documents
from services.gateway.documents.tally import Tally
from tests.builders import job
from tests.gateway_cell import GUARD_S, JOB, STAGE, YAML, run_in_memory
from tests.gateway_watch import Watched, stage
from tests.unit.cli_here import largesse
from tests.unit.test_cli_asking import a_gateway

ANN = {"Largesse-User": "ann"}
WIDE = {"job": "wide", "stages": [STAGE | {"tasks": 8}]}


def test_a_job_is_held_released_and_ranked_anew_over_http():
    async def story(cell):
        await cell.post(WIDE | {"hold": True}, headers=ANN)
        answers = [await cell.get("/v1/jobs/wide")]
        for patch in ({"hold": False}, {"hold": True, "priority": 4}, {"hold": True, "priority": 5}):
            answers.append(await cell.http.patch("/v1/jobs/wide", json=patch, headers={"Largesse-User": "bob"}))
        listed = await cell.get("/v1/jobs")
        return answers, listed.json()["jobs"]

    answers, listed = run_in_memory(story)
    first, released, held, again = [each.json() for each in answers]
    assert {each.status_code for each in answers} == {200}
    assert first["held"]["by"] == "ann"
    assert first["why"].startswith("held by ann since 20")
    assert (released["held"], held["held"]["by"], held["priority"]) == (None, "bob", 4)
    assert again["held"] == held["held"], "who held it first, and since when"
    assert listed[0]["why"].startswith("held by bob since ")


def test_a_change_may_be_yaml_and_come_over_the_bus():
    async def story(cell):
        await cell.post(WIDE)
        by_yaml = await cell.http.patch("/v1/jobs/wide", content="hold: true\n", headers=YAML)
        await publish_input(cell.bus.writer(), "jobs", {"change": "wide", "priority": 9}, "ann")
        await cell.follower.until(lambda view: view.jobs["wide"].spec.priority == 9, GUARD_S)
        return by_yaml.json()["held"]["by"], (await cell.get("/v1/jobs/wide")).json()["priority"]

    assert run_in_memory(story) == ("tester", 9)


def test_refusals_over_http_name_the_field():
    tree = {"name": "root", "children": [{"name": "ads", "children": [{"name": "prod"}]}, {"name": "default"}]}

    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": tree})
        await cell.post(JOB)
        await cell.post({"job": "done", "stages": [STAGE]})
        await cell.http.delete("/v1/jobs/done")
        patches = [
            ("nobody", {"hold": True}),
            ("done", {"hold": True}),
            ("j", {"queue": "ads/prd"}),
            ("j", {"queue": "ads"}),
            ("j", {}),
            ("j", {"hold": 1}),
            ("j", {"change": "k", "hold": True}),
            ("j", ["hold"]),
        ]
        found = [await cell.http.patch(f"/v1/jobs/{name}", json=patch) for name, patch in patches]
        posted = await cell.post({"change": "j", "hold": True})
        return [(each.status_code, each.json().get("field"), each.json()["detail"]) for each in [*found, posted]]

    answers = run_in_memory(story)
    assert [(status, field) for status, field, _ in answers] == [
        (404, None),
        (409, "job"),
        (409, "queue"),
        (409, "queue"),
        (422, ""),
        (422, "hold"),
        (422, "change"),
        (422, ""),
        (422, "change"),
    ]
    assert 'the nearest name is "ads/prod"' in answers[2][2]
    assert "name one of those: ads/prod" in answers[3][2]
    assert "PATCH /v1/jobs/{id}" in answers[8][2]


def test_each_change_is_answered_once_and_by_its_own_record():
    async def story(cell):
        await cell.post(WIDE)
        patches = [cell.http.patch("/v1/jobs/wide", json={"priority": n}) for n in range(20)]
        answers = await asyncio.gather(*patches)
        return [each.status_code for each in answers], cell.follower.state.jobs["wide"].spec.priority

    statuses, last = run_in_memory(story)
    assert statuses == [200] * 20
    assert last in range(20)


# ---------------------------------------------------------------- what is shown
def test_a_held_job_says_so_before_any_other_reason_and_so_do_metrics():
    cell = Watched()
    cell.take(replace(job("j", stage("a", 2), stage("b", after=["a"])), hold=True)).settle()

    assert cell.why("j") == [("held", 2)]
    assert cell.why("j", 1) == [("after", 1)]
    assert job_documents(cell.view, limit=9)[0]["why"] == "held by ann since 1970-01-01T00:00:00Z"
    counts = asyncio.run(Tally().look(cell.view))
    assert {reason for _, reason in counts.waiting} == {"held", "after"}
    cell.take(JobChanged("j", hold=False)).settle()
    assert cell.tasks("j") == {"starting": 2}
    assert cell.job("j")["held"] is None


def test_what_runs_of_a_held_job_goes_on():
    cell = Watched(cpu=2)
    cell.submit("j", stage(tasks=4)).start("j", "s", 2)
    cell.take(JobChanged("j", hold=True)).settle().finish("j", "s")

    assert cell.tasks("j") == {"waiting": 2, "running": 1, "succeeded": 1}
    assert cell.job("j")["state"] == "running"


# ---------------------------------------------------------------- the command line
def shown(name, held=None, **more):
    return {"job": name, "state": "waiting", "priority": 0, "queue": "default", "held": held} | more


def test_commands_hold_release_and_change_jobs():
    answers = {
        ("PATCH", "/v1/jobs/a"): [
            (200, shown("a", {"by": "ann", "since_ms": 5}), {}),
            (200, shown("a"), {}),
            (200, shown("a", priority=3, queue="ads"), {}),
        ]
    }
    with a_gateway(answers) as (url, asked):
        said = [
            largesse("hold", "a", "--url", url),
            largesse("release", "a", "--json", "--url", url),
            largesse("change", "a", "--priority", "3", "--queue", "ads", "--url", url),
        ]

    assert [each.code for each in said] == [0, 0, 0]
    assert said[0].out == "a: waiting, priority 0, queue default, held by ann\n"
    assert said[1].json == shown("a")
    assert said[2].out == "a: waiting, priority 3, queue ads\n"
    bodies = [body for _, _, body in asked]
    assert bodies == [b'{"hold":true}', b'{"hold":false}', b'{"priority":3,"queue":"ads"}']


def test_one_job_that_cannot_be_held_keeps_no_other():
    problem = {"type": "urn:largesse:unknown_job", "detail": 'job "b" is unknown', "status": 404}
    answers = {
        ("PATCH", "/v1/jobs/a"): [(200, shown("a", {"by": "ann", "since_ms": 5}), {})],
        ("PATCH", "/v1/jobs/b"): [(404, problem, {})],
    }
    with a_gateway(answers) as (url, _):
        said = largesse("hold", "b", "a", "--url", url)

    assert (said.code, said.out) == (1, "a: waiting, priority 0, queue default, held by ann\n")
    assert said.err == 'largesse: b: job "b" is unknown\nlargesse: 1 of 2 could not be changed\n'


def test_a_change_of_nothing_names_the_options():
    said = largesse("change", "a")

    assert (said.code, said.out) == (2, "")
    assert "--priority N, --queue PATH, or both" in said.err
