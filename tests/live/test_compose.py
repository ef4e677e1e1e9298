"""The whole cell as docker-compose.yml describes it, on a real engine: it comes up, works, is scaled and killed, ends.

The commands are those of docs/kafka.md, word for word.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.docker, pytest.mark.slow]

BUILD_SECONDS = 900
"""Fetching the images and building ours may be a part of it."""
MONITORING = "--profile observability"
FIRST_TASK_SECONDS = 90
"""Promised from the command to the first task, with the images there."""
ASK_SECONDS = 180
AGENTS = 3
STANDBYS = {"admission": 2, "leftover": 2, "altruism": 2}
SCALES = [word for name, count in STANDBYS.items() for word in ("--scale", f"{name}={count}")]


@dataclass(frozen=True, slots=True)
class Cell:
    """A running project of its own, on ports of its own. `folder`: has the command `largesse`."""

    project: str
    folder: Path
    http: int = field(default_factory=free_port)
    kafka: int = field(default_factory=free_port)

    @property
    def environment(self) -> dict[str, str]:
        """What the page's commands need to mean this cell and this checkout."""
        return os.environ | {
            "COMPOSE_PROJECT_NAME": self.project,
            "LARGESSE_HTTP_PORT": str(self.http),
            "LARGESSE_KAFKA_PORT": str(self.kafka),
            "LARGESSE_URL": f"http://127.0.0.1:{self.http}",
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }

    def run(self, command: str, said: str | None = None, timeout: int = ASK_SECONDS) -> str:
        """A command line in this checkout; what it printed."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=self.environment,
            input=said,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def containers(self) -> dict[str, dict[str, Any]]:
        """Name -> what the engine says of it: State, Health, ExitCode."""
        listed = self.run("docker compose ps --all --format json")
        return {each["Name"].removeprefix(f"{self.project}-"): each for each in map(json.loads, listed.splitlines())}

    def nodes(self) -> dict[str, str]:
        """Name -> state."""
        return {each["node"]: each["state"] for each in json.loads(self.run("largesse get nodes --json"))}

    def ready(self) -> set[str]:
        """Nodes that take tasks."""
        return {name for name, state in self.nodes().items() if state == "ready"}

    def job(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run(f"largesse get job {name} --json"))
        return document

    def knows(self, name: str) -> bool:
        """Whether the cell has a job of that name."""
        return bool(self.run(f"largesse get job {name} --json || true"))

    def submit(self, name: str, tasks: int, command: str) -> None:
        stages = [
            {"stage": "map", "tasks": tasks, "demand": {"cpu": "500m"}, "command": ["sh", "-c", command], "retries": 3},
            {"stage": "reduce", "after": ["map"], "tasks": 1, "demand": {"cpu": "1"}, "command": ["true"]},
        ]
        assert self.run("largesse submit -", said=json.dumps({"job": name, "stages": stages})) == f"{name}\n"

    def until(self, holds: Any, what: str) -> Any:
        """Waits until it holds; returns what it said."""
        over = monotonic() + ASK_SECONDS
        while not (said := holds()):
            assert monotonic() < over, (
                f"not within {ASK_SECONDS} s: {what}\n{self.run('docker compose logs --tail 20')}"
            )
            sleep(0.2)
        return said


@pytest.fixture(scope="module")
def engine() -> None:
    try:
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60, check=False)
        engine = subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        pytest.skip("no Docker here")
    if asked.returncode or engine.returncode:
        pytest.skip("no Docker engine that answers, or no `docker compose`")


@pytest.fixture(scope="module")
def built(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """A cell that has its image, and is not up yet."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "largesse").write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli.main "$@"\n')
    (folder / "largesse").chmod(0o755)
    cell = Cell(f"largesse-test-{os.getpid()}", folder)
    try:
        cell.run("docker compose build", timeout=BUILD_SECONDS)
        yield cell
    finally:
        cell.run("make down DATA=1")


@pytest.fixture(scope="module")
def cell(built: Cell) -> Cell:
    """A cell that is up, with a second instance of most services."""
    built.run("make up", timeout=BUILD_SECONDS)
    built.run(f"docker compose up --detach --wait --no-recreate {' '.join(SCALES)}", timeout=BUILD_SECONDS)
    return built


def test_the_first_task_runs_soon_after_the_start(built, capsys):
    cell, begun = built, monotonic()
    with subprocess.Popen(["make", "up"], cwd=ROOT, env=cell.environment, stdout=-3, stderr=-3) as up:

        def asks(command: str, said: str) -> Any:
            with suppress(AssertionError):
                return cell.run(command, said)
            return None

        spec = {
            "job": "first",
            "stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "command": ["sleep", "9"]}],
        }
        cell.until(lambda: asks("largesse submit -", json.dumps(spec)), "a job is taken")
        cell.until(lambda: cell.job("first")["state"] == "running", "its task runs")
        took = monotonic() - begun
        with capsys.disabled():
            print(f"\nthe first task ran {took:.0f} s after `make up`, with the image built")
        assert up.wait(BUILD_SECONDS) == 0
    assert took < FIRST_TASK_SECONDS


def test_every_container_is_healthy_and_every_job_of_the_start_has_ended(cell):
    containers = cell.containers()

    assert {name for name, said in containers.items() if said["Health"] == "healthy"} == {
        *(f"{name}-{number + 1}" for name, count in STANDBYS.items() for number in range(count)),
        *(f"{name}-1" for name in ("kafka", "fairness", "estimator", "planner", "gateway")),
        *(f"agent-{number + 1}" for number in range(AGENTS)),
    }
    for name in ("topics-1", "config-1"):
        assert (containers[name]["State"], containers[name]["ExitCode"]) == ("exited", 0)


def test_every_node_is_named_after_its_host(cell):
    hosts = [cell.run(f"docker compose exec -T --index {number + 1} agent hostname") for number in range(AGENTS)]

    assert cell.nodes() == {host.strip(): "ready" for host in hosts}


def test_a_job_runs_on_the_nodes_and_what_it_prints_is_read_from_there(cell):
    cell.submit("hello", 6, "echo $LARGESSE_TASK_INDEX on $LARGESSE_NODE; echo oh >&2")
    cell.run("largesse watch hello")
    ran = [cell.run(f"largesse logs hello/map/{index}").split(" on ") for index in range(6)]

    assert [index for index, _ in ran] == [str(index) for index in range(6)]
    assert {node.strip() for _, node in ran} <= cell.ready()
    assert cell.run("largesse logs hello/map/0 --stderr") == "oh\n"


def test_four_shards_are_dealt_out_between_two_instances(cell):
    said = cell.run("docker compose logs --no-log-prefix altruism")

    for shard in range(4):
        assert f'"service": "altruism-{shard}"' in said


def test_what_an_operator_sets_outlives_another_up(cell):
    def shards() -> int:
        return int(json.loads(cell.run("largesse config show"))["set"]["altruism_shards"])

    assert shards() == 4
    cell.run("largesse config apply -", said='{"set": {"altruism_shards": 3}}')
    assert "configured before" in cell.run("docker compose run --rm -T config")
    cell.run(f"docker compose up --detach --wait --no-recreate {' '.join(SCALES)}")
    assert shards() == 3
    cell.run("largesse config apply -", said='{"set": {"altruism_shards": 4}}')


@pytest.mark.parametrize("number", [1, 2])
def test_the_other_instance_takes_over_from_one_that_is_killed(cell, number):
    killed = " ".join(f"{cell.project}-{service}-{number}" for service in STANDBYS)
    cell.run(f"docker kill {killed}")
    cell.submit(f"without-{number}", 6, "true")
    cell.run(f"largesse watch without-{number}")

    cell.run(f"docker start {killed}")
    cell.run(f"docker compose up --no-recreate --detach --wait {' '.join(SCALES)}")


def test_nodes_come_and_go_while_a_job_runs(cell):
    before = cell.ready()
    cell.submit("steady", 150, "sleep 1; echo $LARGESSE_TASK_INDEX")
    cell.run(f"docker compose up --detach --wait --scale agent=5 {' '.join(SCALES)}")
    more = cell.until(lambda: found if len(found := cell.ready()) == 5 else None, "five nodes")
    assert before < more
    cell.run("largesse watch steady")

    cell.submit("long", 40, "sleep 10")
    cell.until(lambda: cell.job("long")["stages"][0]["tasks"]["running"] == 40, "all of its tasks run")
    cell.run(f"docker compose up --detach --wait --scale agent=2 {' '.join(SCALES)}")
    nodes = cell.nodes()
    assert sorted(nodes[name] for name in more) == ["left", "left", "left", "ready", "ready"]

    cell.run("largesse watch long")
    job = cell.job("long")
    assert {failed["reason"] for failed in job["failures"]} == {"lost"}
    assert {failed["node"] for failed in job["failures"]} == more - cell.ready()
    cell.run(f"docker compose up --detach --wait --scale agent={AGENTS} {' '.join(SCALES)}")


def test_a_node_that_is_started_again_is_the_same_with_what_its_tasks_left(cell):
    cell.submit("kept", 30, "echo $LARGESSE_NODE")
    cell.run("largesse watch kept")
    ran = [cell.run(f"largesse logs kept/map/{index}").strip() for index in range(30)]
    node = sorted(cell.ready())[0]
    index = ran.index(node)
    epoch = {each["node"]: each["epoch"] for each in json.loads(cell.run("largesse get nodes --json"))}[node]

    cell.run(f"docker restart --time 10 {node}")

    def again() -> Any:
        found = {each["node"]: each for each in json.loads(cell.run("largesse get nodes --json"))}[node]
        return found["state"] == "ready" and found["epoch"] != epoch

    cell.until(again, "the node is registered again")
    assert cell.run(f"largesse logs kept/map/{index}").strip() == node


def test_what_a_task_prints_is_followed_from_a_node_that_dies_to_the_next(cell):
    cell.submit("talk", 1, "echo attempt $LARGESSE_ATTEMPT on $LARGESSE_NODE; sleep 5; echo done")
    cell.until(lambda: cell.job("talk")["stages"][0]["tasks"]["running"], "it runs")
    follow = ["largesse", "logs", "talk/map/0", "--follow"]
    with subprocess.Popen(follow, cwd=ROOT, env=cell.environment, stdout=-1, stderr=-1, text=True) as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        node = first.split()[-1]
        cell.run(f"docker kill {node}")
        out, err = following.communicate(timeout=ASK_SECONDS)
    cell.run(f"docker start {node}")

    assert (first, following.returncode) == (f"attempt 1 on {node}\n", 0)
    assert re.fullmatch(r"attempt 2 on \w+\ndone\n", out)
    assert node not in out
    assert "(still trying)" in err
    cell.until(lambda: node in cell.ready(), "the node is back")


def test_the_commands_of_the_page(cell):
    (block,) = re.findall(r"```sh\n(make up .*?make down.*?)```", (ROOT / "docs" / "kafka.md").read_text(), re.DOTALL)
    first, *commands, last = block.replace("\\\n", "").splitlines()
    assert (first.split()[:2], last.split()[:2]) == (["make", "up"], ["make", "down"])

    others = [command for command in commands if MONITORING not in command]
    said = {command: cell.run(command.replace("9094", str(cell.kafka))) for command in others}

    assert "same" in next(said[command] for command in others if "replay" in command)
    assert re.fullmatch(r"task 0 on \w+\n", next(said[command] for command in others if "logs" in command))
    assert len(cell.ready()) == 5
    cell.run(f"docker compose up --detach --wait --scale agent={AGENTS} {' '.join(SCALES)}")


def test_the_profile_with_prometheus_and_grafana_comes_up(cell):
    (command,) = [line for line in (ROOT / "docs" / "kafka.md").read_text().splitlines() if MONITORING in line]
    had = subprocess.run(["bash", "-c", f"docker compose {MONITORING} pull prometheus grafana"], cwd=ROOT, check=False)
    if had.returncode:
        pytest.skip("the images of Prometheus and Grafana are not here, and cannot be pulled")
    cell.run(command, timeout=BUILD_SECONDS)
    cell.run("docker compose rm --stop --force prometheus grafana")


def test_nodes_behind_a_broker_work_on_when_it_and_bridges_and_nodes_are_killed(cell):
    (command,) = re.findall(r"`(docker compose --profile edge up [^`]*)`", (ROOT / "docs" / "mqtt.md").read_text())
    image = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["mosquitto"]["image"]
    here = f"docker image inspect {image} || docker pull {image}"
    if subprocess.run(["bash", "-c", here], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("the image of mosquitto is not here, and cannot be pulled")
    edge = {"edge-a", "edge-b"}
    try:
        cell.run(f"{command} --no-recreate {' '.join(SCALES)}", timeout=BUILD_SECONDS)
        cell.until(lambda: edge <= cell.ready(), "both nodes are there")
        cell.submit("edge", 150, "sleep 1; echo $LARGESSE_TASK_INDEX on $LARGESSE_NODE")
        for service in ("bridge", "mosquitto", "edge-a"):
            cell.run(f"docker compose --profile edge kill --signal KILL {service}")
            cell.run(f"docker compose --profile edge start {service}")
        cell.run("largesse watch edge", timeout=BUILD_SECONDS)

        ran = [cell.run(f"largesse logs edge/map/{index}").split(" on ") for index in range(150)]
        assert [index for index, _ in ran] == [str(index) for index in range(150)]
        assert edge <= {node.strip() for _, node in ran}, "what they print is read by way of a bridge"
        nodes = {each["node"]: each["reached"] for each in json.loads(cell.run("largesse get nodes --json"))}
        assert {name for name, reached in nodes.items() if reached == "bridge"} == edge
    finally:
        cell.run("docker compose --profile edge rm --stop --force edge-a edge-b bridge mosquitto passwords")


def test_a_router_sends_jobs_to_the_cell_and_another_one_takes_over(cell):
    kafka = "docker compose exec -T kafka /opt/kafka/bin"
    stage = {"stage": "s", "tasks": 2, "demand": {"cpu": "1"}, "command": ["true"]}
    names = [f"anywhere-{number}" for number in range(6)]
    try:
        cell.run("docker compose exec -T gateway largesse cell add default")
        up = f"docker compose --profile cells up --detach --wait --scale router=2 {' '.join(SCALES)}"
        cell.run(up, timeout=BUILD_SECONDS)
        for number, name in enumerate(names):
            cell.run(
                f"{kafka}/kafka-console-producer.sh --bootstrap-server kafka:9092 --topic router.jobs",
                said=json.dumps({"job": name, "stages": [stage]}),
            )
            if number == 2:
                cell.run(f"docker kill {cell.project}-router-1")
        for name in names:
            cell.until(lambda name=name: cell.knows(name), f"{name} has come to the cell")
            cell.run(f"largesse watch {name}")
        said = cell.run(f"largesse cell routes --verify --bus kafka://127.0.0.1:{cell.kafka}")
        assert "alike" in said
        beats = cell.run(f"{kafka}/kafka-get-offsets.sh --bootstrap-server kafka:9092 --topic beats")
        assert int(beats.strip().rpartition(":")[2]) > 0, "nodes and the sequencer say that they live"
    finally:
        cell.run("docker compose --profile cells rm --stop --force router")


def test_whoever_is_killed_the_job_ends_and_the_log_decides_itself_again(cell):
    cell.submit("patient", 40, "echo $LARGESSE_TASK_INDEX; sleep 1")
    for service in ("leftover", "altruism", "kafka", "fairness", "admission"):
        cell.run(f"docker compose kill --signal KILL {service}")
        cell.run(f"docker compose start {service}")
    cell.run("largesse watch patient")

    said = [cell.run(f"largesse logs patient/map/{index}") for index in range(40)]
    assert said == [f"{index}\n" for index in range(40)]
    assert "same" in cell.run(f"largesse replay kafka://127.0.0.1:{cell.kafka}/default --verify")


def test_every_service_ends_in_order_when_it_is_asked_to(cell):
    cell.run("docker compose stop --timeout 10")

    ended = {name: said["ExitCode"] for name, said in cell.containers().items() if not name.startswith("kafka")}
    assert dict.fromkeys(ended, 0) == ended, cell.run("docker compose logs --tail 20")
