"""What attempts printed: found in their folders, read piece by piece, and shown over HTTP to who asks for it."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse import task_output
from largesse.process.health import served
from largesse.task_output import PIECE_BYTES_MAX, Piece, Wanted
from services.agent.folders import attempt_folder
from services.agent.task_output import pages_of, read_piece
from services.gateway.http.agents import asking
from services.gateway.http.agents.asking import Unanswered, Way, ask
from tests.printed import read_output
from tests.unit.test_agent_folders import attempt

GUARD_S = 240
WANTED = Wanted("j", "map", 0)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """An agent on a busy machine answers late."""
    for name in ("CONNECT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(asking, name, GUARD_S)


def test_output_is_that_of_the_last_attempt_unless_one_is_named(tmp_path):
    attempt(tmp_path, number=1, stdout=b"first", at_s=1)
    attempt(tmp_path, number=2, stdout=b"second", stderr=b"oh", at_s=2)

    assert read_output(tmp_path, "j", "map", 0) == b"second"
    assert read_output(tmp_path, "j", "map", 0, 1) == b"first"
    assert read_output(tmp_path, "j", "map", 0, stream="stderr") == b"oh"
    assert read_piece(tmp_path, WANTED) == Piece(2, 0, 6, b"second")


def test_attempts_of_a_later_job_of_the_same_name_come_first_unless_one_job_is_named(tmp_path):
    attempt(tmp_path, run="900-e.1", number=7, stdout=b"older", at_s=1)
    attempt(tmp_path, run="5-e.2", number=1, stdout=b"newer", at_s=2)
    attempt(tmp_path, run="90-e.2", number=1, stdout=b"another", at_s=0)

    assert read_output(tmp_path, "j", "map", 0) == b"newer"
    assert read_output(tmp_path, "j", "map", 0, admitted=900) == b"older"
    assert read_output(tmp_path, "j", "map", 0, admitted=9) is None


def test_the_last_attempt_of_one_job_is_that_of_the_highest_number_whatever_the_wall_clock_said(tmp_path):
    attempt(tmp_path, run="5-e.1", number=1, stdout=b"first", at_s=86_400)
    attempt(tmp_path, run="5-e.1", number=2, stdout=b"second", at_s=3_600)

    assert read_output(tmp_path, "j", "map", 0, admitted=5) == b"second"


def test_the_tasks_of_a_stage_in_which_nothing_begins_are_found_by_reading_its_folder_once(tmp_path, monkeypatch):
    """And what has begun since is found, also where the clock shows the time of an older change."""
    tasks = 50
    for index in range(tasks):
        attempt(tmp_path, index=index, stdout=f"of {index}".encode())
    stage = attempt_folder(tmp_path, "j", "5-e.1", "map", 0, 1).parent
    read, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (read.append(folder), scandir(folder))[1])

    os.utime(stage, (1_000, 1_000))
    assert [read_output(tmp_path, "j", "map", index) for index in range(tasks)] == [
        f"of {index}".encode() for index in range(tasks)
    ]
    assert read.count(stage) == 1
    attempt(tmp_path, index=7, number=2, stdout=b"again", at_s=2_000)
    assert read_output(tmp_path, "j", "map", 7) == b"again"
    os.utime(stage, (1_001, 1_001))
    assert read_output(tmp_path, "j", "map", 7) == b"again"
    assert read_output(tmp_path, "j", "map", 1) == b"of 1"
    assert read_output(tmp_path, "j", "map", tasks) is None


def test_what_is_not_kept_is_told_from_what_is_empty(tmp_path):
    attempt(tmp_path, stdout=b"")

    assert read_piece(tmp_path, WANTED) == Piece(1, 0, 0, b"")
    assert read_piece(tmp_path, replace(WANTED, stream="stderr")) == Piece(1, 0, 0, b"")
    assert read_piece(tmp_path, replace(WANTED, index=1)) is None
    assert read_piece(tmp_path, replace(WANTED, attempt=2)) is None
    assert read_piece(tmp_path, replace(WANTED, job="other")) is None


def test_the_tail_of_a_long_output_follows_its_head(tmp_path):
    folder = attempt(tmp_path, stdout=b"head")
    (folder / "stdout.4").write_bytes(b"next")
    assert read_output(tmp_path, "j", "map", 0) == b"headnext"
    assert read_piece(tmp_path, WANTED) == Piece(1, 0, 8, b"headnext")

    (folder / "stdout.4").unlink()
    (folder / "stdout.8").write_bytes(b"....")
    (folder / "stdout.12").write_bytes(b"tail")
    assert read_output(tmp_path, "j", "map", 0) == b"head\n[4 bytes were not kept]\n....tail"
    assert read_piece(tmp_path, replace(WANTED, offset=6)) == Piece(1, 8, 16, b"....tail", cut=(4, 8))


@for_all(st.lists(st.tuples(st.integers(0, 5), st.binary(min_size=1, max_size=9)), max_size=6), st.integers(1, 12))
def test_pieces_of_any_size_come_to_what_is_kept(tmp_path_factory, segments, most):
    """`segments`: how much was not kept before each, and what it holds."""
    data = tmp_path_factory.mktemp("data")
    folder = attempt(data, stdout=b"")
    kept, at = {}, 0
    for number, (gap, text) in enumerate(segments):
        at += gap if number else 0
        (folder / (f"stdout.{at}" if at else "stdout")).write_bytes(text)
        kept |= dict(enumerate(text, at))
        at += len(text)

    for offset in range(at + 2):
        piece = read_piece(data, replace(WANTED, offset=offset), most)
        assert piece.end == at
        assert len(piece.data) <= most
        if offset < at:
            assert piece.start == min(place for place in kept if place >= offset)
            assert piece.data == bytes(kept[place] for place in range(piece.start, piece.start + len(piece.data)))
            following = piece.start + len(piece.data)
            assert len(piece.data) == most or following not in kept
        else:
            assert (piece.start, piece.data) == (at, b"")


@pytest.mark.parametrize("instead", ["link", "pipe", "folder"])
def test_what_a_task_put_in_the_place_of_its_output_is_not_read(tmp_path, instead):
    folder = attempt(tmp_path)
    (tmp_path / "secret").write_bytes(b"secret")
    for name in ("stdout", "stdout.4"):
        match instead:
            case "link":
                (folder / name).symlink_to(tmp_path / "secret")
            case "pipe":
                os.mkfifo(folder / name)
            case "folder":
                (folder / name).mkdir()

    assert read_piece(tmp_path, WANTED) == Piece(1, 0, 0, b"")


@pytest.mark.parametrize("name", ["stdout.", "stdout.x", "stdout.-4", "stdout.4.5", "stdoutx", "stdout.²", "stderr.4"])
def test_other_files_beside_the_output_are_no_part_of_it(tmp_path, name):
    folder = attempt(tmp_path, stdout=b"head")
    (folder / name).write_bytes(b"tail")

    assert read_output(tmp_path, "j", "map", 0) == b"head"


# ---------------------------------------------------------------- over HTTP
def over_http(data: Path, story, *, node="n1"):
    """Runs a story, which gets the address of an agent's HTTP, and returns what it returns."""

    async def ready() -> str:
        return ""

    async def run():
        async with asyncio.timeout(GUARD_S), served("127.0.0.1", 0, ready, pages_of(node, data)) as port:
            return await story(f"127.0.0.1:{port}")

    return asyncio.run(run())


names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=253)


@for_all(names, names, names)
def test_any_task_of_any_name_can_be_asked_for(tmp_path_factory, job, stage, node):
    data = tmp_path_factory.mktemp("data")
    attempt(data, job=job, run="7-e", stage=stage, index=3, number=2, stderr=b"said")
    wanted = Wanted(job, stage, 3, "stderr", 2, 1, 7)

    assert over_http(data, lambda address: ask(Way((address,)), node, wanted), node=node) == Piece(2, 1, 4, b"aid")


def test_a_long_output_comes_in_pieces(tmp_path):
    text = bytes(range(256)) * (PIECE_BYTES_MAX // 100)
    attempt(tmp_path, stdout=text)

    async def story(address):
        found, at = b"", 0
        while at < len(text):
            piece = await ask(Way((address,)), "n1", replace(WANTED, offset=at))
            assert 0 < len(piece.data) <= PIECE_BYTES_MAX
            found, at = found + piece.data, piece.start + len(piece.data)
        return found

    assert over_http(tmp_path, story) == text


def test_what_is_not_kept_there_is_none(tmp_path):
    assert over_http(tmp_path, lambda address: ask(Way((address,)), "n1", WANTED)) is None


@pytest.mark.parametrize(
    ("target", "status"),
    [
        pytest.param("/v1/output/j/map/0", 200, id="as it should be"),
        pytest.param("/v1/output/j/map/0?offset=3&attempt=1&admitted=5&stream=stderr", 200, id="with everything"),
        pytest.param("/v1/output/%2E%2E/%2E%2E/0", 404, id="names that climb"),
        pytest.param("/v1/output/..%2F..%2Fsecret/map/0", 404, id="a name with slashes"),
        pytest.param("/v1/output/j/map/../0", 404, id="a path that climbs"),
        pytest.param("/v1/output/j/map", 404, id="too short"),
        pytest.param("/v1/output/j/map/0/0", 404, id="too long"),
        pytest.param("/v1/outputs/j/map/0", 404, id="another path"),
        pytest.param("/v1/output/%FF/map/0", 400, id="no Unicode"),
        pytest.param("/v1/output/j/map/*", 400, id="a pattern for an index"),
        pytest.param("/v1/output/j/map/-1", 400, id="an index below none"),
        pytest.param("/v1/output/j/map/0?attempt=*", 400, id="a pattern for an attempt"),
        pytest.param("/v1/output/j/map/0?attempt=%C2%B2", 400, id="another script's number"),
        pytest.param("/v1/output/j/map/0?offset=-1", 400, id="an offset below none"),
        pytest.param(f"/v1/output/j/map/0?offset={task_output.NUMBER_MAX}", 200, id="the largest offset"),
        pytest.param(f"/v1/output/j/map/0?offset={task_output.NUMBER_MAX + 1}", 400, id="an offset beyond it"),
        pytest.param("/v1/output/j/map/0?stream=secret", 400, id="another stream"),
        pytest.param("/v1/output/*/map/0", 404, id="a pattern for a job"),
    ],
)
def test_only_output_of_attempts_is_shown(tmp_path, target, status):
    (tmp_path / "secret").write_bytes(b"classified")
    data = tmp_path / "data"
    attempt(data, stdout=b"printed", stderr=b"said")

    async def story(address):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    answer = over_http(data, story)
    assert int(answer.split()[1]) == status
    assert b"classified" not in answer


def unanswered(story) -> str:
    with pytest.raises(Unanswered) as why:
        asyncio.run(asyncio.wait_for(story, 240))
    return str(why.value)


def test_an_agent_that_is_not_there_is_named_with_what_happened():
    assert unanswered(ask(Way(("127.0.0.1:1",)), "n1", WANTED)) == "connection refused"
    assert unanswered(ask(Way(("no-such-host.invalid:1",)), "n1", WANTED))


async def asking_what_answers(answer: bytes, *, hold: bool = False):
    """Asks something that answers with these bytes to anybody."""

    async def respond(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if hold:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        return await ask(Way((f"127.0.0.1:{server.sockets[0].getsockname()[1]}",)), "n1", WANTED)


GOOD = (
    b"HTTP/1.1 200 OK\r\nLargesse-Node: n1\r\nLargesse-Output-Attempt: 1\r\nLargesse-Output-Start: 0\r\n"
    b"Largesse-Output-End: 2\r\nContent-Length: 2\r\n\r\nhi"
)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"", "no answer that could be read", id="nothing"),
        pytest.param(b"SSH-2.0\r\n\r\n", "no answer that could be read", id="another protocol"),
        pytest.param(GOOD[:-1], "no answer that could be read", id="cut short"),
        pytest.param(GOOD.replace(b"Content-Length: 2\r\n", b""), "its length is missing", id="without a length"),
        pytest.param(
            GOOD.replace(b"Length: 2", b"Length: %d" % (PIECE_BYTES_MAX + 1)), "or too large", id="longer than a piece"
        ),
        pytest.param(
            GOOD.replace(b"Content-Length: 2", b"Content-Length: 2\r\nTransfer-Encoding: chunked"),
            "its length is missing",
            id="in chunks",
        ),
        pytest.param(GOOD.replace(b"n1", b"n2"), "the agent of another node answers there", id="another node"),
        pytest.param(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "an agent of an older version", id="an older agent"
        ),
        pytest.param(GOOD.replace(b"200 OK", b"500 Oh"), "it answers 500: hi", id="in trouble"),
        pytest.param(GOOD.replace(b"End: 2", b"End: x"), "it answers 200", id="no numbers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x" * (1 << 17), "no answer that could be read", id="an endless head"),
    ],
)
def test_what_is_no_answer_of_this_nodes_agent_is_told(answer, reason):
    assert reason in unanswered(asking_what_answers(answer))


def test_whoever_keeps_silent_is_not_waited_for_long(monkeypatch):
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.05)

    assert unanswered(asking_what_answers(b"", hold=True)) == "no answer within 0.05 s"


def test_nothing_is_unpacked_on_the_way():
    packed = GOOD.replace(b"Content-Length", b"Content-Encoding: gzip\r\nContent-Length")

    assert asyncio.run(asking_what_answers(packed)) == Piece(1, 0, 2, b"hi")


def test_nobody_is_sent_elsewhere():
    moved = GOOD.replace(b"200 OK", b"302 Found\r\nLocation: http://127.0.0.1:1/")

    assert "it answers 302" in unanswered(asking_what_answers(moved))


@pytest.mark.parametrize("name", [".", "..", "...", "a/../b"])
def test_a_name_of_dots_is_a_name(tmp_path, name):
    async def show_output(path, query):
        return (
            task_output.page_of("n1", Piece(1, 0, 2, b"hi")) if task_output.wanted_of(path, query).job == name else None
        )

    async def ready() -> str:
        return ""

    async def run():
        async with served("127.0.0.1", 0, ready, show_output) as port:
            return await ask(Way((f"127.0.0.1:{port}",)), "n1", replace(WANTED, job=name))

    assert asyncio.run(run()) == Piece(1, 0, 2, b"hi")


def test_a_good_answer_is_a_piece():
    assert asyncio.run(asking_what_answers(GOOD)) == Piece(1, 0, 2, b"hi")
