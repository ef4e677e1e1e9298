"""A cell that is killed anywhere, by SIGKILL, and started again: nothing is lost, doubled or decided differently.

Sequencer, services and agents share the process, so each death takes them all, with whatever was not on disk yet.
"""

import os
import signal
import subprocess
import sys

import pytest

from largesse.failpoints import VARIABLE
from schemas import JobAdmitted, JobEnded, RoundClosed
from services.replay.source import open_source
from services.replay.verify import verify
from tests.unit.cli_process import ROOT

JOBS = 8
GUARD_S = 300

FAILPOINTS = [
    *(
        f"admission:{when}_{place}"
        for place in ("append", "read_back", "close", "snapshot")
        for when in ("before", "after")
    ),
    "admission:before_consume",
    "fairness:after_decide",
    "altruism-1:before_publish",
    "altruism-0:after_publish",
    "leftover:before_decide",
    "leftover:after_publish",
    "leftover:after_consume",
    "leftover:after_snapshot",
]


def run(directory, failpoint=""):
    """One life of the process; its exit code."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.live.kill_process", str(directory), str(JOBS)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: failpoint},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def bodies(directory, kind):
    records = (step.accepted.record for step in open_source(directory).steps())
    return [record.body for record in records if isinstance(record.body, kind)]


def judge(directory):
    """Everything submitted has ended once, every task was granted once, and the log is decided again the same."""
    names = [f"j{number}" for number in range(JOBS)]
    assert sorted(body.spec.job for body in bodies(directory, JobAdmitted)) == names
    ends = [end for body in bodies(directory, JobEnded) for end in body.jobs]
    assert sorted((end.job, end.outcome) for end in ends) == [(name, "succeeded") for name in names]
    granted = [
        (grant.job, grant.stage, index, grant.attempt)
        for body in bodies(directory, RoundClosed)
        for grant in body.grants
        for index in range(grant.first, grant.first + grant.count)
    ]
    assert sorted(granted) == sorted((name, *task, 1) for name in names for task in TASKS)
    verdict = verify(open_source(directory))
    assert verdict.is_same, verdict.text()


TASKS = [("s", 0), ("s", 1), ("s", 2), ("t", 0), ("t", 1)]


@pytest.mark.rotating(4)
@pytest.mark.slow
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_death_at_a_failpoint_changes_nothing(tmp_path, failpoint):
    assert run(tmp_path, f"{failpoint}:2") == -signal.SIGKILL
    assert run(tmp_path) == 0

    judge(tmp_path)


@pytest.mark.whole
@pytest.mark.slow
def test_many_deaths_one_after_another_change_nothing(tmp_path):
    lives = [f"{failpoint}:{number}" for number, failpoint in enumerate(FAILPOINTS[::3], 1)]
    for failpoint in lives:
        run(tmp_path, failpoint)
    assert run(tmp_path) == 0

    judge(tmp_path)
