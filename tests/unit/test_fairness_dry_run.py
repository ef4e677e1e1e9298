"""`python -m services.fairness effect`: shares under two configs, as the core itself would tell them."""

import io
import json
import subprocess
import sys

import pytest

from schemas.edge.read import Malformed
from schemas.quantities import SHARE_UNITS
from services.fairness.offline.dry_run import effect, main
from tests.conftest import ROOT

CAPACITY = {"cpu": 8_000, "memory": 8_192}


def tree(*children, **more):
    return {"name": "root", "children": list(children), **more}


def asked(before, after=None, *, demand, nodes=1, **knobs):
    """`demand`: by leaf, its tasks as (demand vector, how many run, how many wait, how many hold something for a job
    that is over); a vector alone stands for one task that waits.
    """
    sides = {"before": before, "after": after or before}
    tasks = {leaf: [alike(vector) for vector in vectors] for leaf, vectors in demand.items()}
    return {
        "capacity": CAPACITY,
        "nodes": nodes,
        **{side: {"queues": shape, "tasks": tasks, "set": knobs} for side, shape in sides.items()},
    }


def alike(vector):
    demand, running, waiting, over = vector if isinstance(vector, tuple) else (vector, 0, 1, 0)
    return {"demand": demand, "running": running, "waiting": waiting, "over": over}


def fair(side):
    return {queue: shares["fair"] for queue, shares in side.items() if "/" in queue or queue in "ab"}


def test_a_weight_moves_shares_between_those_that_ask_for_more_than_there_is():
    demand = {"a": [{"cpu": 8_000}], "b": [{"cpu": 8_000}]}
    answer = effect(
        asked(tree({"name": "a"}, {"name": "b"}), tree({"name": "a", "weight": 3}, {"name": "b"}), demand=demand)
    )

    assert fair(answer["before"]) == {"a": SHARE_UNITS // 2, "b": SHARE_UNITS // 2}
    assert fair(answer["after"]) == {"a": 3 * SHARE_UNITS // 4, "b": SHARE_UNITS // 4}


def test_whoever_asks_for_little_has_that_under_any_weight():
    shape = tree({"name": "a", "weight": 0.001}, {"name": "b"})

    answer = effect(asked(shape, demand={"a": [{"memory": 1_024}], "b": [{"cpu": 2_000}]}))

    assert fair(answer["after"]) == {"a": SHARE_UNITS // 8, "b": SHARE_UNITS // 4}


def test_a_level_is_told_however_small_it_is():
    answer = effect(asked(tree({"name": "a"}, {"name": "b"}), demand={"a": [{"cpu": 1}], "b": [{"cpu": 8_000}]}))

    assert answer["after"]["a"]["fair"] == SHARE_UNITS // 8_000


def test_the_limit_of_running_jobs_hides_no_demand():
    """Demand is said to be that of jobs that may run: the limit has done its work already."""
    shape = tree({"name": "a"}, {"name": "b"}, running_jobs_max=1)

    assert fair(effect(asked(shape, demand={"a": [{"cpu": 80}], "b": [{"cpu": 80}]}))["after"]) == {
        "a": SHARE_UNITS // 100,
        "b": SHARE_UNITS // 100,
    }


def test_under_slots_tasks_and_nodes_count_and_not_what_they_are_of():
    demand = {"a": [({"cpu": 8_000}, 1, 2, 0)], "b": [({"cpu": 1}, 2, 9, 0)]}
    found = effect(asked(tree({"name": "a"}, {"name": "b"}), demand=demand, nodes=3, preset="slots", slots_per_node=4))

    assert fair(found["after"]) == {"a": SHARE_UNITS // 4, "b": 3 * SHARE_UNITS // 4}
    assert found["after"]["b"]["allocated"] == 2 * SHARE_UNITS // 12


@pytest.mark.parametrize("preset", ["naive-hdrf", "capacity"])
def test_levels_that_go_by_what_is_held_do_so_in_a_forecast_too(preset):
    """What runs for jobs that are over takes room, and only the four cores that are free are handed out."""
    demand = {"a": [({"cpu": 1_000}, 1, 20, 2)], "b": [({"cpu": 500}, 2, 20, 0)]}
    found = effect(asked(tree({"name": "a"}, {"name": "b"}), demand=demand, preset=preset))

    assert fair(found["after"]) == {"a": SHARE_UNITS // 2, "b": SHARE_UNITS // 2}
    assert found["after"]["a"]["allocated"] == 3 * SHARE_UNITS // 8


def test_a_cell_without_a_tree_or_without_anything_has_an_answer():
    nothing = {"capacity": {}, "before": {}, "after": {}}
    assert effect(nothing)["after"] == {}
    tasks = {"a": [{"demand": {"cpu": 1}, "waiting": 1}]}
    empty = effect({**nothing, "after": {"queues": tree({"name": "a"}), "tasks": tasks}})
    assert empty["after"].get("a", {}).get("fair", 0) == 0


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ([], ""),
        ({"before": {}, "after": {}}, "capacity"),
        ({"capacity": {"cpu": -1}, "before": {}, "after": {}}, "capacity.cpu"),
        ({"capacity": {}, "before": {}, "after": {"queues": {"name": "r"}}}, "after.queues.name"),
        ({"capacity": {}, "before": {"set": {"sed": 1}}, "after": {}}, "before.set.sed"),
        ({"capacity": {}, "before": {}, "after": {}, "hold": {}}, "hold"),
        ({"capacity": {}, "before": {"tasks": {"a": [{}]}}, "after": {}}, "before.tasks.a[0].demand"),
    ],
)
def test_a_malformed_question_names_its_field(question, field):
    with pytest.raises(Malformed) as refused:
        effect(question)

    assert refused.value.field == field


GUARD_S = 300
"""Ends what hangs, or takes a time that grows with the square of the queues."""


def run(stdin):
    words = [sys.executable, "-m", "services.fairness", "effect"]
    return subprocess.run(words, input=stdin.encode(), capture_output=True, check=False, cwd=ROOT, timeout=GUARD_S)


@pytest.mark.slow
def test_it_is_a_filter():
    question = asked(tree({"name": "a"}, {"name": "b"}), demand={"a": [{"cpu": 1_000}]})

    done = run(json.dumps(question))

    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == effect(question)


@pytest.mark.parametrize("stdin", ["", "{", "[]", "[" * 100_000], ids=["nothing", "half", "a list", "too deep"])
def test_what_is_no_question_ends_with_two_and_one_line(stdin, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))

    code = main()

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith("cannot answer this: ")
    assert said.err.count("\n") == 1


@pytest.mark.slow
def test_the_exit_code_of_the_process_is_that_of_the_filter():
    done = run("{")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"cannot answer this: ")


@pytest.mark.slow
@pytest.mark.whole
def test_as_many_queues_as_a_tree_may_have_are_answered_in_time():
    leaves = [{"name": f"q{i}", "weight": 1 + i % 7} for i in range(9_999)]
    demand = {leaf["name"]: [{"cpu": 1 + i % 11, "memory": 1 + i % 5}] for i, leaf in enumerate(leaves)}

    done = run(json.dumps(asked(tree(*leaves), tree(*leaves[::-1]), demand=demand)))

    assert done.returncode == 0
    assert len(json.loads(done.stdout)["after"]) >= 9_999
