"""Simulated logs with checkpoints behind some of their rounds: as an export, as a folder, and as an archive."""

import asyncio
from copy import deepcopy

from largesse.archive import state_file
from largesse.archive.state_file import StateFile
from largesse.archive.store import FolderStore
from largesse.bus.file.bus import FileBus
from largesse.bus.file.packing import pack_closed
from largesse.bus.file.reading import read_journal
from largesse.release import VERSION
from schemas import RoundAbandoned, RoundClosed, RoundOpened
from services.replay.checkpointing import Fold, stations
from services.replay.onto_bus import put_onto
from services.replay.source import open_source

SEGMENT_BYTES = 60_000


class Checkpointed:
    """A log with `count` checkpoints, about equally far apart, in the store `archive`."""

    def __init__(self, folder, log, count):
        self.log, self.folder, self.archive = open_source(log), folder / "bus", folder / "archive"
        asyncio.run(self._put())
        for _ in range(2):
            pack_closed(self.folder)
        self.records = [step.accepted.record for step in self.log.steps()]
        closings = [each.seq for each in self.records if isinstance(each.body, RoundClosed | RoundAbandoned)]
        self.files = kept_behind(self.folder, closings[:: max(1, len(closings) // (count + 1))][1 : count + 1])
        store = FolderStore(self.archive)
        for file in self.files:
            state_file.put(store, file)

    async def _put(self):
        bus = FileBus(self.folder, segment_bytes=SEGMENT_BYTES)
        await put_onto(self.log, bus.writer(), "gateway", lambda count: None)
        await bus.close()

    @property
    def live(self):
        return open_source(self.folder)


def kept_behind(folder, seqs):
    """The checkpoints behind these closings, as `checkpoint make` writes them."""
    fold, rules, found = Fold.begun(None), None, list[StateFile]()
    for station in stations(read_journal(folder), 0, None):
        fold.take(station)
        record = station.accepted.record
        if isinstance(record.body, RoundOpened):
            rules = record.body.rules
        if record.seq in seqs and station.accepted.content:
            place = (record.cell, deepcopy(station.order), station.landmark, station.positions())
            found.append(StateFile(*place, rules, fold.shards, VERSION, fold.states()))
    return found
