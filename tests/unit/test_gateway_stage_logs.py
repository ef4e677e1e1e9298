"""What all tasks of a job or stage printed, in one answer; and none waits for the one before."""

import asyncio
import json
import socket

import pytest

from largesse.task_output import NUMBER_MAX, PIECE_BYTES_MAX, Piece, Wanted
from services.gateway.http.agents.stage_logs import AHEAD, output_rows
from services.gateway.http.problems import Problem
from tests.gateway_cell import GUARD_S, a_cell
from tests.http_rig import run_over_http

STAGES = [
    {"stage": "a", "tasks": 3, "command": ["true"], "demand": {"cpu": "1"}},
    {"stage": "b", "tasks": 1, "command": ["true"], "demand": {"cpu": "1"}},
]


def asked_of(kept, path="/v1/jobs/j/logs", **params):
    """The answer of a gateway whose nodes keep this output, by `STAGE/INDEX`."""

    async def read(wanted):
        data = kept.get(f"{wanted.stage}/{wanted.index}")
        if data is None or isinstance(data, Problem):
            if data is None:
                return None
            raise data
        at = min(wanted.offset, len(data))
        return Piece(1, at, len(data), data[at : at + PIECE_BYTES_MAX])

    async def run():
        async with asyncio.timeout(GUARD_S), a_cell(read_output=read) as cell:
            await cell.post({"job": "j", "stages": STAGES})
            return await cell.get(path, **params)

    return asyncio.run(run())


def rows_of(answer):
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.content.split(b"\n")[:-1]]


def test_every_task_that_started_has_its_lines_in_order():
    gone = Problem(503, "busy", "too much is being read")
    rows = rows_of(asked_of({"b/0": b"last\n", "a/2": b"\xff", "a/0": "ü\u2028\n".encode(), "a/1": gone}))

    assert rows == [
        {"stage": "a", "index": 0, "attempt": 1, "end": 6, "output": "ü\u2028\n"},
        {"stage": "a", "index": 1, "problem": gone.document},
        {"stage": "a", "index": 2, "attempt": 1, "end": 1, "output_base64": "/w=="},
        {"stage": "b", "index": 0, "attempt": 1, "end": 5, "output": "last\n"},
    ]


def test_a_stage_and_the_last_lines_can_be_asked_for():
    kept = {"a/0": b"1\n2\n3\n", "a/1": b"", "b/0": b"else\n"}
    rows = rows_of(asked_of(kept, stage="a", tail=2))

    assert [(row["index"], row["end"], row["output"]) for row in rows] == [(0, 6, "2\n3\n"), (1, 0, "")]
    assert asked_of(kept, stage="c").status_code == 404


def test_a_long_output_comes_in_pieces():
    data = b"x" * (2 * PIECE_BYTES_MAX + 1)
    rows = rows_of(asked_of({"b/0": data}))

    assert [len(row["output"]) for row in rows] == [PIECE_BYTES_MAX, PIECE_BYTES_MAX, 1]
    assert ["end" in row for row in rows] == [True, False, False]


def test_a_node_that_does_not_answer_is_not_asked_for_each_of_its_tasks():
    asked = []

    async def read(wanted):
        asked.append(wanted.index)
        raise Problem(503, "node_unreachable", "gone")

    async def run():
        each = [Wanted("j", "s", index) for index in range(10 * AHEAD)]
        return [row async for row in output_rows(read, each, None, lambda wanted: "n1")]

    rows = asyncio.run(run())
    assert len(rows) == 10 * AHEAD
    assert len(asked) <= AHEAD


def test_a_reader_that_goes_ends_what_was_being_read():
    ended = []

    async def read(wanted):
        if wanted.index == 0:
            return Piece(1, min(wanted.offset, 1), 1, b"x")
        try:
            await asyncio.sleep(NUMBER_MAX)
        finally:
            ended.append(wanted.index)

    async def run():
        rows = output_rows(read, [Wanted("j", "s", index) for index in range(3)], None, lambda wanted: "")
        await anext(rows)
        await rows.aclose()

    asyncio.run(asyncio.wait_for(run(), GUARD_S))
    assert ended == [1, 2]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_follows_the_head_of_an_answer_is_sent_at_once(address):
    async def story(served):
        reader, writer = await asyncio.open_connection(address, served.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        taken = [each.transport.get_extra_info("socket") for each in served.door.open]
        said = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in taken]
        writer.close()
        return said

    if address == "::1" and not _has_ipv6():
        pytest.skip("no IPv6 here")
    assert all(run_over_http(story, address=address))


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True
