"""What attempts have left: listed page by page and read piece by piece, whatever a task has put there."""

import asyncio
import os
from dataclasses import replace

import pytest

from largesse.process.health import served
from largesse.task_output import PIECE_BYTES_MAX
from largesse.task_results import ENTRIES_MAX, Entry, FilePiece, WantedResults
from services.agent import task_results
from services.agent.clearing import clear
from services.agent.folders import Kept
from services.agent.peers import NotServed, Silent, by_address
from services.agent.task_output import pages_of
from services.agent.task_results import read_results, results_beside
from services.gateway.http.agents.asking import Unanswered, Way, ask_results
from tests.result_folders import left

GUARD_S = 240
WANTED = WantedResults("j", "map", 0)


async def nothing(path, query):
    return None


def paths_of(data, wanted=WANTED):
    """All paths of the list, page by page."""
    found = []
    while True:
        page = read_results(data, wanted)
        found += [entry.path for entry in page.entries]
        if not page.more:
            return found
        wanted = replace(wanted, after=found[-1])


def text_of(data, path, **which):
    piece = read_results(data, replace(WANTED, file=path, **which))
    return None if piece is None else piece.data


def test_files_folders_and_links_are_listed_in_order(tmp_path):
    work = left(tmp_path, {"b": "22", "a/deep/file": "1", "a.txt": "", "empty/": ""})
    (work / "a" / "deep" / "file").chmod(0o700)
    (work / "link").symlink_to("/etc/passwd")
    for path in work.rglob("*"):
        os.utime(path, (5, 5), follow_symlinks=False)

    listed = read_results(tmp_path, WANTED)

    assert listed.entries == (
        Entry("a", "folder", changed_ms=5_000),
        Entry("a/deep", "folder", changed_ms=5_000),
        Entry("a/deep/file", "file", 1, 5_000, executable=True),
        Entry("a.txt", "file", 0, 5_000),
        Entry("b", "file", 2, 5_000),
        Entry("empty", "folder", changed_ms=5_000),
        Entry("link", "link", changed_ms=5_000, target="/etc/passwd"),
    )
    assert (listed.attempt, listed.more, listed.left_out) == (1, False, 0)


def test_a_long_list_comes_in_pages(tmp_path, monkeypatch):
    work = left(tmp_path, {f"{folder}/{name}": "" for folder in "ab" for name in range(20)})
    monkeypatch.setattr(task_results, "LIST_BYTES_MAX", 300)

    found = paths_of(tmp_path)

    assert sorted(found) == sorted(str(path.relative_to(work)) for path in work.rglob("*"))
    assert len(read_results(tmp_path, WANTED).entries) < 5


def test_an_attempt_that_left_nothing_is_told_from_one_that_is_not_kept(tmp_path):
    left(tmp_path, {}).rmdir()

    assert read_results(tmp_path, WANTED).entries == ()
    assert read_results(tmp_path, replace(WANTED, index=1)) is None
    assert read_results(tmp_path, replace(WANTED, admitted=8, attempt=1)) is None


def test_it_is_the_last_attempt_of_the_job_that_was_named(tmp_path):
    left(tmp_path, {"f": "old"}, run="5-e.1")
    left(tmp_path, {"f": "first"}, run="7-e.1")
    left(tmp_path, {"f": "second"}, run="7-e.2", number=2)

    assert text_of(tmp_path, "f", admitted=7) == b"second"
    assert text_of(tmp_path, "f", admitted=7, attempt=1) == b"first"
    assert text_of(tmp_path, "f", admitted=5, attempt=1) == b"old"
    assert text_of(tmp_path, "f", admitted=5, attempt=2) is None


def test_results_of_ended_jobs_are_read_until_they_are_removed(tmp_path):
    left(tmp_path, {"f": "kept"})
    kept = {"age_ms": 1_000, "bytes": 1 << 60, "runs": Kept().runs, "inodes": 10**9}
    clear(tmp_path, ["j/7-e.1"], kept, now_ms=10_000)
    assert text_of(tmp_path, "f") == b"kept"
    assert text_of(tmp_path, "f", admitted=7, attempt=1) == b"kept"

    clear(tmp_path, [], kept, now_ms=11_001)
    assert text_of(tmp_path, "f") is None
    assert read_results(tmp_path, WANTED) is None


def test_a_file_comes_in_pieces(tmp_path):
    data = os.urandom(PIECE_BYTES_MAX + 10)
    left(tmp_path, {"f": data})

    first, second = text_of(tmp_path, "f"), text_of(tmp_path, "f", offset=PIECE_BYTES_MAX)
    assert first + second == data
    assert text_of(tmp_path, "f", offset=len(data)) == b""
    assert text_of(tmp_path, "f", offset=len(data) + 1) is None


def test_no_link_is_followed_wherever_a_task_has_put_it(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    work = left(tmp_path, {"file": "mine"})
    (work / "link").symlink_to(tmp_path / "secret" / "file")
    (work / "folder").symlink_to(tmp_path / "secret")

    assert text_of(tmp_path, "file") == b"mine"
    assert text_of(tmp_path, "link") is None
    assert text_of(tmp_path, "folder/file") is None
    assert text_of(tmp_path, "../task.json") is None
    assert paths_of(tmp_path) == ["file", "folder", "link"]

    work.rename(work.with_name("moved"))
    work.symlink_to(tmp_path / "secret")
    assert paths_of(tmp_path) == []
    assert text_of(tmp_path, "file") is None


def test_what_cannot_be_sent_is_left_out_and_counted(tmp_path):
    work = left(tmp_path, {"fine": ""})
    os.mkfifo(work / "pipe")
    (work / os.fsdecode(b"\xff")).write_text("no text")
    deep = work
    for _ in range(5):
        deep = deep / ("x" * 250)
        deep.mkdir()

    listed = read_results(tmp_path, WANTED)

    assert {entry.path[:1] for entry in listed.entries} == {"f", "x"}
    assert listed.left_out == 3
    assert text_of(tmp_path, "pipe") is None


def test_more_than_can_be_listed_is_said_and_not_listed(tmp_path, monkeypatch):
    left(tmp_path, {str(name): "" for name in range(10)})
    monkeypatch.setattr(task_results, "ENTRIES_MAX", 9)

    listed = read_results(tmp_path, WANTED)

    assert ENTRIES_MAX > 9
    assert (listed.too_many, listed.entries) == (True, ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_agent_that_is_root_reads_only_what_the_user_of_the_task_could(tmp_path):
    work = left(tmp_path, {"own": "", "shown": "", "hidden": ""})
    for path in (work, work / "own"):
        os.chown(path, 1_234, 1_234)
    (work / "own").chmod(0o600)
    (work / "hidden").chmod(0o600)  # As a name that the task has given to a file of root.

    assert paths_of(tmp_path) == ["own", "shown"]
    assert text_of(tmp_path, "hidden") is None


def over_http(data, story, node="n"):
    """Runs a story with the address of an agent that shows what is below `data`."""

    async def run():
        pages = results_beside(pages_of(node, data), node, data)
        async with served("127.0.0.1", 0, nothing, pages, seconds=GUARD_S) as port:
            return await asyncio.wait_for(story(f"127.0.0.1:{port}"), GUARD_S)

    return asyncio.run(run())


def test_agents_and_gateways_read_the_same_over_http(tmp_path):
    left(tmp_path, {"sub/a b?.txt": b"\0\xff", "é": "1"})
    one = replace(WANTED, file="sub/a b?.txt")

    async def story(address):
        peer = by_address({"n": address, "m": address, "mute": ""}.get)
        for wanted in (WANTED, one, replace(one, offset=1), replace(one, file="none"), replace(WANTED, index=4)):
            asked = await ask_results(Way((address,)), "n", wanted)
            assert await asyncio.to_thread(peer, "n", wanted) == asked == read_results(tmp_path, wanted)
        with pytest.raises(Silent, match="another node"):
            await asyncio.to_thread(peer, "m", WANTED)
        with pytest.raises(Unanswered, match="another node"):
            await ask_results(Way((address,)), "m", WANTED)
        for name, why in (("mute", "LARGESSE_METRICS_PORT"), ("gone", "forgotten")):
            with pytest.raises(NotServed, match=why):
                await asyncio.to_thread(peer, name, WANTED)
        return await ask_results(Way((address,)), "n", one)

    found = over_http(tmp_path, story)
    assert isinstance(found, FilePiece)
    assert (found.start, found.size, found.data) == (0, 2, b"\0\xff")


def test_an_address_where_nobody_listens_is_silent():
    with pytest.raises(Silent, match="refused"):
        by_address(lambda _: "127.0.0.1:1")("n", WANTED)


@pytest.mark.parametrize("query", ["attempt=x", "offset=-1", "file=../a", "file="])
def test_a_malformed_request_is_refused(tmp_path, query):
    async def story(address):
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /v1/results/j/map/0?{query}&x=1 HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    status = over_http(tmp_path, story).split(b"\r\n")[0]
    assert status == (b"HTTP/1.1 404 Not Found" if query == "file=" else b"HTTP/1.1 400 Bad Request")
