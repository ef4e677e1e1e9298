"""A failpoint acts at its n-th hit and at no other, and only the environment arms it."""

import os
import signal
import subprocess
import sys

import pytest

from largesse.failpoints import PLACES, POINTS, VARIABLE, Armed, Failpoint, hit, parse
from tests.conftest import ROOT

PROGRAM = """
import sys
from largesse.failpoints import hit
for number in range(1, 6):
    print(number, flush=True)
    hit("altruism", "before_append")
    hit("leftover", "before_append")
    hit("leftover", "after_append")
print("end", flush=True)
"""


def process(armed):
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if armed is not None:
        environment[VARIABLE] = armed
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def said(running):
    return running.communicate(timeout=240)[0].split()


@pytest.mark.parametrize("armed", [None, "", "leftover:after_append:6", "fairness:after_append:1"])
def test_what_is_not_armed_or_not_reached_does_nothing(armed):
    with process(armed) as running:
        assert said(running) == ["1", "2", "3", "4", "5", "end"]
        assert running.returncode == 0


@pytest.mark.parametrize("armed", ["leftover:after_append:3", "leftover:after_append:3:kill"])
def test_a_process_is_killed_at_the_hit(armed):
    with process(armed) as running:
        assert said(running) == ["1", "2", "3"]
        assert running.returncode == -signal.SIGKILL


def test_an_exception_is_raised_at_the_hit():
    with process("leftover:before_append:2:raise") as running:
        out, err = running.communicate(timeout=240)
        assert out.split() == ["1", "2"]
        assert "Failpoint: leftover:before_append" in err


def test_a_process_pauses_at_the_hit_until_it_is_continued():
    with process("altruism:before_append:4:pause") as running:
        _, status = os.waitpid(running.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        running.send_signal(signal.SIGCONT)
        assert said(running) == ["1", "2", "3", "4", "5", "end"]
        assert running.returncode == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("leftover", "service:point:n", id="too short"),
        pytest.param("leftover:after_append:1:kill:now", "service:point:n", id="too long"),
        pytest.param("leftover:after_append:0", "n from 1", id="no zeroth hit"),
        pytest.param("leftover:after_append:often", "n from 1", id="no number"),
        pytest.param(":after_append:1", "service:point:n", id="no service"),
        pytest.param("leftover:after_lunch:1", "before_append", id="no such point"),
        pytest.param("leftover:after_append:1:explode", "pause", id="no such action"),
    ],
)
def test_a_typing_error_is_refused_with_what_would_be_right(text, named):
    with pytest.raises(ValueError, match=named) as refused:
        parse(text)
    assert text in str(refused.value)


def test_a_typing_error_in_the_environment_ends_the_process_at_its_start():
    with process("leftover:after_apend:1") as running:
        out, err = running.communicate(timeout=240)
        assert out == ""
        assert "no point 'after_apend'" in err


def test_there_is_a_point_before_and_after_every_place():
    assert parse("agent:before_task_start:1") == Armed("agent", "before_task_start", 1, "kill")
    assert len(POINTS) == 2 * len(set(PLACES)) >= 26
    for point in POINTS:
        hit("nobody", point)


def test_raising_is_an_exception_of_its_own():
    assert not issubclass(Failpoint, (OSError, ValueError, AssertionError))
