"""The cell in containers where everybody proves who they are (docker-compose.secure.yml), on a real engine: jobs of a
foreign client and over HTTP with a token end while services are scaled, killed and started again.
"""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from largesse.bus.kafka.cluster import Access, Cluster
from services.cli.secrets_folder import make_secrets
from tests.conftest import ROOT
from tests.live.test_compose import BUILD_SECONDS, SCALES, Cell, engine

__all__ = ["engine"]  # The fixture.

pytestmark = [pytest.mark.docker, pytest.mark.slow]

JOBS = 31
FILES = "docker-compose.yml:docker-compose.secure.yml"
SECRETS = ROOT / "secrets"


class SecureCell(Cell):
    """As Cell, with the folder of secrets of this checkout."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {
            "COMPOSE_FILE": FILES,
            "LARGESSE_URL": f"https://127.0.0.1:{self.http}",
            "LARGESSE_CA_FILE": str(SECRETS / "ca.pem"),
            "LARGESSE_TOKEN_FILE": str(SECRETS / "admin.token"),
        }

    def access(self, user: str) -> Access:
        return Access(user, str(SECRETS / "kafka" / f"{user}.password"), str(SECRETS / "ca.pem"))

    def cluster(self, user: str) -> Cluster:
        return Cluster(f"127.0.0.1:{self.kafka}", True, self.access(user))

    def as_user(self, user: str) -> str:
        """In front of a command."""
        access = self.access(user)
        return (
            f"LARGESSE_KAFKA_USER={user} LARGESSE_KAFKA_PASSWORD_FILE={access.password_file} "
            f"LARGESSE_KAFKA_CA_FILE={access.ca_file} "
        )


@pytest.fixture(scope="module")
def cell(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCell]:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "largesse").write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli.main "$@"\n')
    (folder / "largesse").chmod(0o755)
    make_secrets(SECRETS)
    up = SecureCell(f"largesse-secure-{os.getpid()}", folder)
    try:
        up.run("make up SECURE=1", timeout=BUILD_SECONDS)
        up.run(f"docker compose up --detach --wait --no-recreate {' '.join(SCALES)}", timeout=BUILD_SECONDS)
        yield up
    finally:
        up.run("make down SECURE=1 DATA=1")


def job(name: str) -> dict[str, Any]:
    stages = [
        {"stage": "map", "tasks": 4, "demand": {"cpu": "500m"}, "command": ["sh", "-c", "sleep 1"], "retries": 5},
        {"stage": "reduce", "after": ["map"], "tasks": 1, "demand": {"cpu": "1"}, "command": ["true"], "retries": 5},
    ]
    return {"job": name, "stages": stages}


def publish(cell: SecureCell, name: str, topic: str = "jobs") -> None:
    async def story() -> None:
        async with AIOKafkaProducer(**cell.cluster("client").options()) as producer:
            await producer.send_and_wait(topic, json.dumps(job(name)).encode(), partition=0)

    asyncio.run(story())


def test_jobs_end_whoever_is_killed_and_who_only_reads_verifies_the_log(cell):
    names = [f"job-{number}" for number in range(JOBS)]
    troubles = {
        4: f"docker kill {cell.project}-admission-1 {cell.project}-leftover-2",
        8: f"docker compose up --detach --no-recreate --scale agent=5 {' '.join(SCALES)}",
        12: f"docker kill {cell.project}-altruism-1 {cell.project}-fairness-1",
        16: f"docker start {cell.project}-admission-1 {cell.project}-leftover-2",
        20: "docker compose restart --timeout 10 kafka",
        24: f"docker start {cell.project}-altruism-1 {cell.project}-fairness-1",
        27: "docker compose restart --timeout 10 gateway",
    }
    for number, name in enumerate(names):
        if number in troubles:
            cell.run(troubles[number], timeout=BUILD_SECONDS)
            for each in ("kafka-1", "gateway-1"):
                cell.until(lambda each=each: cell.containers()[each]["Health"] == "healthy", f"{each} is there")
        if number % 2:
            publish(cell, name)
        else:
            assert cell.run("largesse submit -", said=json.dumps(job(name))) == f"{name}\n"
    for name in names:
        cell.run(f"largesse watch {name}", timeout=BUILD_SECONDS)
    assert {cell.job(name)["state"] for name in names} == {"succeeded"}
    said = cell.run(cell.as_user("reader") + f"largesse replay --verify kafkas://127.0.0.1:{cell.kafka}/default")
    print(said)


def test_a_router_with_a_principal_of_its_own_sends_jobs_that_name_no_cell(cell):
    bus = f"--bus kafkas://127.0.0.1:{cell.kafka}"
    try:
        cell.run(cell.as_user("admin") + f"largesse cell add default {bus}")
        up = f"docker compose --profile cells up --detach --wait --scale agent=5 --scale router=2 {' '.join(SCALES)}"
        cell.run(up, timeout=BUILD_SECONDS)
        names = [f"anywhere-{number}" for number in range(6)]
        for number, name in enumerate(names):
            publish(cell, name, "router.jobs")
            if number == 2:
                cell.run(f"docker kill {cell.project}-router-1")
        for name in names:
            cell.until(lambda name=name: cell.knows(name), f"{name} has come to the cell")
            cell.run(f"largesse watch {name}", timeout=BUILD_SECONDS)
        said = cell.run(cell.as_user("reader") + f"largesse cell routes --verify {bus}")
        assert "alike" in said
        logged = cell.run("docker compose --profile cells logs --no-color router")
        assert "may not" not in logged
    finally:
        cell.run("docker compose --profile cells rm --stop --force router")


def test_without_a_token_nothing_is_told(cell):
    denied = cell.run("env -u LARGESSE_TOKEN_FILE largesse get jobs 2>&1 || true")

    assert "token" in denied


def test_a_task_reads_neither_the_agents_password_nor_its_memory(cell):
    look = "cat /run/largesse/*; cat /proc/*/environ | tr '\\0' '\\n' | grep LARGESSE_KAFKA; true"
    spec = {
        "job": "curious",
        "stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "command": ["sh", "-c", look]}],
    }
    cell.run("largesse submit -", said=json.dumps(spec))
    cell.run("largesse watch curious")

    assert cell.run("largesse logs curious/s/0").strip() == ""
    assert "Permission denied" in cell.run("largesse logs curious/s/0 --stderr")


def test_no_secret_is_in_an_image_or_in_what_containers_log(cell):
    logged = cell.run("docker compose logs --no-color")
    described = cell.run("docker compose config")
    for path in SECRETS.rglob("*"):
        if path.is_file() and path.suffix in (".password", ".token"):
            assert path.read_text().strip() not in logged + described
    assert cell.run("docker compose run --rm --no-deps --entrypoint sh -T fairness -c 'ls /run/largesse'").split() == [
        "ca.pem",
        "kafka.password",
        "peer.pem",
    ]


ASKS = "exec 3<>/dev/tcp/127.0.0.1/9464; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"


def test_what_tasks_print_is_read_through_the_gateway_and_not_from_the_ports(cell):
    cell.submit("said", 4, f"echo from $LARGESSE_NODE; bash -c {shlex.quote(ASKS)}; id -u")
    cell.run("largesse watch said")

    said = [cell.run(f"largesse logs said/map/{index}").splitlines() for index in range(4)]
    # No HTTP is spoken on the port, and its handshake asks for a certificate that no task can read.
    assert all(len(lines) == 2 and lines[0].startswith("from ") for lines in said), said
    assert {int(lines[1]) for lines in said} != {0}
    cell.submit("more", 1, "id -u")
    cell.run("largesse watch more")
    (other,) = cell.run("largesse logs more/map/0").split()
    assert other not in {lines[1] for lines in said}, "each job is a user of its own"
    asks = "import urllib.request as u; u.urlopen('http://agent:9464/metrics')"
    refused = cell.run(f"docker compose exec -T planner python -c {shlex.quote(asks)} 2>&1 || true")
    assert "RemoteDisconnected" in refused or "reset" in refused or "closed" in refused


def test_nodes_over_mqtt_work_over_tls(cell):
    edge = {"edge-a", "edge-b"}
    try:
        cell.run(
            "docker compose --profile edge up --detach --scale bridge=2 " + " ".join(SCALES), timeout=BUILD_SECONDS
        )
        cell.until(lambda: edge <= cell.ready(), "both nodes are there")
        cell.submit("edge", 60, "sleep 1; cat /run/mqtt/secret; echo $LARGESSE_TASK_INDEX on $LARGESSE_NODE")
        cell.run("docker compose --profile edge kill --signal KILL bridge")
        cell.run("docker compose --profile edge start bridge")
        cell.run("largesse watch edge", timeout=BUILD_SECONDS)
        ran = [cell.run(f"largesse logs edge/map/{index}") for index in range(60)]
        assert [int(said.split(" on ")[0]) for said in ran] == list(range(60)), "the password is read by no task"
        assert edge <= {said.split(" on ")[1].strip() for said in ran}, "what they print is read by way of a bridge"
        log = cell.run("docker compose --profile edge logs --no-color mosquitto")
        assert "8883" in log
        assert "port 1883" not in log, "nothing is spoken without TLS"
    finally:
        cell.run("docker compose --profile edge rm --stop --force edge-a edge-b bridge mosquitto passwords")
