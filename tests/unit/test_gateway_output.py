"""What tasks print, through the gateway: asked of the agent of their node, over HTTP, as it has it."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from largesse.log.reader import publish_input
from largesse.process.health import served
from largesse.task_output import PIECE_BYTES_MAX, Piece, Wanted
from services.agent.task_output import pages_of
from services.gateway.http.agents.output import printed
from services.gateway.http.problems import Problem
from tests.gateway_cell import GUARD_S, JOB, a_cell
from tests.unit.test_agent_folders import attempt

LOGS = "/v1/tasks/j/s/0/logs"


@asynccontextmanager
async def an_agent(data, name="n1"):
    """Its address."""

    async def ready() -> str:
        return ""

    async with served("127.0.0.1", 0, ready, pages_of(name, data)) as port:
        yield f"127.0.0.1:{port}"


def run_story(story, data, **agent):
    """Runs a story of a cell whose node's agent shows what lies in `data`, once job j has been granted."""

    async def run():
        async with asyncio.timeout(GUARD_S), an_agent(data, **agent) as address, a_cell(address=address) as cell:
            await granted(cell)
            return await story(cell)

    return asyncio.run(run())


async def granted(cell):
    await cell.post(JOB)
    assert await cell.follower.until(lambda view: len(view.holds) == 2, GUARD_S)


def run_of(cell):
    """The folder of the job's run on its node."""
    return f"{cell.follower.state.jobs['j'].admitted}-e1"


def answer_of(data, *, change=None, path=LOGS, **params):
    """What the gateway answers, after a change to the cell."""

    async def story(cell):
        if change is not None:
            await change(cell)
        return await cell.get(path, **params)

    return run_story(story, data)


def test_output_comes_from_the_node_where_the_task_ran(tmp_path):
    async def story(cell):
        attempt(tmp_path, run=run_of(cell), stage="s", stdout=b"printed", stderr=b"said", at_s=1)
        attempt(tmp_path, run="1-e0", stage="s", stdout=b"an earlier job of that name", at_s=2)
        return [
            await cell.get(LOGS),
            await cell.get(LOGS, stream="stderr", offset=1, attempt=1),
            await cell.get(LOGS, offset=7),
        ]

    answers = run_story(story, tmp_path)
    assert [each.status_code for each in answers] == [200, 200, 200]
    assert [each.text for each in answers] == ["printed", "aid", ""]
    heads = [[each.headers[f"largesse-output-{name}"] for name in ("attempt", "end")] for each in answers]
    assert heads == [["1", "7"], ["1", "4"], ["1", "7"]]
    assert answers[0].headers["content-type"] == "text/plain; charset=utf-8"


def test_a_long_output_comes_whole_with_a_line_for_what_was_not_kept(tmp_path):
    head, tail = b"a" * (PIECE_BYTES_MAX + 1), b"b" * (2 * PIECE_BYTES_MAX + 1)

    async def story(cell):
        folder = attempt(tmp_path, run=run_of(cell), stage="s", stdout=head)
        (folder / f"stdout.{len(head) + 9}").write_bytes(tail)
        return await cell.get(LOGS), await cell.get(LOGS, offset=len(head) + 2)

    whole, rest = run_story(story, tmp_path)
    assert whole.content == head + b"\n[9 bytes were not kept]\n" + tail
    assert rest.content == b"\n[7 bytes were not kept]\n" + tail
    assert int(whole.headers["largesse-output-end"]) == len(head) + 9 + len(tail)


async def nothing(cell):
    pass


async def cancelled(cell):
    await cell.http.delete("/v1/jobs/j")


async def lost(cell):
    await publish_input(cell.bus.writer(), "nodes", {"leave": {"node": "n1", "epoch": "e1"}}, "n1")
    assert await cell.follower.until(lambda view: view.nodes["n1"].lost, GUARD_S)


async def without_address(cell):
    register = {"node": "n1", "epoch": "e2", "capacity": {"cpu": "4", "memory": "8Gi"}}
    await publish_input(cell.bus.writer(), "nodes", {"register": register}, "n1")
    assert await cell.follower.until(lambda view: view.nodes["n1"].epoch == "e2", GUARD_S)


def elsewhere(address):
    async def moved(cell):
        register = {"node": "n1", "epoch": "e2", "capacity": {"cpu": "4", "memory": "8Gi"}, "address": address}
        await publish_input(cell.bus.writer(), "nodes", {"register": register}, "n1")
        assert await cell.follower.until(lambda view: view.nodes["n1"].address == address, GUARD_S)

    return moved


@pytest.mark.parametrize(
    ("change", "path", "status", "kind", "detail"),
    [
        pytest.param(nothing, LOGS, 404, "no_output", "there is no output of j/s/0", id="it has not begun"),
        pytest.param(nothing, "/v1/tasks/k/s/0/logs", 404, "unknown_job", 'job "k" is unknown', id="no such job"),
        pytest.param(nothing, "/v1/tasks/j/t/0/logs", 404, "unknown_stage", "it has s", id="no such stage"),
        pytest.param(nothing, "/v1/tasks/j/s/2/logs", 404, "unknown_task", "tasks 0 to 1", id="no such task"),
        pytest.param(nothing, "/v1/tasks/j/s/-1/logs", 404, "unknown_task", "tasks 0 to 1", id="no task has that"),
        pytest.param(without_address, LOGS, 404, "no_output", "LARGESSE_METRICS_PORT is not set", id="no address"),
        pytest.param(elsewhere("127.0.0.1:1"), LOGS, 503, "node_unreachable", "connection refused", id="down"),
    ],
)
def test_where_there_is_none_the_reason_is_told(tmp_path, change, path, status, kind, detail):
    answer = answer_of(tmp_path, change=change, path=path)

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:largesse:{kind}")
    assert detail in answer.json()["detail"]


@pytest.mark.parametrize(
    ("made", "asked", "detail"),
    [
        ([1], 9, "there is no attempt 9 of j/s/0: it has had 1 attempt"),
        ([1, 2], 3, "there is no attempt 3 of j/s/0: it has had 2 attempts"),
        ([2], 1, "there is no output of attempt 1 of j/s/0; the last attempt is 2"),
        ([], 1, "there is no output of j/s/0: it has not started, or its output was removed"),
    ],
)
def test_of_an_attempt_that_is_not_there_the_last_one_is_told(tmp_path, made, asked, detail):
    async def story(cell):
        for number in made:
            attempt(tmp_path, run=run_of(cell), stage="s", number=number, stdout=b"printed", at_s=number)
        return await cell.get(LOGS, attempt=asked)

    answer = run_story(story, tmp_path)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:largesse:no_output")
    assert answer.json()["detail"] == detail


def test_a_node_that_left_may_still_answer_and_is_named_where_it_does_not(tmp_path):
    async def story(cell):
        attempt(tmp_path, run=run_of(cell), stage="s", stdout=b"printed")
        await lost(cell)
        kept = await cell.get(LOGS)
        cell.follower.state.nodes["n1"].address = "127.0.0.1:1"
        return kept, await cell.get(LOGS)

    kept, gone = run_story(story, tmp_path)
    assert kept.text == "printed"
    assert gone.status_code == 503
    assert gone.json()["detail"] == ('its output is on node "n1", which has left (127.0.0.1:1: connection refused)')
    assert (gone.json()["node"], gone.json()["live"]) == ("n1", True)


def test_the_agent_of_another_node_is_not_believed(tmp_path):
    answer = run_story(lambda cell: cell.get(LOGS), tmp_path, name="n2")

    assert answer.status_code == 503
    assert "the agent of another node answers there" in answer.json()["detail"]


def test_output_outlives_its_job(tmp_path):
    async def story(cell):
        attempt(tmp_path, run=run_of(cell), stage="s", stdout=b"printed")
        await cancelled(cell)
        assert await cell.follower.until(lambda view: "j" in view.ended, GUARD_S)
        return await cell.get(LOGS)

    answer = run_story(story, tmp_path)
    assert (answer.text, answer.headers["largesse-task-state"]) == ("printed", "ended")


def test_of_a_forgotten_node_nothing_can_be_had(tmp_path):
    async def story(cell):
        await cell.http.put("/v1/config", json={"set": {"node_kept_ms": 0}})
        await lost(cell)
        assert await cell.follower.until(lambda view: "n1" not in view.nodes, GUARD_S)
        return await cell.get(LOGS)

    answer = run_story(story, tmp_path)
    assert answer.status_code == 404
    assert 'node "n1", which did not come back' in answer.json()["detail"]


# ---------------------------------------------------------------- piece by piece
def whole(pieces):
    """What a reader gets from an agent that has these pieces by offset; the first decides how far it goes."""

    async def read(asked):
        piece = pieces[asked.offset]
        if isinstance(piece, Problem):
            raise piece
        return piece

    async def run():
        return [text async for text in printed(read, Wanted("j", "s", 0), pieces[0])]

    return b"".join(asyncio.run(run()))


def test_what_is_printed_meanwhile_is_left_for_the_next_look():
    assert whole({0: Piece(1, 0, 6, b"abc"), 3: Piece(1, 3, 9, b"defghi")}) == b"abcdef"


def test_a_gap_that_opens_meanwhile_is_told():
    assert whole({0: Piece(1, 0, 9, b"abc"), 3: Piece(1, 7, 12, b"hijkl")}) == b"abc\n[4 bytes were not kept]\nhi"


def test_what_is_cleared_away_meanwhile_ends_it():
    assert whole({0: Piece(1, 0, 9, b"abc"), 3: None}) == b"abc"
    assert whole({0: Piece(1, 0, 9, b"abc"), 3: Piece(1, 3, 3, b"")}) == b"abc"


def test_a_node_that_goes_meanwhile_is_no_end_of_the_output():
    with pytest.raises(Problem):
        whole({0: Piece(1, 0, 9, b"abc"), 3: Problem(503, "node_unreachable", "gone")})


def test_nodes_say_where_they_show_output(tmp_path):
    async def story(cell):
        return (await cell.get("/v1/nodes")).json()["nodes"][0]["address"]

    assert run_story(story, tmp_path).startswith("127.0.0.1:")
