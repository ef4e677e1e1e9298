"""What a command says where nothing was named, and where --url is some other server."""

import json
from contextlib import contextmanager

import httpx
import pytest
import typer

from largesse.access import job_path
from services.cli.commands import app
from services.cli.ending import Broken, Wrong
from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving

JOB = {"job": "j", "stages": [{"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": 1}}]}
ASKING = [
    ["submit", "JOB"],
    ["get", "jobs"],
    ["get", "job", "j"],
    ["get", "queues"],
    ["get", "nodes"],
    ["get", "reservations"],
    ["get", "classes"],
    ["watch", "j"],
    ["cancel", "j"],
    ["logs", "j/s/0"],
    ["logs", "j/s/0", "--follow"],
    ["logs", "j/s/0", "--json"],
    ["node", "drain", "n1"],
    ["config", "show"],
    ["config", "apply", "CONFIG"],
    ["admin", "abandon-round", "1"],
    ["admin", "skip-input", "jobs", "1"],
]


@contextmanager
def a_server(status, kind, body):
    """A web server that is no gateway and answers everything alike: its address."""

    headers = {"Location": "/elsewhere", "Content-Type": kind}
    with serving(lambda request, _: respond(request, status, headers, body)) as url:
        yield url


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        pytest.param(200, "text/html", b"<html>hello</html>", id="a page"),
        pytest.param(200, "application/json", b"{}", id="another document"),
        pytest.param(200, "application/json", b"[]", id="no document"),
        pytest.param(307, "text/plain", b"", id="a redirect"),
        pytest.param(502, "text/html", b"<html>bad gateway</html>", id="a proxy's error"),
    ],
)
def test_another_server_is_told_from_a_gateway(tmp_path, words, status, kind, body):
    files = {"JOB": (tmp_path / "job.json", JOB), "CONFIG": (tmp_path / "c.json", {"set": {"preset": "drf"}})}
    for path, document in files.values():
        path.write_text(json.dumps(document))
    arguments = [str(files[word][0]) if word in files else word for word in words]

    with a_server(status, kind, body) as url, pytest.raises(Broken) as ending:
        typer.main.get_command(app).main([*arguments, "--url", url], standalone_mode=False)

    assert str(ending.value).startswith(url)
    assert str(ending.value).endswith(f" answered {status}, which is not a gateway's answer: check --url")
    assert ending.value.code == 3


def test_a_user_reads_it_in_one_line():
    with a_server(200, "text/html", b"<html>hello</html>") as url:
        said = largesse("get", "jobs", "--url", url)

    assert (said.code, said.out) == (3, "")
    assert said.err == (
        f"largesse: {url}/v1/jobs?limit=1000 answered 200, which is not a gateway's answer: check --url\n"
    )


@pytest.mark.parametrize(
    ("job", "asked"),
    [(".", b"/v1/jobs/%2E"), ("..", b"/v1/jobs/%2E%2E"), ("a..b", b"/v1/jobs/a..b"), ("a b?", b"/v1/jobs/a%20b%3F")],
)
def test_any_name_is_one_step_of_the_path(job, asked):
    with httpx.Client(base_url="http://x") as client:
        assert client.build_request("GET", job_path(job)).url.raw_path == asked


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (["cancel", ""], "ID"),
        (["watch", ""], "ID"),
        (["get", "job", ""], "ID"),
        (["node", "drain", ""], "NAME"),
        (["node", "resume", ""], "NAME"),
        (["submit", ""], "FILE"),
        (["config", "apply", ""], "FILE"),
    ],
)
def test_an_empty_argument_is_named_and_nobody_is_asked(words, argument):
    with pytest.raises(Wrong) as ending:
        typer.main.get_command(app).main([*words, "--url", "http://127.0.0.1:9"], standalone_mode=False)

    assert str(ending.value) == f"{argument}: is empty: a shell variable may not be set"
    assert ending.value.code == 2
