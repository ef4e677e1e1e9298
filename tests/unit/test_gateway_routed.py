"""A gateway of several cells beside a router: jobs that name no cell are submitted, found and cancelled."""

import asyncio
from contextlib import asynccontextmanager
from hashlib import sha256

import httpx
import jsonschema
from prometheus_client import REGISTRY

from largesse.bus.memory import MemoryBus
from largesse.known_cells import Cell, add_cell, remove_cell
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.telemetry import ROUTER_SEQ
from schemas.routes import RouterSet
from services.admission import sequencer as admission
from services.gateway.access.callers import may_submit
from services.gateway.http.api import Routing
from services.gateway.http.app import make_app
from services.gateway.http.cell_choice import CellChoice
from services.gateway.http.routing import by_routes
from services.gateway.routed import Routed
from services.gateway.served_cells import ServedCells
from services.router import shell as router
from tests.routed_cells import RoutedCells

GUARD_S = 240
NAMES = ("east", "west")
WAIT_S = 10.0


def check_said(document, path, method, answer):
    """That /openapi.json names this answer, and its document."""
    said = document["paths"][path][method]["responses"][str(answer.status_code)]["content"]
    (schema,) = [each["schema"] for each in said.values()]
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


def job(name="j", cpu="1", **more):
    return {"job": name, "stages": [{"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": cpu}}], **more}


@asynccontextmanager
async def routed_cells(nodes, *, with_router=True):
    """A client, the bus, and the rows of the router's log. `nodes`: cores of the node of each cell."""
    bus, stop = MemoryBus(), asyncio.Event()
    settings = Settings(bus="memory:", cell="east", wait_ms=20)
    writer = bus.writer()
    for number, name in enumerate(NAMES):
        await add_cell(bus, Cell(name, number))
        if name in nodes:
            node = {"register": {"node": "n", "epoch": "e", "capacity": {"cpu": nodes[name]}}}
            await publish_input(writer, "nodes", node, "agent:n", number)
    routed = Routed(bus, 20)

    def may_go(caller, queue):
        return [name for name, app in served.apps().items() if may_submit(app.state.api.door.callers, caller, queue)]

    async def admit(follower):
        pass

    routing = Routing(routed, may_go)
    served = ServedCells(
        bus, settings, admit, lambda follower: make_app(follower, cells=served.document, routing=routing)
    )
    parts = [served.run(stop), routed.run(stop)]
    if with_router:
        parts.append(router.run(bus, settings, RouterSet(), stop=stop))
    for number, name in enumerate(NAMES):
        own = Settings(bus="memory:", cell=name, partition=number, wait_ms=20)
        parts.append(admission.run(bus, own, stop=stop, name=f"admission@{name}"))
    running = [asyncio.create_task(part) for part in parts]
    try:
        choice = CellChoice(served.app_of, served.known, "east", by_routes(routed))
        transport = httpx.ASGITransport(choice)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as http:
            yield http, bus, routed
    finally:
        stop.set()
        await asyncio.gather(*running)
        await bus.close()


async def until(http, path, status, headers=None):
    """Until a path is answered so."""
    while (await http.get(path, headers=headers)).status_code != status:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def tell(story, nodes=None, *, with_router=True):
    async def whole():
        async with asyncio.timeout(GUARD_S), routed_cells(nodes or {"west": "4"}, with_router=with_router) as rig:
            http, _, routed = rig
            for name in NAMES:
                await until(http, f"/cells/{name}/readyz", 200)
            if with_router:
                await routed.until(lambda: routed.ready, GUARD_S)
            await story(*rig)

    asyncio.run(whole())


def test_a_job_that_names_no_cell_is_told_where_it_went_and_is_found_there():
    async def story(http, bus, routed):
        said = await http.post("/v1/jobs", json=job(user="ann"))
        assert said.status_code == 201, said.text
        assert said.headers["location"] == "/cells/west/v1/jobs/j"
        assert (said.json()["cell"], said.json()["state"], said.json()["why"]) == ("west", "taken", "only_one")
        found = (await http.get("/v1/jobs/j")).json()
        assert (found["job"], found["user"]) == ("j", "ann")
        assert (await http.get("/cells/east/v1/jobs/j")).status_code == 404
        assert (await http.get("/v1/jobs/j/why")).status_code == 200
        document = (await http.get("/openapi.json")).json()
        check_said(document, "/v1/routes", "post", said)
        check_said(document, "/v1/routes/{job}", "get", await http.get("/v1/routes/j"))
        check_said(document, "/v1/routes/{job}", "get", await http.get("/v1/routes/nobody"))
        again = await http.post("/v1/jobs", json=job(user="ann"))
        assert (again.status_code, again.json()["cell"]) == (200, "west")
        assert (await http.get("/v1/routes/j")).json()["cell"] == "west"

    tell(story)


def test_the_list_of_cells_says_what_the_router_hears_and_whether_it_keeps_up():
    async def story(http, bus, routed):
        def heard(router):
            return {each["cell"]: each["state"] for each in router["cells"]} == {"east": "heard", "west": "heard"}

        said = await http.get("/v1/cells")
        while not heard(said.json()["router"]):
            await asyncio.sleep(0.01)
            said = await http.get("/v1/cells")
        router = said.json()["router"]
        assert (router["behind"], router["jobs"]) == (0, {"waiting": 0, "sent": 0, "taken": 0, "moving": 0})
        check_said((await http.get("/openapi.json")).json(), "/v1/cells", "get", said)
        await http.post("/v1/jobs", json=job())
        assert (await http.get("/v1/cells")).json()["router"]["jobs"]["taken"] == 1
        await remove_cell(bus, Cell("west", 1))
        while len((await http.get("/v1/cells")).json()["router"]["cells"]) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    tell(story)


def test_where_no_router_has_ever_been_the_list_says_so():
    async def story(http, bus, routed):
        assert (await http.get("/v1/cells")).json()["router"] is None

    tell(story, with_router=False)


def test_how_far_the_routers_log_goes_is_told_to_who_watches_it():
    def told():
        return REGISTRY.get_sample_value("largesse_router_log_seq")

    async def without(http, bus, routed):
        await http.get("/v1/cells")
        assert told() == 0

    async def beside(http, bus, routed):
        before = told()
        await routed.until(lambda: told() > before, GUARD_S)  # It writes a record a second, whatever there is to do.

    ROUTER_SEQ.set(0)
    tell(without, with_router=False)
    tell(beside)


def test_messages_that_wait_for_a_router_are_counted():
    async def story():
        cells = await RoutedCells({"east": {"e1": "4"}}).begin()
        stop, routed = asyncio.Event(), Routed(cells.bus, 20)
        following = asyncio.create_task(routed.run(stop))
        await routed.until(lambda: routed.ready, GUARD_S)
        for name in "abc":
            await cells.submit(name)
        assert (await routed.standing())["behind"] == 3
        await cells.step()
        await routed.until(lambda: len(routed.rows) == 3, GUARD_S)
        assert (await routed.standing())["behind"] == 0
        stop.set()
        await following

    asyncio.run(story())


def test_a_job_that_names_a_cell_goes_past_the_router():
    async def story(http, bus, routed):
        said = await http.post("/v1/jobs", json=job(), headers={"Largesse-Cell": "west"})
        assert said.status_code == 201
        assert routed.rows == {}
        assert (await http.get("/v1/routes/j")).status_code == 404

    tell(story)


def test_what_no_cell_can_run_is_refused_with_each_cells_reason():
    async def story(http, bus, routed):
        said = await http.post("/v1/jobs", json=job(cpu="99"))
        assert said.status_code == 422
        problem = said.json()
        assert (problem["type"], problem["field"]) == ("urn:largesse:refused:no_cell", "stages[0].demand")
        assert "east: " in problem["detail"]
        assert "west: " in problem["detail"]

    tell(story, {"east": "2", "west": "4"})


def test_a_job_is_cancelled_by_way_of_the_router():
    async def story(http, bus, routed):
        await http.post("/v1/jobs", json=job())
        said = await http.delete("/v1/jobs/j")
        assert (said.status_code, said.json()["state"], said.json()["outcome"]) == (200, "ended", "cancelled")
        assert (await http.get("/cells/west/v1/jobs/j")).json()["state"] == "cancelled"
        assert (await http.delete("/v1/jobs/j")).status_code == 409

    tell(story)


def test_what_is_malformed_is_refused_before_the_router_has_it():
    async def story(http, bus, routed):
        for document, field in (
            (job(cell="west"), "cell"),
            ({"cancel": "j"}, "cancel"),
            (job() | {"rerun": True}, "rerun"),
        ):
            said = await http.post("/v1/jobs", json=document)
            assert (said.status_code, said.json()["field"]) == (422, field)
        said = await http.post("/cells/west/v1/jobs", json={"route": job(), "before_ms": 1 << 50})
        assert (said.status_code, said.json()["field"]) == (422, "route")
        assert (await bus.bounds("router.jobs", 0))[1] == 0

    tell(story)


def test_a_dry_run_is_of_the_gateways_own_cell():
    async def story(http, bus, routed):
        said = await http.post("/v1/jobs?dry_run=true", json=job())
        assert said.status_code in (200, 503)
        assert routed.rows == {}

    tell(story)


def test_without_a_router_a_cell_has_to_be_named():
    async def story(http, bus, routed):
        said = await http.post("/v1/jobs", json=job())
        assert (said.status_code, said.json()["type"]) == (503, "urn:largesse:no_router")
        assert "--cell" in said.json()["detail"]

    tell(story, with_router=False)


def test_a_job_goes_only_to_cells_in_which_its_token_may_submit():
    texts = {"east": "lgs_" + "e" * 43, "both": "lgs_" + "b" * 43}

    async def token(bus, number, name, roles):
        made = {"name": name, "user": "ann", "roles": roles, "sha256": sha256(texts[name].encode()).hexdigest()}
        await publish_input(bus.writer(), "access", {"make": made}, "operator", number)

    async def story(http, bus, routed):
        admin = [{"role": "admin"}]
        for number in range(2):
            await token(bus, number, "both", admin)
        await token(bus, 0, "east", [{"role": "submitter"}])
        headers = {name: {"Authorization": f"Bearer {text}"} for name, text in texts.items()}
        await until(http, "/v1/jobs", 200, headers["east"])
        await until(http, "/cells/west/v1/jobs", 401)

        assert (await http.post("/v1/jobs", json=job())).status_code == 401
        for number in range(3):
            said = await http.post("/v1/jobs", json=job(f"e{number}"), headers=headers["east"])
            assert (said.status_code, said.json()["cell"], said.json()["user"]) == (201, "east", "ann")
        said = await http.post("/v1/jobs", json=job("w", cells=["west"]), headers=headers["east"])
        assert (said.status_code, said.json()["field"]) == (403, "cells")
        said = await http.post("/v1/jobs", json=job("w"), headers=headers["both"])
        assert (said.status_code, said.json()["cell"]) == (201, "west")

    tell(story, {"east": "4", "west": "4"})
