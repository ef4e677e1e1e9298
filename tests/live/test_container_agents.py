"""Agents that are killed while their tasks run in containers on a real engine: no attempt runs twice, none is lost."""

import asyncio
from dataclasses import replace

import pytest

from largesse.bodies import read_body
from largesse.bus.memory import MemoryBus
from schemas import JobRejected, NodeRegistered, TaskFailed, TaskFinished
from services.agent import processes
from services.agent.engine import AUTO, Engine
from tests.conftest import ROOT
from tests.engine import IMAGE, engine_missing
from tests.live.agent_cell import AgentProcess, outcome_of, scripted_cell
from tests.live.test_agent_restarts import ends_though_killed, go, once, ran

pytestmark = [pytest.mark.docker, pytest.mark.slow]

PYTHON = "python:3.12-slim"
FAILPOINTS = [
    "before_task_start:1",
    "before_task_start:3",
    "after_task_start:1",
    "after_task_start:5",
    "before_publish:1",
    "after_publish:1",
    "before_publish:4",
    "after_publish:4",
    "before_consume:3",
    "after_consume:4",
]
HOG = {
    "stage": "hog",
    "demand": {"cpu": "100m", "memory": "64Mi"},
    "command": ["python3", "-c", "a = []\nwhile True: a.append(bytearray(1 << 20))"],
    "container": {"image": PYTHON},
    "on_failure": "continue",
}
DEAF = {
    "stage": "deaf",
    "command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.2; done"],
    "container": {"image": IMAGE},
    "timeout_ms": 1_000,
    "on_failure": "continue",
}


@pytest.fixture
def story(tmp_path, monkeypatch):
    """Runs a story in a cell whose agents have the engine of this machine, and may mount the story's folder."""
    if why := engine_missing() or engine_missing(PYTHON):
        pytest.skip(why)
    monkeypatch.setenv("LARGESSE_NODE_ENGINE", AUTO)
    monkeypatch.setenv("LARGESSE_NODE_MOUNTS", f"{tmp_path}:rw")

    def tell(what):
        async def told():
            async with scripted_cell(MemoryBus()) as cell:
                await what(cell)

        asyncio.run(told())

    yield tell
    if not (tmp_path / "data").exists():
        return
    engine = Engine(AUTO)
    try:
        for found in engine.containers(processes.node_key(tmp_path / "data").rstrip("/")):
            engine.remove(found.name)
    finally:
        engine.close()


def known_ends(cell, state):
    """Tasks that had ended so when an agent registered the node again."""
    named = [known for body in cell.bodies(NodeRegistered) for known in body.attempts if known.state == state]
    return [replace(each, first=each.first + task, count=1) for each in named for task in range(each.count)]


def boxed(folder, tasks):
    """Tasks that prove that no attempt of theirs runs twice, each in a container."""
    mounts = [{"source": str(folder), "read_only": False}]
    return once(folder, tasks, container={"image": IMAGE, "mounts": mounts}, on_failure="continue")


@pytest.mark.rotating(5)
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_wherever_an_agent_dies_no_container_runs_twice_and_every_end_is_told(story, tmp_path, failpoint):
    async def told(cell):
        async with AgentProcess(cell.bus, tmp_path) as agent:
            go(tmp_path, 0, 1, 2, 3)
            await cell.submit("j", boxed(tmp_path, 4), HOG, DEAF)
            await agent.start(f"agent:{failpoint}")
            await agent.gone()
            await agent.start()

            assert await outcome_of(cell) == "failed"
            failed = {(item.stage, item.reason) for item in (*cell.items(TaskFailed), *known_ends(cell, "failed"))}
            assert {("hog", "memory"), ("deaf", "timeout")} <= failed
            assert {reason for stage, reason in failed if stage == "s"} <= {"lost"}
            # Each task has succeeded once, with the last attempt of it that ran.
            last = {index: int(attempt) for index, _, attempt in sorted(name.partition("-") for name in ran(tmp_path))}
            assert sorted(last) == ["0", "1", "2", "3"]
            ends = sorted((str(item.first), item.attempt) for item in cell.items(TaskFinished) if item.stage == "s")
            known = [(str(each.first), each.attempt) for each in known_ends(cell, "succeeded") if each.stage == "s"]
            assert sorted([*ends, *known]) == sorted(last.items())

    story(told)


def test_a_job_of_containers_ends_well_though_its_agent_dies_again_and_again(story, tmp_path):
    async def told(cell):
        go(tmp_path, *range(8))
        await cell.submit("j", boxed(tmp_path, 8) | {"demand": {"cpu": "1"}})
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await ends_though_killed(cell, agent, tmp_path, (1, 3, 6), tasks=8)
        assert cell.bodies(JobRejected) == []

    story(told)


def test_the_word_count_runs_in_containers(story, tmp_path):
    async def told(cell):
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await agent.start()
            job = read_body((ROOT / "examples" / "word-count-containers.yaml").read_bytes(), "yaml")
            await cell.tell("jobs", job)
            assert await outcome_of(cell, job["job"]) == "succeeded"
            assert len(cell.items(TaskFinished)) == 5
            (top,) = (tmp_path / "data").glob("jobs/*/*/reduce/0.1/work/top")
            assert top.read_text() == "160 the\n80 gives\n80 is\n80 of\n"

    story(told)


def test_an_image_that_nobody_has_fails_the_task_and_says_so(story, tmp_path):
    async def told(cell):
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await agent.start()
            image = "127.0.0.1:1/largesse-test/none:1"
            await cell.submit("j", {"command": ["true"], "container": {"image": image, "pull": "never"}})
            assert await outcome_of(cell) == "failed"
            (failed,) = cell.items(TaskFailed)
            assert failed.reason == "cannot_start"
            assert image in failed.detail

    story(told)
