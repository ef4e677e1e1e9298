"""Whose a job is that names no user: of `--user`, LARGESSE_USER or the context, and else nobody's."""

import json

import pytest

from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving

CONTEXT = 'context = "prod"\n[contexts.prod]\nuser = "eve"\n'
TAKEN = {"job": "j", "state": "repeated", "job_state": "running"}


@pytest.fixture
def submitted(monkeypatch, tmp_path):
    """Runs a command that submits a job, and returns the job as the gateway gets it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("LARGESSE_USER", "LARGESSE_CONTEXT"):
        monkeypatch.delenv(name, raising=False)

    def submit(command, spec, *words, context=None, **env):
        got = []

        def answer(request, body):
            got.append(json.loads(body))
            respond(request, 200, {"Content-Type": "application/json"}, json.dumps(TAKEN).encode())

        if context is not None:
            (tmp_path / "largesse").mkdir()
            (tmp_path / "largesse" / "config.toml").write_text(context)
        file = tmp_path / "job.json"
        stage = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "0.25"}}
        file.write_text(json.dumps({"job": "j", "stages": [stage], **spec}))
        with serving(answer) as url:
            rest = [file] if command == "submit" else ["--", "true"]
            said = largesse(command, *words, "--url", url, *rest, **env)
        return got[0] if got else said

    return submit


@pytest.mark.parametrize("command", ["submit", "run"])
@pytest.mark.parametrize(
    ("words", "env", "user"),
    [
        ([], {}, None),
        ([], {"LARGESSE_USER": ""}, None),
        ([], {"LARGESSE_USER": "ann"}, "ann"),
        (["--user", "bob"], {}, "bob"),
        (["--user", "bob"], {"LARGESSE_USER": "ann"}, "bob"),
    ],
)
def test_a_job_is_whose_it_is_said_to_be_and_nobodys_where_only_the_account_says_it(
    submitted, command, words, env, user
):
    assert submitted(command, {}, *words, **env).get("user") == user


def test_a_context_names_the_user_too(submitted):
    assert submitted("run", {}, context=CONTEXT)["user"] == "eve"


def test_the_user_that_a_file_names_stays(submitted):
    assert submitted("submit", {"user": "zoe"}, "--user", "bob", LARGESSE_USER="ann")["user"] == "zoe"


def test_a_job_of_a_reservation_is_the_accounts_where_nobody_is_named(submitted):
    assert submitted("submit", {"reservation": "r"}, LOGNAME="the-account")["user"] == "the-account"
    assert submitted("submit", {"reservation": "r"}, "--user", "bob")["user"] == "bob"


@pytest.mark.parametrize("command", ["submit", "run"])
def test_an_option_that_names_nobody_is_refused(submitted, command):
    said = submitted(command, {}, "--user", "")

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("largesse: --user: has to be 1 to 253 characters")
