"""An agent serves although strangers wrote to the log, and although it ends with offsets that no message has."""

import asyncio

import pytest

from largesse.bus.port import Outgoing
from schemas import JobEnded
from schemas.topics import LOG
from tests.live.agent_cell import agent_on, end_tasks, scripted_cell, settings


@pytest.mark.parametrize(
    ("garbage", "hole"),
    [
        pytest.param([], 3, id="a hole at the end"),
        pytest.param([b"hello", b'{"header":{"token":"z"},"content":{"type":"Unheard","seq":1}}'], 0, id="garbage"),
        pytest.param([b"hello", b"[]"], 1, id="both"),
    ],
)
def test_an_agent_catches_up_and_runs_tasks_whatever_the_log_ends_with(tmp_path, garbage, hole):
    async def story():
        async with scripted_cell() as cell:
            await cell.submit("j", {"command": ["true"]})
            await cell.bus.writer().send([Outgoing(LOG, 0, value) for value in garbage])
            if hole:
                cell.bus.skip(LOG, 0, hole)
            async with agent_on(cell, settings(tmp_path / "n")):
                (ended,) = await cell.until(lambda: cell.bodies(JobEnded))

        assert [end.outcome for end in ended.jobs] == ["succeeded"]

    try:
        asyncio.run(story())
    finally:
        end_tasks(tmp_path)
