"""`python -m services.NAME --help`, and words that are none of its arguments: answered before anything is opened."""

import os
import subprocess
import sys
from dataclasses import fields

import pytest

from largesse.process.usage import DESCRIPTIONS, WIDTH, Usage, answered
from largesse.settings import Settings
from services.agent.settings import read_node_settings
from tests.conftest import ROOT

SERVICES = sorted(path.parent.name for path in (ROOT / "services").glob("*/__main__.py"))
ON_THE_BUS = [name for name in SERVICES if name != "simulator"]


def said(tmp_path, name, *words):
    done = subprocess.run(
        [sys.executable, "-m", f"services.{name}", *words],
        cwd=tmp_path,
        env={key: text for key, text in os.environ.items() if not key.startswith("LARGESSE_")}
        | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert list(tmp_path.iterdir()) == []  # The bus by default is a folder here.
    return done


@pytest.mark.rotating(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_says_what_it_is_and_what_sets_it_up(tmp_path, name):
    done = said(tmp_path, name, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m services.{name} ")
    assert max(map(len, done.stdout.splitlines())) <= WIDTH
    if name in ON_THE_BUS:
        assert "LARGESSE_BUS " in done.stdout
        assert "[default: file:largesse-data]" in done.stdout
        assert ("LARGESSE_SHARD " in done.stdout) == (name == "altruism")


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_refuses_what_it_does_not_know(tmp_path, name):
    done = said(tmp_path, name, "solv")

    assert (done.returncode, done.stdout) == (2, "")
    assert "solv" in done.stderr
    assert f"usage: python -m services.{name} " in done.stderr


@pytest.mark.rotating(2)
@pytest.mark.slow
@pytest.mark.parametrize("word", ["solve", "effect"])
def test_a_filter_of_fairness_says_what_it_takes(tmp_path, word):
    whole = said(tmp_path, "fairness", "--help")
    asked = said(tmp_path, "fairness", word, "-h")
    wrong = said(tmp_path, "fairness", word, "problem.json")

    assert f"python -m services.fairness {word} < problem.json" in whole.stdout
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith(f"usage: python -m services.fairness {word} ")
    assert "LARGESSE_BUS" not in asked.stdout
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith(f"python -m services.fairness {word}: unknown argument 'problem.json'")


def test_every_knob_is_told_and_none_that_is_not_there():
    assert list(DESCRIPTIONS) == [knob.name for knob in fields(Settings)]


@pytest.mark.slow
def test_every_variable_of_a_node_is_told(tmp_path):
    class Asked(dict):
        def get(self, name, default=None):
            names.append(name)
            return default

    names = []
    read_node_settings(Settings(metrics_port=1), Asked())

    help_text = said(tmp_path, "agent", "--help").stdout
    assert len(names) >= 7
    for name in names:
        assert f"  {name} " in help_text


def test_without_arguments_nothing_is_answered(capsys):
    usage = Usage("toy", "A toy.", filters={"solve": "Solves."})

    assert answered(usage, []) is None
    assert answered(usage, ["solve"]) is None
    assert capsys.readouterr() == ("", "")
