"""`largesse admin abandon-round` and `skip-input` with `--data DIR`: on the journal of a cell that does not run.

A service that raises over a round, or a sequencer that raises over an input, ends the whole embedded cell, at every
start, before anybody could ask its gateway. So the sequencer alone is run here, on the folder, until the log has what
became of the operator's wish: the next start finds the round over, or the input skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from largesse.beginning import restored
from largesse.bus.file.bus import DirectoryHeld, FileBus, JournalDamaged
from largesse.bus.file.journal import has_journal
from largesse.bus.port import BusError, PositionGap
from largesse.folding import CoreStopped
from largesse.log.codec import Undecodable
from largesse.log.fencing import LogOrder
from largesse.log.inputs import InputStopped
from largesse.log.reader import LogReader, publish_input, wait_for_more
from largesse.log.snapshots import SnapshotKeeper
from largesse.process.ways_out import with_way_out
from largesse.settings import SettingWrong, read_settings
from largesse.telemetry import configure
from schemas import InputRefused, InputSkipped, Record
from schemas.topics import LOG
from services.admission import core
from services.admission.sequencer import Sequencer
from services.cli.ending import Broken, Refused, Wrong
from services.cli.hosting import BUS, CELL

WAIT_S = 60.0
"""So long may the sequencer take to come to the input. What a cell left unread comes first."""

TOPIC = "config"


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator asks for: the message for `config`, what it is about in words, and why it is in vain where the
    log, read to its end, and the bus show that (None: it is not). `granted`: whether a record is the answer, be it
    that of another wish for the same.
    """

    message: dict[str, Any]
    words: str
    in_vain: Callable[[LogOrder, FileBus], Awaitable[str | None]]
    granted: Callable[[Record], bool] = lambda _: False


def abandon(data: str, number: int, author: str) -> dict[str, object]:
    """Abandons the round; the document that the gateway would answer. Raises Wrong, Refused, Broken."""

    async def in_vain(order: LogOrder, bus: FileBus) -> str | None:
        if order.open and order.round == number:
            return None
        return f"round {number} is not open; " + (f"round {order.round} is" if order.open else "none is")

    _ask(data, Wish({"abandon_round": number}, f"round {number} is not given up", in_vain), author)
    return {"round": number, "abandoned": True}


def skip(data: str, topic: str, offset: int, reason: str, author: str) -> dict[str, object]:
    """Has an input skipped; the document that the gateway would answer. Raises Wrong, Refused, Broken."""

    async def in_vain(order: LogOrder, bus: FileBus) -> str | None:
        taken, end = order.positions.get(f"{topic}/0", -1), (await bus.bounds(topic, 0))[1]
        if offset <= taken:
            return f"{topic} has been read up to offset {taken}: what {offset} says is in the log already"
        return f"{topic} ends before offset {end}: there is nothing at {offset} yet" if offset >= end else None

    def granted(record: Record) -> bool:
        body = record.body
        return isinstance(body, InputSkipped) and (body.topic, body.offset) == (topic, offset)

    message = {"skip_input": {"topic": topic, "offset": offset, "reason": reason}}
    _ask(data, Wish(message, f"{topic} {offset} is not skipped", in_vain, granted), author)
    return {"topic": topic, "offset": offset, "skipped": True}


def note_checkpoint(data: str, message: dict[str, dict[str, object]], closing: int, author: str) -> bool:
    """Has the log note a checkpoint; whether it has. Raises Wrong, Refused, Broken."""

    async def in_vain(order: LogOrder, bus: FileBus) -> str | None:
        return None if order.seq >= closing else f"the log ends before record {closing}"

    _ask(data, Wish(message, f"the checkpoint behind record {closing} is not noted", in_vain), author)
    return True


def _ask(data: str, wish: Wish, author: str) -> None:
    configure("console", level="warning")
    folder = Path(data).absolute() / BUS
    try:
        if not folder.is_dir() or not has_journal(folder):
            raise Wrong(f"--data: {folder.parent}: there is no journal in this folder")
        asyncio.run(_grant(folder, wish, author))
    except DirectoryHeld as error:
        raise Wrong(f"--data: {error}. A running cell is asked through its gateway: omit --data") from None
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
        text = f"{error} ({type(cause).__name__}: {cause}), so {wish.words}"
        raise Broken(with_way_out(text, error, data, data)) from error


async def _grant(folder: Path, wish: Wish, author: str) -> None:
    bus = FileBus(folder)
    try:
        reader = LogReader(bus, order=await _where_to_begin(bus))
        end = (await bus.bounds(LOG, 0))[1]
        while reader.offset < end:
            await reader.read()
        if why := await wish.in_vain(reader.order, bus):
            raise Refused(why)  # Nothing is written for a slip.
        offset = await publish_input(bus.writer(), TOPIC, wish.message, author)
        record = await _outcome(bus, reader, wish, offset)
    finally:
        await bus.close()
    if record is not None and isinstance(record.body, InputRefused):
        raise Refused(record.body.reason)


async def _where_to_begin(bus: FileBus) -> LogOrder:
    """The log's first record, or, where that was trimmed, what the sequencer begins with. Raises BusError."""
    if not (await bus.bounds(LOG, 0))[0]:
        return LogOrder()
    keeper = SnapshotKeeper(bus, read_settings(), core.NAME, 0, core.LAYOUT, core.NAME, beginning=restored)
    found = await keeper.restore(core.State)
    assert found is not None, "who restores from a log that was trimmed has a state, or is told why not"
    return found[1].order


async def _outcome(bus: FileBus, reader: LogReader, wish: Wish, offset: int) -> Record | None:
    """Runs a sequencer until `reader` has met what became of the input at `offset`, or that it changed nothing. Raises
    Broken, BusError.
    """
    sequencer = Sequencer(bus, replace(read_settings(), bus=f"file:{bus.directory}", cell=CELL, partition=0))
    never = asyncio.Event()
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                if bus.failure is not None:
                    raise BusError(str(bus.failure))
                stepped = await sequencer.step()
                for accepted in await reader.read():
                    mine = (accepted.header.topic, accepted.header.offset) == (TOPIC, offset)
                    if mine or wish.granted(accepted.record):
                        return accepted.record
                if reader.order.positions.get(f"{TOPIC}/0", -1) >= offset:
                    return None
                if not stepped:
                    await wait_for_more(bus, sequencer.waiting_for(), sequencer.wait_ms(), never)
    except TimeoutError:
        text = f"within {WAIT_S:.0f} s; the next start of the cell does it, if it comes to it"
        raise Broken(f"{wish.words} {text}") from None
    finally:
        await sequencer.close()
