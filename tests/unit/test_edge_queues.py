"""The queue tree of a config message or a cluster file: names, weights to the millionth, limits, and the way back."""

import json
from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from schemas.edge.base import NAME_MAX
from schemas.edge.jobs import QUEUE_DEPTH_MAX, SEGMENT_MAX
from schemas.edge.queues import (
    LEAF_POLICIES,
    QUEUES_MAX,
    RUNNING_JOBS_MAX,
    SUBMITTERS_MAX,
    WEIGHT_MAX,
    tree_document,
    weight_millionths,
)
from schemas.edge.read import read_cluster, warnings_of
from schemas.edge.strict_json import loads
from schemas.quantities import MILLIONTHS
from schemas.queues import Queue
from schemas.sharing import Sharing
from services.admission.core.state import LIVE_JOBS_MAX
from tests.config_messages import patch, refusal
from tests.conftest import ROOT
from tests.queue_trees import queue_trees
from tests.strategies import for_all

FORM = Draft202012Validator(json.loads((ROOT / "schemas" / "published" / "ConfigInput.v1.json").read_text()))


def root(*children, **more):
    return {"name": "root", "children": list(children), **more}


def only(**fields):
    """The one queue of a tree, read."""
    tree = patch({"queues": root({"name": "a", **fields})}).queues
    assert tree is not None
    return tree.children[0]


# The tree and its weights


def test_a_tree_with_weights():
    document = {
        "queues": root({"name": "ads", "weight": 60, "children": [{"name": "prod", "weight": 0.5}]}, {"name": "b"})
    }

    assert patch(document).queues == Queue(
        "root", children=[Queue("ads", 60 * MILLIONTHS, [Queue("prod", 500_000)]), Queue("b", MILLIONTHS)]
    )


def test_a_tree_that_is_only_its_root():
    assert patch({"queues": {"name": "root"}}).queues == Queue("root")


@pytest.mark.parametrize(
    ("weight", "millionths"),
    [
        pytest.param(1, 1_000_000, id="a whole number"),
        pytest.param(Decimal("0.000001"), 1, id="the least"),
        pytest.param(Decimal("1E+2"), 100_000_000, id="with an exponent"),
        pytest.param(Decimal("0.100000000"), 100_000, id="noughts at the end"),
        pytest.param(0.1, 100_000, id="a float counts by its text"),
        pytest.param(WEIGHT_MAX, WEIGHT_MAX * MILLIONTHS, id="the most"),
        pytest.param("1/3", 333_333, id="a fraction is rounded to the nearest millionth"),
        pytest.param("2/3", 666_667, id="upwards, too"),
        pytest.param("9/2", 4_500_000, id="a fraction above one"),
    ],
)
def test_a_weight_in_millionths(weight, millionths):
    assert weight_millionths(weight) == millionths


@pytest.mark.parametrize(
    "weight",
    [
        *(
            0,
            -1,
            WEIGHT_MAX + 1,
            True,
            None,
            "1",
            "1/0",
            "0/3",
            "1/3000000",
            "-1/3",
            "1/2/3",
            "2000001/2",
            [],
            float("nan"),
            float("inf"),
        ),
        *(Decimal(text) for text in ("0.0000001", "1.0000001", "-0.5", "NaN", "Infinity")),
    ],
)
def test_what_is_no_weight(weight):
    problem = refusal({"queues": root({"name": "a", "weight": weight})})

    assert problem.field == "queues.children[0].weight"
    assert problem.reason.startswith("has to be a number above 0 and at most 1000000, with at most 6 decimals")


@for_all(st.integers(1, WEIGHT_MAX * MILLIONTHS))
def test_a_weight_written_with_six_decimals_is_kept_exactly(millionths):
    text = f"{millionths // MILLIONTHS}.{millionths % MILLIONTHS:06}"

    assert weight_millionths(loads(text.encode())) == millionths


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        pytest.param({"name": "ads"}, 'queues.name: the top of the tree is "root"', id="another root"),
        pytest.param(
            root({"name": "a"}, {"name": "b"}, {"name": "a"}), 'queues.children[2].name: "a" is the', id="twins"
        ),
        pytest.param(root({"name": "a/b"}), 'queues.children[0].name: may hold no "/"', id="a path"),
        pytest.param(root({"name": "root"}), 'queues.children[0].name: "root" is the top', id="a second root"),
        pytest.param(root({"name": ""}), "queues.children[0].name: may not be empty", id="no name"),
        pytest.param(root({"name": "a\n"}), "queues.children[0].name: may hold no control", id="a line break"),
        pytest.param(root({"name": "q" * (SEGMENT_MAX + 1)}), "queues.children[0].name: is too long", id="a long name"),
        pytest.param(
            root({"name": "a", "wieght": 1}),
            'queues.children[0].wieght: unknown field; did you mean "weight"',
            id="slip",
        ),
        pytest.param(root({"weight": 1}), "queues.children[0].name: is missing", id="a name missing"),
        pytest.param(
            root({"name": "a", "children": {}}), "queues.children[0].children: has to be a list", id="no list"
        ),
        pytest.param([], "queues: has to be an object, is a list", id="no tree"),
    ],
)
def test_what_is_refused_of_a_tree(tree, problem):
    assert str(refusal({"queues": tree})).startswith(problem)


def deep(levels):
    tree: dict[str, object] = {"name": "leaf"}
    for _ in range(levels - 1):
        tree = {"name": "q", "children": [tree]}
    return {"queues": root(tree)}


def test_a_tree_as_deep_as_it_may_be():
    patch(deep(QUEUE_DEPTH_MAX))

    assert f"is too deep: at most {QUEUE_DEPTH_MAX} levels below root" in refusal(deep(QUEUE_DEPTH_MAX + 1)).reason


def test_a_tree_so_deep_that_nothing_could_walk_it_is_still_only_refused():
    assert "deep" in refusal(deep(5_000)).reason


@pytest.mark.slow
def test_a_tree_as_wide_as_it_may_be():
    wide = [{"name": f"q{i}"} for i in range(QUEUES_MAX - 1)]
    patch({"queues": root(*wide)})

    problem = refusal({"queues": root(*wide, {"name": "more"})})

    assert f"a tree has at most {QUEUES_MAX} queues" in problem.reason
    # Every cell has a default queue, which a tree that it prints has besides.
    patch({"queues": root(*wide, {"name": "default"})})
    assert refusal({"queues": root(*wide, {"name": "default", "children": [{"name": "more"}]})}).field.endswith("[0]")


# Limits, policies, submitters


def test_a_queue_with_everything():
    fields = {
        "policy": "fifo",
        "guaranteed": {"memory": "1Gi", "cpu": "1500m"},
        "max": {"cpu": "2", "network": "1G", "licence": 3},
        "running_jobs_max": 2,
        "user_jobs_max": 5,
        "user_running_max": 7,
        "submitters": ["bob", "ann"],
    }

    read = only(**fields)

    assert read == Queue(
        "a",
        policy="fifo",
        guaranteed={"cpu": 1_500, "memory": 1_024},
        max={"cpu": 2_000, "licence": 3, "network": 1_000},
        running_jobs_max=2,
        submitters=["bob", "ann"],
        user_jobs_max=5,
        user_running_max=7,
    )
    assert list(read.guaranteed) == ["cpu", "memory"]
    assert list(read.max) == ["cpu", "licence", "network"]


def test_a_cluster_file_says_the_same_as_a_config_message():
    tree = root({"name": "a", "max": {"cpu": "2"}, "submitters": ["ann"]}, max={"cpu": "4"})
    cluster = {"nodes": [{"name": "n", "capacity": {"cpu": "4"}}], "queues": tree}

    assert read_cluster(cluster).queues == patch({"queues": tree}).queues


def test_limits_round_down_and_a_maximum_of_nothing_is_a_limit_all_the_same():
    read = only(guaranteed={"memory": "1500Ki", "gpu": "0.0009"}, max={"memory": "2500Ki", "gpu": "0.0009", "disk": 0})

    assert read.guaranteed == {"memory": 1}
    assert read.max == {"disk": 0, "gpu": 0, "memory": 2}


def test_the_policies_are_those_of_the_vocabulary():
    inner = [name for name in get_args(Sharing) if name]
    for name in inner:
        assert only(policy=name, children=[{"name": "b"}]).policy == name
    for name in LEAF_POLICIES:
        assert only(policy=name).policy == name
    assert set(LEAF_POLICIES) < set(inner)
    for name in set(inner) - set(LEAF_POLICIES):
        problem = refusal({"queues": root({"name": "a", "policy": name})})
        assert problem.field == "queues.children[0].policy"
        assert problem.reason == 'shares out among queues, and "a" has none below it: write one of ' + ", ".join(
            LEAF_POLICIES
        )


def test_as_many_running_jobs_as_a_cell_holds():
    assert RUNNING_JOBS_MAX == LIVE_JOBS_MAX
    assert only(running_jobs_max=RUNNING_JOBS_MAX).running_jobs_max == RUNNING_JOBS_MAX
    assert only(running_jobs_max=1).running_jobs_max == 1
    problem = refusal({"queues": root({"name": "a", "running_jobs_max": RUNNING_JOBS_MAX + 1})})
    assert str(problem) == f"queues.children[0].running_jobs_max: has to be at most {RUNNING_JOBS_MAX}, is 1000001"


def test_as_many_submitters_as_a_queue_may_name():
    users = [f"u{i}" for i in range(SUBMITTERS_MAX)]
    assert only(submitters=users).submitters == users
    problem = refusal({"queues": root({"name": "a", "submitters": [*users, "more"]})})
    assert str(problem) == f"queues.children[0].submitters: is too long: at most {SUBMITTERS_MAX} entries"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"polcy": "fifo"}, 'polcy: unknown field; did you mean "policy"?', id="a slip"),
        pytest.param({"guarantee": {}}, 'guarantee: unknown field; did you mean "guaranteed"?', id="another slip"),
        pytest.param({"policy": ""}, "policy: has to be one of 'hdrf', 'drf', ", id="an empty policy"),
        pytest.param({"policy": "lifo"}, "policy: has to be one of 'hdrf', 'drf', ", id="no policy"),
        pytest.param({"max": {"cpu": "x"}}, 'max.cpu: "x" is no quantity', id="no quantity"),
        pytest.param({"max": {"cpu": "-1"}}, 'max.cpu: may not be negative, is "-1"', id="less than nothing"),
        pytest.param({"max": {"cpu": -1}}, "max.cpu: may not be negative, is -1", id="less than no base unit"),
        pytest.param({"max": {"CPU": "1"}}, "max.CPU: is no resource name", id="no resource"),
        pytest.param({"max": {"memory": 512}}, 'max.memory: 512 is 512 bytes: write "512Mi"', id="a few bytes"),
        pytest.param({"max": "2"}, "max: has to be an object", id="no amounts"),
        pytest.param({"guaranteed": {"cpu": None}}, "guaranteed.cpu: has to be a quantity", id="null"),
        pytest.param(
            {"guaranteed": {"cpu": "3", "memory": "1Mi"}, "max": {"cpu": "2500m"}},
            "guaranteed.cpu: is 3, above the queue's max of 2500m",
            id="guaranteed above max",
        ),
        pytest.param({"user_jobs_max": 0}, "user_jobs_max: has to be at least 1, is 0", id="no job of a user"),
        pytest.param({"running_jobs_max": 0}, "running_jobs_max: has to be at least 1, is 0", id="no job"),
        pytest.param({"running_jobs_max": True}, "running_jobs_max: has to be a whole number", id="true"),
        pytest.param({"submitters": "ann"}, "submitters: has to be a list", id="one user"),
        pytest.param({"submitters": [""]}, "submitters[0]: may not be empty", id="nobody"),
        pytest.param({"submitters": ["a\n"]}, "submitters[0]: may hold no control characters", id="a line break"),
        pytest.param({"submitters": ["x" * (NAME_MAX + 1)]}, "submitters[0]: is too long", id="a long name"),
        pytest.param(
            {"submitters": ["ann", "bob", "ann"]}, 'submitters[2]: "ann" is named in submitters[0] already', id="twice"
        ),
    ],
)
def test_what_is_refused_of_a_queue(fields, problem):
    assert str(refusal({"queues": root({"name": "a", **fields})})).startswith(f"queues.children[0].{problem}")


@pytest.mark.parametrize(
    ("queue", "problem"),
    [
        pytest.param(
            {"guaranteed": {"cpu": "2", "memory": "4Gi"}, "children": [{"name": "b", "guaranteed": {"cpu": "2"}}]},
            None,
            id="all of it is given on",
        ),
        pytest.param({"guaranteed": {"cpu": "2"}, "max": {"cpu": "2"}}, None, id="no more than guaranteed"),
        pytest.param(
            {"guaranteed": {"cpu": "2"}, "children": [{"name": "b", "guaranteed": {"memory": "4Gi"}}]},
            None,
            id="of another resource its parent says nothing",
        ),
        pytest.param(
            {
                "guaranteed": {"cpu": "2", "memory": "4Gi"},
                "children": [
                    {"name": "b", "guaranteed": {"cpu": "1500m", "memory": "1Gi"}},
                    {"name": "c", "guaranteed": {"cpu": "501m"}},
                ],
            },
            'guaranteed.cpu: is 2, but the queues below "a" are guaranteed 2001m together',
            id="children have more than their parent",
        ),
        pytest.param(
            {
                "guaranteed": {"memory": "4Gi"},
                "children": [{"name": "b", "children": [{"name": "c", "guaranteed": {"memory": "5Gi"}}]}],
            },
            'guaranteed.memory: is 4Gi, but the queues below "a" are guaranteed 5Gi together',
            id="one that says nothing stands for those below it",
        ),
        pytest.param(
            {"max": {"gpu": "1"}, "children": [{"name": c, "guaranteed": {"gpu": "600m"}} for c in "bc"]},
            'max.gpu: is 1, but the queues below "a" are guaranteed 1200m together',
            id="children have more than their parent may hold",
        ),
        pytest.param(
            {"max": {"gpu": 0}, "guaranteed": {"gpu": 1}}, "guaranteed.gpu: is 1, above the queue's max of 0", id="0"
        ),
    ],
)
def test_a_guarantee_that_could_never_hold_is_refused(queue, problem):
    document = {"queues": root({"name": "a", **queue})}
    if problem is None:
        patch(document)
    else:
        assert str(refusal(document)) == f"queues.children[0].{problem}"


def test_an_empty_list_of_submitters_is_warned_of_since_it_shuts_nobody_out():
    (warning,) = warnings_of({"queues": root({"name": "a", "submitters": []}, {"name": "b", "submitters": ["ann"]})})

    assert warning.startswith("queues.children[0].submitters: is empty, which is as if it were left out")


def test_limits_in_another_unit_than_meant_are_warned_of():
    tree = root({"name": "a", "children": [{"name": "b", "max": {"memory": "4k"}}]}, guaranteed={"disk": "9m"})
    warnings = [
        'queues.guaranteed.disk: "9m" is less than 1 MiB',
        'queues.children[0].children[0].max.memory: "4k" is less than 1 MiB',
    ]

    for document in ({"queues": tree}, {"nodes": [{"name": "n", "capacity": {"cpu": "1"}}], "queues": tree}):
        assert [warning.partition(" (")[0] for warning in warnings_of(document)] == warnings
    assert warnings_of({"set": {"seed": 1}}) == []


# The way back


@for_all(queue_trees())
def test_a_tree_that_is_written_out_reads_back_as_the_same(tree):
    written = json.dumps({"queues": tree_document(tree)})
    document = loads(written.encode())

    assert patch(document).queues == tree
    assert patch(document).queues is not tree
    FORM.validate(json.loads(written))


def test_a_tree_is_written_in_quantities_that_people_read():
    quantities = {"cpu": "1500m", "disk_io": "800M", "gpu": "2", "licence": "7", "memory": "3Gi", "network": "10G"}
    document = tree_document(only(max=quantities))

    assert document == {"name": "a", "weight": 1, "children": [], "max": quantities}
