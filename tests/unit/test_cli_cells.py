"""`largesse cell`: what is wrong with a command line is said before anything is asked."""

import asyncio
import json

import pytest

from services.cli import cell_routes, cells
from services.cli.ending import Refused
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


def test_routes_are_shown_and_decided_again(monkeypatch, capsys):
    async def told():
        cells = await RoutedCells({"east": {"e1": "4"}, "west": {"w1": "4"}}).begin()
        await cells.submit("j")
        await cells.submit("huge", stages=[{**spec("j")["stages"][0], "demand": {"cpu": "99"}}])
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

    found[1].wrong.append("a record")
    with pytest.raises(Refused):
        cell_routes.routes(verify=True)
    with pytest.raises(Refused):
        cell_routes.routes("nobody")
