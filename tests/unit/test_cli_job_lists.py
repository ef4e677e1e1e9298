"""`largesse get jobs`: which jobs are asked for, and lists that are looked at again and again."""

import json

import pytest

from services.cli import job_lists
from services.cli.ending import Refused
from services.cli.job_lists import watch_jobs
from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving
from tests.unit.test_cli_rows import job


def asked(*words):
    """What the gateway is asked, and how the command ends."""
    paths = []

    def answer(request, body):
        paths.append(request.path)
        respond(request, 200, {"Content-Type": "application/json"}, json.dumps({"jobs": []}).encode())

    with serving(answer) as url:
        said = largesse("get", "jobs", *words, "--url", url)
    return paths, said


@pytest.mark.parametrize(
    "words", [("--state", "waiting,failed"), ("--state", "waiting", "--state", "failed")], ids=["commas", "repeated"]
)
def test_several_states_can_be_asked_for(words):
    paths, said = asked(*words)

    assert said.code == 0
    assert paths == ["/v1/jobs?state=waiting&state=failed&limit=1000"]


def test_a_time_since_can_be_asked_for():
    paths, _ = asked("--since", "2026-11-23T14:05+01:00")

    assert paths == ["/v1/jobs?limit=1000&since_ms=1795439100000"]


def test_a_state_that_there_is_not_is_refused_with_the_nearest():
    paths, said = asked("--state", "waiting,fialed")

    assert (paths, said.code) == ([], 2)
    assert "--state: 'fialed' is no state of a job: did you mean \"failed\"?" in said.err


def test_a_document_has_an_end_and_is_not_watched():
    assert asked("--watch", "--json")[1].code == 2


def test_in_a_pipe_a_job_that_changes_has_a_row(monkeypatch, capsys):
    monkeypatch.setattr(job_lists, "LOOK_S", 0)
    monkeypatch.setattr(job_lists, "on_terminal", lambda: False)
    first, second = job("a", "waiting"), job("b", "waiting")
    looks = [[first, second], [first, second], [first, second | {"state": "running"}]]

    def look():
        if not looks:
            raise Refused("over")
        return looks.pop(0)

    with pytest.raises(Refused):
        watch_jobs(look)
    rows = [line.split("\t")[:2] for line in capsys.readouterr().out.splitlines()]
    assert rows == [["job", "state"], ["a", "waiting"], ["b", "waiting"], ["b", "running"]]
