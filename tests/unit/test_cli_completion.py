"""Completion: the script of each shell, and what is completed."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from services.cli import arguments
from tests.unit.cli_process import COMMAND, ROOT, largesse
from tests.unit.stub_server import respond, serving

NOWHERE = "http://127.0.0.1:9"


def completed(shell, words, **env):
    """The completions that a shell gets for a command line whose last word is being typed."""
    line = " ".join(["largesse", *words])
    shell_env = {"_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    shell_env |= {"_LARGESSE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        COMMAND,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "60", **shell_env, **env},
    )
    return [line.partition("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ge"], ["get"]),
        (["get", ""], ["jobs", "job", "queues", "nodes", "classes", "ledger", "reservations"]),
        (["import", "s"], ["swf", "sacct", "spark", "sbatch"]),
        (["get", "jobs", "--state", "re"], ["rejected"]),
        (["watch", "--url", NOWHERE, ""], []),
    ],
)
def test_commands_options_and_values_are_completed_a_line_each(shell, words, found):
    assert completed(shell, words, LARGESSE_URL=NOWHERE) == found


def test_names_of_contexts_are_completed(tmp_path):
    (tmp_path / "largesse").mkdir()
    (tmp_path / "largesse/config.toml").write_text("[contexts.prod]\n[contexts.pre]\n[contexts.test]\n")

    assert completed("bash", ["context", "use", "p"], XDG_CONFIG_HOME=str(tmp_path)) == ["prod", "pre"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell):
    said = largesse("completion", shell)

    assert said.code == 0
    assert f"complete_{shell}" in said.out


def test_bash_completes_with_the_script(tmp_path):
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash here")
    command = tmp_path / "largesse"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli.main "$@"\n')
    command.chmod(0o755)
    script = """
source <(largesse completion bash)
COMP_WORDS=(largesse node dr); COMP_CWORD=2
_largesse_completion largesse; echo "${COMPREPLY[@]}"
complete -p largesse
"""
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[0] == "drain"
    assert "_largesse_completion largesse" in done.stdout.splitlines()[1]


def test_h_is_help_for_every_command():
    assert largesse("get", "jobs", "-h").out == largesse("get", "jobs", "--help").out
    assert largesse("-h").out.startswith("Usage: largesse [OPTIONS] COMMAND")


# ---------------------------------------------------------------- names that a cell, or the house, knows
STAGES = [{"stage": "map", "tasks": {"total": 2}}, {"stage": "reduce", "tasks": {"total": 1}}]
QUEUES = {"queue": "", "children": [{"queue": "ads", "children": [{"queue": "ads/prod", "children": []}]}]}
LISTED = {
    "/v1/jobs": {"jobs": [{"job": "count"}, {"job": "sort"}]},
    "/v1/jobs/count": {"stages": STAGES},
    "/v1/reservations": {"reservations": [{"reservation": "nightly.1"}, {"reservation": "big\n"}]},
    "/v1/series": {"series": [{"series": "nightly"}]},
    "/v1/queues": QUEUES,
}


@pytest.mark.parametrize(
    ("complete", "begun", "found"),
    [
        (arguments.tasks_named, "co", ["count"]),
        (arguments.tasks_named, "count/", ["count/map", "count/reduce"]),
        (arguments.tasks_named, "count/map/", ["count/map/0", "count/map/1"]),
        (arguments.tasks_named, "nosuch/", []),
        (arguments.series_or_reservations_named, "", ["nightly.1", "nightly"]),
        (arguments.queues_named, "ads", ["ads", "ads/prod"]),
        (arguments.leaves_named, "ads", ["ads/prod"]),
        (arguments.live_states_named, "waiting,r", ["waiting,running"]),
        (arguments.states_named, "waiting,r", ["waiting,running", "waiting,rejected"]),
        (arguments.presets_named, "fifo,larg", ["fifo,largesse"]),
        (arguments.knobs_named, "theta", ["theta_permille="]),
    ],
)
def test_names_are_completed(monkeypatch, complete, begun, found):
    def answer(request, body):
        document = LISTED.get(request.path.partition("?")[0])
        body = json.dumps(document or {"type": "urn:largesse:unknown_job", "detail": ""}).encode()
        respond(request, 200 if document else 404, {"Content-Type": "application/json"}, body)

    with serving(answer) as url:
        monkeypatch.setenv("LARGESSE_URL", url)
        assert complete(begun) == found


@pytest.mark.parametrize(
    "words",
    [
        ("logs", ""),
        ("reserve", "why", ""),
        ("reserve", "delete", ""),
        ("change", "count", "--queue", "a"),
        ("rerun", "count", "--from-stage", ""),
    ],
)
def test_the_names_of_arguments_are_offered(words):
    listed = {"logs": ["count", "sort"], "reserve": ["nightly.1", "nightly"]}
    listed |= {"change": ["ads/prod"], "rerun": ["map", "reduce"]}

    def answer(request, body):
        data = json.dumps(LISTED[request.path.partition("?")[0]]).encode()
        respond(request, 200, {"Content-Type": "application/json"}, data)

    with serving(answer) as url:
        assert completed("bash", words, LARGESSE_URL=url) == listed[words[0]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["get", "jobs", "--state", "waiting,re"], ["waiting,rejected"]),
        (["compare", "--presets", "largesse,ra"], ["largesse,rayon"]),
        (["simulate", "--preset", "dre"], ["dress"]),
    ],
)
def test_the_values_of_options_are_offered(words, found):
    assert completed("bash", words, LARGESSE_URL=NOWHERE) == found
