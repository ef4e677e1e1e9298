"""`python -m services.fairness solve`: every kind of problem, every policy, and what is said of a malformed one."""

import io
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from services.fairness.offline import solve as solver
from services.fairness.offline.problem import BadProblem
from services.fairness.offline.solve import solve

ROOT = Path(__file__).resolve().parents[2]
TEN_OF_EACH = {"cpu": 10, "gpu": 10}


def leaf(name, tasks=None, **demand):
    return {"name": name, "demand": demand, "tasks": tasks}


def holds(name, **usage):
    return {"name": name, "usage": usage}


def inner(name, *children, **options):
    return {"name": name, "children": list(children), **options}


def problem(kind, tree, capacity=TEN_OF_EACH, **options):
    return {"kind": kind, "input": {"capacity": capacity, "tree": tree, **options}}


FIGURE_4 = inner("nr", inner("n1", leaf("n1,1", cpu=1)), inner("n2", leaf("n2,1", cpu=1), leaf("n2,2", gpu=1)))


def tasks(answer):
    return {name: found["tasks"] for name, found in answer["allocation"].items()}


def test_the_answer_for_figure_4():
    assert solve(problem("hdrf", FIGURE_4, mode="fluid")) == {
        "mode": "fluid",
        "allocation": {
            "n1,1": {"tasks": 5, "share": 0.5, "usage": {"cpu": 5, "gpu": 0}},
            "n2,1": {"tasks": 5, "share": 0.5, "usage": {"cpu": 5, "gpu": 0}},
            "n2,2": {"tasks": 10, "share": 1, "usage": {"cpu": 0, "gpu": 10}},
        },
        "nodes": {"nr": {"share": 1}, "n1": {"share": 0.5}, "n2": {"share": 1}},
    }


def test_the_example_of_the_readme():
    found = solve(json.loads((ROOT / "examples" / "problems" / "two-groups.json").read_text()))
    assert tasks(found) == {"n1.1": 5, "n2.1": 5, "n2.2": 10}


def test_tasks_are_whole_unless_fluid_is_asked_for():
    tree = inner("r", *[leaf(name, cpu=1) for name in "abc"])

    assert tasks(solve(problem("hdrf", tree))) == {"a": 4, "b": 3, "c": 3}
    assert tasks(solve(problem("hdrf", tree, mode="fluid"))) == dict.fromkeys("abc", 10 / 3)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("hdrf", {"n1,1": 5, "n2,1": 5, "n2,2": 5}),
        ("drf", {"n1,1": 5, "n2,1": 5, "n2,2": 5}),
        ("naive", {"n1,1": 5, "n2,1": 5, "n2,2": 5}),
        ("collapsed", {"n1,1": 20 / 3, "n2,1": 10 / 3, "n2,2": 10 / 3}),
        ("fair", {"n1,1": 10 * (2 / 3), "n2,1": 10 / 3, "n2,2": 10 / 3}),
        ("fifo", {"n1,1": 10, "n2,1": 0, "n2,2": 0}),
    ],
)
def test_every_policy_can_be_had(policy, expected):
    tree = inner("nr", inner("n1", leaf("n1,1", cpu=1, gpu=1)), inner("n2", leaf("n2,1", cpu=1), leaf("n2,2", gpu=1)))

    found = tasks(solve(problem("hdrf", tree, policy=policy, mode="fluid")))

    assert found == pytest.approx(expected)


def test_drf_knows_no_groups():
    tree = inner("r", inner("g", leaf("a", cpu=1), leaf("b", cpu=1)), leaf("c", cpu=1))

    found = solve(problem("drf", tree, {"cpu": 9}))

    assert tasks(found) == {"a": 3, "b": 3, "c": 3}
    assert found["nodes"]["g"]["share"] == pytest.approx(2 / 3)


def test_a_subtree_may_name_its_own_policy():
    queue = inner("batch", leaf("first", 3, cpu=1), leaf("second", cpu=1), leaf("third", cpu=1), policy="fifo")

    assert tasks(solve(problem("hdrf", inner("r", queue, leaf("other", cpu=1))))) == {
        "first": 3,
        "second": 2,
        "third": 0,
        "other": 5,
    }


def test_the_shortest_is_served_first_and_the_most_urgent_too():
    jobs = [leaf("long", 9, cpu=1), leaf("short", 4, cpu=1), leaf("endless", cpu=1)]
    assert tasks(solve(problem("hdrf", inner("r", *jobs), policy="srtf"))) == {"long": 6, "short": 4, "endless": 0}

    jobs[0]["priority"], jobs[2]["priority"] = -1, 5
    assert tasks(solve(problem("hdrf", inner("r", *jobs), policy="priority"))) == {"long": 0, "short": 0, "endless": 10}


def test_the_walk_orders_all_leaves_by_share_over_weight():
    tree = inner(
        "r", inner("m", holds("a", cpu=3), holds("b", cpu=1)), inner("n", holds("c", gpu=1)), holds("d", cpu=5)
    )

    assert solve(problem("hdrf-order", tree)) == {"order": ["c", "b", "a", "d"]}
    assert solve(problem("drf-order", tree)) == {"order": ["b", "c", "a", "d"]}
    tree["children"][2]["weight"] = 10
    assert solve(problem("drf-order", tree)) == {"order": ["d", "b", "c", "a"]}


def test_where_only_holdings_matter_nothing_is_full():
    tree = inner("r", inner("n1", holds("a", cpu=5)), inner("n2", holds("b", cpu=5), holds("c", gpu=10)))

    assert solve(problem("hdrf-attributed-share", tree)) == {
        "nodes": {"r": {"share": 1}, "n1": {"share": 0.5}, "n2": {"share": 0.5}}
    }


def test_all_of_a_tie_may_be_next():
    held = inner(
        "r",
        {**leaf("a", cpu=1), "allocated": 2},
        {**leaf("b", gpu=1), "allocated": 2},
        {**leaf("c", cpu=1), "allocated": 3},
    )

    assert solve(problem("hdrf-next", held)) == {"next": ["a", "b"]}
    held["children"][1]["tasks"] = 2  # Of two tasks b holds both.
    assert solve(problem("hdrf-next", held)) == {"next": ["a"]}


def test_whose_task_does_not_fit_is_not_next():
    held = inner("r", {**leaf("a", cpu=6), "allocated": 1}, {**leaf("b", cpu=1), "allocated": 1})

    assert solve(problem("hdrf-next", held)) == {"next": ["b"]}
    held["children"][1]["allocated"] = 4
    assert solve(problem("hdrf-next", held)) == {"next": []}


@pytest.mark.parametrize("mode", ["whole", "fluid"])
def test_churn_starves_a_leaf_of_naive_hierarchical_drf_only(mode):
    events = [{"finish": {"n2,1": 1}}] * 5 + [{"finish": {"n2,2": 10}}]

    def end(policy):
        return tasks(
            solve(problem("hdrf-churn", FIGURE_4, mode=mode, policy=policy, events=events))["after_events"][-1]
        )

    assert end("hdrf") == {"n1,1": 5, "n2,1": 5, "n2,2": 10}
    starving = end("naive")
    assert starving["n2,2"] == 10
    assert starving["n2,1"] < 1.0  # Of ever smaller rests a flow never loses the last.


@pytest.mark.parametrize("policy", ["hdrf", "drf", "collapsed", "naive", "fifo", "srtf"])
@pytest.mark.parametrize("mode", ["whole", "fluid"])
def test_what_a_leaf_wants_to_hold_at_once_it_asks_for_again_when_tasks_end(mode, policy):
    tree = inner("r", leaf("a", 4, cpu=1), leaf("b", 5, cpu=1))
    events = [{"finish": {"a": 1}}, {"finish": {"a": 3, "b": 99}}, {"finish": {"b": 5}}]

    found = solve(problem("hdrf-churn", tree, mode=mode, policy=policy, events=events))

    assert [tasks(after) for after in found["after_events"]] == [{"a": 4, "b": 5}] * 3


def test_a_leaf_holds_no_more_than_it_wants_at_once_however_much_has_ended():
    tree = inner("r", leaf("a", 4, cpu=1), leaf("b", cpu=1))

    found = solve(problem("hdrf-churn", tree, events=[{"finish": {"a": 1}}, {"finish": {"a": 4, "b": 2}}]))

    assert [tasks(after) for after in found["after_events"]] == [{"a": 4, "b": 6}, {"a": 4, "b": 6}]


@pytest.mark.parametrize("policy", ["drf", "collapsed", "fair", "fifo", "srtf", "priority"])
@pytest.mark.parametrize("mode", ["whole", "fluid"])
def test_churn_leaves_nothing_free_under_any_policy(policy, mode):
    events = [{"finish": {"n1,1": 2}}, {"finish": {"n2,1": 1, "n2,2": 3}}]

    after = solve(problem("hdrf-churn", FIGURE_4, policy=policy, mode=mode, events=events))["after_events"]

    assert [found["n1,1"] + found["n2,1"] for found in map(tasks, after)] == [10, 10]
    assert [found["n2,2"] for found in map(tasks, after)] == [10, 10]


def test_churn_of_very_many_tasks():
    tree = inner("r", leaf("a", cpu=1), leaf("b", cpu=2))
    found = solve(problem("hdrf-churn", tree, {"cpu": 40_000_000}, events=[{"finish": {"a": 15_000_000}}]))

    held = tasks(found["after_events"][0])
    assert abs(held["a"] - 20_000_000) <= 1
    assert abs(held["b"] - 10_000_000) <= 1


def test_the_dominant_share_of_single_nodes():
    nodes = [
        {"name": "a", "usage": {"cpu": 3, "gpu": 1}, "weight": 2},
        {"name": "b", "demand": {"gpu": 2}, "allocated": 2},
        {"name": "c", "usage": {"tpu": 4}},
        {"name": "d", "usage": {}},
    ]

    found = solve({"kind": "drf-share", "input": {"capacity": {"cpu": 10, "gpu": 10, "tpu": 0}, "nodes": nodes}})

    assert found == {
        "dominant": {
            "a": {"share": 0.15, "resource": "cpu"},
            "b": {"share": 0.4, "resource": "gpu"},
            "c": {"share": 0, "resource": None},
            "d": {"share": 0, "resource": None},
        }
    }


def test_nodes_may_be_named_in_a_tree():
    tree = inner("r", inner("g", holds("a", cpu=1), holds("b", cpu=2), weight=3))

    found = solve(problem("drf-share", tree, nodes=["g", "b"]))

    assert found["dominant"] == {"g": {"share": 0.1, "resource": "cpu"}, "b": {"share": 0.2, "resource": "cpu"}}


@pytest.mark.slow
def test_decimals_are_read_as_they_are_written():
    """Ten times 0.1 is 1 here, so that exactly ten tasks fit, and 0.3 is three times 0.1."""
    assert answer(
        '{"kind": "hdrf", "input": {"capacity": {"cpu": 1.0}, "tree": {"name": "a", "demand": {"cpu": 0.1}}}}'
    )["allocation"] == {"a": {"tasks": 10, "share": 1, "usage": {"cpu": 1}}}
    tied = inner("r", {**leaf("a", cpu=0.1), "allocated": 3}, {**leaf("b", cpu=0.3), "allocated": 1})
    assert answer(json.dumps(problem("hdrf-next", tied))) == {"next": ["a", "b"]}


def test_decimals_may_come_as_floats_too():
    assert tasks(solve(problem("hdrf", leaf("a", cpu=0.1), {"cpu": 1.0}))) == {"a": 10}
    with pytest.raises(BadProblem, match="is nan"):
        solve(problem("hdrf", leaf("a", cpu=float("nan"))))


def answer(text):
    return json.loads(run(text).stdout)


def run(text):
    return subprocess.run(
        [sys.executable, "-m", "services.fairness", "solve"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_a_kind_that_is_asked_for_and_not_there_counts_as_none(capsys):
    found = solve(problem("hdrf", inner("r", leaf("a", fpga=1), leaf("b", cpu=1))))

    assert tasks(found) == {"a": 0, "b": 10}
    assert 'input.capacity: has no "fpga"' in capsys.readouterr().err


def test_a_field_that_is_not_known_is_passed_over_and_said(capsys):
    assert tasks(solve(problem("hdrf", {**leaf("a", cpu=1), "wieght": 2}))) == {"a": 10}
    assert "input.tree.wieght: ignored" in capsys.readouterr().err


GOOD = inner("r", leaf("a", cpu=1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], 'the problem: must be an object {"kind", "input"}, is an empty list'),
        ({"kind": "hdfr", "input": {}}, 'kind: must be one of hdrf, drf, .*, is "hdfr"'),
        ({"kind": "hdrf"}, "input: must be an object .*, is missing"),
        (problem("hdrf", GOOD, capacity=None), "input.capacity: must be an object .*, is null"),
        (problem("hdrf", GOOD, {"cpu": -1}), "input.capacity.cpu: must be a number from 0 to 10\\^18, is -1"),
        (problem("hdrf", GOOD, {"cpu": True}), "input.capacity.cpu: must be a number .*, is true"),
        (problem("hdrf", GOOD, {"cpu": 10**19}), "input.capacity.cpu: must be a number"),
        (problem("hdrf", GOOD, policy="best"), 'input.policy: must be one of .*, is "best"'),
        (problem("hdrf", GOOD, mode=1), "input.mode: must be one of whole, fluid, is 1"),
        ({"kind": "hdrf", "input": {"capacity": {}}}, "input.tree: must be an object: .*, is missing"),
        (problem("hdrf", inner("")), "input.tree.name: must be a text of at least one character"),
        (problem("hdrf", inner("r", {"name": "a"})), r'input.tree.children\[0\]: must have "children", a "demand"'),
        (
            problem("hdrf", inner("r", {"name": "a", "demnd": {"cpu": 1}})),
            r'children\[0\]: must have .*; has "demnd", but the fields here are name, weight, demand',
        ),
        (problem("hdrf", inner("r", holds("a"))), r"input.tree.children\[0\].demand: must be an object .*, is missing"),
        (
            problem("hdrf", inner("r", leaf("a"), leaf("a"))),
            r'children\[1\].name: "a" is also the name of input.tree.children\[0\]',
        ),
        (
            problem("hdrf", inner("r", inner("r"))),
            r'children\[0\].name: "r" is also the name of input.tree; names must be unique',
        ),
        (
            problem("hdrf", inner("r", {**leaf("a"), "weight": 0})),
            r"children\[0\].weight: must be greater than 0, is 0",
        ),
        (problem("hdrf", leaf("a", tasks=-1)), "input.tree.tasks: must be a whole number of at least 0, is -1"),
        (
            problem("hdrf", leaf("a", tasks=Fraction(1, 2))),
            "input.tree.tasks: must be a whole number of at least 0, is 0.5",
        ),
        (problem("hdrf", leaf("a", cpu="1")), 'input.tree.demand.cpu: must be a number .*, is "1"'),
        (
            problem("hdrf-next", {**leaf("a"), "allocated": Fraction(1, 2)}),
            'input.tree.allocated: must be whole .*"fluid"',
        ),
        (problem("hdrf", inner("r", children={})), r"input.tree.children: must be a list of nodes, is an object"),
        (problem("hdrf", inner("r", policy="drf")), "input.tree.policy: must be one of hdrf, naive"),
        (problem("hdrf-churn", GOOD), "input.events: must be a list .*, is missing"),
        (
            problem("hdrf-churn", GOOD, events=[{"start": {}}]),
            r"input.events\[0\].finish: must be an object .*, is missing",
        ),
        (
            problem("hdrf-churn", GOOD, events=[{"finish": {"b": 1}}]),
            r'input.events\[0\].finish: "b" is the name of no leaf',
        ),
        (
            problem("hdrf-churn", GOOD, events=[{"finish": {"a": 0.5}}]),
            r"input.events\[0\].finish.a: must be a whole number",
        ),
        ({"kind": "drf-share", "input": {"capacity": {}}}, "input.nodes: must be a list of nodes .*, is missing"),
        (
            problem("drf-share", GOOD, nodes=["b"]),
            r'input.nodes\[0\]: must be the name of a node in input.tree, is "b"',
        ),
    ],
)
def test_a_malformed_problem_is_refused_with_the_place_and_what_belongs_there(given, message):
    with pytest.raises(BadProblem, match=message):
        solve(given)


def test_a_tree_may_not_be_too_deep():
    tree = leaf("leaf", cpu=1)
    for level in range(70):
        tree = inner(f"n{level}", tree)

    with pytest.raises(BadProblem, match="may have 64 levels at most"):
        solve(problem("hdrf", tree))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        (
            '{"kind": "hdrf", "input": {"capacity": {"cpu": NaN}}}',
            "input.capacity.cpu: is NaN, which is no number in JSON",
        ),
        (
            '{"kind": "hdrf", "input": {"capacity": {"cpu": 1e999999999}}}',
            "input.capacity.cpu: has too large an exponent: at most 99, is 1e999999999",
        ),
        ("[" * 100_000, "recursion"),
        ('{"kind": "hdrf", "input": {"capacity": {"cpu": ' + "9" * 5000 + "}}}", "limit"),
    ],
)
def test_what_is_no_json_is_refused(text, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    assert solver.main() == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("cannot solve this: ")
    assert message in said.err


@pytest.mark.slow
def test_the_command_exits_with_2_and_one_line():
    process = run('{"kind": "hdrf", "input": {"capacity": {"cpu": 1}, "tree": {"name": "a", "demand": {"cpu": -1}}}}')

    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == "cannot solve this: input.tree.demand.cpu: must be a number from 0 to 10^18, is -1\n"


def test_a_weight_may_be_a_fraction():
    weights = {"a": "1/3", "b": "2/3"}
    leaves = [{"name": name, "weight": each, "demand": {"cpu": 1}, "tasks": None} for name, each in weights.items()]
    given = {"capacity": {"cpu": 9}, "tree": {"name": "root", "children": leaves}}

    assert tasks(solve({"kind": "hdrf", "input": given})) == {"a": 3, "b": 6}
    leaves[0]["weight"] = "1/0"
    with pytest.raises(BadProblem, match="weight: must be a number"):
        solve({"kind": "hdrf", "input": given})
