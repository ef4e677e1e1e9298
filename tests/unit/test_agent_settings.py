"""What a node offers, and how an agent is set up from the environment."""

import socket
from pathlib import Path

import psutil
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.settings import Settings, SettingWrong
from schemas import Device
from services.agent.capacity import measured
from services.agent.settings import NodeSettings, TaskUsers, read_node_settings, read_task_user


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
    node = read_node_settings(Settings(), {"LARGESSE_NODE": "n"})

    assert (node.name, node.data, node.capacity, node.devices) == ("n", Path("largesse-agent/n"), {}, [])


def test_a_node_is_set_up_by_the_environment():
    offer = (
        '{"capacity": {"cpu": "1500m", "memory": "2Gi"}, "labels": {"zone": "a"}, "devices": {"gpu": [{"index": 4}]}}'
    )

    node = read_node_settings(
        Settings(partition=3),
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
    node = read_node_settings(Settings(), {"LARGESSE_NODE": "n", "LARGESSE_NODE_OFFER": '{"labels": {"zone": "a"}}'})

    assert (node.capacity, node.labels) == ({}, {"zone": "a"})


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("LARGESSE_NODE_OFFER", "{", "is no JSON"),
        ("LARGESSE_NODE_OFFER", "[]", "has to be an object"),
        ("LARGESSE_NODE_OFFER", '{"capacity": {"cpu": "x"}}', "capacity.cpu"),
        ("LARGESSE_NODE_OFFER", '{"capasity": {}}', 'did you mean "capacity"'),
        ("LARGESSE_NODE_MEMORY_LIMIT", "soft", "has to be one of auto, resident, address_space, none"),
        ("LARGESSE_NODE_CPU_LIMIT", "soft", "has to be one of hard, share, none"),
        ("LARGESSE_NODE_CGROUP", "on", "has to be auto, off, or the absolute path of a control group"),
        ("LARGESSE_NODE_OUTPUT_MIB", "0", "has to be a whole number from 1 to 1000000000"),
        ("LARGESSE_NODE_TASK_PIDS", "-1", "has to be a whole number from 0 to 1000000000"),
        ("LARGESSE_NODE_KEPT_FREE_MIB", "1.5", "has to be a whole number from 0 to 1000000000"),
        ("LARGESSE_NODE_AT_END", "stay", "has to be one of keep, leave"),
        ("LARGESSE_ADVERTISE", "n:9464", "nothing is served: set LARGESSE_METRICS_PORT"),
    ],
)
def test_a_wrong_setting_is_named(variable, text, said):
    with pytest.raises(SettingWrong) as caught:
        read_node_settings(Settings(), {"LARGESSE_NODE": "n", variable: text})

    assert variable in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "runs_on"), [("keep", True), ("leave", False)])
def test_an_agent_that_ends_leaves_its_tasks_or_its_cell(text, runs_on):
    node = read_node_settings(Settings(), {"LARGESSE_NODE_AT_END": text})

    assert (node.keep_running, node.leaves) == (runs_on, not runs_on)


@pytest.mark.parametrize(
    ("host", "port", "advertised", "address"),
    [
        pytest.param("127.0.0.1", 0, "", "", id="nothing is served"),
        pytest.param("0.0.0.0", 9464, "", "this-host:9464", id="at every address"),
        pytest.param("::", 9464, "", "this-host:9464", id="at every address of both kinds"),
        pytest.param("127.0.0.1", 9464, "", "127.0.0.1:9464", id="on this machine"),
        pytest.param("fe80::1", 1, "", "[fe80::1]:1", id="at one address"),
        pytest.param("0.0.0.0", 9464, "n.example:80", "n.example:80", id="behind another one"),
    ],
)
def test_an_agent_says_where_it_can_be_reached(monkeypatch, host, port, advertised, address):
    monkeypatch.setattr(socket, "gethostname", lambda: "this-host")
    settings = Settings(metrics_host=host, metrics_port=port)

    assert read_node_settings(settings, {"LARGESSE_ADVERTISE": advertised}).address == address


@pytest.mark.parametrize(("advertised", "address"), [("", ""), ("n.example:80", "n.example:80")])
def test_an_agent_over_mqtt_says_where_it_can_be_reached_only_if_it_was_told(advertised, address):
    settings = Settings(bus="mqtt://n@broker", metrics_host="0.0.0.0", metrics_port=9464)

    assert read_node_settings(settings, {"LARGESSE_ADVERTISE": advertised}).address == address


def test_an_agent_knows_bridges():
    node = read_node_settings(Settings(), {"LARGESSE_BRIDGES": "b-1:9464, b-2:9464,"})

    assert node.bridges == ("b-1:9464", "b-2:9464")
    with pytest.raises(SettingWrong, match=r"LARGESSE_BRIDGES=b: has to be \[https://\]HOST:PORT"):
        read_node_settings(Settings(), {"LARGESSE_BRIDGES": "b"})


def test_an_address_that_is_none_is_refused():
    with pytest.raises(SettingWrong, match=r"LARGESSE_ADVERTISE=n: has to be \[https://\]HOST:PORT"):
        read_node_settings(Settings(metrics_port=9464), {"LARGESSE_ADVERTISE": "n"})


def test_limits_of_tasks_come_from_the_environment():
    node = read_node_settings(
        Settings(),
        {
            "LARGESSE_NODE_CGROUP": "/sys/fs/cgroup/mine",
            "LARGESSE_NODE_CPU_LIMIT": "share",
            "LARGESSE_NODE_TASK_PIDS": "0",
            "LARGESSE_NODE_OUTPUT_MIB": "1",
            "LARGESSE_NODE_KEPT_FREE_MIB": "2",
        },
    )

    assert (node.cgroup, node.cpu_limit, node.task_pids) == ("/sys/fs/cgroup/mine", "share", 0)
    assert (node.output_bytes, node.kept.free_bytes) == (1 << 20, 2 << 20)


def test_what_is_not_set_is_as_the_settings_have_it_themselves():
    node, plain = read_node_settings(Settings(), {}), NodeSettings("n", Path())

    names = ("cgroup", "cpu_limit", "memory_limit", "task_pids", "output_bytes", "kept", "room")
    assert [getattr(node, name) for name in names] == [getattr(plain, name) for name in names]


def test_each_job_has_a_number_of_its_own_wherever_and_whenever_it_is_started(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    users = read_task_user({"LARGESSE_TASK_USER": "100000-2000000000"})

    assert users == TaskUsers(100_000, 2_000_000_000)
    one, other = users.of(7), users.of(8)
    assert (one.uid, one.gid, one.groups) == (100_007, 100_007, (100_007,))
    assert (users.of(7), other.uid) == (one, 100_008)


@for_all(st.integers(1, 2**32 - 3), st.integers(0, 10_000), st.integers(0, 2**53))
def test_numbers_stay_within_those_that_were_given_and_repeat_a_multiple_of_them_apart(first, more, seq):
    users = TaskUsers(first, first + more)

    assert first <= users.of(seq).uid <= first + more
    assert users.of(seq) == users.of(seq + more + 1)
    assert more == 0 or users.of(seq) != users.of(seq + more)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ("0-5", "from 1 to"),
        ("9-8", "from 1 to"),
        ("100000-4294967294", "from 1 to"),
        ("1-2000000000", "of this machine has one of these numbers"),
    ],
)
def test_numbers_that_could_be_somebody_are_refused(monkeypatch, numbers, words):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(SettingWrong, match=f"LARGESSE_TASK_USER={numbers}: .*{words}"):
        read_task_user({"LARGESSE_TASK_USER": numbers})
