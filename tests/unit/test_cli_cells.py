"""`largesse cell`: what is wrong with a command line is said before anything is asked."""

import asyncio
import json

import pytest

from largesse.bus.memory import MemoryBus
from largesse.known_cells import Cell, add_cell
from services.cli import cell_removing, cell_routes, cells
from services.cli.ending import Refused
from services.router import following
from tests.routed_cells import RoutedCells, spec
from tests.unit.cli_process import largesse

KAFKA = "kafka://127.0.0.1:1"


class Bus:
    """One that is closed."""

    async def close(self):
        self.is_closed = True


@pytest.mark.parametrize(("seconds", "says"), [(0.01, True), (60, False)])
def test_who_waits_is_told_for_what(monkeypatch, capsys, seconds, says):
    bus = Bus()
    monkeypatch.setattr("largesse.bus.open.open_bus", lambda *_, **__: bus)
    monkeypatch.setattr(cells, "SILENT_SECONDS", seconds)

    async def ask(address, opened):
        await asyncio.sleep(0.2)
        return opened

    assert cells.asked(KAFKA, ask) is bus
    assert bus.is_closed
    text = f"no answer from {KAFKA} yet: trying for 30 s (Ctrl-C ends it)\n"
    assert capsys.readouterr().err == (text if says else "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("add", "a b", "--bus", KAFKA), "NAME: 'a b' has to be 1 to 63 letters", id="a name with a space"),
        pytest.param(("add", "a"), "--bus: several cells need Kafka: write kafka://HOST:PORT\n", id="no bus"),
        pytest.param(("list", "--bus", "data"), "--bus: several cells need Kafka", id="a folder"),
        pytest.param(("routes", "--state", "lost", "--bus", KAFKA), "--state: has to be one of waiting,", id="a state"),
        pytest.param(("list", "--bus", "kafka://x"), "--bus: 'x' is not a broker", id="a broker without a port"),
    ],
)
def test_a_slip_is_named(words, said):
    done = largesse("cell", *words, columns=200, LARGESSE_BUS="")

    assert (done.code, done.out) == (2, "")
    assert said in done.err


def removed(bus, name, **options):
    return cell_removing._removed(bus, name, force=options.get("force", False))


def test_a_cell_is_removed_once_nothing_lives_in_it():
    async def story():
        cells = await RoutedCells({"east": {"e1": "4"}, "west": {"w1": "4"}}).begin()
        with pytest.raises(Refused, match="cell west has 1 node: end them first"):
            await removed(cells.bus, "west")
        await cells.submit("j", cells=["west"], stages=[{**spec("j")["stages"][0], "duration_ms": 60_000}])
        await cells.step()
        with pytest.raises(Refused, match="cell west has 1 job, 1 node: end them first"):
            await removed(cells.bus, "west")
        await cells.run(90_000)
        cells.cells["west"].agents["w1"].away = True
        await cells.run(90_000)

        cell, life = await removed(cells.bus, "west")
        assert (cell, life) == (Cell("west", 1), cell_removing.Life())
        assert await removed(cells.bus, "west") == (cell, None)
        with pytest.raises(Refused, match="there is no cell north"):
            await removed(cells.bus, "north")

    asyncio.run(story())


def test_by_force_it_is_removed_with_all_that_lives_there():
    async def story():
        cells = await RoutedCells({"east": {"e1": "4"}, "west": {"w1": "4"}}).begin()
        cells.cells["west"].agents["w1"].away = True
        await cells.submit("j", cells=["west"])
        await cells.step()
        _, life = await removed(cells.bus, "west", force=True)
        assert (life.jobs, life.routed, life.nodes) == (1, 0, 1)
        assert life.said() == "1 job, 1 node"

    asyncio.run(story())


def test_jobs_that_the_router_has_sent_to_a_cell_that_is_down_live_there():
    async def story():
        cells = await RoutedCells({"east": {"e1": "4"}, "west": {"w1": "4"}}).begin()
        west = cells.cells.pop("west")
        await cells.submit("j", cells=["west"])
        await cells.step()
        cells.cells["west"] = west
        with pytest.raises(Refused, match="1 job that the router has sent there, 1 node"):
            await removed(cells.bus, "west")

    asyncio.run(story())


def test_a_cell_whose_log_cannot_be_folded_is_removed_by_force_alone(monkeypatch):
    async def breaks(view):
        raise AssertionError("job j ends twice")

    monkeypatch.setattr(following.CellView, "read", breaks)

    async def story():
        bus = MemoryBus()
        await add_cell(bus, Cell("broken", 0))
        with pytest.raises(Refused, match="cell broken cannot be looked into"):
            await removed(bus, "broken")
        _, life = await removed(bus, "broken", force=True)
        assert life.said() == "AssertionError: job j ends twice"

    asyncio.run(story())


def test_what_stays_of_a_removed_cell_is_said(monkeypatch, capsys):
    found = Cell("west", 1), cell_removing.Life(jobs=2, series=1)
    monkeypatch.setattr(cell_removing, "asked", lambda bus, ask: found)

    cell_removing.remove("west", bus=KAFKA)
    said = capsys.readouterr()
    assert said.out == "west is removed\n"
    assert "its log stays, in partition 1" in said.err
    assert "2 jobs, 1 series" in said.err
    cell_removing.remove("west", bus=KAFKA, json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["removed"], document["lived"]["jobs"]) == (True, 2)
    found = Cell("west", 1), None
    cell_removing.remove("west", bus=KAFKA)
    assert capsys.readouterr().out == "west is removed already\n"
    cell_removing.remove("west", bus=KAFKA, json=True)
    assert json.loads(capsys.readouterr().out) == {"cell": "west", "partition": 1, "removed": False}


def test_routes_are_shown_and_decided_again(monkeypatch, capsys):
    async def told():
        cells = await RoutedCells({"east": {"e1": "4"}, "west": {"w1": "4"}}).begin()
        await cells.submit("j")
        await cells.say({})
        await cells.submit("huge", stages=[{**spec("j")["stages"][0], "demand": {"cpu": "99"}}])
        await cells.step()
        await cells.submit("j", priority=3)
        await cells.run(8_000)
        return await cell_routes._read(cells.bus), (await cells.where())["j"]

    found, where = asyncio.run(told())
    monkeypatch.setattr(cell_routes, "asked", lambda bus, ask: found)

    cell_routes.routes("j", bus=KAFKA)
    assert ["j", "ended", where] == capsys.readouterr().out.splitlines()[-1].split()[:3]
    cell_routes.routes(state="declined", json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["job"], [each["cell"] for each in row["problems"]]) == ("huge", ["east", "west"])
    cell_routes.routes(verify=True)
    assert "decided again, alike" in capsys.readouterr().out
    cell_routes.routes(refused=True)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()][-2:]
    assert [row[3:] for row in rows] == [
        ["", "stages", "is missing"],
        ["j", "job", '"j" names another job; choose a new name, or name a cell'],
    ]
    cell_routes.routes("j", refused=True, json=True)
    (letter,) = json.loads(capsys.readouterr().out)
    assert (letter["offset"], letter["author"], letter["job"], letter["field"]) == (3, "ann", "j", "job")

    found[1].wrong.append("a record")
    with pytest.raises(Refused):
        cell_routes.routes(verify=True)
    with pytest.raises(Refused):
        cell_routes.routes("nobody")
