"""Which cells an instance runs, and that what happens to one is nothing to the others."""

import asyncio

from structlog.testing import capture_logs

from largesse.bus.memory import MemoryBus
from largesse.known_cells import Cell, add_cell, remove_cell
from largesse.process import cells as module
from largesse.process.cells import CellKeeper


class Deals(MemoryBus):
    """A bus whose group deals what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.deals: asyncio.Queue[list[int]] = asyncio.Queue()
        self.asked: list[tuple[str, int]] = []

    async def join_cells(self, group, copies, on_dealt):
        self.asked.append((group, copies))
        while True:
            on_dealt(await self.deals.get())


class Work:
    """What runs cells: notes which are at work, and fails those that the test has fail."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.begun: list[str] = []
        self.failing: dict[str, asyncio.Event] = {}
        self.news = asyncio.Condition()

    async def run(self, cell, stop):
        self.begun.append(cell.name)
        self.running.append(cell.name)
        await self._say()
        fails = self.failing.get(cell.name, asyncio.Event())
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, fails)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self.running.remove(cell.name)
        await self._say()
        if fails.is_set():
            raise RuntimeError("its core is broken")

    async def _say(self):
        async with self.news:
            self.news.notify_all()

    async def until(self, holds):
        async with asyncio.timeout(30), self.news:
            await self.news.wait_for(holds)


def tell(story, bus, work, *, linger_s=0.0, cells=("a", "b", "c")):
    async def whole():
        for number, name in enumerate(cells):
            await add_cell(bus, Cell(name, number))
        stop = asyncio.Event()
        keeper = CellKeeper(bus, "toy", 2, work.run, linger_s=linger_s)
        running = asyncio.create_task(keeper.run(stop))
        try:
            await story(keeper)
        finally:
            stop.set()
            await running
        assert work.running == []

    async def timed():
        async with asyncio.timeout(60):
            await whole()

    asyncio.run(timed())


def test_it_runs_what_it_is_dealt_and_a_cell_that_is_added_later():
    bus, work = Deals(), Work()

    async def story(keeper):
        assert not keeper.is_dealt
        bus.deals.put_nowait([0, 2, 3])
        await work.until(lambda: sorted(work.running) == ["a", "c"])
        assert keeper.is_dealt
        assert bus.asked == [("largesse.toy..cells", 2)]
        await add_cell(bus, Cell("d", 3))
        await work.until(lambda: sorted(work.running) == ["a", "c", "d"])
        assert keeper.cells == ["a", "c", "d"]

    tell(story, bus, work)


def test_a_cell_that_is_dealt_to_others_runs_on_for_a_while():
    bus, work = Deals(), Work()

    async def story(keeper):
        bus.deals.put_nowait([0, 1])
        await work.until(lambda: len(work.running) == 2)
        bus.deals.put_nowait([1, 2])
        await work.until(lambda: sorted(work.running) == ["a", "b", "c"])
        await work.until(lambda: sorted(work.running) == ["b", "c"])

    tell(story, bus, work, linger_s=0.05)


def test_a_cell_that_comes_back_in_the_meantime_is_not_interrupted():
    bus, work = Deals(), Work()

    async def story(keeper):
        bus.deals.put_nowait([0])
        await work.until(lambda: work.running == ["a"])
        bus.deals.put_nowait([1])
        await work.until(lambda: sorted(work.running) == ["a", "b"])
        bus.deals.put_nowait([0])
        await work.until(lambda: work.running == ["a"])
        assert work.begun == ["a", "b"]

    tell(story, bus, work, linger_s=0.1)


def test_an_error_ends_its_own_cell_alone_which_is_tried_again(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    bus, work = Deals(), Work()

    async def story(keeper):
        work.failing["b"] = asyncio.Event()
        bus.deals.put_nowait([0, 1, 2])
        await work.until(lambda: len(work.running) == 3)
        with capture_logs() as logged:
            work.failing["b"].set()
            await work.until(lambda: work.begun.count("b") == 3)
        failed = [line for line in logged if line["event"] == "cell_failed"]
        assert {(line["cell"], line["reason"]) for line in failed} == {("b", "its core is broken")}
        assert failed[1]["again_after_s"] == 2 * failed[0]["again_after_s"]
        assert work.begun.count("a") == work.begun.count("c") == 1
        assert {"a", "c"} <= set(work.running)

    tell(story, bus, work)


def test_a_bus_that_deals_nothing_out_leaves_all_cells_to_it():
    bus, work = MemoryBus(), Work()

    async def story(keeper):
        await work.until(lambda: sorted(work.running) == ["a", "b", "c"])
        assert keeper.is_dealt

    tell(story, bus, work)


def test_a_cell_that_is_removed_ends_at_once_and_begins_when_it_is_added_again():
    bus, work = Deals(), Work()

    async def story(keeper):
        bus.deals.put_nowait([0, 1, 2])
        await work.until(lambda: len(work.running) == 3)
        await remove_cell(bus, Cell("b", 1))
        await work.until(lambda: sorted(work.running) == ["a", "c"])
        await add_cell(bus, Cell("b", 1))
        await work.until(lambda: sorted(work.running) == ["a", "b", "c"])
        assert sorted(work.begun) == ["a", "b", "b", "c"]

    tell(story, bus, work, linger_s=600.0)


def test_a_cell_that_is_added_again_elsewhere_begins_there():
    bus, work, places = Deals(), Work(), []

    async def run(cell, stop):
        places.append(cell.partition)
        await work.run(cell, stop)

    async def story(keeper):
        bus.deals.put_nowait([0, 1, 2, 3])
        await work.until(lambda: len(work.running) == 1)
        await remove_cell(bus, Cell("a", 0))
        await add_cell(bus, Cell("a", 3))
        await work.until(lambda: work.begun == ["a", "a"] and work.running == ["a"])
        assert places == [0, 3]

    class Placed:
        running, begun = work.running, work.begun

    Placed.run = staticmethod(run)
    tell(story, bus, Placed, linger_s=600.0, cells=("a",))
