"""What stories about agents share."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.agent_cell import Story, end_tasks, first_end, scripted_cell


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Callable[[Story], None]]:
    """Runs a story of a cell, without an agent, and ends the tasks that it left below `tmp_path`."""

    async def told(story: Story) -> None:
        async with scripted_cell() as cell:
            await first_end(story(cell), cell.serving)

    yield lambda story: asyncio.run(told(story))
    end_tasks(tmp_path)
