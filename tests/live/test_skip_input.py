"""An input is skipped in the folder of a cell that is down, and the cell goes on with all others."""

import asyncio
import json

from largesse.file_bus import FileBus
from largesse.log import publish_input
from tests.live.up_process import up
from tests.unit.cli_process import largesse

STAGE = {"stage": "run", "tasks": 1, "demand": {"cpu": "10m"}, "command": ["true"]}


def test_after_a_skip_the_next_start_goes_on_and_its_log_verifies(tmp_path):
    data = tmp_path / "data"

    async def write():
        bus = FileBus(data / "bus")
        for name in ("bad", "good"):
            await publish_input(bus.writer(), "jobs", {"job": name, "stages": [STAGE]}, "ann")
        await bus.close()

    asyncio.run(write())
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
