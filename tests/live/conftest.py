"""What stories about agents and cells share."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.agent_cell import Story, end_tasks, first_end, scripted_cell
from tests.live.up_process import Up, up


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Callable[[Story], None]]:
    """Runs a story of a cell, without an agent, and ends the tasks that it left below `tmp_path`."""

    async def run(story: Story) -> None:
        async with scripted_cell() as cell:
            await first_end(story(cell), cell.serving)

    yield lambda story: asyncio.run(run(story))
    end_tasks(tmp_path)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A cell of two nodes in a process of its own, which has to end without a word on stderr."""
    with up(tmp_path_factory.mktemp("cell"), "--nodes", 2) as running:
        yield running
        code, out, err = running.end()
        assert (code, err) == (0, "")
        assert out.endswith("ended\n")
