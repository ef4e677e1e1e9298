"""What a running cell would have done otherwise: `whatif`, `config apply --dry-run --replay`, and both over HTTP."""

import asyncio
import json
import os
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.edge.base import Malformed
from schemas.edge.what_ifs import read_what_if
from services.cli.hindsight import body_of
from services.cli.what_if import questions_of
from services.cli.what_if_options import Said
from services.cli.what_if_text import shown
from services.gateway.http.dry_runs import what_ifs
from services.gateway.http.problems import Problem
from services.replay.live import hindsight
from services.replay.source import open_source
from services.replay.whatif.answer import document_of
from services.replay.whatif.run import ask
from tests.conftest import ROOT
from tests.gateway_cell import run_in_memory
from tests.http_rig import GUARD_S, run_over_http, until
from tests.unit.cli_here import largesse
from tests.unit.test_cli_asking import a_gateway

LOG = ROOT / "tests/golden/rules-9.jsonl.gz"


@pytest.fixture(scope="module")
def recorded():
    """The log, how many records it has, and names that are in it."""
    source = open_source(LOG)
    seq = sum(1 for _ in source.steps())
    answer = hindsight.what_if(source, {}, seq, lambda done, of: None)
    return source, seq, answer


# ---------------------------------------------------------------- the same answer as `replay --what-if`
@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="nothing is different"),
        pytest.param({"preset": "fifo"}, id="another preset"),
        pytest.param({"settings": ["round_gap_ms=5000"], "slower": "1.5"}, id="a knob, and slower tasks"),
        pytest.param({"added": ["2:cpu=4,memory=8Gi"]}, id="more nodes"),
        pytest.param({"until": "300"}, id="an earlier end"),
        pytest.param({"job": True}, id="without a job"),
    ],
)
@pytest.mark.parametrize("fork", [0, 0.5])
def test_a_what_if_over_http_is_that_of_replay(recorded, said, fork):
    source, seq, plain = recorded
    if said.pop("job", False):
        said = {"without_jobs": [plain["jobs"][0]["job"]]}
    start = int(seq * fork)
    (question,) = questions_of(Said(**said)).values()
    question.fork = start
    if question.until is None:
        question.until = seq
    expected = document_of(ask(source, question), question)

    body = json.loads(json.dumps(body_of(question) | {"from_seq": start}))
    told = []
    assert hindsight.what_if(source, body, seq, lambda done, of: told.append((done, of))) == expected
    assert all(0 < done <= of for done, of in told)


def test_how_far_it_is_grows_up_to_the_end(recorded, monkeypatch):
    monkeypatch.setattr(hindsight, "TOLD_S", 0.0)
    source, seq, _ = recorded
    told = []
    hindsight.what_if(source, {}, seq, lambda done, of: told.append((done, of)))

    assert [of for _, of in told] == [2 * seq] * len(told)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1][0] == 2 * seq


# ---------------------------------------------------------------- what is asked
@pytest.mark.parametrize(
    ("document", "field", "reason"),
    [
        ({"sett": {}}, "sett", "unknown field"),
        ({"set": {"preset": "best"}}, "set.preset", "has to be one of"),
        ({"set": {"presett": "drf"}}, "set.presett", 'did you mean "preset"?'),
        ({"add_nodes": [{"name": "n", "capacity": {"cpu": "-1"}}]}, "add_nodes[0].capacity.cpu", ""),
        ({"add_nodes": [{"name": "n"}]}, "add_nodes[0].capacity", ""),
        ({"slower_permille": 0}, "slower_permille", ""),
        ({"from_seq": 1, "from_ms": 1}, "from_ms", "leave one of them out"),
        ({"from_seq": 9, "to_seq": 3}, "to_seq", "lies before"),
        ({"queues": {"name": "root", "children": [{"name": "a", "wieght": 1}]}}, "queues.children[0].wieght", ""),
        ([], "", ""),
    ],
)
def test_what_is_wrong_with_a_question_is_named_with_its_field(document, field, reason):
    with pytest.raises(Malformed) as raised:
        read_what_if(document)
    assert raised.value.field == field
    assert reason in raised.value.reason

    answer = run_in_memory(lambda cell: cell.http.post("/v1/what-if", json=document))
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:largesse:malformed")
    assert answer.json()["field"] == field


# ---------------------------------------------------------------- the process
ANSWER: dict[str, Any] = {"answer": {"jobs": []}}


def script(monkeypatch, text):
    monkeypatch.setattr(what_ifs, "WHAT_IF", (sys.executable, "-c", f"import json, sys, time\n{text}"))


def asked(document=None):
    answer = run_in_memory(lambda cell: cell.http.post("/v1/what-if", json=document or {}))
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_process_is_told_where_the_log_is_and_what_is_asked(monkeypatch):
    script(monkeypatch, "print(json.dumps({'answer': json.loads(sys.stdin.readline())}), flush=True)")
    (row,) = asked({"set": {"preset": "drf"}})

    question = row["answer"]
    assert question["asked"] == {"set": {"preset": "drf"}}
    assert question["source"].endswith("/memory")
    assert question["seq"] > 0
    assert question["memory_bytes"] == what_ifs.MEMORY_MIB << 20


def test_how_far_it_is_comes_before_the_answer(monkeypatch):
    script(
        monkeypatch, f'print(\'{{"progress": {{"done": 1, "of": 4}}}}\')\nprint(\'{json.dumps(ANSWER)}\', flush=True)'
    )
    assert asked() == [{"progress": {"done": 1, "of": 4}}, ANSWER]


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("file:///data/bus", "/data/bus"),
        ("file:/data/bus", "/data/bus"),
        ("kafka://one:9092,two:9092", "kafka://one:9092,two:9092/west"),
    ],
)
def test_the_process_reads_a_folder_or_kafka(address, place):
    assert what_ifs.location_of(SimpleNamespace(address=address, cell="west")) == place


def test_what_is_in_memory_alone_no_other_process_can_read():
    with pytest.raises(Problem, match="no other process can read it"):
        what_ifs.location_of(SimpleNamespace(address="memory:", cell="west"))


def test_a_log_that_cannot_be_read_is_a_problem_at_the_end():
    last = asked()[-1]["problem"]
    assert last["status"] == 503
    assert "there is no such file or folder" in last["detail"]


def test_a_process_that_dies_is_told_with_its_last_words(monkeypatch):
    script(monkeypatch, "sys.exit('no memory left')")
    assert "no memory left" in asked()[-1]["problem"]["detail"]


def test_one_that_a_library_aborts_for_want_of_memory_names_the_limit(monkeypatch):
    script(monkeypatch, "import os; os.abort()")
    problem = asked()[-1]["problem"]
    assert problem["status"] == 503
    assert "more than 2,048 MiB" in problem["detail"]


def test_one_that_takes_too_long_is_ended_and_the_way_out_is_named(monkeypatch):
    script(monkeypatch, "time.sleep(3_600)")
    monkeypatch.setattr(what_ifs, "WAIT_S", 0.1)
    problem = asked()[-1]["problem"]
    assert problem["status"] == 503
    assert "within 0.1 s" in problem["detail"]
    assert "replay LOG --what-if" in problem["detail"]


def test_memory_beyond_the_limit_is_a_problem_that_names_it(monkeypatch):
    def too_much(*_):
        raise MemoryError

    monkeypatch.setattr(hindsight, "what_if", too_much)
    asked_for = {"source": str(LOG), "partition": 0, "seq": 1, "asked": {}, "memory_bytes": 64 << 20, "way_out": "less"}
    problem = hindsight._answered(asked_for, lambda done, of: None)["problem"]
    assert problem["detail"] == "it needs more than 64 MiB: less"


def test_a_name_that_the_log_has_not_is_a_problem(monkeypatch):
    asked_for = {"source": str(LOG), "partition": 0, "seq": 50, "asked": {"without_jobs": ["none"]}}
    problem = hindsight._answered(asked_for, lambda done, of: None)["problem"]
    assert (problem["status"], problem["detail"]) == (404, "job 'none' is not in this log")


def test_there_is_one_at_a_time_and_it_ends_with_its_client(monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    script(monkeypatch, f"import os; open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(3_600)")
    monkeypatch.setattr(what_ifs, "QUIET_S", 0.05)

    def alive():
        try:
            os.kill(int(pid.read_text()), 0)
        except ProcessLookupError:
            return False
        return True

    async def story(served):
        client = await served.connect()
        await client.say(
            b"POST /v1/what-if HTTP/1.1\r\nhost: %b\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
            % client.host.encode()
        )
        assert (await client.head())[0] == 200
        await until(lambda: pid.exists() and pid.read_text())
        assert alive()
        second = await served.ask("POST", "/v1/what-if", body=b"{}")
        assert (second.status, second.document["type"]) == (503, "urn:largesse:busy")
        assert "retry-after" in second.headers
        client.close()
        async with asyncio.timeout(GUARD_S):
            await until(lambda: not alive())
        await until(lambda: not served.what_ifs.taken)

    run_over_http(story)


# ---------------------------------------------------------------- the command
MEASURES = {
    "jobs": 1,
    "refused": 0,
    "makespan_ms": 5_000,
    "jct_ms": {"mean": 5_000, "p50": 5_000, "p95": 5_000},
    "waiting_ms": {"mean": 0, "p50": 0, "p95": 0},
    "jain": {"mean": 1.0},
    "utilisation": {"cpu": 0.5},
}
DOCUMENT = {
    "from_seq": 7,
    "changed": {"preset": ["largesse", "drf"]},
    "recorded": MEASURES,
    "decided": {**MEASURES, "digest": "ab"},
    "queues": [],
    "classes": [],
    "users": [],
    "jobs": [
        {
            "job": "j",
            "queue": "default",
            "class": "small",
            "user": "ann",
            "submit_ms": 0,
            "recorded_ms": 5_000,
            "decided_ms": 5_000,
            "recorded_waiting_ms": 0,
            "decided_waiting_ms": 0,
            "recorded_outcome": "succeeded",
            "decided_outcome": "succeeded",
        }
    ],
    "explained": [],
}
BOLD = re.compile("\x1b\\[[0-9;]*m")
LINES = {"Content-Type": "application/jsonl"}


def rows(*documents):
    return 200, b"".join(json.dumps(each).encode() + b"\n" for each in documents), LINES


def ran(*words, answers=None, **how):
    told = answers or [rows({"progress": {"done": 1, "of": 2}}, {"answer": DOCUMENT})]
    with a_gateway({("POST", "/v1/what-if"): told}) as (url, requests):
        return largesse("whatif", *words, "--url", url, **how), [json.loads(body) for _, _, body in requests]


@pytest.mark.parametrize("terminal", [False, True])
def test_both_worlds_stand_side_by_side_within_sixty_columns(terminal):
    said, requests = ran("--preset", "drf", "--since", "7", terminal=terminal)

    assert said.code == 0, said.err
    assert said.out.startswith("decided again after record 7: 1 job\n  preset: largesse -> drf\n")
    assert max(map(len, BOLD.sub("", said.out).splitlines())) <= 60
    assert [(each["set"], each["from_seq"]) for each in requests] == [({"preset": "drf"}, 7)]


def job(name, recorded_ms, decided_ms, **more):
    ends = {"recorded_ms": recorded_ms, "decided_ms": decided_ms, "recorded_waiting_ms": 1_000}
    ends |= {"decided_waiting_ms": None if decided_ms is None else 2_000}
    return DOCUMENT["jobs"][0] | {"job": name} | ends | more


JOBS = [
    job("a", 10_000, 20_000),
    job("b", 30_000, 60_000),
    job("only-then", 90_000, None),
    job("only-now", None, 5_000),
]


def cells(text):
    """By the name of a line of the table, its cells."""
    lines = [re.split(r"  +", line.rstrip()) for line in text.splitlines() if line]
    return {line[0] or line[1]: line[1:] if line[0] else line[2:] for line in lines}


def test_times_are_those_of_the_jobs_that_ended_in_both_worlds_and_the_others_are_counted():
    text = shown({"drf": DOCUMENT | {"jobs": JOBS}})

    found = cells(text)
    assert found["jobs that ended"] == ["3", "3"]
    assert found["there alone"] == ["1", "1"]
    assert found["completion, mean"] == ["20.0 s", "40.0 s", "+100.0 %"]
    assert found["waiting, mean"] == ["1.0 s", "2.0 s", "+100.0 %"]
    assert found["makespan"] == ["5.0 s", "5.0 s"], "of all that ran, so it is not compared"
    assert "times of completion and waiting are of the 2 jobs that ended in both" in " ".join(text.split())
    alike = shown({"drf": DOCUMENT | {"jobs": JOBS[:2]}})
    assert "there alone" not in alike
    assert "note:" not in alike


def test_of_several_worlds_times_are_those_of_the_jobs_that_ended_in_all():
    other = [*JOBS[:1], job("b", 30_000, None), *JOBS[2:]]
    text = shown({"drf": DOCUMENT | {"jobs": JOBS}, "fifo": DOCUMENT | {"jobs": other}})

    found = cells(text)
    assert found["not in all"] == ["2", "2", "1"]
    assert found["completion, mean"] == ["10.0 s", "20.0 s", "20.0 s"]
    assert "1 job that ended in all" in " ".join(text.split())


def test_where_no_job_ended_in_both_or_a_gateway_does_not_say_how_long_they_waited_there_is_a_dash():
    assert cells(shown({"drf": DOCUMENT | {"jobs": JOBS[2:]}}))["completion, mean"] == ["-", "-"]
    older = [{name: value for name, value in row.items() if "waiting" not in name} for row in JOBS[:2]]
    found = cells(shown({"drf": DOCUMENT | {"jobs": older}}))
    assert (found["completion, mean"][0], found["waiting, mean"]) == ("20.0 s", ["-", "-"])


def test_several_presets_are_asked_one_after_another():
    said, requests = ran("--preset", "drf,fifo", "--json")

    assert [each["set"]["preset"] for each in requests] == ["drf", "fifo"]
    assert list(json.loads(said.out)["answers"]) == ["drf", "fifo"]


def test_json_is_the_answer_and_the_last_four_hours_count(monkeypatch):
    monkeypatch.setattr("services.cli.hindsight.time", lambda: 20_000.0)
    said, (request,) = ran("--preset", "drf", "--json")

    assert json.loads(said.out) == DOCUMENT
    assert request["from_ms"] == 20_000_000 - 4 * 3_600_000


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--since", "4x"), "--since"),
        (("--since", "5"), None),
        (("--since", "5", "--to", "4"), "--to: lies before --since"),
        (("--set", "nonsense"), "--set"),
        (("--slower", "0"), "--slower"),
        (("--add-nodes", "many"), "--add-nodes"),
    ],
)
def test_a_slip_is_found_before_anything_is_asked(words, named):
    said, requests = ran(*words)
    if named is None:
        assert said.code == 0
        return
    assert (said.code, requests) == (2, [])
    assert named in said.err


@pytest.mark.parametrize(
    ("status", "kind", "code"), [(404, "unknown_name", 1), (409, "refused:input", 1), (503, "effect", 3)]
)
def test_a_problem_at_the_end_is_how_the_command_ends(status, kind, code):
    problem = {"problem": {"status": status, "type": f"urn:largesse:{kind}", "detail": "job 'x' is not in this log"}}
    said, _ = ran("--without-job", "x", "--json", answers=[rows({"progress": {"done": 1, "of": 2}}, problem)])

    assert said.code == code
    assert "job 'x' is not in this log" in said.err
    assert json.loads(said.out)["error"]["detail"] == "job 'x' is not in this log"


def test_an_answer_that_breaks_off_is_no_answer():
    said, _ = ran(answers=[rows({"progress": {"done": 1, "of": 2}})])
    assert said.code == 3


# ---------------------------------------------------------------- a config tried
DRY = {
    "dry_run": True,
    "changed": True,
    "set": {"preset": {"before": "largesse", "after": "drf"}},
    "queues": [],
    "notes": [],
}


def applied(tmp_path, *words):
    (tmp_path / "c.json").write_text('{"set": {"preset": "drf"}}')
    answers = {("PUT", "/v1/config"): [(200, DRY, {})], ("POST", "/v1/what-if"): [rows({"answer": DOCUMENT})]}
    with a_gateway(answers) as (url, requests):
        return largesse("config", "apply", tmp_path / "c.json", *words, "--url", url), requests


def test_a_config_is_tried_over_the_last_hours(tmp_path, monkeypatch):
    monkeypatch.setattr("services.cli.hindsight.time", lambda: 100_000.0)
    said, requests = applied(tmp_path, "--dry-run", "--replay", "24h")

    assert said.code == 0, said.err
    assert "dry run: nothing has been changed" in said.out
    assert "had it been so before:\ndecided again after record 7" in said.out
    assert max(map(len, said.out.splitlines())) <= 60
    assert [path for _, path, _ in requests] == ["/v1/config?dry_run=true", "/v1/what-if"]
    assert json.loads(requests[1][2]) == {"set": {"preset": "drf"}, "from_ms": 100_000_000 - 86_400_000}

    said, _ = applied(tmp_path, "--dry-run", "--replay", "24h", "--json")
    assert json.loads(said.out) == DRY | {"replay": DOCUMENT}


@pytest.mark.parametrize(
    ("words", "named"), [(("--replay", "24h"), "--dry-run"), (("--dry-run", "--replay", "9"), "no unit")]
)
def test_what_cannot_be_tried_is_refused_before_anything_is_asked(tmp_path, words, named):
    said, requests = applied(tmp_path, *words)
    assert (said.code, requests) == (2, [])
    assert named in said.err


def test_a_config_is_tried_over_http(monkeypatch):
    script(monkeypatch, "print(json.dumps({'answer': json.loads(sys.stdin.readline())['asked']}), flush=True)")

    async def story(cell):
        config = {"set": {"seed": 7}}
        tried = await cell.http.put("/v1/config?dry_run=true&replay_ms=1000", json=config)
        return tried, await cell.http.put("/v1/config?replay_ms=1000", json=config), cell.follower.state

    tried, alone, view = run_in_memory(story)
    assert tried.json()["set"] == {"seed": {"before": 0, "after": 7}}
    assert tried.json()["replay"]["set"] == {"seed": 7}
    assert 0 < tried.json()["replay"]["from_ms"] <= view.time - 1_000
    assert (alone.status_code, alone.json()["field"]) == (422, "replay_ms")
    assert view.policy.seed == 0
