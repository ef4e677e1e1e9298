"""What placement spoils: tasks stay off scarce resources that they do not ask for, and fill what is begun."""

from random import Random

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from tests.simulation.runs import job, simulated, stage

NODES = [
    {"name": "gpu", "count": 2, "capacity": {"cpu": "8", "memory": "32Gi", "gpu": 4}},
    {"name": "cpu", "count": 2, "capacity": {"cpu": "8", "memory": "32Gi"}},
]
LONG_MS = 600_000
PRESETS = ("largesse", "hdrf", "drf", "fifo", "carbyne", "dress", "tetris", "srtf")


def asks(tasks, **demand):
    return stage("s", tasks, LONG_MS) | {"demand": demand}


def waits_ms(run, name):
    return [line["start_ms"] - run.row(name)["submit_ms"] for line in run.of(name)]


@pytest.mark.parametrize("preset", PRESETS)
def test_tasks_without_gpus_leave_nodes_with_gpus_to_others_while_other_nodes_fit(tmp_path, preset):
    workload = [
        job("plain", asks(16, cpu="1", memory="2Gi")),
        job("wide", asks(2, cpu="6", memory="16Gi", gpu=4), submit_ms=5_000),
    ]
    run = simulated(tmp_path, workload, {"nodes": NODES}, preset=preset)

    assert {line["node"][:3] for line in run.of("plain")} == {"cpu"}
    assert max(waits_ms(run, "wide")) == 0


def test_where_no_other_node_fits_they_take_nodes_with_gpus(tmp_path):
    run = simulated(tmp_path, [job("plain", asks(17, cpu="1", memory="1Gi"))], {"nodes": NODES}, preset="hdrf")

    assert sorted(line["node"][:3] for line in run.of("plain")) == ["cpu"] * 16 + ["gpu"]
    assert max(waits_ms(run, "plain")) == 0


@pytest.mark.parametrize("preset", PRESETS)
def test_whole_gpus_fill_nodes_already_begun(tmp_path, preset):
    workload = [job("small", asks(2, cpu="1", gpu=1)), job("wide", asks(1, cpu="4", gpu=4), submit_ms=5_000)]
    run = simulated(tmp_path, workload, {"nodes": NODES}, preset=preset)

    assert len({line["node"] for line in run.of("small")}) == 1
    assert waits_ms(run, "wide") == [0]


def test_fractions_of_gpus_fill_devices_already_begun(tmp_path):
    workload = [
        job("first", asks(1, cpu="1", gpu="600m")),
        job("parts", asks(3, cpu="1", gpu="400m"), submit_ms=1_000),
        job("whole", asks(6, cpu="1", gpu=1), submit_ms=2_000),
    ]
    run = simulated(tmp_path, workload, {"nodes": NODES}, preset="hdrf")

    assert max(waits_ms(run, "whole")) == 0


def test_a_scarce_resource_of_any_name_counts(tmp_path):
    nodes = [{"name": "fpga", "capacity": {"cpu": "8", "fpga": 2}}, {"name": "cpu", "capacity": {"cpu": "8"}}]
    workload = [job("plain", asks(8, cpu="1")), job("wide", asks(2, cpu="4", fpga=1), submit_ms=5_000)]
    run = simulated(tmp_path, workload, {"nodes": nodes}, preset="hdrf")

    assert {line["node"] for line in run.of("plain")} == {"cpu"}
    assert max(waits_ms(run, "wide")) == 0


@pytest.mark.parametrize(
    ("placement", "nodes"),
    [
        pytest.param("packed", 1, id="packed: one node"),
        pytest.param("spread", 2, id="spread: one on each"),
        pytest.param("aligned", 2, id="aligned: where most is free"),
    ],
)
def test_the_policy_says_by_what_nodes_are_chosen(tmp_path, placement, nodes):
    run = simulated(
        tmp_path, [job("two", asks(2, cpu="1", gpu=1))], {"nodes": NODES[:1]}, preset="hdrf", placement=placement
    )

    assert len({line["node"] for line in run.of("two")}) == nodes


def test_spread_takes_the_node_of_which_the_least_part_is_in_use(tmp_path):
    nodes = [{"name": "small", "capacity": {"cpu": "4"}}, {"name": "large", "capacity": {"cpu": "16"}}]
    workload = [job(f"j{i}", asks(1, cpu="1"), submit_ms=i) for i in range(5)]
    chosen = {}
    for placement in ("spread", "aligned"):
        run = simulated(tmp_path, workload, {"nodes": nodes}, preset="hdrf", placement=placement)
        chosen[placement] = [run.of(f"j{i}")[0]["node"] for i in range(5)]

    assert chosen["spread"] == ["small", "large", "large", "large", "large"]
    assert chosen["aligned"] == ["large"] * 5


def drawn(seed):
    """Jobs for GPUs, parts of them and none, that come a little faster than they end."""
    chance, lines, at_ms = Random(seed), [], 0
    for i in range(120):
        at_ms += chance.randint(0, 3_000)
        gpu = chance.choice(["100m", "500m", "700m", 1, 1, 2, 4, None])
        demand = {"cpu": chance.choice(["1", "2", "4"]), "memory": "1Gi"} | ({"gpu": gpu} if gpu else {})
        each = stage("s", chance.randint(1, 3), chance.randint(5_000, 40_000)) | {"demand": demand}
        if gpu and chance.random() < 0.3:
            each["labels"] = {"model": chance.choice("ab")}
        lines.append(job(f"j{i}", each, submit_ms=at_ms))
    return lines


MODELS = [
    {"name": model, "count": 4, "capacity": {"cpu": "16", "memory": "64Gi", "gpu": 4}, "labels": {"model": model}}
    for model in "ab"
]


@pytest.mark.parametrize("placement", ["packed", "spread"])
def test_a_board_that_is_built_anew_every_round_places_as_one_that_is_kept(tmp_path, placement):
    lines = [read_workload_line(line) for line in drawn(3)]
    cluster, digests = read_cluster({"nodes": [*NODES, *MODELS]}), []
    for forgets in (False, True):

        def before(cell, forgets=forgets):
            if forgets:
                cell.leftover.board = None

        options = Options({"preset": "hdrf", "placement": placement}, before_round=before)
        digests.append(simulate(lines, cluster, options)["digest"])

    assert digests[0] == digests[1]


def test_tasks_that_run_anywhere_leave_the_model_to_those_that_run_only_there(tmp_path):
    """The cell has seen both kinds: that few of its GPUs are of the model that many ask for."""
    nodes = [{**MODELS[0], "count": 1}, {**MODELS[1], "count": 3}]
    seen = [job(f"s{i}", stage("s", 1, 1_000) | bound(i % 2), submit_ms=2_000 * i) for i in range(20)]
    later = [job("any", asks(8, cpu="1", gpu=1), submit_ms=60_000)]
    run = simulated(tmp_path, [*seen, *later], {"nodes": nodes}, preset="hdrf")

    assert {line["node"][0] for line in run.of("any")} == {"b"}


def bound(only_a):
    return {"demand": {"cpu": "1", "gpu": 1}, "labels": {"model": "a"} if only_a else {}}
