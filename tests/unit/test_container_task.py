"""What an attempt's container is made of, and what a node allows in it; no engine is asked."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from largesse.lifecycle.node_work import HeldAttempt, Start
from largesse.settings import Settings, SettingWrong
from schemas import Container, DeviceShare, Mount, Stage
from services.agent.container_settings import AllowedMount, ContainerSettings, read_containers
from services.agent.container_task import container_document, container_name
from services.agent.engine import NODE, About
from services.agent.executors.container import CONTAINER, ContainerExecutor
from services.agent.executors.process import PROCESS, Guarded
from services.agent.local import Local, NotStarted
from services.agent.outbox import Name
from services.agent.settings import NodeSettings, TaskUsers, read_node_settings

KEY = "1.2/jobs/j/5-e.1/s/3.1"
DOCKER = About("Docker", "1", groups=True, init=True)


def document(container=None, settings=None, about=DOCKER, devices=(), **stage):
    settings = settings or NodeSettings("n", Path("/data"), cell="c")
    each = Stage("s", 10, **{"demand": {"cpu": 500, "memory": 256}, "command": ["run", "it"]} | stage)
    each = replace(each, container=container or Container("image"))
    start = Start("j/s/3/1", HeldAttempt("j", "s", 3, 1, 5, "e.1", list(devices)), each)
    return container_document(start, settings, KEY, Path("/data/jobs/j/5-e.1/s/3.1"), about)


def refusal(container, settings):
    with pytest.raises(NotStarted) as why:
        document(container, settings)
    assert why.value.reason == "cannot_start"
    return str(why.value)


def allowing(*mounts, **more):
    return NodeSettings("n", Path("/data"), containers=ContainerSettings("auto", mounts), **more)


def test_the_command_runs_in_place_of_the_images_and_begins_in_the_results_folder():
    made = document()
    assert (made["Image"], made["Entrypoint"], made["Cmd"]) == ("image", ["run", "it"], [])
    assert made["WorkingDir"] == "/largesse/results"
    results = {
        "Type": "bind",
        "Source": "/data/jobs/j/5-e.1/s/3.1/work",
        "Target": "/largesse/results",
        "ReadOnly": False,
    }
    assert made["HostConfig"]["Mounts"] == [results]
    assert document(cwd="/app")["WorkingDir"] == "/app"
    assert "User" not in made


def test_inputs_are_seen_and_cannot_be_written_to():
    (_, inputs) = document(inputs=["map"])["HostConfig"]["Mounts"]
    assert (inputs["Source"], inputs["Target"], inputs["ReadOnly"]) == (
        "/data/jobs/j/5-e.1/#inputs",
        "/largesse/inputs",
        True,
    )


def test_a_container_has_its_own_variables_and_none_of_the_agents(monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("PASSED", "2")
    settings = NodeSettings("n", Path("/data"), pass_env=("PASSED",))
    env = dict(each.split("=", 1) for each in document(settings=settings, env={"MODE": "fast"}, inputs=["m"])["Env"])
    assert env["LARGESSE_RESULTS"], env["LARGESSE_INPUTS"] == ("/largesse/results", "/largesse/inputs")
    assert (env["MODE"], env["PASSED"], env["LARGESSE_TASK_INDEX"], env["LARGESSE_JOB"]) == ("fast", "2", "3", "j")
    assert {"SECRET", "PATH", "HOME"}.isdisjoint(env)


def test_a_container_is_held_to_what_the_task_asks_for():
    host = document(Container("image", shm_mib=64, read_only_root=True))["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (256 << 20, 256 << 20, 4096)
    assert (host["CpuQuota"], host["CpuPeriod"], host["CpuShares"]) == (50_000, 100_000, 512)
    assert (host["ShmSize"], host["ReadonlyRootfs"], host["Tmpfs"]) == (64 << 20, True, {"/tmp": ""})
    assert host["RestartPolicy"] == {"Name": "no"}
    free = NodeSettings("n", Path("/data"), cpu_limit="none", memory_limit="none", task_pids=0)
    assert {"Memory", "CpuQuota", "CpuShares", "PidsLimit"}.isdisjoint(document(settings=free)["HostConfig"])


def test_labels_name_cell_node_job_task_and_attempt():
    labels = document()["Labels"]
    assert labels[NODE] == "1.2"
    named = [labels[f"largesse.{each}"] for each in ("cell", "node", "job", "stage", "task", "number")]
    assert named == ["c", "n", "j", "s", "3", "1"]
    assert labels["largesse.attempt"] == KEY


def test_each_attempt_has_a_container_of_its_own_and_a_group_where_the_engine_puts_it():
    assert container_name(KEY) != container_name(KEY.replace("3.1", "3.2"))
    assert document()["HostConfig"]["CgroupParent"].startswith("/docker/largesse-")
    assert "CgroupParent" not in document(about=About("Podman", "4", groups=False, init=True))["HostConfig"]


def test_a_task_sees_its_own_gpus_by_the_places_that_they_have_in_its_container(monkeypatch, tmp_path):
    shares = [DeviceShare(2, 1000), DeviceShare(5, 1000)]
    monkeypatch.setattr("services.agent.container_task.GPUS", tmp_path / "none")
    declared = document(devices=shares)
    assert "CUDA_VISIBLE_DEVICES=2,5" in declared["Env"]
    assert "DeviceRequests" not in declared["HostConfig"]
    monkeypatch.setattr("services.agent.container_task.GPUS", tmp_path)
    real = document(devices=shares)
    assert "CUDA_VISIBLE_DEVICES=0,1" in real["Env"]
    (request,) = real["HostConfig"]["DeviceRequests"]
    assert (request["DeviceIDs"], request["Capabilities"]) == (["2", "5"], [["gpu"]])


def test_only_what_the_node_allows_is_mounted(tmp_path):
    for name in ("open", "open/in", "shut", "openly"):
        (tmp_path / name).mkdir()
    (tmp_path / "open" / "way").symlink_to(tmp_path / "shut")
    node = allowing(AllowedMount(f"{tmp_path}/open"))

    (_, mount) = document(Container("i", [Mount(f"{tmp_path}/open/in", "/in")]), node)["HostConfig"]["Mounts"]

    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (f"{tmp_path}/open/in", "/in", True)
    for name in ("shut", "openly", "open/way", "open/in/../../shut", "."):
        assert "does not let containers mount" in refusal(Container("i", [Mount(f"{tmp_path}/{name}", "/in")]), node)
    assert "only read" in refusal(Container("i", [Mount(f"{tmp_path}/open", "/in", False)]), node)
    assert "there is no" in refusal(Container("i", [Mount(f"{tmp_path}/open/not", "/in")]), node)
    writable = allowing(AllowedMount(f"{tmp_path}/open", writable=True))
    assert not document(Container("i", [Mount(f"{tmp_path}/open", "/in", False)]), writable)["HostConfig"]["Mounts"][1][
        "ReadOnly"
    ]


def test_a_network_has_to_be_allowed():
    assert refusal(Container("i", network="host"), allowing()) == "node n does not allow network host"
    assert document(Container("i", network="none"), allowing())["HostConfig"]["NetworkMode"] == "none"


def test_where_the_node_has_task_users_a_container_runs_as_one_and_may_do_nothing_more():
    node = allowing(task_user=TaskUsers(100_000, 200_000))
    made = document(Container("i"), node)
    assert made["User"] == "100005:100005"
    assert made["HostConfig"]["CapDrop"] == ["ALL"]
    assert "decides itself" in refusal(Container("i", user="0"), node)
    assert document(Container("i", user="7:8"))["User"] == "7:8"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, ContainerSettings("auto")),
        ({"LARGESSE_NODE_ENGINE": "off"}, ContainerSettings("off")),
        (
            {"LARGESSE_NODE_ENGINE": "unix:///run/p.sock", "LARGESSE_NODE_MOUNTS": "/a/,/b:rw"},
            ContainerSettings("unix:///run/p.sock", (AllowedMount("/a"), AllowedMount("/b", writable=True))),
        ),
        ({"LARGESSE_NODE_NETWORKS": "host"}, ContainerSettings("auto", networks=("host",))),
    ],
)
def test_an_agent_reads_how_it_runs_containers(environment, found):
    assert read_containers(environment) == found
    assert read_node_settings(Settings(), {"LARGESSE_NODE": "n", **environment}).containers == found


@pytest.mark.parametrize(
    ("name", "text"),
    [("NODE_ENGINE", "tcp://host"), ("NODE_MOUNTS", "data"), ("NODE_NETWORKS", "bridge,hosts")],
)
def test_what_is_wrong_with_them_is_said(name, text):
    with pytest.raises(SettingWrong, match=f"LARGESSE_{name}"):
        read_containers({f"LARGESSE_{name}": text})


@pytest.mark.parametrize("engine", ["off", "unix:///nowhere/at/all.sock"])
def test_a_node_without_an_engine_offers_no_containers_and_says_so(engine, tmp_path):
    executor = ContainerExecutor(NodeSettings("n", tmp_path, containers=ContainerSettings(engine)), None)
    executor.open()
    executor.settle({})
    assert executor.labels() == {}
    assert executor.limits_text().startswith("no containers (")


@pytest.mark.parametrize(
    ("engine", "runs", "level"),
    [
        ("auto", "", "info"),
        ("auto", PROCESS, "info"),
        ("auto", CONTAINER, "warning"),
        ("unix:///nowhere/at/all.sock", "", "warning"),
    ],
)
def test_a_missing_engine_is_a_warning_only_where_one_was_named_or_used(engine, runs, level, tmp_path, monkeypatch):
    monkeypatch.setattr("services.agent.engine.DOCKER_SOCKET", str(tmp_path / "none.sock"))
    executor = ContainerExecutor(NodeSettings("n", tmp_path, containers=ContainerSettings(engine)), None)
    folder = tmp_path / "jobs/j/5-e/s/0.1"
    local = Local("j/s/0/1", Name("j", "s", 0, 1), 5, folder, runs, "running", Guarded(pid=1))

    with capture_logs() as logs:
        executor.settle({"j/s/0/1": local} if runs else {})

    assert [row["log_level"] for row in logs] == [level]
