"""What services count for Prometheus: durations from tenths of a millisecond, rounds, dead letters, the build."""

import io
import json
import sys

import pytest

from largesse.release import VERSION, are_cores_compiled, commit
from largesse.telemetry import SECONDS, configure, exposition, logger
from tests.desk import JOB, NODE, desk


def counted(name):
    lines = exposition()[1].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_every_duration_has_buckets_from_a_tenth_of_a_millisecond_on():
    text = exposition()[1].decode()

    assert SECONDS[0] == 0.000_1
    assert list(SECONDS) == sorted(SECONDS)
    for name in ("largesse_round_seconds", "largesse_decide_seconds"):
        assert f"# TYPE {name} histogram" in text
    assert 'largesse_round_seconds_bucket{le="0.0001"}' in text


def test_the_build_is_told_with_its_release_its_commit_and_whether_its_cores_are_compiled():
    compiled = "yes" if are_cores_compiled() else "no"
    line = f'largesse_build_info{{commit="{commit()}",compiled="{compiled}",version="{VERSION}"}} 1.0'

    assert line in exposition()[1].decode().splitlines()


@desk
async def test_a_refused_input_is_counted_once_its_dead_letter_is_written(desk):
    name = 'largesse_dead_letters_total{topic="jobs"}'
    before = counted(name)
    await desk.take("jobs", {"job": 7})

    assert (counted(name) - before, len(await desk.letters())) == (1, 1)


@desk
async def test_what_a_round_takes_is_measured_finer_than_log_time_tells(desk):
    """Log time stands still here, as it does for most rounds of a quiet cell."""
    rounds, seconds = counted("largesse_round_seconds_count"), counted("largesse_round_seconds_sum")
    await desk.take("nodes", {"register": NODE})
    await desk.take("jobs", JOB | {"job": "a"})
    await desk.answer()

    assert counted("largesse_round_seconds_count") == rounds + 1
    assert counted("largesse_round_seconds_sum") > seconds


@desk
async def test_a_round_that_is_given_up_is_counted(desk):
    before = counted("largesse_rounds_abandoned_total")
    await desk.take("nodes", {"register": NODE})
    await desk.take("jobs", JOB | {"job": "a"})
    await desk.take("config", {"abandon_round": (await desk.opening()).round})

    assert counted("largesse_rounds_abandoned_total") == before + 1


class Job:
    def __repr__(self):
        return "job\x1b[2J"


@pytest.mark.parametrize(
    "said", ["a\nforged", "a\x1b]0;x\x07", "a\u202eb", Job()], ids=["line", "title", "bidi", "object"]
)
def test_a_log_for_people_shows_what_controls_a_terminal_as_text(monkeypatch, said):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    configure("console")
    logger(service="x").warning("refused", name=said)

    line = sys.stderr.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert "refused" in line


def test_a_traceback_keeps_its_lines_and_json_every_character(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    configure("console")
    try:
        raise ValueError("a\x1b[2J")
    except ValueError:
        logger().exception("stopped")
    lines = sys.stderr.getvalue()
    assert lines.count("\n") > 3
    assert "\x1b" not in lines

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    configure("json")
    logger().info("x", name="a\nb\x1b")
    assert json.loads(sys.stderr.getvalue())["name"] == "a\nb\x1b"
