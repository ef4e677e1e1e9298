"""The gateway's HTTP, address by address, over a bus in memory."""

import asyncio
import json

import pytest

from largesse.hosts import hosts_of
from largesse.log.codec import decode, unwrap
from largesse.task_output import Piece
from schemas import RoundAbandoned
from services.leftover import core as leftover
from tests.gateway_cell import GUARD_S, JOB, STAGE, YAML, run_in_memory, until_ready


def test_a_job_is_admitted_and_found():
    async def story(cell):
        answer = await cell.post(JOB)
        return answer, (await cell.get("/v1/jobs/j")).json(), (await cell.get("/v1/jobs", state="waiting")).json()

    answer, job, listed = run_in_memory(story)
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/jobs/j")
    assert answer.json() == {"job": "j", "state": "waiting", "warnings": []}
    assert (job["state"], job["author"], job["stages"][0]["tasks"]["total"]) == ("waiting", "tester", 2)
    assert [each["job"] for each in listed["jobs"]] == ["j"]


def test_a_repeat_changes_nothing_and_another_job_of_the_name_is_a_conflict():
    async def story(cell):
        await cell.post(JOB)
        return await cell.post(JOB), await cell.post(JOB | {"priority": 7})

    again, other = run_in_memory(story)
    assert (again.status_code, again.json()["state"], again.json()["job_state"]) == (200, "repeated", "waiting")
    assert "ended" not in other.json()["detail"]
    assert (other.status_code, other.json()["type"]) == (409, "urn:largesse:refused:name_taken")
    assert other.json()["field"] == "job"


def test_a_repeat_of_a_job_that_has_ended_says_how_and_so_does_its_name_when_it_is_taken():
    async def story(cell):
        await cell.post(JOB)
        await cell.http.delete("/v1/jobs/j")
        known = await cell.post(JOB), await cell.post(JOB | {"priority": 7})
        cell.follower.state.ended.clear()
        return *known, await cell.post(JOB), await cell.post(JOB | {"priority": 7})

    again, other, forgotten, unknown = run_in_memory(story)
    assert (again.status_code, again.json()["state"], again.json()["job_state"]) == (200, "repeated", "cancelled")
    assert (other.status_code, other.json()["job_state"]) == (409, "cancelled")
    assert other.json()["detail"].endswith("; that job has ended: it was cancelled")
    assert (forgotten.status_code, forgotten.json()["job_state"]) == (200, "cancelled"), "the log says it still"
    assert "ended" not in unknown.json()["detail"]


def test_a_job_without_a_name_gets_one():
    async def story(cell):
        name = (await cell.post({"stages": [STAGE]})).json()["job"]
        return name, await cell.get(f"/v1/jobs/{name}")

    name, found = run_in_memory(story)
    assert (name, found.status_code) == ("jobs-0-0", 200)


def test_what_the_cell_cannot_run_is_refused_with_the_field():
    async def story(cell):
        huge = STAGE | {"demand": {"cpu": "64"}}
        return await cell.post(JOB | {"stages": [huge]}), await cell.get("/v1/jobs/j")

    answer, job = run_in_memory(story)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:largesse:refused:exceeds_capacity")
    assert answer.json()["field"] == "stages[0].demand"
    assert answer.headers["content-type"] == "application/problem+json"
    assert job.json()["state"] == "rejected"


def test_labels_that_no_node_has_are_refused_with_those_that_there_are():
    async def story(cell):
        return await cell.post(JOB | {"stages": [STAGE, STAGE | {"stage": "r", "labels": {"zoen": "b"}}]})

    detail = run_in_memory(story).json()["detail"]
    assert detail == "stages[1].labels: no node has the labels zoen=b; no node has any label"


@pytest.mark.parametrize(
    ("body", "headers", "status", "field", "detail"),
    [
        pytest.param("{", {}, 400, "", "is no JSON", id="half a document"),
        pytest.param("[]", {}, 422, "", "has to be an object", id="a list"),
        pytest.param('{"job": "j"}', {}, 422, "stages", "is missing", id="no stages"),
        pytest.param('{"job": "j", "job": "k"}', {}, 400, "job", "given twice", id="a key twice"),
        pytest.param('{"stagse": []}', {}, 422, "stagse", 'did you mean "stages"', id="a slip"),
        pytest.param('{"cancel": "j"}', {}, 422, "cancel", "DELETE", id="a cancellation by the wrong door"),
        pytest.param("a: &x 1\nb: *x", YAML, 400, "", "anchors are not taken", id="an anchor"),
        pytest.param("!!python/object:os.system x", YAML, 400, "", "tags are not taken", id="a tag"),
        pytest.param("job: j\njob: k", YAML, 400, "job", "given twice", id="a YAML key twice"),
        pytest.param(
            "stages: [{stage: s, demand: {cpu: 1}, gang: yes}]", YAML, 422, "stages[0].gang", '"yes"', id="yes"
        ),
        pytest.param("job: [", YAML, 400, "", "is no YAML", id="half a YAML document"),
        pytest.param("x" * 1_000_000, {}, 413, "", "at most", id="too large"),
    ],
)
def test_what_is_malformed_is_refused_with_the_field(body, headers, status, field, detail):
    async def story(cell):
        return await cell.http.post("/v1/jobs", content=body, headers=headers)

    answer = run_in_memory(story)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["field"]) == (status, status, field)
    assert detail in problem["detail"]


@pytest.mark.parametrize(
    ("path", "query", "field", "detail"),
    [
        ("/v1/jobs", {"limit": "abc"}, "limit", 'has to be a whole number, is "abc"'),
        ("/v1/jobs", {"limit": "0"}, "limit", 'has to be at least 1, is "0"'),
        ("/v1/jobs", {"limit": "10001"}, "limit", 'has to be at most 10000, is "10001"'),
        ("/v1/tasks/j/s/x/logs", {}, "index", 'has to be a whole number, is "x"'),
    ],
)
def test_a_parameter_is_refused_in_the_words_of_fields(path, query, field, detail):
    async def story(cell):
        return await cell.get(path, **query)

    answer = run_in_memory(story)
    assert (answer.status_code, answer.json()["field"], answer.json()["detail"]) == (422, field, f"{field}: {detail}")


def test_a_state_and_a_dry_run_that_are_none_are_told_with_those_that_are():
    async def story(cell):
        state = await cell.get("/v1/jobs", state="runing")
        return state, await cell.http.put("/v1/config?dry_run=maybe", json={"set": {}})

    state, dry_run = run_in_memory(story)
    assert state.json()["detail"].endswith('; is "runing"; did you mean "running"?')
    assert dry_run.json()["detail"] == 'dry_run: has to be true or false, is "maybe"'


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("etll", 'did you mean "etl"?'),
        ("elt-7", 'did you mean "etl-7"?'),
        ("etl-8", "ended jobs are"),
        ("something-else", "ended jobs are"),
    ],
)
def test_a_job_that_is_unknown_is_told_with_the_nearest_unless_the_number_is_another(asked, text):
    async def story(cell):
        for name in ("etl", "etl-7"):
            await cell.post(JOB | {"job": name})
        return await cell.get(f"/v1/jobs/{asked}")

    problem = run_in_memory(story).json()
    assert problem["detail"].startswith(f'job "{asked}" is unknown; {text}')


def test_a_refused_queue_is_named_once():
    async def story(cell):
        tree = {"name": "root", "children": [{"name": "ads"}]}
        await cell.http.put("/v1/config", json={"queues": tree})
        return await cell.post(JOB | {"queue": "adds"}), await cell.get("/v1/jobs/j")

    for answer in run_in_memory(story):
        assert answer.json()["detail"] == 'queue: "adds" is not in the tree; the nearest name is "ads"'


def test_a_job_spec_in_yaml_is_the_same_as_in_json():
    text = "job: j\nstages:\n  - {stage: s, tasks: 2, command: [true], demand: {cpu: '1'}}\n"

    async def story(cell):
        first = await cell.http.post("/v1/jobs", content=text.replace("[true]", '["true"]'), headers=YAML)
        return first, await cell.post(JOB)

    first, second = run_in_memory(story)
    assert (first.status_code, second.json()["state"]) == (201, "repeated")


def test_very_many_bare_cores_are_warned_of():
    async def story(cell):
        bare = STAGE | {"demand": {"cpu": 500}}
        return (await cell.post(JOB | {"stages": [bare]})).json()["warnings"]

    assert run_in_memory(story) == ['stages[0].demand.cpu: 500 is 500 cores; for 500 thousandths write "500m"']


def test_a_cancelled_job_has_ended_when_the_answer_comes():
    async def story(cell):
        await cell.post(JOB)
        headers = {"Largesse-User": "ann"}
        return await cell.http.delete("/v1/jobs/j", headers=headers), await cell.http.delete("/v1/jobs/j")

    first, second = run_in_memory(story)
    assert (first.status_code, first.json()["state"], first.json()["detail"]) == (200, "cancelled", "by ann")
    assert (second.status_code, second.json()["type"]) == (409, "urn:largesse:refused:ended")


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/v1/jobs/none", "unknown_job"),
        ("DELETE", "/v1/jobs/none", "unknown_job"),
        ("GET", "/v1/jobs/none/events", "unknown_job"),
        ("POST", "/v1/nodes/none/drain", "unknown_node"),
        ("GET", "/v1/nothing", "not_found"),
        ("GET", "/v1/jobs/", "not_found"),
        ("GET", "/v1/tasks/j/s/0/logs", "unknown_job"),
    ],
)
def test_what_is_not_there_is_a_problem_document(method, path, kind):
    answer = run_in_memory(lambda cell: cell.http.request(method, path))

    assert (answer.status_code, answer.json()["type"]) == (404, f"urn:largesse:{kind}")


def test_parameters_are_named_too():
    answer = run_in_memory(lambda cell: cell.get("/v1/jobs", limit=0))

    assert (answer.status_code, answer.json()["field"]) == (422, "limit")


@pytest.mark.parametrize(
    ("method", "path", "field", "detail"),
    [
        (
            "GET",
            "/v1/jobs?foo=1",
            "foo",
            "unknown parameter; known here: at, class, limit, offset, q, queue, reservation, since_ms, sort, state",
        ),
        (
            "GET",
            "/v1/jobs?limit=1&sate=x",
            "sate",
            'did you mean "state"? known here: at, class, limit, offset, q, queue, reservation, since_ms, sort, state',
        ),
        ("GET", "/v1/queues?foo", "foo", "known here: at"),
        ("GET", "/v1/queues?foo=", "foo", "unknown parameter; known here: at"),
        ("GET", "/v1/jobs/j?state=x", "state", "known here: at"),
        ("POST", "/v1/jobs?dryrun=true", "dryrun", 'did you mean "dry_run"?'),
        ("PATCH", "/v1/jobs/j?dry_run=true", "dry_run", "none is known here"),
        ("PUT", "/v1/config?dryrun=true", "dryrun", 'did you mean "dry_run"?'),
        ("GET", "/v1/tasks/j/s/0/logs?steam=stderr", "steam", 'did you mean "stream"? known here: attempt, offset, '),
        ("GET", "/v1/jobs?a%20b%0A=1", '["a b?"]', "unknown parameter"),
    ],
)
def test_a_parameter_that_is_not_known_is_named_with_those_that_are(method, path, field, detail):
    answer = answer_to(method, path)
    problem = answer.json()

    assert (answer.status_code, problem["type"]) == (400, "urn:largesse:malformed")
    assert problem["field"] == field
    assert detail in problem["detail"]


def answer_to(method, path):
    return run_in_memory(lambda cell: cell.http.request(method, path))


@pytest.mark.parametrize("path", ["/livez?x=1", "/metrics?x=1", "/v1/jobs", "/v1/jobs?state=running&limit=5"])
def test_known_parameters_are_taken_and_who_asks_for_health_may_add_any(path):
    assert answer_to("GET", path).status_code == 200


def test_a_drained_node_is_resumed():
    async def story(cell):
        drained = await cell.http.post("/v1/nodes/n1/drain")
        return drained.json(), (await cell.http.post("/v1/nodes/n1/resume")).json()

    drained, resumed = run_in_memory(story)
    assert (drained["state"], resumed["state"]) == ("draining", "ready")


def test_queues_and_knobs_are_changed_by_the_log():
    tree = {"name": "root", "children": [{"name": "ads", "weight": 0.25}, {"name": "ml"}]}

    async def story(cell):
        changed = await cell.http.put("/v1/config", json={"set": {"theta_permille": 200}, "queues": tree})
        again = await cell.http.put("/v1/config", json={"set": {"theta_permille": 200}})
        wrong = await cell.http.put("/v1/config", json={"set": {"theta": 200}})
        return changed.json(), again.json(), wrong, (await cell.get("/v1/queues")).json()

    changed, again, wrong, queues = run_in_memory(story)
    assert (changed["changed"], changed["set"]["theta_permille"]) == (True, 200)
    assert again["changed"] is False
    assert (wrong.status_code, wrong.json()["field"]) == (422, "set.theta")
    assert [(each["queue"], each["weight"]) for each in queues["children"]] == [
        ("ads", 0.25),
        ("ml", 1),
        ("default", 1),
    ]


def test_an_initial_config_is_taken_once():
    async def story(cell):
        first = await cell.http.put("/v1/config", json={"set": {"theta_permille": 200}, "initial": True})
        second = await cell.http.put("/v1/config", json={"set": {"theta_permille": 300}, "initial": True})
        return first.json(), second.json()

    first, second = run_in_memory(story, configured=False)
    assert (first["changed"], second["changed"]) == (True, False)
    assert second["set"]["theta_permille"] == 200


def test_a_tree_that_strands_jobs_is_refused():
    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": {"name": "root", "children": [{"name": "ads"}]}})
        await cell.post(JOB | {"queue": "ads"})
        return await cell.http.put("/v1/config", json={"queues": {"name": "root", "children": [{"name": "ml"}]}})

    answer = run_in_memory(story)
    assert (answer.status_code, answer.json()["field"]) == (409, "queues")


def test_events_tell_a_job_to_its_end():
    async def story(cell):
        await cell.post(JOB)
        following = asyncio.ensure_future(cell.get("/v1/jobs/j/events"))
        await cell.http.delete("/v1/jobs/j")
        return (await following).text

    events = [json.loads(line[6:]) for line in run_in_memory(story).splitlines() if line.startswith("data: ")]
    assert events[-1]["state"] == "cancelled"


def test_output_is_served_from_any_byte_on():
    async def read(wanted):
        text = f"{wanted.job}/{wanted.stage}/{wanted.index} {wanted.stream}".encode()
        return Piece(wanted.attempt or 1, wanted.offset, len(text), text[wanted.offset :]) if not wanted.index else None

    async def story(cell):
        await cell.post(JOB)
        path = "/v1/tasks/j/s/0/logs"
        found = [await cell.get(path), await cell.get(path, stream="stderr", attempt=2, offset=6)]
        missing = [await cell.get(f"/v1/tasks/j/{task}/logs") for task in ("s/1", "s/2", "t/0")]
        return found, missing

    found, missing = run_in_memory(story, read_output=read)
    assert [each.text for each in found] == ["j/s/0 stdout", "stderr"]
    assert [found[1].headers[f"largesse-{name}"] for name in ("task-state", "output-attempt", "output-end")] == [
        "live",
        "2",
        "12",
    ]
    assert [each.json()["type"].rpartition(":")[2] for each in missing] == [
        "no_output",
        "unknown_task",
        "unknown_stage",
    ]


def test_without_an_answer_of_the_log_the_id_is_told():
    async def story(cell):
        await until_ready(cell)
        return await cell.post(JOB), await cell.post({"stages": [STAGE]})

    named, unnamed = run_in_memory(story, answering=False, answer_wait_s=0.05)
    assert (named.status_code, named.json()["job"], named.json()["state"]) == (202, "j", "unanswered")
    assert unnamed.json()["job"] == "jobs-0-1"


def test_a_view_that_has_not_caught_up_answers_nothing_but_that_it_lives():
    async def story(cell):
        return [(await cell.get(path)).status_code for path in ("/livez", "/readyz", "/v1/jobs", "/v1/nodes")]

    assert run_in_memory(story, answering=False, following=False) == [200, 503, 503, 503]


def test_health_metrics_and_the_description_of_the_api():
    async def story(cell):
        await until_ready(cell)
        return [await cell.get(path) for path in ("/readyz", "/metrics", "/openapi.json")]

    ready, metrics, openapi = run_in_memory(story)
    assert (ready.status_code, ready.json()["cell"]) == (200, "default")
    assert 'largesse_nodes{state="ready"} 1.0' in metrics.text
    paths = openapi.json()["paths"]
    assert paths["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert set(paths) >= {"/v1/jobs/{job}", "/v1/queues", "/v1/nodes", "/livez", "/readyz", "/metrics"}


@pytest.mark.parametrize(
    ("headers", "listed", "status"),
    [
        pytest.param({"origin": "http://evil.example"}, "", 403, id="a page of somebody else"),
        pytest.param({"host": "evil.example"}, "", 403, id="a name that was made to point here"),
        pytest.param({"host": "cell.example"}, "cell.example", 201, id="a name that is listed"),
        pytest.param({"sec-fetch-site": "cross-site"}, "", 403, id="a page of another site, as the browser says"),
        pytest.param({"origin": "http://127.0.0.1:8642"}, "", 201, id="a page of the gateway itself"),
    ],
)
def test_a_page_in_a_browser_cannot_submit_for_its_reader(headers, listed, status):
    answer = run_in_memory(lambda cell: cell.post(JOB, headers=headers), hosts=hosts_of("0.0.0.0", listed))

    assert answer.status_code == status


def test_a_round_that_a_service_cannot_answer_is_given_up_and_the_next_takes_what_waited():
    async def story(cell):
        await cell.post(JOB)
        assert await cell.follower.until(lambda view: view.round > 0, GUARD_S)
        number = cell.follower.state.round
        answers = [await cell.http.post(f"/v1/rounds/{each}/abandon") for each in (number + 1, number, number, 0)]
        assert await cell.follower.until(lambda view: view.round == number + 1, GUARD_S)
        messages = await cell.bus.fetch("cluster.log", 0, 0)
        ended = [body for each in messages if type(body := decode(unwrap(each.value)[1]).body) is RoundAbandoned]
        return number, answers, ended

    number, (early, given_up, late, odd), ended = run_in_memory(story, without=leftover)
    assert (given_up.status_code, given_up.json()) == (200, {"round": number, "abandoned": True})
    assert ended == [RoundAbandoned("operator", "tester")]
    for answer, wanted, there in ((early, number + 1, number), (late, number, number + 1)):
        assert answer.status_code == 409
        assert answer.json()["field"] == "abandon_round"
        assert answer.json()["detail"] == f"round {wanted} is not open; round {there} is"
    assert odd.status_code == 422


def test_a_class_that_there_is_not_is_no_filter():
    async def story(cell):
        await cell.post(JOB)
        return [await cell.get("/v1/jobs", **{"class": name}) for name in ("large", "small", "tiny")]

    large, small, tiny = run_in_memory(story)
    assert large.status_code == small.status_code == 200
    assert len(large.json()["jobs"] + small.json()["jobs"]) == 1
    assert (tiny.status_code, tiny.json()["field"]) == (422, "class")
    assert tiny.json()["reason"] == "has to be one of small, large"
