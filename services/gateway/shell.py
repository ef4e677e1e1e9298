"""The gateway as a process: follows the log of the bus that the environment names, and serves HTTP.

`LARGESSE_HTTP`: where it listens, `127.0.0.1:8642` by default. To serve other machines, put a proxy in front of it that
authenticates users: the gateway does not verify the header that names them.
"""

import asyncio
import os
from collections.abc import Mapping

from largesse.bridges import read_bridges
from largesse.bus.port import Bus
from largesse.settings import PREFIX, Settings, SettingWrong, served_hosts
from services.gateway.follow import Follower
from services.gateway.http.app import make_app
from services.gateway.http.serve import bound, serve

HTTP_DEFAULT = "127.0.0.1:8642"

VARIABLES = {
    "HTTP": (HTTP_DEFAULT, "address on which the gateway listens, HOST:PORT; it does not authenticate users"),
    "BRIDGES": (
        "none",
        "where bridges answer for nodes over MQTT, HOST:PORT with their LARGESSE_METRICS_PORT, commas between",
    ),
    "USER": ("unknown", "author of requests that name none"),
}
"""What only the gateway reads, by name without the prefix: default and what it is."""
PORT_MAX = 65_535


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Until `stop`. Raises SettingWrong, PortTaken, CoreStopped, DecisionGap, BusError."""
    host, port = read_address()
    hosts = served_hosts(settings, host)
    bridges = read_bridges()
    listening = bound(host, port)
    follower = Follower(bus, settings, stop=stop)
    app = make_app(follower, author=os.environ.get(f"{PREFIX}USER", "unknown"), hosts=hosts, bridges=bridges)
    parts = [asyncio.ensure_future(part) for part in (follower.run(), serve(app, listening, stop))]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()
    finally:
        stop.set()
        await asyncio.gather(*parts, return_exceptions=True)


def read_address(environment: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Host and port to listen on. Raises SettingWrong."""
    text = (os.environ if environment is None else environment).get(f"{PREFIX}HTTP", HTTP_DEFAULT)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise SettingWrong(f"{PREFIX}HTTP={text}: write HOST:PORT, like {HTTP_DEFAULT}")
    return host.strip("[]"), int(port)
