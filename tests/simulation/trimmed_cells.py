"""A recorded cell in a folder, for tests of checkpoints and of what is trimmed behind them."""

import asyncio
import shutil

from largesse.archive import state_file
from largesse.archive.store import FolderStore
from largesse.bus.file.bus import FileBus
from largesse.bus.file.compacted import DIRECTORY
from largesse.bus.file.packing import pack_closed
from largesse.bus.file.reading import read_journal
from largesse.log.snapshots import dump, whole_ones
from largesse.settings import Settings
from schemas.topics import SNAPSHOTS
from services.replay.checkpointing import agree
from tests.simulation.cell_story import NODES, OVER_MS, SHARDS_HOSTED, story
from tests.stepped_cell import SteppedCell, tell

SEGMENT_BYTES = 30_000
LATER = ((8_000, 4), (14_000, 2))


class Told:
    """A cell in a folder, a checkpoint of it in an archive, and what its services knew in the end."""

    def __init__(self, folder):
        self.folder, self.archive = folder / "bus", folder / "archive"
        asyncio.run(self._play())
        for _ in range(2):
            pack_closed(self.folder)

    async def _play(self):
        bus = FileBus(self.folder, segment_bytes=SEGMENT_BYTES)
        cell = SteppedCell(bus, Settings(snapshot_rounds=10), SHARDS_HOSTED, NODES)
        await tell(cell, story(1, LATER), OVER_MS)
        self.ends = {shell.name: dump(shell.state) for shell in cell.shells}
        self.ends["admission"] = dump(cell.sequencer.state)
        for shell in cell.shells:
            await shell.close()
        await cell.sequencer.close()
        first, end = await bus.bounds(SNAPSHOTS, 0)
        self.snapshots = whole_ones(await bus.fetch(SNAPSHOTS, 0, first, most=end - first))
        await bus.close()

    def keep(self):
        """Keeps the states of all cores behind the last snapshot; returns them."""
        file = agree(read_journal(self.folder), 0, self.snapshots).file
        state_file.put(FolderStore(self.archive), file)
        return file

    def forget_snapshots(self):
        shutil.rmtree(self.folder / DIRECTORY)

    def copied(self, folder):
        """The same in another folder."""
        shutil.copytree(self.folder, folder / "bus")
        mine = object.__new__(Told)
        mine.folder, mine.archive = folder / "bus", folder / "archive"
        mine.ends, mine.snapshots = self.ends, self.snapshots
        return mine
