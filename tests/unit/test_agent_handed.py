"""What an agent learns of results that later stages need: which attempts left them, and where their agents are."""

from dataclasses import replace

import pytest

from largesse.lifecycle import node_work as core
from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import Start
from largesse.log.snapshots import dump, load
from schemas import JobSpec, NodeForgotten, Stage
from schemas.edge.read import Malformed, read_input
from schemas.tasks import SpareAttempt
from services.admission.core.keys import digest_of
from tests.unit.test_agent_core import Story, admitted, closed, failed, finished, granted, registered

USE = Stage("use", 2, {"cpu": 1_000}, command=["true"], after=["map", "side"], inputs=["map"])
STAGES = (Stage("map", 3, {"cpu": 1_000}, command=["true"]), Stage("side", 1, {"cpu": 1_000}, command=["true"]), USE)

PLAIN, FAILING = "b9f1441d16061874bb04d2e5d3a48686", "838b5432731ebdb115ea8fb9f1789846"


def handed(story):
    """What is handed on to each attempt that is to start, whatever the run."""
    starts = [action for action in core.take(story.state, "n") if isinstance(action, Start)]
    return [[replace(tasks, run=0) for tasks in core.handed_to(story.state, start)] for start in starts]


def test_a_start_knows_where_the_attempts_that_succeeded_ran_and_of_no_other_stage():
    story = Story(registered(), registered("f1", node="m"), admitted("j", *STAGES))
    story.then(closed(granted(0, 2), granted(2, node="m", epoch="f1"), granted(0, stage="side")))
    story.takes()
    story.then(failed(0), finished(1), finished(2, node="m", epoch="f1"), finished(0, stage="side"))
    story.then(closed(granted(0, attempt=2)), finished(0, attempt=2), closed(granted(0, stage="use")))

    assert handed(story) == [[Handed("map", 1, 1, 1, "n"), Handed("map", 2, 1, 1, "m"), Handed("map", 0, 1, 2, "n")]]


def test_a_copy_that_came_second_hands_nothing_on():
    story = Story(registered(), registered("f1", node="m"), admitted("j", *STAGES), closed(granted(0)))
    story.then(closed(replace(granted(0, attempt=2, node="m", epoch="f1"), why="speculative")))
    late = finished(0)
    late.spare = [SpareAttempt("j", "map", 0, 1)]
    story.then(finished(0, attempt=2, node="m", epoch="f1"), late, closed(granted(0, stage="use")))

    assert handed(story) == [[Handed("map", 0, 1, 2, "m")]]


def test_jobs_without_inputs_cost_nothing():
    story = Story(registered(), admitted("j", *STAGES[:2]), closed(granted(0)), finished(0))

    assert story.state.jobs["j"].handed == {}


def test_addresses_are_those_of_the_last_registration_of_nodes_that_are_known():
    here, there = registered(), registered("f1", node="m")
    here.address, there.address = "h:1", "h:2"
    moved = registered("f2", node="m")
    story = Story(here, there)
    assert story.state.addresses == {"n": "h:1", "m": "h:2"}

    assert story.then(moved).state.addresses["m"] == ""
    assert story.then(NodeForgotten("m")).state.addresses == {"n": "h:1"}


def test_the_state_comes_back_from_its_bytes():
    story = Story(registered(), admitted("j", *STAGES), closed(granted(0)), finished(0))

    assert story.state.jobs["j"].handed == {"map": [Handed("map", 0, 1, 1, "n", 2)]}
    assert load(core.State, dump(story.state)) == story.state


def spec(**use):
    stages = [{"stage": name, "tasks": 1, "demand": {"cpu": "1"}, "command": ["true"]} for name in ("a", "b", "c")]
    stages[1]["after"] = ["a"]
    stages[2] |= {"after": ["b"], **use}
    return {"job": "j", "stages": stages}


def test_inputs_are_kept_in_the_spec():
    assert read_input("jobs", spec(inputs=["b"]), "").stages[2].inputs == ["b"]
    assert read_input("jobs", spec(), "").stages[2].inputs == []


@pytest.mark.parametrize(
    ("use", "said"),
    [
        pytest.param({"inputs": ["a"]}, 'stages[2].inputs[0]: "a" is not in "after": name it', id="further up"),
        pytest.param({"inputs": ["x"]}, 'stages[2].inputs[0]: "x" is not in "after"', id="no stage"),
        pytest.param({"inputs": ["b", "b"]}, 'stages[2].inputs[1]: "b" is named twice', id="twice"),
        pytest.param(
            {"inputs": ["b"], "command": None, "duration_ms": 1}, 'stages[2].inputs: needs "command"', id="simulated"
        ),
        pytest.param({"env": {"LARGESSE_INPUTS": "x"}}, "is set by the agent: choose another name", id="of the agent"),
    ],
)  # fmt: skip
def test_inputs_that_could_not_be_there_are_refused(use, said):
    with pytest.raises(Malformed) as fault:
        read_input("jobs", spec(**use), "")
    assert said in str(fault.value)


def test_specs_without_inputs_keep_the_names_that_they_had():
    plain = JobSpec("j", "default", [Stage("s", 1, {"cpu": 1}, command=["true"])])
    failing = JobSpec("j", "default", [replace(plain.stages[0], max_failed=1)])
    with_inputs = JobSpec("j", "default", [replace(plain.stages[0], inputs=["a"])])

    # As the version before had them.
    assert digest_of(plain) == PLAIN
    assert digest_of(failing) == FAILING
    assert len({digest_of(plain), digest_of(failing), digest_of(with_inputs)}) == 3
