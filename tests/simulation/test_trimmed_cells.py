"""A cell whose log was trimmed goes on as if it had not been: from its snapshots, or from a checkpoint alone."""

import asyncio
from contextlib import suppress

import pytest

from largesse.archive import state_file
from largesse.archive.store import FolderStore
from largesse.beginning import LogTrimmed
from largesse.bus.file.bus import FileBus
from largesse.bus.file.trim import trim
from largesse.log.reader import publish_input
from largesse.log.snapshots import dump
from largesse.moments import Moment
from largesse.settings import Settings
from schemas.topics import LOG
from services.admission.sequencer import Sequencer
from services.gateway.follow import Follower
from services.replay.joined import joined
from services.replay.source import open_source, write_export
from services.replay.verify import verify
from tests.archives import archived
from tests.simulation.cell_story import OVER_MS, SHARDS_HOSTED
from tests.simulation.trimmed_cells import Told
from tests.stepped_cell import shells_on


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return Told(tmp_path_factory.mktemp("cell"))


@pytest.fixture
def copy(told, tmp_path):
    """The cell, for one test alone."""
    return told.copied(tmp_path)


def restarted(cell, archive=""):
    """The states of every service that is started again, at the log's end."""

    async def run():
        bus = FileBus(cell.folder)
        settings = Settings(bus="file:", snapshot_rounds=10, archive=str(archive))
        shells = shells_on(bus, settings, SHARDS_HOSTED)
        sequencer = Sequencer(bus, settings, clock=lambda: OVER_MS, draw_token=lambda: "another", alone=True)
        try:
            for shell in shells:
                await shell.restore()
                while await shell.step():
                    pass
            while not sequencer.is_leading:
                await sequencer.step()
            return {shell.name: dump(shell.state) for shell in shells} | {"admission": dump(sequencer.state)}
        finally:
            for shell in shells:
                await shell.close()
            await sequencer.close()
            await bus.close()

    return asyncio.run(run())


def trimmed(cell):
    """Lets go of what lies before a checkpoint; returns where the log begins by now."""
    return trim(cell.folder, cell.keep().needed(0)).firsts[LOG, 0]


def test_services_go_on_from_their_snapshots_behind_the_beginning(copy):
    assert trimmed(copy) > 0
    assert restarted(copy) == copy.ends


def test_services_go_on_from_the_checkpoint_alone(copy):
    assert trimmed(copy) > 0
    copy.forget_snapshots()
    assert restarted(copy, copy.archive) == copy.ends


def test_without_either_the_gap_and_what_mends_it_are_named(copy, tmp_path):
    first = trimmed(copy)
    copy.forget_snapshots()
    where = (
        f"cluster.log partition 0 begins at offset {first}: what was before it has been trimmed, and fairness has no"
    )
    with pytest.raises(LogTrimmed, match=f"^{where} state behind it: set LARGESSE_ARCHIVE to the store"):
        restarted(copy)
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogTrimmed, match="empty has nothing for fairness to go on from: it has no checkpoint"):
        restarted(copy, tmp_path / "empty")


def test_a_checkpoint_of_another_log_is_refused_by_name(copy):
    trimmed(copy)
    copy.forget_snapshots()
    store = FolderStore(copy.archive)
    (seq,) = state_file.seqs_in(store)
    file, _ = state_file.get(store, seq)
    store.delete(file.name)
    file.landmark = "5f" * 32
    state_file.put(store, file)

    with pytest.raises(LogTrimmed, match=f"the checkpoint behind seq {seq} is of another log: another message is"):
        restarted(copy, copy.archive)


def test_a_damaged_checkpoint_is_refused_by_name(copy):
    trimmed(copy)
    copy.forget_snapshots()
    (path,) = (copy.archive / "checkpoints").iterdir()
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(LogTrimmed, match=f"{path.name}: it cannot be unpacked"):
        restarted(copy, copy.archive)


def goes_on(cell):
    """A cell whose log was trimmed takes a change of its policy, and decides a round over it."""

    async def run():
        bus = FileBus(cell.folder)
        settings = Settings(bus="file:", snapshot_rounds=10)
        shells = shells_on(bus, settings, SHARDS_HOSTED)
        sequencer = Sequencer(bus, settings, clock=lambda: OVER_MS, draw_token=lambda: "another", alone=True)
        for shell in shells:
            await shell.restore()
        await publish_input(bus.writer(), "config", {"set": {"retry_backoff_ms": 300}}, "tester")
        while any([await each.step() for each in (sequencer, *shells)]):
            pass
        for each in (*shells, sequencer, bus):
            await each.close()

    asyncio.run(run())


def exported(source, path):
    write_export(source, path)
    return path.read_bytes()


def test_an_archive_and_what_is_left_are_the_whole_log_and_the_archive_goes_on(copy, tmp_path):
    whole = exported(open_source(copy.folder), tmp_path / "before")
    archived(open_source(copy.folder), copy.archive)
    assert trimmed(copy) > 0
    with pytest.raises(LogTrimmed):
        exported(open_source(copy.folder), tmp_path / "alone")
    both = joined(open_source(f"archive:{copy.archive}"), open_source(copy.folder))
    assert exported(both, tmp_path / "both") == whole
    before = verify(both)

    goes_on(copy)
    archived(open_source(copy.folder), copy.archive)
    after = verify(open_source(f"archive:{copy.archive}"))

    assert before.is_same
    assert after.is_same
    assert after.records > before.records
    assert after.rounds_compared > before.rounds_compared


def test_a_gateway_goes_on_from_the_checkpoint_and_shows_what_is_left(copy):
    async def shown(archive):
        bus, stop = FileBus(copy.folder), asyncio.Event()
        follower = Follower(bus, Settings(bus="file:", archive=archive), stop=stop)
        running = asyncio.ensure_future(follower.run())
        try:
            assert await follower.until(lambda view: follower.ready, 60)
            place = await follower.places.before(lambda order: order.seq < 3)
            seqs = [each.record.seq async for each in follower.places.records(place, follower.state.seq)]
            past = await follower.past.at(Moment(follower.state.seq - 3, None))
            with suppress(LogTrimmed):
                await follower.past.at(Moment(3, None))
                assert not archive, "what was trimmed is not there"
            return dump(follower.state), seqs, dump(past)
        finally:
            stop.set()
            await asyncio.gather(running, return_exceptions=True)
            await bus.close()

    whole, seqs, past = asyncio.run(shown(""))
    assert trimmed(copy) > 0
    copy.forget_snapshots()
    again, left, past_again = asyncio.run(shown(str(copy.archive)))
    assert (again, past_again) == (whole, past)
    assert left
    assert left == seqs[-len(left) :]
    assert len(left) < len(seqs)
