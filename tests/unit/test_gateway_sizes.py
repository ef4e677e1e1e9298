"""What is too large for a message of the bus is refused by its size, before it is sent, and disturbs nobody else."""

import asyncio
import json

import pytest

from largesse.bus.port import MESSAGE_BYTES_MAX, MessageTooLarge
from schemas.edge.strict_json import INPUT_BYTES_MAX
from services.cli.client import ending_of
from services.cli.ending import Wrong
from tests.gateway_cell import JOB, STAGE, YAML, run_in_memory


def yaml_of(stages):
    """A job whose commands are a thousand words of one letter a stage: two bytes each in YAML, four in JSON."""
    words = ",".join(["a"] * 1_000)
    listed = ",".join(f"{{stage: s{at}, tasks: 1, demand: {{cpu: '1'}}, command: [{words}]}}" for at in range(stages))
    return f"job: wide\nstages: [{listed}]\n".encode()


@pytest.mark.slow
def test_yaml_that_grows_beyond_the_limit_when_it_becomes_json_is_refused_with_its_size():
    async def story(cell):
        answer = await cell.http.post("/v1/jobs", content=yaml_of(400), headers=YAML)
        return answer, await cell.bus.bounds("jobs", 0)

    answer, sent = run_in_memory(story)
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (413, "urn:largesse:too_large")
    assert len(yaml_of(400)) < INPUT_BYTES_MAX < problem["size"]
    assert problem["limit"] == INPUT_BYTES_MAX
    assert str(problem["size"]) in problem["detail"]
    assert str(INPUT_BYTES_MAX) in problem["detail"]
    assert sent == (0, 0)


def test_the_size_that_counts_is_that_of_the_json_to_the_byte():
    def padded(size):
        """A job of so many bytes as JSON, and the shorter YAML that says the same."""
        env = {f"V{number}": "x" * 30_000 for number in range(30)} | {"PAD": ""}
        document = {"job": "j", "stages": [STAGE | {"env": env}]}
        env["PAD"] = "x" * (size - len(json.dumps(document, separators=(",", ":"))))
        assert len(json.dumps(document, separators=(",", ":"))) == size
        said = ", ".join(f"{name}: {text}" for name, text in env.items())
        stage = f"{{stage: s, tasks: 2, command: ['true'], demand: {{cpu: '1'}}, env: {{{said}}}}}"
        return f"job: j\nstages: [{stage}]".encode()

    async def story(cell):
        found = []
        for size in (INPUT_BYTES_MAX, INPUT_BYTES_MAX + 1):
            assert len(padded(size)) < INPUT_BYTES_MAX
            found.append((await cell.http.post("/v1/jobs", content=padded(size), headers=YAML)).status_code)
        return found, await cell.bus.bounds("jobs", 0)

    assert run_in_memory(story) == ([201, 413], (0, 1))


def test_a_message_that_is_too_large_for_the_bus_fails_alone_and_leaves_the_writer_to_the_others():
    async def story(cell):
        writers = []
        others = [cell.follower.send("jobs", JOB | {"job": f"j{number}"}, "ann", 30) for number in range(20)]
        too_large = cell.follower.send("jobs", b"x" * (MESSAGE_BYTES_MAX + 1), "ann", 30)
        await cell.follower.send("jobs", JOB, "ann", 30)
        writers.append(cell.follower._writer)
        heard = await asyncio.gather(*others[:10], too_large, *others[10:], return_exceptions=True)
        writers.append(cell.follower._writer)
        return heard, writers

    heard, writers = run_in_memory(story)
    assert [type(each) for each in heard if isinstance(each, Exception)] == [MessageTooLarge]
    assert all(each.answered for each in heard if not isinstance(each, Exception))
    assert writers[0] is writers[1]


@pytest.mark.slow
def test_the_command_line_says_size_and_limit_in_words():
    async def story(cell):
        return await cell.http.post("/v1/jobs", content=yaml_of(400), headers=YAML)

    ending = ending_of(run_in_memory(story))
    assert isinstance(ending, Wrong)
    assert f"at most {INPUT_BYTES_MAX} are accepted" in str(ending)


@pytest.mark.parametrize("size", [INPUT_BYTES_MAX + 1, 4 * INPUT_BYTES_MAX])
def test_a_body_above_the_limit_is_refused_with_the_limit(size):
    async def story(cell):
        return await cell.http.post("/v1/jobs", content=b" " * size, headers=YAML)

    answer = run_in_memory(story)
    assert (answer.status_code, answer.json()["limit"]) == (413, INPUT_BYTES_MAX)
