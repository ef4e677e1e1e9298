"""Results of earlier stages, brought to the node of a task before it starts."""

import asyncio
import errno
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from largesse.lifecycle.handed import Handed
from largesse.task_results import FilePiece, WantedResults
from services.agent import inputs
from services.agent.folders import INPUTS, attempt_folder
from services.agent.inputs import GivenUp, Inputs, NotBrought
from services.agent.local import Local
from services.agent.outbox import Name
from services.agent.peers import NotServed, Silent, by_folder
from services.agent.settings import NodeSettings
from services.agent.task_results import read_results
from tests.result_folders import left, tree

GUARD_S = 240
RUN = "7-e.1"
FILES = {"a/file": "text", "big": b"x" * 600_000, "empty/": ""}


def opened():
    """What this process has open below a folder of inputs."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return [path for path in found if INPUTS in path]


def local_of(data, job="j", index=0):
    data.mkdir(exist_ok=True)
    name = Name(job, "reduce", index, 1)
    return Local("key", name, 7, attempt_folder(data, job, RUN, "reduce", index, 1))


def brought(data, handed, peer, *, local=None, **settings):
    """The inputs of an attempt on node n once these tasks' results were brought."""
    local = local or local_of(data)

    async def run():
        several = Inputs(NodeSettings("n", data, **settings), peer)
        try:
            await asyncio.wait_for(several.bring(local, handed), GUARD_S)
        finally:
            several.close()

    asyncio.run(run())
    return tree(local.folder.parents[1] / INPUTS)


def elsewhere(folder):
    return by_folder(lambda node: folder / node)


def test_results_of_other_nodes_are_copied_and_those_of_this_one_linked_to(tmp_path):
    here, there = tmp_path / "n", tmp_path / "m"
    work = left(here, FILES, index=0)
    left(there, FILES | {"own": "1"}, index=1, number=3)
    (there / "jobs/j" / RUN / "map/1.3/work/latest").symlink_to("a/file")
    (there / "jobs/j" / RUN / "map/1.3/work/evil").symlink_to("/etc/passwd")

    found = brought(here, [Handed("map", 0, 1, 1, "n"), Handed("map", 1, 1, 3, "m")], elsewhere(tmp_path))

    assert found["map/0/a/file"] == found["map/1/a/file"] == b"text"
    assert found["map/0/big"] == found["map/1/big"] == FILES["big"]
    assert found["map/1/latest"] == "-> a/file"
    assert {path for path in found if found[path] is None} >= {"map/0/empty", "map/1/empty"}
    assert not {"map/1/evil", "map/0/own"} & set(found)
    top = here / "jobs/j" / RUN / INPUTS / "map"
    assert (top / "0/big").stat().st_ino == (work / "big").stat().st_ino
    assert (top / "1/big").stat().st_nlink == 1


def test_names_of_stages_become_folders_that_lie_nowhere_else(tmp_path):
    left(tmp_path / "m", {"f": "1"}, stage="..")

    found = brought(tmp_path / "n", [Handed("..", 0, 1, 1, "m")], elsewhere(tmp_path))
    assert found["%2E./0/f"] == b"1"


def test_a_peer_that_is_silent_for_a_while_is_asked_again_for_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PAUSE_MS", 1)
    left(tmp_path / "m", FILES)
    asked = []

    def peer(node, wanted):
        asked.append((wanted.file, wanted.offset))
        if len(asked) % 2:
            raise Silent("a moment")
        return read_results(tmp_path / node, wanted)

    found = brought(tmp_path / "n", [Handed("map", 0, 1, 1, "m")], peer)

    assert found["map/0/big"] == FILES["big"]
    pieces = [offset for file, offset in asked if file == "big"]
    assert sorted(set(pieces)) == [0, 262_144, 524_288]
    assert len(pieces) == 6


def failing(tmp_path, peer, **settings):
    with pytest.raises(NotBrought) as fault:
        brought(tmp_path / "n", [Handed("map", 0, 1, 1, "m")], peer, **settings)
    assert not [path for path in tree(tmp_path / "n") if "~" in path]
    return fault.value


def test_a_peer_that_stays_silent_is_no_fault_of_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PATIENCE_MS", 0)

    def peer(node, wanted):
        raise Silent("10.0.0.1:9100: connection refused")

    fault = failing(tmp_path, peer)
    assert not fault.fault
    assert str(fault) == "results of map/0 cannot be fetched from node m: 10.0.0.1:9100: connection refused"


def test_results_that_are_not_to_be_had_are_no_fault_of_the_job(tmp_path):
    def peer(node, wanted):
        raise NotServed("the node did not come back and is forgotten")

    assert not failing(tmp_path, peer).fault
    gone = failing(tmp_path, lambda node, wanted: None)
    assert (gone.fault, str(gone)) == (False, "results of map/0 are not kept on node m any more")


def test_more_than_the_limit_is_the_fault_of_the_job_and_names_the_setting(tmp_path):
    left(tmp_path / "m", {"a": b"x" * 700_000, "b": b"x" * 700_000})

    fault = failing(tmp_path, elsewhere(tmp_path), inputs_bytes=1 << 20)
    assert fault.fault
    assert "more than the 1 MiB of LARGESSE_NODE_INPUTS_MIB" in str(fault)
    brought(tmp_path / "n", [Handed("map", 0, 1, 1, "m")], elsewhere(tmp_path), inputs_bytes=2 << 20)


def test_the_limit_counts_what_earlier_attempts_brought(tmp_path):
    for index in (0, 1):
        left(tmp_path / "m", {"a": b"x" * 700_000}, index=index)

    async def run():
        several = Inputs(NodeSettings("n", tmp_path / "n", inputs_bytes=1 << 20), elsewhere(tmp_path))
        await several.bring(local_of(tmp_path / "n"), [Handed("map", 0, 1, 1, "m")])
        with pytest.raises(NotBrought):
            await several.bring(local_of(tmp_path / "n", index=1), [Handed("other", 1, 1, 1, "m")])
        several.close()

    left(tmp_path / "m", {"a": b"x" * 700_000}, index=1, stage="other")
    asyncio.run(asyncio.wait_for(run(), GUARD_S))


def test_a_file_that_changes_while_it_is_fetched_is_not_half_old_and_half_new(tmp_path):
    left(tmp_path / "m", FILES)

    def peer(node, wanted: WantedResults):
        found = read_results(tmp_path / node, wanted)
        if isinstance(found, FilePiece) and wanted.offset:
            return FilePiece(1, wanted.offset, found.size + 1, 0, found.data)
        return found

    assert str(failing(tmp_path, peer)) == "a file of map/0 changes while it is fetched: 'big'"


def test_tasks_of_a_job_share_what_was_brought(tmp_path):
    left(tmp_path / "m", {"f": "1"})
    asked = []

    def peer(node, wanted):
        asked.append(wanted)
        return read_results(tmp_path / node, wanted)

    async def run():
        several = Inputs(NodeSettings("n", tmp_path / "n"), peer)
        each = [local_of(tmp_path / "n", index=index) for index in range(5)]
        await asyncio.gather(*(several.bring(local, [Handed("map", 0, 1, 1, "m")]) for local in each))
        several.close()

    asyncio.run(asyncio.wait_for(run(), GUARD_S))
    assert len(asked) == 2  # The list and the file.


def test_what_an_earlier_agent_did_not_finish_is_brought_anew(tmp_path):
    left(tmp_path / "m", {"f": "1"})
    half = tmp_path / "n/jobs/j" / RUN / INPUTS / "map/0~7"
    half.mkdir(parents=True)
    (half / "f").write_text("half")

    assert brought(tmp_path / "n", [Handed("map", 0, 1, 1, "m")], elsewhere(tmp_path)) == {
        "map": None, "map/0": None, "map/0/f": b"1",
    }  # fmt: skip


@pytest.mark.parametrize("where", [INPUTS, f"{INPUTS}/map"])
def test_nothing_is_written_through_a_link_of_a_task(tmp_path, where):
    left(tmp_path / "m", {"f": "1"})
    trap = tmp_path / "n/jobs/j" / RUN / where
    trap.parent.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    trap.symlink_to(tmp_path / "outside")

    with pytest.raises(OSError) as fault:
        brought(tmp_path / "n", [Handed("map", 0, 1, 1, "m")], elsewhere(tmp_path))
    assert fault.value.errno in (errno.ENOTDIR, errno.ELOOP)
    assert type(fault.value).__name__ == "Spoilt"
    assert list((tmp_path / "outside").iterdir()) == []


def test_it_ends_soon_once_nobody_waits_for_it(tmp_path):
    local = local_of(tmp_path / "n")
    asked = threading.Event()

    def peer(node, wanted):
        asked.set()
        raise Silent("for ever")

    async def run():
        several = Inputs(NodeSettings("n", tmp_path / "n"), peer)
        bringing = asyncio.ensure_future(several.bring(local, [Handed("map", 0, 1, 1, "m")]))
        await asyncio.to_thread(asked.wait, GUARD_S)
        local.phase = "ended"
        with pytest.raises(GivenUp):
            await bringing
        several.close()

    asyncio.run(asyncio.wait_for(run(), GUARD_S))


def test_an_agent_that_ends_meanwhile_closes_nothing_that_a_thread_still_uses(tmp_path):
    """The thread writes into the folder that it has opened, and no other file has got the descriptor's number."""
    left(tmp_path / "m", {"f": "1"})
    asked, go_on = threading.Event(), threading.Event()

    def peer(node, wanted):
        found = read_results(tmp_path / node, wanted)
        if wanted.file is not None:
            asked.set()
            go_on.wait(GUARD_S)
        return found

    async def run():
        several = Inputs(NodeSettings("n", tmp_path / "n"), peer)
        bringing = asyncio.ensure_future(several.bring(local_of(tmp_path / "n"), [Handed("map", 0, 1, 1, "m")]))
        await asyncio.to_thread(asked.wait, GUARD_S)
        bringing.cancel()
        await asyncio.wait([bringing])
        assert any("/map/0~" in path for path in opened())
        go_on.set()
        several.close()
        several._pool.shutdown(wait=True)
        assert opened() == []

    asyncio.run(asyncio.wait_for(run(), GUARD_S))


def test_results_of_an_earlier_run_are_those_of_its_folder(tmp_path):
    asked = []

    def peer(node, wanted):
        asked.append(wanted.admitted)
        return elsewhere(tmp_path)(node, wanted)

    left(tmp_path / "m", FILES, index=0)
    with suppress(NotBrought, AssertionError):
        brought(tmp_path / "n", [Handed("map", 0, 1, 1, "m", 3)], peer)
    assert set(asked) == {3}


def test_what_is_known_no_more_is_the_fault_of_nobody_else(tmp_path):
    with pytest.raises(NotBrought, match="run the job again from that stage") as raised:
        brought(tmp_path / "n", [Handed("map", 0, 0, 0, "")], elsewhere(tmp_path))
    assert raised.value.fault


def test_a_thread_that_nobody_waits_for_any_more_puts_nothing_half_done_in_place(tmp_path):
    """It goes on while another attempt brings the same results, and is done first."""
    left(tmp_path / "m", {"f": "1", "g": "2"})
    asked, go_on, second = threading.Event(), threading.Event(), threading.Event()

    def peer(node, wanted):
        if wanted.file == "g" and not asked.is_set():
            asked.set()
            go_on.wait(GUARD_S)
        elif wanted.file == "g":
            go_on.set()
            second.wait(GUARD_S)
        return read_results(tmp_path / node, wanted)

    async def run():
        several = Inputs(NodeSettings("n", tmp_path / "n"), peer)
        handed, local = [Handed("map", 0, 1, 1, "m")], local_of(tmp_path / "n")
        first = asyncio.ensure_future(several.bring(local, handed))
        await asyncio.to_thread(asked.wait, GUARD_S)
        first.cancel()
        await asyncio.wait([first])
        other = asyncio.ensure_future(several.bring(local_of(tmp_path / "n", index=1), handed))
        await asyncio.to_thread(go_on.wait, GUARD_S)
        place = local.folder.parents[1] / INPUTS / "map/0"
        for _ in range(20):
            assert not place.exists() or tree(place) == {"f": b"1", "g": b"2"}
            await asyncio.sleep(0.01)
        second.set()
        await other
        assert tree(place.parent) == {"0": None, "0/f": b"1", "0/g": b"2"}
        several.close()

    asyncio.run(asyncio.wait_for(run(), GUARD_S))
