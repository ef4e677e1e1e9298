"""Copies of stragglers as real processes: the first attempt to succeed counts, and the other is ended."""

from dataclasses import replace

from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import RoundClosed, TaskFailed, TaskFinished, TaskStarted
from tests.live.agent_cell import ScriptedCell, agent_on, eventually, outcome_of, settings
from tests.printed import read_output

STUCK_AT_FIRST = """
if [ $LARGESSE_TASK_INDEX = 0 ]; then
  if [ $LARGESSE_ATTEMPT = 1 ]; then
    echo stuck; touch "$MARK"; while :; do sleep 0.02; done
  fi
  until [ -e "$MARK" ]; do sleep 0.02; done
fi
echo done
"""
"""The first attempt of task 0 never ends, and its copy ends once that has begun."""


async def two_nodes(cell: ScriptedCell) -> None:
    """Both are there, and slow tasks are copied."""
    await cell.until(lambda: len(cell.cell.admission.nodes) == 2)
    await cell.tell("config", {"set": {"speculation_permille": 1_000, "speculation_finished_min": 1}})


def ends_of(cell, index):
    """Facts about the ends of one task's attempts, without those that only run."""
    records = [body for kind in (TaskFinished, TaskFailed) for body in cell.bodies(kind)]
    facts = [fact for body in records for fact in facts_of(body)]
    return [fact for fact in facts if fact.first <= index < fact.first + fact.count]


def test_a_task_that_hangs_on_one_node_is_done_by_its_copy_on_another(tell, tmp_path):
    async def story(cell):
        here, there = settings(tmp_path / "n"), replace(settings(tmp_path / "m"), name="m")
        async with agent_on(cell, here), agent_on(cell, there):
            await two_nodes(cell)
            env = {"MARK": str(tmp_path / "mark")}
            await cell.submit("j", {"command": ["sh", "-c", STUCK_AT_FIRST], "env": env, "tasks": 4})

            assert await outcome_of(cell) == "succeeded"
            ends = await cell.until(
                lambda: [f for f in ends_of(cell, 0) if isinstance(f, SpareEnd)] and ends_of(cell, 0)
            )
            (won,) = [fact for fact in ends if not isinstance(fact, SpareEnd)]
            (first,) = [fact for fact in ends if isinstance(fact, SpareEnd) and fact.attempt == 1]
            grants = [grant for body in cell.bodies(RoundClosed) for grant in body.grants if grant.first == 0]
            (copy,) = [grant for grant in grants if grant.why == "speculative" and grant.attempt == won.attempt]
            assert won.node == copy.node != first.node
            assert first.reason == "superseded"
            assert read_output(tmp_path / first.node, "j", "s", 0, 1) == b"stuck\n"
            assert read_output(tmp_path / won.node, "j", "s", 0, won.attempt) == b"done\n"
            await cell.until(lambda: not any(node.holds for node in cell.cell.admission.nodes.values()))

    tell(story)


def test_a_copy_that_has_not_ended_when_the_job_is_cancelled_ends_with_it(tell, tmp_path):
    async def story(cell):
        here, there = settings(tmp_path / "n"), replace(settings(tmp_path / "m"), name="m")
        async with agent_on(cell, here), agent_on(cell, there):
            await two_nodes(cell)
            script = "[ $LARGESSE_TASK_INDEX = 0 ] || exit 0; echo begun; while :; do sleep 0.02; done"
            await cell.submit("j", {"command": ["sh", "-c", script], "tasks": 4})
            await cell.until(
                lambda: len({item.attempt for item in cell.items(TaskStarted, "j") if item.first == 0}) > 1
            )
            nodes = {item.attempt: item.node for item in cell.items(TaskStarted, "j") if item.first == 0}
            for attempt, node in nodes.items():
                await eventually(lambda a=attempt, n=node: read_output(tmp_path / n, "j", "s", 0, a) == b"begun\n")

            await cell.tell("jobs", {"cancel": "j"})

            assert await outcome_of(cell) == "cancelled"
            await cell.until(lambda: not any(node.holds for node in cell.cell.admission.nodes.values()))
            assert not cell.cell.admission.copied
            assert {fact.reason for fact in ends_of(cell, 0)} == {"killed"}

    tell(story)
