"""The config topic and the cluster file: knobs, and nodes by the hundred."""

from dataclasses import fields
from decimal import Decimal
from typing import get_args

import pytest

from schemas.edge.base import NAME_MAX
from schemas.edge.cluster import NODES_MAX
from schemas.edge.read import Cluster, ClusterNode, ConfigPatch, Malformed, knob_of_text, read_cluster
from schemas.edge.strict_json import loads
from schemas.nodes import Device
from schemas.policy import KNOB_ITEMS_MAX, SHARDS_MAX, SLOTS_MAX, Policy
from schemas.presets import Preset
from schemas.quantities import MILLIONTHS, QUANTITY_MAX
from schemas.queues import Queue
from tests.config_messages import CONTRADICTIONS, patch, refusal

THRESHOLDS = "class_thresholds_permille"


def root(*children):
    return {"name": "root", "children": list(children)}


# Rounds to give up


def test_a_config_may_be_meant_for_the_first_start_only():
    assert patch({"set": {"seed": 7}, "initial": True}) == ConfigPatch({"seed": 7}, None, "ops", initial=True)
    assert patch({"set": {"seed": 7}, "initial": False}) == patch({"set": {"seed": 7}})
    assert refusal({"initial": True}).field == ""
    assert refusal({"set": {}, "initial": 1}).field == "initial"


def test_a_round_to_give_up_stands_alone():
    assert patch({"abandon_round": 7}) == ConfigPatch({}, None, "ops", abandon_round=7)
    assert refusal({"abandon_round": 7, "set": {"seed": 1}}).field == "abandon_round"
    assert refusal({"abandon_round": 7, "initial": True}).field == "abandon_round"
    assert refusal({"abandon_round": 0}).field == "abandon_round"


# Knobs


def test_knobs_come_in_the_order_of_the_policy():
    assert list(patch({"set": {"theta_permille": 0, "preset": "drf", "seed": 7}}).values.items()) == [
        ("preset", "drf"),
        ("seed", 7),
        ("theta_permille", 0),
    ]


@pytest.mark.parametrize("preset", get_args(Preset))
def test_every_preset_that_is_built_can_be_set(preset):
    assert patch({"set": {"preset": preset}}) == ConfigPatch({"preset": preset}, None, "ops")


def test_the_defaults_of_the_policy_are_within_their_ranges():
    defaults = {knob.name: getattr(Policy(), knob.name) for knob in fields(Policy)}

    assert patch({"set": defaults}).values == defaults


@pytest.mark.parametrize(
    ("knob", "value", "problem"),
    [
        pytest.param("presett", "drf", 'set.presett: unknown knob; did you mean "preset"?', id="a slip"),
        pytest.param(
            "colour",
            1,
            "set.colour: unknown knob; `largesse config show` and docs/settings.md list them",
            id="no knob at all",
        ),
        pytest.param("a\nb", 1, 'set["a?b"]: unknown knob', id="no name"),
        pytest.param("preset", "best", f"set.preset: has to be one of {', '.join(get_args(Preset))}", id="no preset"),
        pytest.param("preset", 1, "set.preset: has to be one of", id="a number for a name"),
        pytest.param("preset", ["drf"], "set.preset: has to be one of", id="a list for a name"),
        pytest.param("seed", "7", 'set.seed: has to be a whole number; is "7"', id="text for a number"),
        pytest.param("seed", True, "set.seed: has to be a whole number; is true", id="a boolean"),
        pytest.param("seed", Decimal("7.0"), "set.seed: has to be a whole number; is 7.0", id="a fraction"),
        pytest.param("seed", -1, f"set.seed: has to be from 0 to {QUANTITY_MAX}; is -1", id="below"),
        pytest.param("theta_permille", 1001, "set.theta_permille: has to be from 0 to 1000", id="above"),
        pytest.param("altruism_shards", 0, f"set.altruism_shards: has to be from 1 to {SHARDS_MAX}", id="no shard"),
        pytest.param("node_lease_ms", 0, "set.node_lease_ms: has to be from 100 to", id="no lease"),
        pytest.param("slots_per_node", 0, f"set.slots_per_node: has to be from 1 to {SLOTS_MAX}", id="no place"),
        pytest.param("slots_per_node", SLOTS_MAX + 1, "set.slots_per_node: has to be from 1", id="too many places"),
        pytest.param(THRESHOLDS, 300, f"set.{THRESHOLDS}: has to be a list of whole numbers", id="no list"),
        pytest.param(THRESHOLDS, [1, "2"], f"set.{THRESHOLDS}: has to be a list of whole numbers", id="text in a list"),
        pytest.param(THRESHOLDS, [1001], f"set.{THRESHOLDS}: has to be a list of numbers from 0", id="too high"),
        pytest.param(THRESHOLDS, [300, 300], f"set.{THRESHOLDS}: has to be ascending", id="not ascending"),
        pytest.param(
            THRESHOLDS, [*range(KNOB_ITEMS_MAX + 1)], f"set.{THRESHOLDS}: has to be a list of at most", id="too long"
        ),
    ],
)
def test_what_is_refused_of_a_knob(knob, value, problem):
    assert str(refusal({"set": {knob: value}})).startswith(problem)


@pytest.mark.parametrize(("knob", "value", "word"), [("headroom", False, "off"), ("classes", True, "on")])
def test_where_yaml_1_1_has_made_a_boolean_of_a_word_the_word_is_to_be_quoted(knob, value, word):
    problem = str(refusal({"set": {knob: value}}))
    assert problem.startswith(f"set.{knob}: has to be one of ")
    assert f'; write "{word}", in quotes; is ' in problem
    assert "in quotes" not in str(refusal({"set": {"preset": value}}))  # It has no such word.


def test_a_list_that_is_refused_is_shown():
    assert str(refusal({"set": {THRESHOLDS: [50, 30]}})) == f"set.{THRESHOLDS}: has to be ascending; is [50, 30]"
    assert str(refusal({"set": {THRESHOLDS: [1, "2"]}})).endswith('; is [1, "2"]')


@pytest.mark.parametrize(("knobs", "field", "reason"), CONTRADICTIONS)
def test_knobs_of_a_cluster_file_do_not_contradict_each_other(knobs, field, reason):
    with pytest.raises(Malformed) as refused:
        read_cluster({"nodes": [{"name": "n", "capacity": {"cpu": 1}}], "policy": knobs})

    assert str(refused.value) == f"policy.{field}: {reason}"


@pytest.mark.parametrize("value", [[], [0, 1000], [*range(KNOB_ITEMS_MAX)]])
def test_a_knob_may_be_an_ascending_list(value):
    assert patch({"set": {THRESHOLDS: value}}).values == {THRESHOLDS: value}
    assert knob_of_text(f"{THRESHOLDS}={','.join(map(str, value))}") == (THRESHOLDS, value)


def test_a_message_without_anything_to_change():
    assert refusal({}).reason == 'needs "set" (knobs) or "queues" (the whole tree), or both'
    assert refusal({"set": None, "queues": None}).field == ""


@pytest.mark.parametrize(
    ("text", "knob"),
    [
        pytest.param("preset=drf", ("preset", "drf"), id="a name"),
        pytest.param("seed=42", ("seed", 42), id="a number"),
        pytest.param("seed=0", ("seed", 0), id="nought"),
        pytest.param(f"seed={QUANTITY_MAX}", ("seed", QUANTITY_MAX), id="the most"),
    ],
)
def test_a_knob_of_a_command_line(text, knob):
    assert knob_of_text(text) == knob


@pytest.mark.parametrize(
    "text", ["seed", "=7", "seed=-1", "seed=1.5", "seed=x", "preset=", "seed=" + "9" * 30, "seed=٣"]
)
def test_what_is_no_knob_of_a_command_line(text):
    with pytest.raises(Malformed):
        knob_of_text(text)


def test_a_knob_takes_no_fraction():
    problem = refusal(loads(b'{"set": {"seed": 1.0}}'))

    assert problem.field == "set.seed"


# The cluster file


def cluster(*nodes, **rest):
    return {"nodes": list(nodes) or [{"name": "n", "capacity": {"cpu": "4"}}], **rest}


def cluster_refusal(document):
    with pytest.raises(Malformed) as refused:
        read_cluster(document)
    return refused.value


def test_an_entry_with_a_count_is_so_many_nodes():
    read = read_cluster(
        cluster(
            {"name": "n", "count": 2, "capacity": {"cpu": "20", "memory": "128Gi"}, "labels": {"zone": "a"}},
            {"name": "g", "capacity": {"cpu": "4"}, "devices": {"gpu": [{"index": 0, "model": "T4"}]}},
            queues=root({"name": "a", "weight": 2}),
            policy={"preset": "drf", "seed": 3},
        )
    )

    capacity = {"cpu": 20_000, "memory": 131_072}
    assert read == Cluster(
        nodes=[
            ClusterNode("n-0", capacity, {"zone": "a"}),
            ClusterNode("n-1", capacity, {"zone": "a"}),
            ClusterNode("g", {"cpu": 4000, "gpu": 1000}, {}, [Device(0, 1000, "T4")]),
        ],
        queues=Queue("root", children=[Queue("a", 2 * MILLIONTHS)]),
        values={"preset": "drf", "seed": 3},
    )
    read.nodes[0].capacity["cpu"] = 0
    assert read.nodes[1].capacity["cpu"] == 20_000


def test_a_cluster_of_nodes_alone():
    assert read_cluster(cluster()) == Cluster([ClusterNode("n", {"cpu": 4000})])


def test_a_count_of_one_is_numbered_all_the_same():
    assert read_cluster(cluster({"name": "n", "count": 1, "capacity": {"cpu": 1}})).nodes[0].name == "n-0"


@pytest.mark.slow
def test_as_many_nodes_as_a_cell_may_have():
    most = [{"name": "a", "count": NODES_MAX - 1, "capacity": {"cpu": 1}}, {"name": "b", "capacity": {"cpu": 1}}]
    assert len(read_cluster(cluster(*most)).nodes) == NODES_MAX

    problem = cluster_refusal(cluster(*most, {"name": "c", "capacity": {"cpu": 1}}))

    assert problem.field == "nodes"
    assert f"more than {NODES_MAX} nodes" in problem.reason


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"nodes": []}, "nodes: may not be empty", id="no nodes"),
        pytest.param({}, "nodes: is missing", id="no word of nodes"),
        pytest.param(cluster(colour=1), "colour: unknown field", id="an unknown field"),
        pytest.param(cluster({"name": "n", "capacity": {}}), "nodes[0].capacity: has to offer something", id="nothing"),
        pytest.param(cluster({"name": "n", "capacity": {"cpu": "x"}}), "nodes[0].capacity.cpu: ", id="no quantity"),
        pytest.param(
            cluster({"name": "n", "count": 0, "capacity": {"cpu": 1}}), "nodes[0].count: has to be", id="none"
        ),
        pytest.param(
            cluster({"name": "n", "count": True, "capacity": {"cpu": 1}}), "nodes[0].count: has to", id="true"
        ),
        pytest.param(cluster(policy={"sed": 1}), 'policy.sed: unknown knob; did you mean "seed"?', id="no knob"),
        pytest.param(cluster(queues={"name": "r"}), "queues.name: the top of the tree", id="no root"),
        pytest.param(
            cluster({"name": "n", "count": 2, "capacity": {"cpu": 1}}, {"name": "n-1", "capacity": {"cpu": 1}}),
            'nodes[1].name: "n-1" is the name of a node of nodes[0] already',
            id="a name that a count has made",
        ),
        pytest.param(
            cluster({"name": "x" * NAME_MAX, "count": 2, "capacity": {"cpu": 1}}),
            "nodes[0].name: is too long: with its number",
            id="a name with no room for its number",
        ),
    ],
)
def test_what_is_refused_of_a_cluster(document, problem):
    assert str(cluster_refusal(document)).startswith(problem)


def test_a_value_that_is_nearly_one_is_named_with_the_nearest():
    assert str(refusal({"set": {"preset": "carbine"}})).endswith('; is "carbine"; did you mean "carbyne"?')
