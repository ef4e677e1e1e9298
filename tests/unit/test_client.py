"""The library's clients against a real gateway over HTTP, and what they do where that does not answer."""

import asyncio
from dataclasses import dataclass

import httpx
import pytest

from largesse.client import (
    Client,
    JobFailed,
    JobSpec,
    Malformed,
    NotAllowed,
    NotFound,
    Refused,
    Retry,
    Stage,
    Unavailable,
    Unreachable,
    WaitedTooLong,
)
from largesse.contexts import AccessWrong
from tests.client_rig import QUICK, Both
from tests.http_rig import HOST, run_over_http

STAGE = {"stage": "s", "tasks": 2, "command": ["true"], "demand": {"cpu": "1"}}
JOB = {"job": "j", "stages": [STAGE]}
NOWHERE = "http://127.0.0.1:9"
BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


def told(kind, story):
    """Runs a story with a client of a cell of one node, of which no agent reports."""

    async def run(served):
        return await story(Both(kind, url=f"http://{HOST}:{served.port}", user="ann", retry=QUICK))

    return run_over_http(run)


@BOTH
def test_a_job_is_submitted_seen_explained_and_cancelled(kind):
    async def story(ask):
        said = [await ask.submit(JOB), await ask.submit(JOB)]
        found = await ask.get("j"), await ask.spec("j"), await ask.why("j")
        changed = await ask.change("j", priority=7)
        over = await ask.cancel("j")
        return said, found, changed, over, await ask.watch("j"), await ask.wait("j", check=False)

    said, (job, spec, why), changed, over, seen, last = told(kind, story)
    assert [each["state"] for each in said] == ["waiting", "repeated"]
    assert (job["author"], job["tasks"]["total"], spec["stages"][0]["command"]) == ("ann", 2, ["true"])
    assert (why["kind"], why["id"], changed["priority"]) == ("job", "j", 7)
    assert {each["state"] for each in (over, *seen, last)} == {"cancelled"}


@BOTH
def test_a_dry_run_submits_nothing(kind):
    async def story(ask):
        return await ask.submit(JOB, dry_run=True), await ask.jobs()

    said, jobs = told(kind, story)
    assert (said["dry_run"], said["places"][0]["tasks"], jobs) == (True, 2, [])


@BOTH
def test_lists_are_walked_page_by_page(kind, monkeypatch):
    monkeypatch.setattr("largesse.client.operations.PAGE", 2)

    async def story(ask):
        for i in range(5):
            await ask.submit(JOB, name=f"j{i}")
        every = await ask.jobs(state=["waiting", "running"], user="ann", sort="name")
        return every, await ask.jobs(limit=3), await ask.jobs(user="bob"), await ask.nodes(), await ask.queues()

    every, some, none, nodes, queues = told(kind, story)
    assert [each["job"] for each in every] == [f"j{i}" for i in range(5)]
    assert (len(some), none) == (3, [])
    assert [(each["node"], each["capacity"]["cpu"]) for each in nodes] == [("n1", "4")]
    assert [child["queue"] for child in queues["children"]] == ["default"]


@BOTH
def test_errors_say_field_reason_and_what_helps(kind):
    async def story(ask):
        await ask.submit(JOB)
        other = JOB | {"stages": [STAGE | {"tasks": 1}]}
        calls = [
            ask.submit({"job": "k", "stages": [STAGE | {"task": 1}]}),
            ask.submit(other),
            ask.submit({"stages": [STAGE | {"demand": {"cpu": 64}}]}),
            ask.get("none"),
            ask.watch("none"),
            ask.results("none"),
            ask.jobs(sort="luck"),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    slip, taken, huge, none, unwatched, unlisted, unsorted = told(kind, story)
    assert (type(slip), slip.field, slip.status) == (Malformed, "stages[0].task", 422)
    assert 'did you mean "tasks"' in slip.reason
    assert (type(taken), taken.kind, taken.field, taken.reason) == (Refused, "refused:name_taken", "job", "name_taken")
    assert taken.fix == "choose another name, or leave it out"
    assert (type(huge), huge.reason, huge.field) == (Refused, "exceeds_capacity", "stages[0].demand")
    assert {type(each) for each in (none, unwatched, unlisted)} == {NotFound}
    assert (type(unsorted), unsorted.field) == (Malformed, "sort")


@BOTH
def test_capacity_is_reserved_listed_and_given_back(kind):
    request = {
        "reservation": "r",
        "user": "ann",
        "queue": "default",
        "rdl": {"op": "window", "from_s": 0, "by_s": 3_600, "of": {"op": "atom", "work": 1}},
    }

    async def story(ask):
        refused = await asyncio.gather(ask.reserve(request), return_exceptions=True)
        return refused, await ask.reservations(), await asyncio.gather(ask.reservation("r"), return_exceptions=True)

    (refused,), listed, (missing,) = told(kind, story)
    assert (type(refused), listed, type(missing)) == (Malformed, [], NotFound)
    assert refused.field.startswith("rdl")


@BOTH
def test_changes_begin_with_where_the_log_stands_and_go_on_behind_a_record(kind):
    async def story(ask):
        client = ask.client
        await ask.submit(JOB)
        if kind == "sync":
            changes = client.changes()
            first = await asyncio.to_thread(next, changes)
            changes.close()
            changes = client.changes(after=first["seq"])
            await ask.submit(JOB, name="k")
            found = await asyncio.to_thread(next, changes)
            await asyncio.to_thread(changes.close)
            return first, found
        changes = client.changes()
        first = await anext(changes)
        await changes.aclose()
        changes = client.changes(after=first["seq"])
        await ask.submit(JOB, name="k")
        found = await anext(changes)
        await changes.aclose()
        return first, found

    first, found = told(kind, story)
    assert (first["all"], found["since_seq"] >= first["seq"]) == (True, True)


@BOTH
def test_what_is_waited_for_may_take_too_long(kind):
    async def story(ask):
        await ask.submit(JOB)
        return await asyncio.gather(ask.wait("j", timeout_s=0.3), return_exceptions=True)

    (late,) = told(kind, story)
    assert isinstance(late, WaitedTooLong)
    assert isinstance(late, TimeoutError)


# ---------------------------------------------------------------- jobs as programs write them
@dataclass
class Mine:
    stages: list
    queue: str | None = None


def test_jobs_are_dictionaries_dataclasses_and_files(tmp_path):
    (tmp_path / "job.yaml").write_text("stages:\n  - {stage: s, tasks: 2, command: [yes], demand: {cpu: 0.5}}\n")
    stage = Stage(stage="s", tasks=2, command=["yes"], demand={"cpu": 0.5})

    async def story(ask):
        forms = [JobSpec(stages=[stage]), Mine([stage]), tmp_path / "job.yaml", str(tmp_path / "job.yaml")]
        return [await ask.spec((await ask.submit(each))["job"]) for each in forms]

    specs = told("sync", story)
    names = [each.pop("job") for each in specs]
    assert [each["stages"] for each in specs] == [
        [{"stage": "s", "tasks": 2, "demand": {"cpu": "500m"}, "command": ["yes"]}]
    ] * 4
    assert len(set(names)) == 4
    assert all(name.startswith("job-") and name[4:].isdigit() for name in names)


def test_what_is_no_job_is_said_before_it_is_sent(tmp_path):
    (tmp_path / "list.yaml").write_text("- a\n")
    with Client(NOWHERE, retry=Retry(give_up_s=0)) as ask:
        with pytest.raises(ValueError, match="is no job"):
            ask.submit(tmp_path / "list.yaml")
        with pytest.raises(ValueError, match="not list"):
            ask.submit([STAGE])
        with pytest.raises(ValueError, match="1 to 1000"):
            ask.map([], demand={"cpu": 1})


# ---------------------------------------------------------------- gateways that do not answer
class Scripted(httpx.BaseTransport):
    """Answers in turn: a status, a response, or an error that is raised."""

    def __init__(self, *answers):
        self.answers, self.sent = list(answers), []

    def handle_request(self, request):
        self.sent.append(request)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, int):
            document = {"type": "urn:largesse:busy" if said == 503 else "urn:largesse:x", "detail": "d", "status": said}
            return httpx.Response(said, json=document)
        return said


GOOD = {"job": "j", "state": "waiting", "warnings": []}


def client_of(*answers, **retry):
    transport = Scripted(*answers)
    return Client(NOWHERE, transport=transport, retry=Retry(**{"first_s": 0.001, "most_s": 0.01} | retry)), transport


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([429, 503, 500, 502], id="statuses that pass"),
        pytest.param([httpx.ReadError("x"), httpx.ConnectError("y"), httpx.ReadTimeout("z")], id="no answer"),
        pytest.param([httpx.Response(202, json=GOOD | {"state": "unanswered"})], id="a log that has not answered"),
    ],
)
def test_a_submission_is_sent_again_under_the_same_name(before):
    ask, network = client_of(*before, httpx.Response(201, json=GOOD))

    assert ask.submit({"stages": [STAGE]})["state"] == "waiting"
    assert len(network.sent) == len(before) + 1
    assert len({each.content for each in network.sent}) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422])
def test_an_error_of_ours_is_not_sent_again(status):
    ask, network = client_of(status)

    with pytest.raises((Malformed, NotAllowed, NotFound, Refused)):
        ask.submit(JOB)
    assert len(network.sent) == 1


def test_an_address_where_nobody_is_stands_in_the_error_without_what_the_network_said_below():
    with Client("http://127.0.0.1:9", retry=Retry(give_up_s=0)) as ask, pytest.raises(Unreachable) as caught:
        ask.get("job")

    assert str(caught.value).startswith("no answer from http://127.0.0.1:9: ConnectError: ")
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_route_that_is_not_there_is_no_job_that_is_gone():
    gone = {"type": "urn:largesse:not_found", "status": 404, "detail": "GET /x/v1/jobs/j: Not Found"}
    ask, network = client_of(httpx.Response(404, json=gone))

    with pytest.raises(Unreachable, match="without a path"):
        ask.get("j")
    assert len(network.sent) == 1


def test_the_pause_is_as_long_as_the_gateway_says(monkeypatch):
    slept = []
    monkeypatch.setattr("largesse.client.sync.sleep", slept.append)
    busy = httpx.Response(429, json={"type": "urn:largesse:busy", "detail": "d"}, headers={"Retry-After": "7"})
    ask, _ = client_of(busy, httpx.Response(201, json=GOOD))
    ask.submit(JOB)

    assert slept == [7.0]


def test_pauses_double_up_to_a_bound_and_end(monkeypatch):
    slept, now = [], [0.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("largesse.client.sync.sleep", sleep)
    monkeypatch.setattr("largesse.client.calls.monotonic", lambda: now[0])
    monkeypatch.setattr("largesse.client.calls.random.uniform", lambda low, high: high)
    ask, network = client_of(*[503] * 20, first_s=0.5, most_s=8.0, give_up_s=40.0)

    with pytest.raises(Unavailable):
        ask.submit(JOB)
    assert slept == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]
    assert len(network.sent) == 9


def test_a_rerun_is_sent_again_only_where_nothing_of_it_was_taken():
    ask, network = client_of(503, httpx.ConnectError("x"), httpx.Response(201, json=GOOD))
    assert ask.rerun("j")["state"] == "waiting"
    assert len(network.sent) == 3

    ask, network = client_of(httpx.ReadError("x"), httpx.Response(201, json=GOOD))
    with pytest.raises(Unreachable):
        ask.rerun("j")
    ask, _ = client_of(500)
    with pytest.raises(Unavailable):
        ask.submit(JOB | {"rerun": True})


def test_a_cancellation_whose_answer_was_lost_is_no_refusal():
    over = httpx.Response(200, json={"job": "j", "state": "cancelled", "ended_ms": 1})
    ended = {"type": "urn:largesse:refused:ended", "detail": "it has ended", "status": 409}
    ask, _ = client_of(httpx.ReadError("x"), httpx.Response(409, json=ended), over)
    assert ask.cancel("j")["state"] == "cancelled"

    ask, _ = client_of(httpx.Response(409, json=ended))
    with pytest.raises(Refused):
        ask.cancel("j")


def events(*documents):
    text = "".join(f"event: job\nid: {i}\ndata: {each}\n\n" for i, each in documents)
    return httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})


def test_a_stream_that_broke_off_goes_on_behind_its_last_event():
    live = '{"job": "j", "state": "running", "ended_ms": null, "detail": ""}'
    over = '{"job": "j", "state": "failed", "ended_ms": 5, "detail": "exit code 3"}'
    ask, network = client_of(events((1, live)), httpx.ReadError("x"), 503, events((2, over)))

    assert [each["state"] for each in ask.watch("j")] == ["running", "failed"]
    assert [each.headers.get("Last-Event-ID") for each in network.sent] == [None, "1", "1", "1"]
    ask, _ = client_of(events((2, over)))
    with pytest.raises(JobFailed, match="j failed: exit code 3"):
        ask.wait("j")


def test_what_no_gateway_answers_is_no_answer():
    page = httpx.Response(200, text="<html>")
    for call in (lambda ask: ask.get("j"), lambda ask: list(ask.watch("j")), lambda ask: list(ask.results("j"))):
        ask, _ = client_of(page, give_up_s=0)
        with pytest.raises(Unreachable):
            call(ask)


# ---------------------------------------------------------------- who asks, and whom
def test_a_token_comes_from_a_file_the_environment_or_a_context(tmp_path, monkeypatch):
    token = tmp_path / "t"
    token.write_text("a.word\n")
    token.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "largesse").mkdir()
    (tmp_path / "largesse/config.toml").write_text(
        f'[contexts.prod]\nurl = "http://prod.example"\ntoken_file = "{token}"\ncell = "east"\n'
    )

    def headers(**given):
        transport = Scripted(httpx.Response(200, json={"queue": "", "children": []}))
        ask = Client(transport=transport, **given)
        ask.queues()
        found = transport.sent[0].headers
        return str(transport.sent[0].url), *(found.get(n) for n in ("Authorization", "Largesse-User", "Largesse-Cell"))

    assert headers(user="ann") == ("http://127.0.0.1:8642/v1/queues", None, "ann", None)
    assert headers(token_file=token, cell="west")[1:] == ("Bearer a.word", None, "west")
    assert headers(context="prod") == ("http://prod.example/v1/queues", "Bearer a.word", None, "east")
    assert headers(context="prod", url="http://other.example", user="ann")[1:] == (None, "ann", None)
    monkeypatch.setenv("LARGESSE_TOKEN", "b.word")
    assert headers()[1] == "Bearer b.word"
    token.chmod(0o644)
    with pytest.raises(AccessWrong, match="everybody on this machine may read it"):
        Client(token_file=token)
    with pytest.raises(AccessWrong, match="ca_file"):
        Client("https://x.example", ca_file=tmp_path / "none")
