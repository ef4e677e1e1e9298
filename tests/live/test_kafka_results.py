"""Results go from agent to agent, and to users, where each is a process of its own on Kafka."""

import asyncio

import pytest

from tests.live.kafka_cell import READY_SECONDS, KafkaCell, free_partition
from tests.result_folders import tree
from tests.unit.cli_process import largesse

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells")]

COPIES = {"admission": 1, "fairness": 1, "altruism": 1, "leftover": 1, "estimator": 1, "planner": 1, "gateway": 1}
MAKE = 'mkdir d; head -c 600000 /dev/urandom > d/big; md5sum < d/big > d/sum; echo "$LARGESSE_NODE" > node'
USE = """
cd "$LARGESSE_INPUTS/make" || exit 8
for each in *; do test "$(md5sum < "$each/d/big")" = "$(cat "$each/d/sum")" || exit 9; done
cat */node | sort
"""
WAIT = 'touch "$FOLDER/waits"; while ! test -e "$FOLDER/go"; do sleep 0.1; done'


def stage(name, script, **more):
    return {"stage": name, "tasks": 1, "demand": {"cpu": "1"}, "command": ["sh", "-c", script], **more}


async def seen(holds):
    async with asyncio.timeout(READY_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def test_results_are_found_on_other_nodes_also_of_an_agent_that_was_away(kafka_address, tmp_path):
    async def story():
        partition = await free_partition(kafka_address)
        copies = {**COPIES, "agent": 2}
        cell = KafkaCell(kafka_address, partition, f"results-{tmp_path.name}", tmp_path / "cell", copies)
        async with cell:
            cell.start(*cell.members.values())
            await cell.ready()
            both = {"tasks": 2, "anti_affinity": {}}
            wait = stage("wait", WAIT, after=["make"], env={"FOLDER": str(tmp_path)})
            use = stage("use", USE, after=["make", "wait"], inputs=["make"])
            await cell.tell("jobs", {"job": "j", "stages": [stage("make", MAKE, **both), wait, use]})
            await seen((tmp_path / "waits").exists)
            waits = next(each for each in cell.members if list((tmp_path / "cell").glob(f"{each}/jobs/j/*/wait")))
            away = next(member for name, member in cell.members.items() if member.service == "agent" and name != waits)
            cell.held.clear()
            away.kill()
            (tmp_path / "go").touch()
            await seen(lambda: list((tmp_path / "cell").glob(f"{waits}/jobs/j/*/#inputs/make")))
            assert "j" not in cell.ended
            cell.held.set()
            await cell.until(lambda: "j" in cell.ended, READY_SECONDS)
            assert cell.ended == {"j": "succeeded"}
            url = f"http://127.0.0.1:{cell.http}"
            printed = await asyncio.to_thread(largesse, "logs", "j/use/0", "--url", url)
            said = await asyncio.to_thread(largesse, "results", "j", tmp_path / "out", "--url", url)
        return printed, said

    printed, said = asyncio.run(story())

    assert printed.out.split() == ["agent-0", "agent-1"]
    assert said.code == 0, said.err
    found = tree(tmp_path / "out")
    assert {found[f"make/{index}/node"] for index in (0, 1)} == {b"agent-0\n", b"agent-1\n"}
    assert all(len(found[f"make/{index}/d/big"]) == 600_000 for index in (0, 1))
