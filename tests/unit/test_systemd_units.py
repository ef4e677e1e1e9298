"""The systemd units: systemd reads them, and they start what there is and leave tasks alone."""

import re
import shutil
import subprocess
from configparser import ConfigParser

import pytest
import yaml

from largesse.known_variables import ELSEWHERE, READ
from schemas.principals import BY_PRINCIPAL
from services.agent.settings import VARIABLES
from tests.unit.cli_process import ROOT, largesse

FOLDER = ROOT / "infra" / "systemd"
NEWER = re.compile("Unknown key( name)? 'DelegateSubgroup'")
"""What systemd before 254 says, which starts the unit without it."""
OF_TASKS = (FOLDER / "largesse-agent.service", FOLDER / "largesse-cell.service")
"""Units that have tasks, which outlive them."""
TEMPLATE = FOLDER / "largesse-service@.service"
ARCHIVE = FOLDER / "largesse-archive@.service"
DROP_INS = sorted(FOLDER.glob("*.conf"))
COMMAND = re.compile(r"python -m services\.(\w+)")
SERVICES = sorted(
    {
        service["command"][0].removeprefix("services.")
        for service in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
        if str(service.get("command", [""])[0]).startswith("services.")
    }
    - {"agent"}
)
"""What the template is installed for: whatever docker-compose.yml runs, and no agents."""
EXPOSURE_MAX_TENTHS = 20
"""As `systemd-analyze security` counts: 100 is a unit that nothing is taken from."""


def read(path):
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(path.read_text())
    return unit


def lines(path, key):
    return re.findall(rf"^{key}=(.*)$", path.read_text(), re.MULTILINE)


def installed(path, folder, name):
    """A unit as it is installed under a name; what it starts is not there."""
    text = (
        path.read_text()
        .replace("/opt/largesse/bin/python", "/bin/true")
        .replace("/opt/largesse/bin/largesse", "/bin/true")
    )
    (folder / name).write_text(text)
    return folder / name


def analysed(*words):
    if (tool := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here")
    return subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=False)


def complaints_of(path):
    done = analysed("verify", path)
    stem = path.name.partition("@")[0]
    return done.returncode, [line for line in done.stderr.splitlines() if stem in line and not NEWER.search(line)]


@pytest.mark.parametrize("path", OF_TASKS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_the_unit(path, tmp_path):
    assert complaints_of(installed(path, tmp_path, path.name)) == (0, [])


@pytest.mark.parametrize("name", SERVICES)
def test_systemd_finds_nothing_wrong_with_the_template_under_the_name_of_a_service(name, tmp_path):
    installed(TEMPLATE, tmp_path, f"largesse-{name}@.service")
    drop_ins = tmp_path / f"largesse-{name}@.service.d"
    drop_ins.mkdir()
    for path in DROP_INS:
        shutil.copy(path, drop_ins)

    assert complaints_of(tmp_path / f"largesse-{name}@default.service") == (0, [])


def test_systemd_finds_nothing_wrong_with_the_archivers_unit(tmp_path):
    installed(ARCHIVE, tmp_path, ARCHIVE.name)

    assert complaints_of(tmp_path / "largesse-archive@default.service") == (0, [])
    words = read(ARCHIVE)["Service"]["ExecStart"].split()[1:]
    assert largesse(*words, "--help").code == 0


def test_a_mistake_in_the_template_or_a_drop_in_is_found(tmp_path):
    unit = installed(TEMPLATE, tmp_path, "largesse-admission@.service")
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=stict"))
    (tmp_path / "largesse-admission@.service.d").mkdir()
    (tmp_path / "largesse-admission@.service.d/kafka.conf").write_text("[Service]\nLoadCredentials=a:/b\n")

    _, found = complaints_of(tmp_path / "largesse-admission@default.service")

    assert [word for word in ("stict", "LoadCredentials") if not any(word in line for line in found)] == []


def test_little_is_left_that_a_service_could_do_to_the_machine(tmp_path):
    installed(TEMPLATE, tmp_path, "largesse-admission@.service")
    unit = tmp_path / "largesse-admission@default.service"

    done = analysed("security", "--offline=true", f"--threshold={EXPOSURE_MAX_TENTHS}", unit)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze here judges no files (systemd 250 does)")

    assert done.returncode == 0, done.stdout[-200:]
    assert re.search(r"Overall exposure level for \S+: \d\.\d OK", done.stdout)


@pytest.mark.parametrize("path", OF_TASKS, ids=lambda path: path.name)
def test_only_the_service_itself_is_ended_and_it_is_started_again(path):
    service = read(path)["Service"]

    assert service["KillMode"] == "process"
    assert service["Restart"] in ("always", "on-failure")


def test_the_template_leaves_nothing_behind_and_is_started_again():
    service = read(TEMPLATE)["Service"]

    assert service["KillMode"] == "mixed"
    assert service["Restart"] == "always"
    assert service["ExecStart"] == "/opt/largesse/bin/python -m services.%j"
    assert lines(TEMPLATE, "EnvironmentFile") == [
        "/etc/largesse/cell-%i.env",
        "-/etc/largesse/%j.env",
        "-/etc/largesse/%j@%i.env",
    ]


def test_there_is_a_unit_for_each_service_and_what_they_start_is_there():
    agent, cell = (read(path)["Service"] for path in OF_TASKS)

    assert sorted(FOLDER.glob("*.service")) == sorted((*OF_TASKS, TEMPLATE, ARCHIVE))
    assert agent["ExecStart"].endswith("python -m services.agent")
    for name in (*SERVICES, "agent"):
        assert (ROOT / "services" / name / "__main__.py").is_file()
        assert "-" not in name  # %j ends at the last one.
        assert name in BY_PRINCIPAL  # As whom it comes with kafka.conf.
    words = cell["ExecStart"].split()[1:]
    assert words[:2] == ["up", "--data"]
    assert "--data DIR" in largesse("up", "--help").out
    assert "LARGESSE_NODE_DATA" in agent["Environment"]
    assert "NODE_DATA" in VARIABLES


@pytest.mark.parametrize("path", [*OF_TASKS, TEMPLATE, ARCHIVE, *DROP_INS], ids=lambda path: path.name)
def test_the_variables_of_units_and_drop_ins_are_read_by_something(path):
    assert set(re.findall(r"LARGESSE_([A-Z_]+[A-Z])\b", path.read_text())) <= READ | ELSEWHERE


@pytest.mark.parametrize("path", DROP_INS, ids=lambda path: path.name)
def test_secrets_come_as_credentials_and_each_variable_names_one(path):
    given = {line.partition(":")[0] for line in lines(path, "LoadCredential")}
    named = set(re.findall(r"_FILE=%d/(\S+)", path.read_text()))

    assert given == named
    assert re.findall(r"_FILE=(?!%d/)", path.read_text()) == []


def test_the_page_on_operations_installs_the_template_for_each_service():
    page = (ROOT / "docs/operations.md").read_text()
    (listed,) = re.findall(r"^for each in (.*); do\n  install .*largesse-service@\.service", page, re.MULTILINE)

    assert sorted(listed.split()) == sorted(set(SERVICES) - {"bridge", "router"})
    for path in (*OF_TASKS, TEMPLATE, ARCHIVE, *DROP_INS):
        assert f"`{path.name}`" in page or path.name in page
