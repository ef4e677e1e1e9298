"""The systemd units: systemd reads them, and they start what there is and leave tasks alone."""

import re
import shutil
import subprocess
from configparser import ConfigParser

import pytest

from services.agent.settings import VARIABLES
from tests.unit.cli_process import ROOT, largesse

NEWER = re.compile("Unknown key( name)? 'DelegateSubgroup'")
"""What systemd before 254 says, which starts the unit without it."""
UNITS = sorted((ROOT / "infra" / "systemd").glob("*.service"))


def read(path):
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(path.read_text())
    return unit


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_the_unit(path, tmp_path):
    if (tool := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here")
    # What they start is not installed here.
    text = (
        path.read_text()
        .replace("/opt/largesse/bin/python", "/bin/true")
        .replace("/opt/largesse/bin/largesse", "/bin/true")
    )
    (tmp_path / path.name).write_text(text)
    done = subprocess.run([tool, "verify", str(tmp_path / path.name)], capture_output=True, text=True, check=False)

    complaints = [line for line in done.stderr.splitlines() if path.name in line and not NEWER.search(line)]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_only_the_service_itself_is_ended_and_it_is_started_again(path):
    service = read(path)["Service"]

    assert service["KillMode"] == "process"
    assert service["Restart"] in ("always", "on-failure")


def test_the_units_are_those_of_an_agent_and_of_a_cell_and_what_they_start_is_there():
    agent, cell = (read(path)["Service"] for path in UNITS)

    assert agent["ExecStart"].endswith("python -m services.agent")
    assert (ROOT / "services/agent/__main__.py").is_file()
    words = cell["ExecStart"].split()[1:]
    assert words[:2] == ["up", "--data"]
    assert "--data DIR" in largesse("up", "--help").out
    assert "LARGESSE_NODE_DATA" in agent["Environment"]
    assert "NODE_DATA" in VARIABLES
