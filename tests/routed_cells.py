"""Real cells and routers on one bus in memory, stepped by the test's clock: it says what ends, repeats or comes late.

What a router has sent can be sent once more at any time, as by an instance that was paused.
"""

from collections import Counter

import orjson

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message, Outgoing
from largesse.known_cells import Cell, add_cell
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import JobEnded, Record, RoundClosed
from schemas.routes import JobRouted, RouterSet
from schemas.topics import ROUTER_JOBS, ROUTER_LOG
from services.router.checking import check
from services.router.shell import LEASE_MS, Router
from tests.stepped_cell import SteppedCell

STEP_MS = 1_000
ROUTED = (b'{"route"', b'{"cancel"')


class Ended(Exception):
    """A router has ended."""


class RoutedCells:
    """`cells`: by name. `router`: the one that is stepped; `gone`: those before it, which may still step."""

    def __init__(self, nodes: dict[str, dict[str, str]], knobs: RouterSet | None = None) -> None:
        self.bus = MemoryBus()
        self.now_ms = 0
        self.knobs = knobs or RouterSet()
        self.gone: list[Router] = []
        self.cells: dict[str, SteppedCell] = {}
        for number, (name, agents) in enumerate(nodes.items()):
            settings = Settings(bus="memory:", cell=name, partition=number)
            self.cells[name] = SteppedCell(self.bus, settings, 1, agents)
        self._tokens = iter(f"token-{number}" for number in range(10_000))
        self._writer = self.bus.writer()
        self.router = self._new()

    async def begin(self, **knobs: object) -> "RoutedCells":
        """Until the router leads and all nodes are there. `knobs`: of all cells."""
        for number, name in enumerate(self.cells):
            await add_cell(self.bus, Cell(name, number))
            if knobs:
                await publish_input(self._writer, "config", {"set": knobs}, "operator", number)
        while not self.router.is_leading:
            await self.step()
        return self

    async def step(self, ms: int = STEP_MS) -> None:
        """Time passes, and everybody does what there is to do."""
        self.now_ms += ms
        busy = True
        while busy:
            for cell in self.cells.values():
                cell.now_ms = self.now_ms
                await cell.settle()
            busy = False
            try:
                while await self.router.step():
                    busy = True
            except Ended:
                self.router = self._new()

    async def run(self, ms: int) -> None:
        """So much time passes."""
        for _ in range(ms // STEP_MS):
            await self.step()

    async def submit(self, name: str, **more: object) -> None:
        """A job of one task of one core, that names no cell."""
        await publish(self._writer, {**spec(name), **more})

    async def say(self, document: object) -> None:
        """Any message to the router."""
        await publish(self._writer, document)

    async def say_to(self, cell: str, topic: str, document: object) -> None:
        """Any message to a cell."""
        await publish_input(self._writer, topic, document, "client", self.cells[cell].sequencer._settings.partition)

    def restart(self) -> None:
        """Another router in the place of this one, which may come back."""
        self.gone.append(self.router)
        self.router = self._new()

    async def fail_to_send(self) -> None:
        """The next messages of this router to cells are never sent: it ends before, and another takes its place."""

        async def ends(messages: list[Outgoing]) -> None:
            if messages:
                raise Ended

        self.router._send = ends  # type: ignore[method-assign]

    async def repeat(self, at: int) -> None:
        """One of the messages that routers have sent to cells comes once more."""
        sent = await self.sent()
        if sent:
            message = sent[at % len(sent)]
            await self._writer.send([Outgoing("jobs", message.partition, message.value, headers=message.headers)])

    async def sent(self) -> list[Message]:
        """What routers have sent to cells."""
        found: list[Message] = []
        for number in range(len(self.cells)):
            _, end = await self.bus.bounds("jobs", number)
            found += [
                each for each in await self.bus.fetch("jobs", number, 0, most=end + 1) if each.value[:9] in ROUTED
            ]
        return found

    # ---------------------------------------------------------------- what the logs say
    async def records(self, cell: str = "") -> list[Record]:
        """Of a cell's log, or of the router's."""
        if cell:
            reader = LogReader(self.bus, list(self.cells).index(cell))
        else:
            reader = LogReader(self.bus, topic=ROUTER_LOG)
        found: list[Record] = []
        while read := await reader.read():
            found += [each.record for each in read if each.record.seq]
        return found

    async def bodies(self, kind: type) -> list:
        """Bodies of the router's log of one type."""
        return [record.body for record in await self.records() if isinstance(record.body, kind)]

    async def begun(self) -> dict[str, list[str]]:
        """Job -> the cells in which any attempt of it was ever granted."""
        found: dict[str, list[str]] = {}
        for cell in self.cells:
            for record in await self.records(cell):
                for grant in record.body.grants if isinstance(record.body, RoundClosed) else ():
                    if cell not in found.setdefault(grant.job, []):
                        found[grant.job].append(cell)
        return found

    async def succeeded(self) -> Counter:
        """How often each job has succeeded, in any cell."""
        found: Counter = Counter()
        for cell in self.cells:
            for record in await self.records(cell):
                if isinstance(record.body, JobEnded):
                    found.update(end.job for end in record.body.jobs if end.outcome == "succeeded")
        return found

    async def where(self) -> dict[str, str]:
        """Job -> the cell that it was sent to last, as the router's log says."""
        return {body.job: body.cell for body in await self.bodies(JobRouted)}

    async def assert_lawful(self) -> None:
        """No job ran in two cells, and every decision follows from the log before it."""
        assert {job: cells for job, cells in (await self.begun()).items() if len(cells) > 1} == {}
        checked = check(await self.records())
        assert checked.wrong == []

    def _new(self) -> Router:
        settings = Settings(bus="memory:")
        now = lambda: self.now_ms  # noqa: E731
        draw = lambda: next(self._tokens)  # noqa: E731
        return Router(self.bus, settings, self.knobs, wall=now, steady=now, draw_token=draw)


async def publish(writer, document: object) -> None:
    """A message to the router."""
    await writer.send([Outgoing(ROUTER_JOBS, 0, orjson.dumps(document), headers={"author": "ann"})])


def spec(name: str, **more: object) -> dict:
    """A job of one task of one core."""
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 5_000, **more}
    return {"job": name, "user": "ann", "stages": [stage]}


TAKEOVER_MS = LEASE_MS + 2 * STEP_MS
"""After so long another router leads."""
