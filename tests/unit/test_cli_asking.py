"""What commands ask a gateway for, and what they make of its answers: cancel, run, submit --watch, or none at all."""

import json
import socket
import ssl
from contextlib import contextmanager
from threading import Thread

import httpx
import pytest

from services.cli.client import Gateway, failure_text, timeout_s_of
from services.cli.ending import Unanswered, Wrong
from services.gateway.http.api import ANSWER_WAIT_S
from services.gateway.http.dry_runs.config import EFFECT_WAIT_S
from tests.unit.cli_here import largesse
from tests.unit.cli_process import CLUSTER, ROOT
from tests.unit.stub_server import respond, serving

ENDED = {"job": "j", "state": "succeeded", "submitted_ms": 0, "ended_ms": 5, "detail": "", "why": None, "stages": []}


@contextmanager
def a_gateway(answers):
    """`answers`: by (method, path), a list of (status, document or bytes, headers), of which the last is repeated.
    Yields the address of the gateway and a list of the requests that reached it."""
    asked = []

    def answer(request, body):
        asked.append((request.command, request.path, body))
        responses = answers[request.command, request.path.partition("?")[0]]
        status, document, headers = responses.pop(0) if len(responses) > 1 else responses[0]
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        respond(request, status, {"Content-Type": "application/json"} | headers, data)

    with serving(answer) as url:
        yield url, asked


def refused(status, kind, detail):
    return status, {"type": f"urn:largesse:{kind}", "detail": detail}, {}


def output(text, state="ended"):
    headers = {"Largesse-Output-Attempt": "1", "Largesse-Output-End": str(len(text)), "Largesse-Task-State": state}
    return 200, text, headers


# ---------------------------------------------------------------- a job that is known
@pytest.mark.parametrize(
    ("state", "code", "noted"),
    [
        ("failed", 1, "j is known here, word for word, and does not run again: it failed"),
        ("cancelled", 1, "j is known here, word for word, and does not run again: it was cancelled"),
        ("succeeded", 0, "j is in the cell already, word for word: it succeeded"),
        ("running", 0, "j is in the cell already, word for word: it is running"),
        (None, 0, "j is in the cell already, word for word: nothing happens"),
    ],
)
@pytest.mark.parametrize("json_too", [False, True])
def test_a_resubmission_of_a_job_that_did_not_succeed_says_so_and_exits_1(tmp_path, state, code, noted, json_too):
    stages = [{"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "0.25"}}]
    (tmp_path / "j.json").write_text(json.dumps({"job": "j", "stages": stages}))
    known = {"job": "j", "state": "repeated", "job_state": state, "warnings": []}
    with a_gateway({("POST", "/v1/jobs"): [(200, known, {})]}) as (url, _):
        said = largesse("submit", tmp_path / "j.json", "--url", url, *(["--json"] if json_too else []))

    assert said.code == code
    assert noted in said.err
    if json_too:
        assert said.json == known
    else:
        assert said.out == ("" if code else "j\n")


# ---------------------------------------------------------------- a busy gateway
BUSY = (503, {"type": "urn:largesse:busy", "detail": "try again"}, {"Retry-After": "0"})


def test_what_a_busy_gateway_has_not_taken_is_sent_again_when_it_says():
    answers = {("DELETE", "/v1/jobs/a"): [BUSY, BUSY, *cancelled("a")]}
    with a_gateway(answers) as (url, asked):
        said = largesse("cancel", "a", "--url", url)
    assert (said.code, said.err) == (0, "")
    assert len(asked) == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((503, {"type": "urn:largesse:busy", "detail": "try again"}, {}), id="without a time"),
        pytest.param((503, BUSY[1], {"Retry-After": "31"}), id="later than anybody waits"),
        pytest.param((503, {"type": "urn:largesse:ending", "detail": "try again"}, BUSY[2]), id="ending"),
    ],
)
def test_other_refusals_end_the_command_at_once(answer):
    with a_gateway({("DELETE", "/v1/jobs/a"): [answer]}) as (url, asked):
        said = largesse("cancel", "a", "--url", url)
    assert said.code == 3
    assert "try again" in said.err
    assert len(asked) == 1


# ---------------------------------------------------------------- cancel
def cancelled(name):
    return [(200, {"job": name, "state": "cancelled"}, {})]


def test_several_jobs_are_cancelled_and_one_that_cannot_be_keeps_no_other():
    answers = {
        ("DELETE", "/v1/jobs/a"): cancelled("a"),
        ("DELETE", "/v1/jobs/b"): [refused(404, "unknown_job", 'job "b" is not known here')],
        ("DELETE", "/v1/jobs/c"): cancelled("c"),
    }
    with a_gateway(answers) as (url, asked):
        said = largesse("cancel", "a", "b", "a", "c", "--url", url)

    assert (said.code, said.out) == (1, "a: cancelled\nc: cancelled\n")
    assert said.err == 'largesse: b: job "b" is not known here\nlargesse: 1 of 3 could not be cancelled\n'
    assert [path for _, path, _ in asked] == ["/v1/jobs/a", "/v1/jobs/b", "/v1/jobs/c"]


LISTED = {
    ("GET", "/v1/jobs"): [(200, {"jobs": [{"job": "a"}, {"job": "b"}]}, {}), (200, {"jobs": [{"job": "c"}]}, {})],
    ("DELETE", "/v1/jobs/a"): cancelled("a"),
    ("DELETE", "/v1/jobs/b"): [refused(409, "refused:ended", 'job "b" has ended: succeeded')],
    ("DELETE", "/v1/jobs/c"): cancelled("c"),
}


def listed():
    return {what: list(answers) for what, answers in LISTED.items()}


def test_all_jobs_that_a_filter_finds_are_cancelled_and_one_that_ended_meanwhile_is_no_failure():
    with a_gateway(listed()) as (url, asked):
        said = largesse("cancel", "--queue", "ads", "--user", "ann", "--url", url)

    assert (said.code, said.out) == (0, "a: cancelled\nc: cancelled\n")
    assert [path for _, path, _ in asked[:2]] == [
        f"/v1/jobs?state={state}&queue=ads&user=ann&limit=10000" for state in ("waiting", "running")
    ]


def test_a_dry_run_cancels_nothing():
    with a_gateway(listed()) as (url, asked):
        said = largesse("cancel", "--queue", "ads", "--dry-run", "--json", "--url", url)

    assert said.json == [{"job": "a"}, {"job": "b"}, {"job": "c"}]
    assert {method for method, _, _ in asked} == {"GET"}


def test_one_named_job_is_one_document_and_several_are_a_list():
    with a_gateway(listed()) as (url, _):
        assert largesse("cancel", "a", "--json", "--url", url).json == {"job": "a", "state": "cancelled"}
        assert [each["job"] for each in largesse("cancel", "a", "c", "--json", "--url", url).json] == ["a", "c"]


def test_states_are_given_with_commas_between_or_one_by_one():
    for words in (("--state", "running,waiting"), ("--state", "running", "--state", "waiting")):
        with a_gateway(listed()) as (url, asked):
            assert largesse("cancel", *words, "--dry-run", "--url", url).code == 0
        assert [path for _, path, _ in asked] == [
            "/v1/jobs?state=running&limit=10000", "/v1/jobs?state=waiting&limit=10000",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        ([], 2, "ID: give ids, or select jobs by --state, --queue, --user"),
        (["--state", "running,failed"], 2, "--state: 'failed' is no state of a job that has not ended"),
        (["a", "--queue", "q"], 2, "ID: give either ids or --state, --queue and --user"),
        (["a", "b/c/0"], 2, "ID: 'b/c/0' is not a job's id"),
        (["--queue", "nobody"], 1, "no live job matches"),
    ],
)
def test_what_cancel_cannot_do_it_says(words, code, fault):
    answers = {("GET", "/v1/jobs"): [(200, {"jobs": []}, {})], ("GET", "/v1/config"): [(200, {"queues": None}, {})]}
    with a_gateway(answers) as (url, asked):
        said = largesse("cancel", *words, "--url", url)

    assert (said.code, said.out) == (code, "")
    assert fault in said.err
    assert not [method for method, _, _ in asked if method == "DELETE"]


# ---------------------------------------------------------------- run and submit --watch
def ran(state="succeeded", *failures, out=b"out\n", err=b"err\n", **more):
    document = {"job": "j", "state": state, "detail": "", "why": None, "failures": list(failures)} | more
    return {
        ("POST", "/v1/jobs"): [(201, {"job": "j", "state": "waiting"}, {})],
        ("GET", "/v1/tasks/j/run/0/logs"): [output(out), output(err)],
        ("GET", "/v1/jobs/j"): [(200, document, {})],
    }


def failure(reason, exit_code, detail):
    return {"reason": reason, "exit_code": exit_code, "detail": detail}


def test_run_submits_one_task_and_shows_what_it_prints():
    options = ["--cpu", "0.5", "--memory", "1Gi", "--demand", "licence=2", "--name", "j", "--queue", "ads"]
    options += ["--env", "A=b=c", "--cwd", "/srv", "--retries", 2, "--timeout", 60]
    with a_gateway(ran()) as (url, asked):
        said = largesse("run", "--url", url, *options, "--", "sh", "-c", "echo", "--help")

    assert (said.code, said.out, said.err) == (0, "out\n", "err\n")
    assert json.loads(asked[0][2]) == {
        "job": "j",
        "queue": "ads",
        "stages": [
            {
                "stage": "run",
                "tasks": 1,
                "demand": {"cpu": "0.5", "memory": "1Gi", "licence": "2"},
                "command": ["sh", "-c", "echo", "--help"],
                "env": {"A": "b=c"},
                "cwd": "/srv",
                "retries": 2,
                "timeout_ms": 60_000,
            }
        ],
    }


@pytest.mark.parametrize(
    ("state", "failures", "code", "errors"),
    [
        ("failed", [failure("exit_code", 7, "ended with status 7")], 7, ""),
        ("failed", [failure("exit_code", 7, ""), failure("exit_code", 3, "ended with status 3")], 3, ""),
        ("succeeded", [failure("exit_code", 7, "ended with status 7")], 0, ""),
        ("failed", [failure("exit_code", 137, "ended by SIGKILL")], 137, "largesse: j: ended by SIGKILL\n"),
        ("failed", [failure("cannot_start", 127, "cannot execute x")], 127, "largesse: j: cannot execute x\n"),
        ("failed", [failure("cannot_start", None, "by an older agent")], 1, "largesse: j failed: by an older agent\n"),
        ("failed", [failure("timeout", 143, "ran for 60 s")], 1, "largesse: j failed: ran for 60 s\n"),
        ("cancelled", [], 1, "largesse: j cancelled: by ann\n"),
    ],
)
def test_the_exit_code_of_run_is_the_commands(state, failures, code, errors):
    detail = "by ann" if state == "cancelled" else ""
    with a_gateway(ran(state, *failures, err=b"", detail=detail)) as (url, _):
        said = largesse("run", "--url", url, "false")

    assert (said.code, said.out, said.err) == (code, "out\n", errors)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--cpu", "lots", "true"], 'stages[0].demand.cpu: "lots" is no quantity'),
        (["--memory", "512", "true"], '512 is 512 bytes: write "512Mi"'),
        (["--env", "A", "true"], "--env: 'A' is not a pair: write KEY=VALUE"),
        (["--demand", "cpu=2", "true"], "--demand: cpu has an option of its own: --cpu 2"),
        (["--name", "-j", "true"], 'job: may hold no "/"'),
        ([], "Missing argument 'CMD...'"),
    ],
)
def test_what_cannot_be_run_is_not_submitted(words, fault):
    with a_gateway({}) as (url, asked):
        said = largesse("run", "--url", url, *words)

    assert (said.code, said.out, asked) == (2, "", [])
    assert fault in said.err


def test_a_run_that_is_there_already_is_refused():
    with a_gateway({("POST", "/v1/jobs"): [(200, {"job": "j", "state": "repeated"}, {})]}) as (url, _):
        said = largesse("run", "--name", "j", "--url", url, "true")

    assert said.code == 1
    assert said.err.startswith("largesse: --name: job j is in the cell already, word for word")


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1)])
def test_submit_follows_the_job_where_that_is_asked_for(state, code):
    event = b"data: " + json.dumps(ENDED | {"state": state}).encode() + b"\n\n"
    answers = {
        ("POST", "/v1/jobs"): [(201, {"job": "j", "state": "waiting"}, {})],
        ("GET", "/v1/jobs/j/events"): [(200, event, {"Content-Type": "text/event-stream"})],
    }
    with a_gateway(answers) as (url, _):
        said = largesse("submit", ROOT / "examples/jobs/word-count.yaml", "--watch", "--url", url)

    assert said.code == code
    assert said.out.splitlines()[0] == "j"
    assert said.out.splitlines()[-1].endswith(f"j: {state} after 5 ms")


def test_submit_shows_what_only_the_cell_can_warn_of():
    warned = {"job": "j", "state": "waiting", "warnings": ["stages[0].demand: asks for gpu"]}
    with a_gateway({("POST", "/v1/jobs"): [(201, warned, {})]}) as (url, _):
        said = largesse("submit", ROOT / "examples/jobs/word-count.yaml", "--url", url)

    assert (said.code, said.out) == (0, "j\n")
    assert said.err.endswith("word-count.yaml: stages[0].demand: asks for gpu\n")


# ---------------------------------------------------------------- errors for programs
def test_a_refusal_is_a_json_document_too_where_json_is_asked_for():
    answers = {("POST", "/v1/jobs"): [refused(422, "refused:exceeds_capacity", "stages[0].demand: too large")]}
    with a_gateway(answers) as (url, _):
        said = largesse("submit", ROOT / "examples/jobs/word-count.yaml", "--json", "--url", url)

    assert (said.code, said.err) == (1, "largesse: stages[0].demand: too large\n")
    assert json.loads(said.out)["error"] == {
        "type": "urn:largesse:refused:exceeds_capacity",
        "detail": "stages[0].demand: too large",
        "exit_code": 1,
    }


def test_a_command_that_has_printed_its_document_prints_no_other_for_its_exit_code():
    event = b"data: " + json.dumps(ENDED | {"state": "failed"}).encode() + b"\n\n"
    answers = {("GET", "/v1/jobs/j/events"): [(200, event, {"Content-Type": "text/event-stream"})]}
    with a_gateway(answers) as (url, _):
        said = largesse("watch", "j", "--json", "--url", url)

    assert (said.code, json.loads(said.out)["state"]) == (1, "failed")


# ---------------------------------------------------------------- no answer
@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # Bound and not listening: nobody else gets it.


def test_a_port_where_nothing_listens_is_told_in_words(closed_port):
    said = largesse("get", "jobs", "--url", f"http://127.0.0.1:{closed_port}")

    assert (said.code, said.out) == (3, "")
    assert said.err.splitlines()[0] == (
        f"largesse: no answer from http://127.0.0.1:{closed_port}: nothing listens there"
    )
    assert "`largesse up` starts a cell" in said.err


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "the connection ended before the answer, or what answers does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the connection ended before the answer, or what answers does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "the connection ended before the answer"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone",
            "what it answered cannot be read",
        ),
    ],
)
def test_what_does_not_answer_as_http_is_told_in_words(answer, problem):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unanswered) as caught:
            Gateway(url).get("/v1/jobs")

    assert caught.value.brief.startswith(f"no answer from {url}: {problem}")


def cause(error):
    """The library's error, caused by this one."""
    raised = httpx.ConnectError("[Errno -2] Name or service not known")
    raised.__cause__ = error
    return raised


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (cause(socket.gaierror(-2, "Name or service not known")), "its name is not known"),
        (cause(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")), "it does not answer as https"),
        (cause(OSError(113, "No route to host")), "no route to host"),
        (httpx.ConnectTimeout("timed out"), "it cannot be reached within 30 s"),
        (httpx.ReadTimeout("timed out"), "it has said nothing for 30 s"),
        (httpx.ProxyError("403 Forbidden"), "the proxy between does not let it through"),
    ],
)
def test_the_words_of_the_library_are_never_shown(error, text):
    assert failure_text(error, 30).startswith(text)


def test_a_request_waits_longer_than_the_gateway_may():
    assert timeout_s_of(False) > 2 * ANSWER_WAIT_S  # For the log, and then for what it says to show.
    assert timeout_s_of(True) > 2 * EFFECT_WAIT_S  # Behind another dry run, and then for itself.


@pytest.mark.parametrize("url", ["http://a:x", "http://a:99999999", "http://[::1", "http://a b", "ftp://a", "a:8642"])
def test_what_is_no_address_is_refused_by_name(url):
    with pytest.raises(Wrong, match=r"--url: .* is not the address of a gateway: write http://127.0.0.1:8642"):
        Gateway(url)


# ---------------------------------------------------------------- simulate and import
LINE = '{"job": "j", "submit_ms": 0, "stages": [{"stage": "s", "tasks": 1, "duration_ms": 5, "demand": {"cpu": "%s"}}]}'


def test_a_run_in_which_nothing_was_admitted_shows_its_result_and_says_so():
    words = ["--workload", "-", "--cluster", CLUSTER, "--json"]
    said = largesse("simulate", *words, stdin=LINE % "5000")

    assert (said.code, said.json["jobs"], len(said.json["rejected"])) == (1, 1, 1)
    assert said.err == "largesse: nothing was admitted: every job was refused: exceeds_capacity (1)\n"


def test_a_log_that_is_there_is_not_written_over_unless_asked_to(tmp_path):
    path = tmp_path / "log"
    path.write_text("kept")
    words = ["simulate", "--workload", "-", "--cluster", CLUSTER, "--log", path]

    said = largesse(*words, stdin=LINE % "1")
    assert (said.code, said.out) == (2, "")
    assert said.err == f"largesse: --log: {path} already exists; --force overwrites it\n"
    assert path.read_text() == "kept"
    assert largesse(*words, "--force", stdin=LINE % "1").code == 0
    assert path.read_bytes() != b"kept"


def swf(number, runtime, processors, status=1):
    return f"{number} 0 -1 {runtime} {processors} -1 -1 {processors} -1 -1 {status} 1{' -1' * 6}\n"


def test_an_importer_says_what_it_left_out_and_why():
    trace = swf(1, 10, 4) + swf(2, -1, 4) + swf(3, -1, 4) + swf(4, 5, -1) + swf(5, 0, 4, status=5)
    said = largesse("import", "swf", "-", stdin=trace)

    assert [json.loads(line)["job"] for line in said.out.splitlines()] == ["job-1"]
    assert said.err.splitlines() == [
        "kept: 1 job, 4 tasks",
        "left out: 2 jobs: runtime not known",
        "left out: 1 job: number of processors not known",
        "left out: 1 job: cancelled before they ran",
    ]


def test_an_importer_that_left_nothing_out_says_what_it_kept():
    said = largesse("import", "swf", "-", "--strict", stdin=swf(1, 10, 4))

    assert (said.code, said.err) == (0, "kept: 1 job, 4 tasks\n")


def test_a_strict_import_that_left_anything_out_is_refused():
    said = largesse("import", "swf", "-", "--strict", stdin=swf(1, 10, 4) + swf(2, 10, 4).replace("\n", " 7\n"))

    assert said.code == 1
    assert said.err.splitlines()[1:] == [
        "left out: 1 column: beyond the 18th",
        "largesse: not everything was kept (--strict)",
    ]


def test_the_config_is_json_whether_or_not_that_is_said():
    answers = {("GET", "/v1/config"): [(200, {"set": {"preset": "hdrf"}, "queues": None}, {})] * 2}
    with a_gateway(answers) as (url, _):
        plain, asked = largesse("config", "show", "--url", url), largesse("config", "show", "--json", "--url", url)
    assert plain.json == asked.json == {"set": {"preset": "hdrf"}, "queues": None}
    assert asked.out.count("\n") == 1


def test_who_a_reservation_is_of_can_be_said_when_it_is_given_back():
    answers = {
        ("GET", "/v1/series"): [(200, {"series": []}, {})],
        ("DELETE", "/v1/reservations/r"): [(200, {"reservation": "r", "state": "deleted", "unanswered": 0}, {})],
    }
    with a_gateway(answers) as (url, asked):
        assert largesse("reserve", "delete", "r", "--user", "bob", "--url", url).code == 0
    assert [path for _, path, _ in asked][1:] == ["/v1/reservations/r?user=bob"]
