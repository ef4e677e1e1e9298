"""The whole cell as docker-compose.yml describes it, on a real engine: it comes up, works, is killed, and ends."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.live, pytest.mark.slow]

UP_SECONDS = 900
"""Fetching the images and building ours may be a part of it."""
ASK_SECONDS = 120
STANDBYS = {"admission": 2, "leftover": 2, "altruism": 2}
SCALES = [word for name, count in STANDBYS.items() for word in ("--scale", f"{name}={count}")]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Cell:
    """A running project of its own, on ports of its own."""

    project: str
    http: int
    kafka: int

    def compose(self, *arguments: str, timeout: int = ASK_SECONDS) -> str:
        ports = {"LARGESSE_HTTP_PORT": str(self.http), "LARGESSE_KAFKA_PORT": str(self.kafka)}
        done = subprocess.run(
            ["docker", "compose", "--project-name", self.project, *arguments],
            cwd=ROOT,
            env=os.environ | ports,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"docker compose {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def containers(self) -> dict[str, dict[str, Any]]:
        """Name -> what the engine says of it: State, Health, ExitCode."""
        told = self.compose("ps", "--all", "--format", "json")
        return {each["Name"].removeprefix(f"{self.project}-"): each for each in map(json.loads, told.splitlines())}

    def largesse(self, *arguments: str, said: str | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "services.cli.main", *arguments],
            cwd=ROOT,
            env=os.environ | {"LARGESSE_URL": f"http://127.0.0.1:{self.http}"},
            input=said,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"largesse {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def lines(self, path: str) -> list[str]:
        """What lies in this file on any of the nodes."""
        read = f"cat {path} 2>/dev/null || true"
        return [
            line
            for number in (1, 2, 3)
            for line in self.compose("exec", "-T", f"node-{number}", "sh", "-c", read).splitlines()
        ]

    def submit(self, name: str, tasks: int, command: str) -> None:
        stages = [
            {"stage": "map", "tasks": tasks, "demand": {"cpu": "500m"}, "command": ["sh", "-c", command], "retries": 3},
            {"stage": "reduce", "after": ["map"], "tasks": 1, "demand": {"cpu": "1"}, "command": ["true"]},
        ]
        assert self.largesse("submit", "-", said=json.dumps({"job": name, "stages": stages})) == f"{name}\n"


@pytest.fixture(scope="module")
def cell() -> Iterator[Cell]:
    try:
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60, check=False)
        engine = subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        pytest.skip("no Docker here")
    if asked.returncode or engine.returncode:
        pytest.skip("no Docker engine that answers, or no `docker compose`")
    cell = Cell(f"largesse-test-{os.getpid()}", free_port(), free_port())
    try:
        cell.compose("up", "--build", "--detach", "--wait", *SCALES, timeout=UP_SECONDS)
        yield cell
    finally:
        cell.compose("down", "--volumes", "--timeout", "10")


def test_every_container_is_healthy_and_every_job_of_the_start_has_ended(cell):
    containers = cell.containers()

    assert {name for name, said in containers.items() if said["Health"] == "healthy"} == {
        *(f"{name}-{number + 1}" for name, count in STANDBYS.items() for number in range(count)),
        *(f"{name}-1" for name in ("kafka", "fairness", "estimator", "planner", "gateway")),
        *(f"node-{number}-1" for number in (1, 2, 3)),
    }
    for name in ("topics-1", "config-1"):
        assert (containers[name]["State"], containers[name]["ExitCode"]) == ("exited", 0)


def test_every_node_is_named_after_its_host(cell):
    nodes = json.loads(cell.largesse("get", "nodes", "--json"))

    assert sorted((each["node"], each["state"]) for each in nodes) == [(f"node-{n}", "ready") for n in (1, 2, 3)]


def test_a_job_runs_on_the_nodes(cell):
    cell.submit("hello", 6, "echo $LARGESSE_TASK_INDEX on $LARGESSE_NODE >>/data/hello")
    cell.largesse("watch", "hello")
    ran = dict(line.split(" on ") for line in cell.lines("/data/hello"))

    assert sorted(ran) == [str(index) for index in range(6)]
    assert set(ran.values()) <= {"node-1", "node-2", "node-3"}


def test_four_shards_are_dealt_out_between_two_instances(cell):
    said = cell.compose("logs", "--no-log-prefix", "altruism")

    for shard in range(4):
        assert f'"service": "altruism-{shard}"' in said


@pytest.mark.parametrize("number", [1, 2])
def test_the_other_instance_takes_over_from_one_that_is_killed(cell, number):
    killed = [f"{cell.project}-{service}-{number}" for service in STANDBYS]
    subprocess.run(["docker", "kill", *killed], capture_output=True, timeout=ASK_SECONDS, check=True)
    cell.submit(f"without-{number}", 6, "true")
    cell.largesse("watch", f"without-{number}")

    subprocess.run(["docker", "start", *killed], capture_output=True, timeout=ASK_SECONDS, check=True)
    cell.compose("up", "--no-recreate", "--detach", "--wait", *SCALES)


def test_whoever_is_killed_the_job_ends_and_the_log_decides_itself_again(cell):
    cell.submit("patient", 40, "echo $LARGESSE_TASK_INDEX >>/data/patient; sleep 1")
    for service in ("leftover", "altruism", "kafka", "fairness", "admission"):
        cell.compose("kill", "--signal", "KILL", service)
        cell.compose("start", service)
    cell.largesse("watch", "patient")

    assert sorted(cell.lines("/data/patient"), key=int) == [str(index) for index in range(40)]
    assert "same" in cell.largesse("replay", f"kafka://127.0.0.1:{cell.kafka}/default", "--verify")


def test_every_service_ends_in_order_when_it_is_asked_to(cell):
    cell.compose("stop", "--timeout", "10")

    ended = {name: said["ExitCode"] for name, said in cell.containers().items() if not name.startswith("kafka")}
    assert dict.fromkeys(ended, 0) == ended, cell.compose("logs", "--tail", "20")
