"""A Kafka broker that asks who is there: TLS with a certificate of an authority made for it, SCRAM-SHA-512, and KRaft's
StandardAuthorizer, which allows nothing that no rule allows.

It has a listener without TLS beside it, by which tests ask as a superuser, and which stands for a cluster without any
of this.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import trustme

from largesse.bus.kafka.cluster import CA_FILE, PASSWORD_FILE, USER, Access, Cluster
from tests.kafka_broker import SCRIPT, Broker
from tests.ports import free_port

KAFKA_HOME = Path(os.environ.get("KAFKA_HOME", f"/opt/kafka-{os.environ.get('KAFKA_VERSION', '4.1.0')}"))
FORMAT_SECONDS = 120
ADMIN = "admin"


class SecureBroker(Broker):
    """One broker under `folder`, with users. `address`: of the listener without TLS; `secure`: of the other one."""

    def __init__(self, folder: Path, users: Iterable[str], heap: str = "384m") -> None:
        super().__init__(folder, heap=heap)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.plain_port, self.port, controller = free_port(), free_port(), free_port()
        self.secure = f"127.0.0.1:{self.port}"
        authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = authority.issue_cert("127.0.0.1")
        key = subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-nocrypt"],
            input=certificate.private_key_pem.bytes(),
            capture_output=True,
            check=True,
        ).stdout
        (folder / "broker.pem").write_bytes(key + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        self.users = {name: f"password of {name}" for name in (ADMIN, *users)}
        for name, password in self.users.items():
            (folder / f"{name}.password").write_text(f"{password}\n")
            (folder / f"{name}.password").chmod(0o600)
        (folder / "server.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in self._settings(controller).items())
        )

    def _settings(self, controller: int) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.plain_port},SASL_SSL://127.0.0.1:{self.port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
        }

    def start(self) -> None:
        """Starts it, or starts it again. Raises CalledProcessError and TimeoutExpired."""
        if not (self.folder / "data").exists():
            subprocess.run([SCRIPT, "fetch"], check=True, capture_output=True)
            self._format()
        super().start()

    def _format(self) -> None:
        adds = [f"--add-scram=SCRAM-SHA-512=[name={name},password={text}]" for name, text in self.users.items()]
        command = ["java", "-Xmx256m", "-cp", f"{KAFKA_HOME}/libs/*", "kafka.tools.StorageTool", "format"]
        command += ["-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(self.folder / "server.properties"), *adds]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def access(self, user: str) -> Access:
        """How a user comes in."""
        return Access(user, str(self.folder / f"{user}.password"), str(self.ca_file))

    def cluster(self, user: str) -> Cluster:
        """The listener with TLS, as a user sees it."""
        return Cluster(self.secure, True, self.access(user))

    def environment(self, user: str) -> Mapping[str, str]:
        """What a process needs to come as a user."""
        access = self.access(user)
        return {
            "LARGESSE_BUS": f"kafkas://{self.secure}",
            USER: access.user,
            PASSWORD_FILE: access.password_file,
            CA_FILE: access.ca_file,
        }
