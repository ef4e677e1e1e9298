"""Variables that nothing reads are named by every command and service, with the one that was meant."""

import subprocess
import sys

import pytest

from largesse.known_variables import ELSEWHERE, READ, strangers
from services.cli.settings_page import variables
from tests.conftest import ROOT
from tests.unit.cli_here import largesse


def test_the_list_is_that_of_the_page_of_settings():
    assert sorted(READ) == sorted(variables())
    assert set() == READ & ELSEWHERE


def test_a_variable_that_nothing_reads_comes_with_the_nearest_one():
    said = {"LARGESSE_UR": "x", "LARGESSE_BUS": "y", "LARGESSE_TEST_KAFKA": "z", "LARGESSE_JOB": "j", "PATH": "p"}

    assert list(strangers(said)) == [("LARGESSE_UR", "LARGESSE_URL")]
    assert list(strangers({"LARGESSE_QQQQQ": "x"})) == [("LARGESSE_QQQQQ", "")]


def test_a_command_says_so_and_its_answer_stays_what_programs_read():
    said = largesse("context", "show", "--json", LARGESSE_TOKENFILE="x")

    assert (
        said.err
        == "largesse: warning: LARGESSE_TOKENFILE is set, and nothing reads it: was LARGESSE_TOKEN_FILE meant?\n"
    )
    assert said.json["url"]
    assert largesse("context", "show", "--json").err == ""


@pytest.mark.slow
def test_a_service_says_so_at_its_start():
    done = subprocess.run(
        [sys.executable, "-m", "services.fairness"],
        env={"PYTHONPATH": str(ROOT), "LARGESSE_METRICSPORT": "1", "LARGESSE_BUS": "no-bus:"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert done.returncode == 2
    assert "LARGESSE_METRICSPORT is set, and nothing reads it: was LARGESSE_METRICS_PORT meant?" in done.stderr
