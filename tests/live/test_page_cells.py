"""The page of a gateway of several cells, in a real browser: it leads from one cell to another."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from largesse.bus.memory import MemoryBus
from largesse.known_cells import Cell, remove_cell
from services.gateway.http.serve import bound, serve
from tests.browser import needs_chromium
from tests.page_reader import readers
from tests.unit.test_gateway_cells import choice_of_cells

pytestmark = [pytest.mark.slow, needs_chromium]

START_SECONDS = 60


@contextmanager
def a_gateway(make_bus=MemoryBus, within=None):
    """The address of a gateway of the cells east and west, of which it serves east by itself. `within`: gets its loop
    and bus."""
    within = [] if within is None else within
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    begun = threading.Event()
    ends = []

    async def work():
        stop = asyncio.Event()
        ends.append((asyncio.get_running_loop(), stop))
        async with choice_of_cells(make_bus=make_bus) as (choice, _, bus):
            within.append((asyncio.get_running_loop(), bus))
            begun.set()
            await serve(choice, listening, stop)

    running = threading.Thread(target=lambda: asyncio.run(work()))
    running.start()
    assert begun.wait(START_SECONDS)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop, stop = ends[0]
        loop.call_soon_threadsafe(stop.set)
        running.join()


def test_the_name_of_the_cell_is_a_list_that_leads_to_the_others():
    with a_gateway() as url, readers(url) as make:
        tab = make()
        tab.tab.goto(f"{url}/")
        tab.until("document.querySelector('select.cell')?.value === 'east'")
        tab.tab.select_option("select.cell", "west")
        tab.tab.wait_for_url("**/cells/west/")
        tab.until("document.querySelector('select.cell')?.value === 'west'")
        tab.tab.select_option("select.cell", "east")
        tab.tab.wait_for_url("**/cells/east/")
        tab.until("document.querySelector('select.cell')?.value === 'east'")

        assert tab.complaints == []
        assert tab.violations() == []


def test_a_cell_that_is_removed_leaves_the_list():
    within = []
    with a_gateway(within=within) as url, readers(url) as make:
        tab = make()
        tab.tab.goto(f"{url}/")
        tab.until("document.querySelector('select.cell')?.value === 'east'")
        ((loop, bus),) = within
        asyncio.run_coroutine_threadsafe(remove_cell(bus, Cell("west", 1)), loop).result(START_SECONDS)
        tab.until("document.querySelector('span.cell')?.textContent === 'east'")
        assert tab.complaints == []
