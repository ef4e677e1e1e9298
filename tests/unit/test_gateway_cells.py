"""A gateway of several cells: how a request chooses one, and that a cell which ends leaves the others as they are."""

import asyncio
from contextlib import asynccontextmanager
from hashlib import sha256

import httpx
import pytest

from largesse.bus.memory import MemoryBus
from largesse.known_cells import Cell, add_cell, remove_cell
from largesse.log.reader import publish_input
from largesse.settings import Settings
from services.admission import sequencer as admission
from services.gateway.http.app import make_app
from services.gateway.http.cell_choice import CellChoice
from services.gateway.served_cells import ServedCells
from tests.gateway_cell import a_cell

GUARD_S = 240
NAMES = ("east", "west")
JOB = {"job": "j", "stages": [{"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "1"}}]}


class Cells:
    """A client, and the bus behind the gateway. `served`: its cells."""

    def __init__(self, http, bus, served):
        self.http, self.bus, self.served = http, bus, served

    async def get(self, path, **headers):
        return await self.http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def until(self, path, holds):
        """The first answer at a path of which something holds."""
        async with asyncio.timeout(GUARD_S):
            while True:
                answer = await self.http.get(path)
                if holds(answer):
                    return answer
                await asyncio.sleep(0.01)


@asynccontextmanager
async def choice_of_cells(*refused, make_bus=MemoryBus):
    """The app of a gateway, its cells, and the bus. `refused`: names of cells that may not be served."""
    bus, stop = make_bus(), asyncio.Event()
    settings = Settings(bus="memory:", cell="east", wait_ms=50)
    for number, name in enumerate(NAMES):
        await add_cell(bus, Cell(name, number))

    async def admit(follower):
        if follower.cell in refused:
            raise RuntimeError("nobody may ask it")

    served = ServedCells(bus, settings, admit, lambda follower: make_app(follower, cells=served.document))
    running = [asyncio.create_task(served.run(stop))]
    for number, name in enumerate(NAMES):
        own = Settings(bus="memory:", cell=name, partition=number, wait_ms=50)
        running.append(asyncio.create_task(admission.run(bus, own, stop=stop, name=f"admission@{name}")))
    try:
        yield CellChoice(served.app_of, served.known, "east"), served, bus
    finally:
        stop.set()
        await asyncio.gather(*running)
        await bus.close()


@asynccontextmanager
async def several_cells(*refused):
    async with choice_of_cells(*refused) as (choice, served, bus):
        transport = httpx.ASGITransport(choice)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as http:
            yield Cells(http, bus, served)


def tell(story, *refused):
    async def whole():
        async with asyncio.timeout(GUARD_S), several_cells(*refused) as cells:
            for name in set(NAMES) - set(refused):
                await cells.until(f"/cells/{name}/readyz", lambda answer: answer.status_code == 200)
            await story(cells)

    asyncio.run(whole())


def test_a_request_is_for_the_cell_that_its_path_or_its_header_names_else_for_the_gateways_own():
    async def story(cells):
        at = [
            await cells.get("/v1/cells"),
            await cells.get("/v1/cells", Largesse_Cell="east"),
            await cells.get("/v1/cells", Largesse_Cell="west"),
            await cells.get("/cells/west/v1/cells"),
            await cells.get("/cells/east/v1/cells"),
        ]
        assert [answer.status_code for answer in at] == [200] * 5
        assert [answer.json()["cell"] for answer in at] == ["east", "east", "west", "west", "east"]
        assert at[2].json()["cells"] == [{"cell": "east", "ready": True}, {"cell": "west", "ready": True}]

    tell(story)


def test_what_is_submitted_to_one_cell_is_in_no_other():
    async def story(cells):
        said = await cells.http.post("/cells/west/v1/jobs", json=JOB)
        assert (said.status_code, said.headers["location"]) == (201, "/cells/west/v1/jobs/j")
        assert (await cells.get(said.headers["location"])).status_code == 200
        assert (await cells.get("/v1/jobs/j", Largesse_Cell="west")).status_code == 200
        assert (await cells.get("/v1/jobs/j")).json()["type"] == "urn:largesse:unknown_job"
        assert (await cells.get("/cells/east/v1/jobs")).json()["jobs"] == []

    tell(story)


@pytest.mark.parametrize(
    ("path", "headers", "kind"),
    [
        pytest.param("/cells/north/v1/jobs", {}, "unknown_cell", id="a path"),
        pytest.param("/v1/jobs", {"Largesse_Cell": "north"}, "unknown_cell", id="a header"),
        pytest.param("/v1/jobs", {"Largesse_Cell": ""}, "unknown_cell", id="an empty header"),
        pytest.param("/cells/west/v1/jobs", {"Largesse_Cell": "east"}, "unknown_cell", id="a path and another header"),
        pytest.param("/cells/west", {}, "not_found", id="no slash"),
        pytest.param("/cells/", {}, "not_found", id="no name"),
        pytest.param("/cells/east/cells/west/v1/jobs", {}, "not_found", id="a cell in a cell"),
    ],
)
def test_a_request_for_no_cell_there_is_gets_404(path, headers, kind):
    async def story(cells):
        answer = await cells.get(path, **headers)

        assert (answer.status_code, answer.json()["type"]) == (404, f"urn:largesse:{kind}")

    tell(story)


def test_the_page_of_a_cell_is_below_its_path():
    async def story(cells):
        pages = [await cells.get(path) for path in ("/", "/cells/west/", "/cells/west/page/index.html")]

        assert [page.status_code for page in pages] == [200] * 3
        assert len({page.content for page in pages}) == 1

    tell(story)


def test_a_cell_that_may_not_be_served_leaves_the_others_as_they_are():
    async def story(cells):
        refused = await cells.get("/cells/west/v1/jobs")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:largesse:not_ready")
        assert (await cells.get("/v1/jobs")).status_code == 200
        listed = (await cells.get("/v1/cells")).json()["cells"]
        assert {"cell": "west", "ready": False} in listed

    tell(story, "west")


def test_a_cell_that_is_added_is_served_without_a_restart():
    async def story(cells):
        await add_cell(cells.bus, Cell("north", 2))
        answer = await cells.until("/cells/north/readyz", lambda found: found.status_code == 200)
        assert answer.json()["status"] == "ready"
        listed = (await cells.get("/v1/cells")).json()["cells"]
        assert [each["cell"] for each in listed] == ["east", "north", "west"]

    tell(story)


def test_a_token_of_one_cell_closes_that_alone_and_its_session_has_a_cookie_of_its_own():
    """A browser keeps cookies by host and name."""

    async def story(cells):
        text = "lgt_" + "a" * 43
        make = {"name": "a", "user": "ann", "roles": [{"role": "admin"}], "sha256": sha256(text.encode()).hexdigest()}
        await publish_input(cells.bus.writer(), "access", {"make": make}, "test", NAMES.index("west"))
        closed = await cells.until("/cells/west/v1/jobs", lambda found: found.status_code == 401)
        assert closed.json()["type"] == "urn:largesse:unauthenticated"
        assert (await cells.get("/v1/jobs")).status_code == 200
        own = {"Authorization": f"Bearer {text}", "Origin": "http://127.0.0.1:8642"}
        signed_in = await cells.http.post("/cells/west/v1/session", headers=own)
        assert signed_in.status_code == 200
        assert [name.endswith("-west") for name in cells.http.cookies] == [True]
        assert (await cells.get("/cells/west/v1/jobs")).status_code == 200

    tell(story)


def test_a_gateway_of_one_cell_says_so_and_answers_for_no_other():
    async def story():
        async with a_cell() as cell:
            own = cell.follower.cell
            assert (await cell.get("/v1/cells")).json() == {
                "cell": own,
                "cells": [{"cell": own, "ready": True}],
                "router": None,
            }
            for name, status in ((own, 200), ("other", 404)):
                answer = await cell.http.get("/v1/jobs", headers={"Largesse-Cell": name})
                assert answer.status_code == status

    asyncio.run(story())


def test_a_cell_that_is_removed_is_listed_no_more_and_the_others_are_served_on():
    async def story(cells):
        await remove_cell(cells.bus, Cell("west", 1))
        said = await cells.until("/v1/cells", lambda answer: len(answer.json()["cells"]) == 1)
        assert said.json()["cells"] == [{"cell": "east", "ready": True}]
        gone = await cells.get("/cells/west/v1/jobs")
        assert (gone.status_code, gone.json()["type"]) == (404, "urn:largesse:unknown_cell")
        assert (await cells.get("/v1/jobs")).status_code == 200
        await add_cell(cells.bus, Cell("west", 1))
        await cells.until("/cells/west/readyz", lambda answer: answer.status_code == 200)

    tell(story)
