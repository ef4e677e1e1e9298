"""A whole cell on a broker that asks, with what `make secrets` makes: each service is a principal of its own and does
its part over mutual TLS, also where instances are killed; jobs of a foreign client and over HTTPS with a token run to
their end, what they print is read by who may, and who only reads verifies the log.
"""

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer

from largesse.bus.kafka.acls import put_rights, rules_there
from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.rights import compared
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import TopicsAdmin
from largesse.known_cells import Cell, add_cell
from schemas import NodeRegistered, TokenMade
from schemas.principals import PRINCIPALS
from schemas.topics import ROUTER_JOBS
from services.cli.secrets_folder import PEER_NAME, make_secrets
from tests.contract.kafka_rig import put_right_at_once
from tests.contract.secure_rig import secure_broker
from tests.live.kafka_cell import READY_SECONDS, KafkaCell
from tests.mosquitto import mosquitto
from tests.secure_kafka import ADMIN, SecureBroker
from tests.unit.cli_process import largesse

__all__ = ["mosquitto"]  # The fixture.

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells")]

COPIES = {
    "bridge": 1, "admission": 2, "fairness": 2, "altruism": 2, "leftover": 2, "estimator": 1, "planner": 1,
    "gateway": 1, "router": 2, "agent": 2,
}  # fmt: skip
JOBS, ROUTED = 14, 3
"""By each of two ways, and by way of the router: 31 jobs."""
VICTIMS = {0: "admission-0", 2: "altruism-1", 4: "leftover-0", 6: "fairness-0", 8: "gateway-0", 10: "bridge-0"}
LATE = "fairness-1"
HIDDEN = "LARGESSE_KAFKA_"


class SecureCell(KafkaCell):
    """Every process comes as its service; `agent-1` reaches the MQTT broker alone."""

    def __init__(self, broker: SecureBroker, folder: Path, mqtt: str, secrets: Path) -> None:
        self._broker, self._mqtt, self._secrets = broker, mqtt, secrets
        super().__init__(broker.secure, 0, "secure", folder, COPIES)
        self.bus = KafkaBus(broker.cluster("reader"))
        self.publishing = KafkaBus(broker.cluster("client"))

    @property
    def url(self) -> str:
        return f"kafkas://{self.address}/{self.name}"

    def _environment(self, service: str, name: str, port: int) -> dict[str, str]:
        said = super()._environment(service, name, port) | dict(self._broker.environment(service))
        said |= self._peer(service)
        if service == "gateway":
            served = str(self._secrets / "gateway.pem")
            said |= {"LARGESSE_TLS_CERT_FILE": served, "LARGESSE_TLS_KEY_FILE": served}
            said["LARGESSE_BRIDGES"] = f"https://127.0.0.1:{self.members['bridge-0'].port}"
        if service == "bridge":
            said["LARGESSE_MQTT"] = self._mqtt
        if name == "agent-1":
            said = {key: text for key, text in said.items() if not key.startswith(HIDDEN)}
            said["LARGESSE_BUS"] = self._mqtt
        return said

    def _peer(self, service: str) -> dict[str, str]:
        file = str(self._secrets / "peers" / f"{service}.pem")
        return {
            "LARGESSE_PEER_CERT_FILE": file,
            "LARGESSE_PEER_KEY_FILE": file,
            "LARGESSE_PEER_CA_FILE": str(self._secrets / "ca.pem"),
            "LARGESSE_PEER_NAME": PEER_NAME,
        }

    def trust(self, peer: str = "") -> ssl.SSLContext:
        """What the cell's authority has signed; `peer`: as whom, at a port that asks for a certificate."""
        context = ssl.create_default_context(cafile=str(self._secrets / "ca.pem"))
        if peer:
            context.load_cert_chain(self._secrets / "peers" / f"{peer}.pem")
        return context

    async def get(self, port: int, path: str) -> tuple[int, str]:
        """As KafkaCell does, over TLS, as the one who monitors."""
        try:
            async with httpx.AsyncClient(verify=self.trust("monitor"), timeout=READY_SECONDS) as http:
                answer = await http.get(f"https://127.0.0.1:{port}{path}")
            return answer.status_code, answer.text
        except (httpx.HTTPError, OSError):
            return 0, ""

    def has(self, kind: type, count: int = 1) -> bool:
        """Whether the log has so many records of a type."""
        return sum(isinstance(accepted.record.body, kind) for accepted in self.records) >= count

    def complaints(self) -> list[str]:
        """Lines in which a process says that it may not do something."""
        logs = [(self.folder / f"{name}.log").read_text() for name in self.members]
        return [line for log in logs for line in log.splitlines() if "may not" in line or "uthoriz" in line]


def job(name: str) -> dict[str, Any]:
    stages = [
        {"stage": "map", "tasks": 4, "demand": {"cpu": "500m"}, "command": ["sh", "-c", "echo said"], "retries": 5},
        {"stage": "reduce", "after": ["map"], "tasks": 1, "demand": {"cpu": "1"}, "command": ["true"], "retries": 5},
    ]
    return {"job": name, "stages": stages}


@pytest.fixture
def broker(tmp_path):
    with secure_broker(tmp_path / "kafka", [each.name for each in PRINCIPALS]) as own:
        asyncio.run(put_right_at_once(own.address, TOPICS.values(), cells=1))
        asyncio.run(given(own))
        yield own


async def given(broker: SecureBroker) -> None:
    async with TopicsAdmin(broker.cluster(ADMIN)) as admin, asyncio.timeout(READY_SECONDS):
        await put_rights(admin.client, prune=True, check=False)
        while compared(await rules_there(admin.client)) != ([], []):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def published(broker: SecureBroker, document: dict[str, Any], topic: str = "jobs") -> None:
    """By a program that knows nothing of Largesse but the topic."""
    async with AIOKafkaProducer(**broker.cluster("client").options()) as producer:
        await producer.send_and_wait(topic, json.dumps(document).encode(), partition=0)


async def listed(broker: SecureBroker, cell: SecureCell) -> None:
    """Has the router know of the cell."""
    bus = KafkaBus(broker.cluster("operator"))
    assert await add_cell(bus, Cell(cell.name, 0))
    await bus.close()


def test_each_service_does_its_part_with_the_rights_of_its_principal(broker, mosquitto, tmp_path):
    token = tmp_path / "admin.token"
    make_secrets(tmp_path / "secrets")
    operator = dict(broker.environment("operator"))

    async def story() -> str:
        cell = SecureCell(broker, tmp_path / "cell", f"mqtt://127.0.0.1:{mosquitto.port}", tmp_path / "secrets")
        async with cell:
            soon = [name for name in cell.members if name != LATE]
            cell.start(*(cell.members[name] for name in soon))
            made = await asyncio.to_thread(
                largesse, "token", "make", "admin", "--user", "ann", "--role", "admin", "--out", token,
                "--bus", operator["LARGESSE_BUS"], **operator, LARGESSE_CELL=cell.name,
            )  # fmt: skip
            assert made.code == 0, made.err
            assert cell.has(TokenMade)
            await listed(broker, cell)
            await cell.ready(*soon)
            await cell.until(lambda: cell.has(NodeRegistered, 2), READY_SECONDS)
            async with httpx.AsyncClient(
                base_url=f"https://127.0.0.1:{cell.http}",
                verify=cell.trust(),
                headers={"Authorization": f"Bearer {token.read_text().strip()}"},
                timeout=READY_SECONDS,
            ) as http:
                config = {"set": {"altruism_shards": 2, "node_lease_ms": 60_000}}
                assert (await http.put("/v1/config", json=config)).status_code < 300
                for number in range(JOBS):
                    await published(broker, job(f"foreign-{number}"))
                    answer = await http.post("/v1/jobs", json=job(f"http-{number}"))
                    assert answer.status_code < 300, answer.text
                    if number == 5:
                        cell.start(cell.members[LATE])
                        await cell.ready(LATE)
                    if number in VICTIMS:
                        cell.members[VICTIMS[number]].kill()
                        if VICTIMS[number] == "gateway-0":
                            await asyncio.sleep(1)
                            await cell.ready("gateway-0")
                for number in range(ROUTED):
                    await published(broker, job(f"anywhere-{number}"), ROUTER_JOBS)
                    if number == 1:
                        cell.members["router-0"].kill()
                await cell.until(lambda: len(cell.ended) == 2 * JOBS + ROUTED, READY_SECONDS)
                assert set(cell.ended.values()) == {"succeeded"}
                printed = [await http.get(f"/v1/tasks/http-0/map/{index}/logs") for index in range(4)]
                assert [(each.status_code, each.text) for each in printed] == [(200, "said\n")] * 4
            for member in ("agent-0", "agent-1", "bridge-0", "planner-0", "router-1"):
                with pytest.raises(httpx.HTTPError):
                    async with httpx.AsyncClient(verify=cell.trust()) as stranger:
                        await stranger.get(f"https://127.0.0.1:{cell.members[member].port}/metrics")
            assert cell.complaints() == []
            assert {name: member.own_accord for name, member in cell.members.items() if member.own_accord} == {}
            assert set((await cell.drain()).values()) == {0}
            assert cell.complaints() == []
            await cell.publishing.close()
        return cell.url

    url = asyncio.run(story())
    for name in list(os.environ):
        assert not name.startswith(HIDDEN)
    verified = largesse("replay", url, "--verify", **dict(broker.environment("reader")))
    assert verified.code == 0, json.dumps([verified.out, verified.err])
    routed = largesse("replay", f"{url.rpartition('/')[0]}/.router", "--verify", **dict(broker.environment("reader")))
    assert (routed.code, "alike" in routed.out) == (0, True), json.dumps([routed.out, routed.err])
    refused = largesse("replay", url, "--verify", **dict(broker.environment("client")))
    assert refused.code != 0
    assert "User:client may not see topic cluster.log" in refused.err.replace("\n", " ")
