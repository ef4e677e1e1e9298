"""An input is skipped in the folder of a cell that is down, and the cell goes on with all others."""

import asyncio
import json
import shlex

import pytest

from largesse.bus.file.bus import FileBus
from largesse.log.reader import publish_input
from tests.live.up_process import GUARD_S, up
from tests.unit.cli_process import largesse

STAGE = {"stage": "run", "tasks": 1, "demand": {"cpu": "10m"}, "command": ["true"]}


def written(data, *names):
    """A data folder with jobs that nobody has read."""

    async def write():
        bus = FileBus(data / "bus")
        for name in names:
            await publish_input(bus.writer(), "jobs", {"job": name, "stages": [STAGE]}, "ann")
        await bus.close()

    asyncio.run(write())


def ended(data, action):
    """What a cell says that ends at the first input that it judges."""
    try:
        with up(data, LARGESSE_FAILPOINT=f"admission:before_judge:1:{action}") as cell:
            return cell.process.communicate(timeout=GUARD_S)[1]
    except AssertionError as early:
        return str(early)  # It ended before it took requests.


@pytest.mark.rotating(2)
@pytest.mark.parametrize("action", ["raise", "kill"])
def test_what_ends_the_cell_at_an_input_is_passed_by_the_command_that_it_names(tmp_path, action):
    data = tmp_path / "data"
    written(data, "bad", "good")
    for _ in range(2):
        output = ended(data, action)
    topic, offset = "jobs", "0"
    if action == "raise":  # A kill leaves no words.
        _, _, _, topic, offset, *rest = shlex.split(output.split("`")[1])
        # An agent may have been quicker with its registration.
        assert f"admission: InputStopped: stopped judging the input in {topic}, partition 0, offset {offset}" in output
        assert rest == ["--data", str(data)]

    assert largesse("admin", "skip-input", topic, offset, "--data", data).out == f"{topic} {offset} is skipped\n"

    with up(data) as cell:
        assert cell.ask("watch", "good").code == 0
        assert cell.ask("get", "job", "bad").code == (1 if topic == "jobs" else 0)
        cell.end()
    assert largesse("replay", data, "--verify").code == 0


@pytest.mark.whole
def test_after_a_skip_the_next_start_goes_on_and_its_log_verifies(tmp_path):
    data = tmp_path / "data"

    written(data, "bad", "good")
    said = largesse("admin", "skip-input", "jobs", 0, "--data", data, "--reason", "it hangs")
    assert (said.code, said.out) == (0, "jobs 0 is skipped\n")

    with up(data) as cell:
        assert cell.ask("watch", "good").code == 0
        assert [job["job"] for job in json.loads(cell.ask("get", "jobs", "--json").out)] == ["good"]
        late = cell.ask("admin", "skip-input", "jobs", 1)
        assert (late.code, late.out) == (1, "")
        assert "jobs has been read up to offset 1" in late.err
        cell.end()

    assert largesse("replay", data, "--verify").code == 0
