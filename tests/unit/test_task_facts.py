"""What records say of attempts, in one shape whatever says it."""

import pytest

from largesse.lifecycle.task_facts import facts_of
from schemas import NodeLost, NodeRegistered, TaskFailed, TaskFinished, TaskStarted
from schemas.nodes import KnownAttempt
from schemas.tasks import TaskEnd, TaskFailure, TaskRange

RANGE = TaskRange("j", "map", 3, 2, 1, "n", "old")


@pytest.mark.parametrize(
    "body",
    [
        TaskStarted([RANGE]),
        TaskFinished([TaskEnd("j", "map", 3, 2, 1, "n", "e", [5])]),
        TaskFailed([TaskFailure("j", "map", 3, 2, 1, "n", "e", "killed")]),
    ],
)
def test_a_report_says_what_it_says(body):
    assert facts_of(body) == body.items


def test_with_a_node_its_attempts_are_lost():
    assert facts_of(NodeLost("n", "old", [RANGE])) == [
        TaskFailure("j", "map", 3, 2, 1, "n", "old", "lost", detail="node n")
    ]


def test_a_registration_ends_what_its_agent_does_not_know_and_then_says_what_became_of_the_rest_in_its_order():
    known = [
        KnownAttempt("j", "map", 0, 1, 2, "failed", [7], "memory", 137, "too much", {"memory": 9}, [9], [4]),
        KnownAttempt("j", "map", 1, 1, 1, "running"),
        KnownAttempt("j", "map", 2, 1, 1, "succeeded", [8], peak={"memory": 3}, peak_mib=[3], cpu_ms=[2]),
        KnownAttempt("k", "map", 0, 1, 1, "failed"),
    ]
    assert facts_of(NodeRegistered("n", "new", {}, attempts=known, lost=[RANGE])) == [
        TaskFailure("j", "map", 3, 2, 1, "n", "old", "lost", detail="node n"),
        TaskFailure("j", "map", 0, 1, 2, "n", "new", "memory", 137, "too much", [7], {"memory": 9}, [9], [4]),
        TaskRange("j", "map", 1, 1, 1, "n", "new"),
        TaskEnd("j", "map", 2, 1, 1, "n", "new", [8], {"memory": 3}, [3], [2]),
        TaskFailure("k", "map", 0, 1, 1, "n", "new", "exit_code"),
    ]
