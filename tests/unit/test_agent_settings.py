"""What a node offers, and how an agent is set up from the environment."""

from pathlib import Path

import psutil
import pytest

from largesse.settings import SettingWrong
from schemas import Device
from services.agent.capacity import measured
from services.agent.settings import read_node_settings


def test_a_machine_offers_what_it_has(tmp_path):
    whole = measured(tmp_path, cgroup=tmp_path)

    assert whole["cpu"] == len(psutil.Process().cpu_affinity()) * 1_000
    assert whole["memory"] == psutil.virtual_memory().total >> 20
    assert whole["disk"] > 0


def test_parts_of_a_machine_are_equal_and_never_more_than_it_has(tmp_path):
    whole, part = measured(tmp_path, cgroup=tmp_path), measured(tmp_path, 3, cgroup=tmp_path)

    assert part == {resource: amount // 3 for resource, amount in whole.items()}


@pytest.mark.parametrize(
    ("cpu", "memory", "offered"),
    [
        pytest.param("50000 100000\n", "104857600\n", {"cpu": 500, "memory": 100}, id="less than the machine"),
        pytest.param("max 100000\n", "max\n", {}, id="no limit"),
        pytest.param("900000000 1000\n", f"{1 << 60}\n", {}, id="more than the machine"),
        pytest.param("nonsense", "", {}, id="unreadable"),
    ],
)
def test_a_container_offers_what_it_may_use(tmp_path, cpu, memory, offered):
    (tmp_path / "cpu.max").write_text(cpu)
    (tmp_path / "memory.max").write_text(memory)

    assert measured(tmp_path, cgroup=tmp_path) == {**measured(tmp_path, cgroup=tmp_path / "none"), **offered}


def test_without_settings_a_node_is_this_machine():
    node = read_node_settings(0, {"LARGESSE_NODE": "n"})

    assert (node.name, node.data, node.capacity, node.devices) == ("n", Path("largesse-agent/n"), {}, [])


def test_a_node_is_set_up_by_the_environment():
    offer = (
        '{"capacity": {"cpu": "1500m", "memory": "2Gi"}, "labels": {"zone": "a"}, "devices": {"gpu": [{"index": 4}]}}'
    )

    node = read_node_settings(
        3,
        {
            "LARGESSE_NODE": "gpu-1",
            "LARGESSE_NODE_DATA": "/var/lib/largesse",
            "LARGESSE_NODE_OFFER": offer,
            "LARGESSE_NODE_PASS_ENV": "A,B",
            "LARGESSE_NODE_MEMORY_LIMIT": "address_space",
        },
    )

    assert (node.name, node.data, node.partition) == ("gpu-1", Path("/var/lib/largesse"), 3)
    assert node.capacity == {"cpu": 1_500, "gpu": 1_000, "memory": 2_048}
    assert (node.labels, node.devices) == ({"zone": "a"}, [Device(4)])
    assert (node.pass_env, node.memory_limit) == (("A", "B"), "address_space")


def test_labels_alone_leave_the_capacity_as_measured():
    node = read_node_settings(0, {"LARGESSE_NODE": "n", "LARGESSE_NODE_OFFER": '{"labels": {"zone": "a"}}'})

    assert (node.capacity, node.labels) == ({}, {"zone": "a"})


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("LARGESSE_NODE_OFFER", "{", "is no JSON"),
        ("LARGESSE_NODE_OFFER", "[]", "has to be an object"),
        ("LARGESSE_NODE_OFFER", '{"capacity": {"cpu": "x"}}', "capacity.cpu"),
        ("LARGESSE_NODE_OFFER", '{"capasity": {}}', 'did you mean "capacity"'),
        ("LARGESSE_NODE_MEMORY_LIMIT", "soft", "has to be one of resident, address_space, none"),
    ],
)
def test_a_wrong_setting_is_named(variable, text, said):
    with pytest.raises(SettingWrong) as caught:
        read_node_settings(0, {"LARGESSE_NODE": "n", variable: text})

    assert variable in str(caught.value)
    assert said in str(caught.value)
