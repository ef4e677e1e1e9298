"""Where a gateway listens: a cell without a token only to its own machine, unless it is told to be open."""

import asyncio
import socket

import pytest
import structlog

from largesse.bus.memory import MemoryBus
from largesse.log.reader import publish_input
from largesse.settings import Settings, SettingWrong
from schemas.topics import LOG
from services.admission import sequencer
from services.gateway import shell
from tests.gateway_cell import GUARD_S
from tests.token_cell import request_of


def free_port():
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


async def _listens(port, running):
    while not running.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return True
    return False


def served(monkeypatch, host, *, is_open=None, has_token=False):
    """Whether a gateway listens there, what it says, and what it logs."""
    port = free_port()
    monkeypatch.setenv("LARGESSE_HTTP", f"{host}:{port}")
    monkeypatch.delenv("LARGESSE_OPEN", raising=False)
    if is_open is not None:
        monkeypatch.setenv("LARGESSE_OPEN", is_open)

    async def story():
        bus, stop = MemoryBus(), asyncio.Event()
        settings = Settings(bus="file:memory")
        if has_token:
            await publish_input(bus.writer(), "access", {"make": request_of("a", "ann", [{"role": "admin"}])}, "ops")
        leading = asyncio.ensure_future(sequencer.run(bus, settings, stop=stop))
        if has_token:
            await bus.wait_any({(LOG, 0): 1}, GUARD_S * 1_000)  # The claim comes first.
        running = asyncio.ensure_future(shell.run(bus, settings, stop=stop))
        try:
            found = await _listens(port, running)
            return found, str(running.exception()) if running.done() else ""
        finally:
            stop.set()
            await asyncio.gather(leading, running, return_exceptions=True)

    async def guarded():
        async with asyncio.timeout(GUARD_S):
            return await story()

    with structlog.testing.capture_logs() as logged:
        found, said = asyncio.run(guarded())
    return found, said, [each for each in logged if "OPEN CELL" in each["event"]]


def test_a_cell_without_a_token_is_served_to_its_own_machine_alone(monkeypatch):
    assert served(monkeypatch, "127.0.0.1") == (True, "", [])
    found, said, _ = served(monkeypatch, "0.0.0.0")

    assert not found
    assert (
        "`largesse token make admin --user USER --role admin --out FILE --bus file:memory` makes the first one" in said
    )
    assert "`export LARGESSE_TOKEN_FILE=FILE`" in said


@pytest.mark.parametrize("is_open", ["", "0"])
def test_an_open_cell_has_to_be_wanted(monkeypatch, is_open):
    assert not served(monkeypatch, "0.0.0.0", is_open=is_open)[0]


def test_an_open_cell_is_served_with_a_warning(monkeypatch):
    found, said, warned = served(monkeypatch, "0.0.0.0", is_open="1")

    assert (found, said, len(warned)) == (True, "", 1)
    assert warned[0]["log_level"] == "warning"
    assert "largesse token make admin" in warned[0]["fix"]


@pytest.mark.parametrize("is_open", [None, "1"])
def test_a_cell_with_a_token_is_served_anywhere_without_a_warning(monkeypatch, is_open):
    assert served(monkeypatch, "0.0.0.0", is_open=is_open, has_token=True) == (True, "", [])


def test_the_setting_is_yes_or_no():
    assert [shell.read_open({"LARGESSE_OPEN": each}) for each in ("", "0", "1")] == [False, False, True]
    with pytest.raises(SettingWrong, match="LARGESSE_OPEN=yes: has to be 1, or 0"):
        shell.read_open({"LARGESSE_OPEN": "yes"})
