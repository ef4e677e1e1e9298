"""Jobs that run every night: each has a name of its own in place of that in the file; the example with its timer."""

import json
import os
import re
import shutil
import subprocess

import pytest

from largesse.bodies import read_yaml
from schemas.edge.read import read_input
from services.planner.offline.solve import solve
from tests.unit.cli_here import largesse
from tests.unit.cli_process import ROOT
from tests.unit.test_cli_asking import a_gateway
from tests.unit.test_systemd_units import read

FOLDER = ROOT / "examples" / "every-night"
JOB = {"job": "j", "user": "ann", "stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": 0.1}, "command": ["true"]}]}
MADE: tuple[int, dict[str, object], dict[str, str]] = (201, {"job": "j-1", "state": "admitted", "warnings": []}, {})


def submitted(folder, *options):
    """What `submit` says, and what it sent."""
    (folder / "j.json").write_text(json.dumps(JOB))
    with a_gateway({("POST", "/v1/jobs"): [MADE]}) as (url, asked):
        said = largesse("submit", folder / "j.json", *options, "--url", url)
    return said, [json.loads(body) for _, _, body in asked]


@pytest.mark.parametrize("options", [[], ["--rerun"], ["--user", "bob"]])
def test_a_job_has_another_name_than_its_file_says_and_nothing_else_changes(tmp_path, options):
    said, sent = submitted(tmp_path, "--name", "j-1", *options)
    _, plain = submitted(tmp_path, *options)

    assert (said.code, said.out, said.err) == (0, "j-1\n", "")
    assert sent == [plain[0] | {"job": "j-1"}]
    assert plain[0]["job"] == "j"


@pytest.mark.parametrize("name", ["a/b", "-a", "a\tb"])
def test_a_name_that_no_job_may_have_is_refused_before_a_cell_is_asked(tmp_path, name):
    said, sent = submitted(tmp_path, f"--name={name}")

    assert (said.code, sent) == (2, [])
    assert "j.json: job: may hold no" in said.err


def test_the_script_of_the_example_names_the_job_by_the_date(tmp_path):
    fake = tmp_path / "largesse"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$LARGESSE_USER" "$@"\n')
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([FOLDER / "night.sh"], env={"PATH": path}, capture_output=True, text=True, check=True)

    user, command, file, option, name = done.stdout.splitlines()
    assert (user, command, option) == ("ann", "submit", "--name")
    assert (FOLDER / "report.yaml").samefile(file)
    assert re.fullmatch(r"report-\d{4}-\d\d-\d\d", name)


def test_the_timer_starts_the_script_at_the_hour_of_the_series():
    page = (ROOT / "docs" / "jobs.md").read_text()
    service, timer = (read(FOLDER / f"largesse-night.{kind}") for kind in ("service", "timer"))

    assert service["Service"]["ExecStart"].endswith("every-night/night.sh")
    assert timer["Timer"]["OnCalendar"] == "*-*-* 02:00:00 Europe/Berlin"
    assert '--every "0 2 * * *" --zone Europe/Berlin' in page
    assert (
        "\nPATH=/opt/largesse/bin:/usr/bin:/bin\n0 2 * * * LARGESSE_USER=ann /home/ann/examples/every-night/night.sh"
        in page
    )


@pytest.mark.parametrize("kind", ["service", "timer"])
def test_systemd_finds_nothing_wrong_with_the_units(kind, tmp_path):
    if (tool := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here")
    for each in ("service", "timer"):
        text = (
            (FOLDER / f"largesse-night.{each}")
            .read_text()
            .replace("/home/ann/examples/every-night/night.sh", "/bin/true")
        )
        (tmp_path / f"largesse-night.{each}").write_text(text)
    command = [tool, "verify", tmp_path / f"largesse-night.{kind}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, [line for line in done.stderr.splitlines() if "largesse-night" in line]) == (0, [])


def test_the_series_of_the_page_is_derived_from_the_job_and_would_be_promised():
    options = ["--from", "0", "--by", "2h", "--every", "0 2 * * *", "--zone", "Europe/Berlin", "--margin", "20"]
    printed = largesse("reserve", "submit", "nightly", "--job", FOLDER / "report.yaml", *options, "--print")
    spec = read_input("jobs", read_yaml((FOLDER / "report.yaml").read_bytes()), "")
    at = {
        "origin": "2026-11-23T00:00Z",
        "step_s": 60,
        "horizon_s": 7 * 86_400,
        "capacity": {"cpu": "2", "memory": "1Gi"},
    }
    asked = {"op": "submit", "id": "r", "user": "ann", "rdl": printed.out, "recurrence": "0 2 * * *"}
    answer = solve({"kind": "reservation", "input": {**at, "sequence": [asked]}})["results"][0]

    assert (printed.code, spec.reservation, answer["accepted"]) == (0, "nightly", True)
    assert len({lease["from"] // 86_400 for lease in answer["leases"]}) == 7
