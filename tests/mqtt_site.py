"""The broker of infra/mosquitto with places and passwords of a test, and no TLS, configured as its version wants it."""

import re
from pathlib import Path

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker, MqttOptions
from tests.conftest import ROOT
from tests.mosquitto import Mosquitto, mosquitto_plugins, mosquitto_version
from tests.ports import free_port
from tests.unit.cli_here import largesse

INFRA = ROOT / "infra" / "mosquitto"


class Site:
    """`mosquitto`: the broker, for nodes at its own port and for bridges at `inner_port`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inner_port = folder, free_port()
        name = "mosquitto-2.1.conf" if mosquitto_version() >= (2, 1) else "mosquitto-2.0.conf"
        config = (INFRA / name).read_text()
        config = re.sub("^global_plugin /usr/lib", f"global_plugin {mosquitto_plugins()}", config, flags=re.MULTILINE)
        config = config.replace("/etc/mosquitto/largesse.passwd", str(folder / "passwd"))
        config = config.replace("/etc/mosquitto/largesse.acl", str(INFRA / "largesse.acl"))
        config = re.sub("^(certfile|keyfile|persistence|set_tcp_nodelay) .*\n", "", config, flags=re.MULTILINE)
        config = config.replace("listener 1883", f"listener {self.inner_port}")
        before, _, after = config.partition("listener 8883\n")
        self.mosquitto = Mosquitto(folder, *after.splitlines(), before=before.splitlines(), inner_port=self.inner_port)

    def password(self, user: str) -> None:
        """Gives a user a new one, which lies in `USER.secret` then."""
        bridge = ["--bridge"] if user == "bridge" else []
        files = ["--file", self.folder / "passwd", "--out", self.folder / f"{user}.secret"]
        assert largesse("node", "password", user, *bridge, *files).code == 0

    def broker(self, user: str, *, secret: str | None = None) -> ClientBroker:
        """As that user, with the password that lies there for it or another one."""
        port = self.inner_port if user == "bridge" else self.mosquitto.port
        options = MqttOptions(password_file=str(self.folder / f"{secret or user}.secret"))
        return ClientBroker(read_address(f"mqtt://{user}@127.0.0.1:{port}"), options)
