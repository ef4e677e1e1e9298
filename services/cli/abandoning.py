"""`largesse admin abandon-round N --data DIR`: gives the open round up in the journal of a cell that does not run.

A service that raises over a round ends the whole embedded cell, at every start, before anybody could ask its gateway.
So the sequencer alone is run here, on the folder, until the log has what became of the input: the next start finds the
round over, and no service answers it.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from largesse.bus import BusError, PositionGap
from largesse.codec import Undecodable
from largesse.file_bus import DirectoryHeld, FileBus, JournalDamaged
from largesse.file_journal import has_journal
from largesse.log import LogReader, publish_input, wait_for_more
from largesse.settings import SettingWrong, read_settings
from largesse.shell import CoreStopped
from largesse.telemetry import configure
from schemas import InputRefused, Record
from schemas.topics import LOG
from services.admission.shell import InputStopped, Sequencer
from services.cli.ending import Broken, Refused, Wrong
from services.cli.hosting import BUS, CELL

WAIT_S = 60.0
"""So long may the sequencer take to come to the input. What a cell left unread comes first."""

TOPIC = "config"


def abandon(data: str, number: int, author: str) -> dict[str, Any]:
    """Abandons the round; the document that the gateway would answer. Raises Wrong, Refused, Broken."""
    configure("console", level="warning")
    folder = Path(data).absolute() / BUS
    try:
        if not folder.is_dir() or not has_journal(folder):
            raise Wrong(f"--data: {folder.parent}: there is no journal in this folder")
        asyncio.run(_abandon(folder, number, author))
    except DirectoryHeld as error:
        raise Wrong(f"--data: {error}. A cell that runs is asked through its gateway: leave --data out") from None
    except (JournalDamaged, PositionGap, Undecodable) as error:
        raise Wrong(f"--data: {error}") from None
    except SettingWrong as error:
        raise Wrong(str(error)) from None
    except OSError as error:
        raise Wrong(f"--data: {error.filename}: {error.strerror}") from None
    except BusError as error:
        raise Broken(str(error)) from None
    except (CoreStopped, InputStopped) as error:
        cause = error.__cause__
        raise Broken(f"{error} ({type(cause).__name__}: {cause}): the round cannot be given up") from error
    return {"round": number, "abandoned": True}


async def _abandon(folder: Path, number: int, author: str) -> None:
    bus = FileBus(folder)
    try:
        reader = LogReader(bus)
        end = (await bus.bounds(LOG, 0))[1]
        while reader.offset < end:
            await reader.read()
        order = reader.order
        if not order.open or order.round != number:
            # Nothing is written for a slip.
            there = f"round {order.round} is" if order.open else "none is"
            raise Refused(f"round {number} is not open; {there}")
        offset = await publish_input(bus.writer(), TOPIC, {"abandon_round": number}, author)
        record = await _outcome(bus, reader, offset)
    finally:
        await bus.close()
    if isinstance(record.body, InputRefused):
        raise Refused(record.body.reason)


async def _outcome(bus: FileBus, reader: LogReader, offset: int) -> Record:
    """Runs a sequencer until `reader` has met what became of the input at `offset`. Raises Broken, BusError."""
    sequencer = Sequencer(bus, replace(read_settings(), bus=f"file:{bus.directory}", cell=CELL, partition=0))
    never = asyncio.Event()
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                if bus.failure is not None:
                    raise BusError(str(bus.failure))
                stepped = await sequencer.step()
                for accepted in await reader.read():
                    if (accepted.header.topic, accepted.header.offset) == (TOPIC, offset):
                        return accepted.record
                if not stepped:
                    await wait_for_more(bus, sequencer.waiting_for(), sequencer.wait_ms(), never)
    except TimeoutError:
        told = (
            f"the round was not given up within {WAIT_S:.0f} s; the next start of the cell does it, if it comes to it"
        )
        raise Broken(told) from None
    finally:
        await sequencer.close()
