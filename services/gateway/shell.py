"""The gateway as a process: follows the log of the bus that the environment names, and serves HTTP.

`LARGESSE_HTTP`: where it listens, `127.0.0.1:8642` by default. As long as the cell has no token, everybody who reaches
the gateway may do everything: then it listens on a loopback address only, unless `LARGESSE_OPEN=1` says that something
else keeps others away.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import FastAPI

from largesse.bridges import read_bridges
from largesse.bus.port import Bus
from largesse.hosts import Hosts, is_loopback
from largesse.settings import PREFIX, Settings, SettingWrong, served_hosts
from largesse.telemetry import logger
from largesse.tls import Peers, read_pair, read_peers, server_tls
from services.gateway.access.callers import Caller, may_submit
from services.gateway.access.oidc import VARIABLES as OIDC
from services.gateway.access.oidc import Oidc, read_oidc
from services.gateway.follow import Follower
from services.gateway.http.api import Routing
from services.gateway.http.app import make_app
from services.gateway.http.cell_choice import CellChoice
from services.gateway.http.guard import Budget
from services.gateway.http.routing import by_routes
from services.gateway.http.serve import bound, serve
from services.gateway.routed import Routed
from services.gateway.served_cells import ServedCells

if TYPE_CHECKING:
    from services.gateway.access.jwts import Jwts

HTTP_DEFAULT = "127.0.0.1:8642"

VARIABLES = {
    "HTTP": (
        HTTP_DEFAULT,
        "address on which the gateway listens, HOST:PORT; not only a loopback address once the cell has a token",
    ),
    "BRIDGES": (
        "none",
        "where bridges answer for nodes over MQTT, [https://]HOST:PORT with LARGESSE_METRICS_PORT, commas between",
    ),
    "OPEN": (
        "",
        "1: it listens on any address although the cell has no token: whoever reaches it may do everything there",
    ),
    "ROUTED": (
        "",
        "1: of a gateway of all cells: jobs that name no cell go to the router, and are found where it has sent them",
    ),
    "TLS_CERT_FILE": (
        "none",
        "file with the certificate of the gateway, and those above it, in PEM: it then serves HTTPS only",
    ),
    "TLS_KEY_FILE": ("none", "file with the key of that certificate, in PEM, without a passphrase"),
    "USER": ("unknown", "author of requests that name none"),
    **OIDC,
}
"""What only the gateway reads, by name without the prefix: default and what it is."""
PORT_MAX = 65_535

FIRST_TOKEN = "largesse token make admin --user USER --role admin --out FILE --bus {bus}"
OPEN_REFUSED = (
    f"{PREFIX}HTTP={{address}}: the cell has no token, so whoever reaches that address may do everything. "
    f"`{FIRST_TOKEN}` makes the first one, and `export {PREFIX}TOKEN_FILE=FILE` has commands use it; or listen on"
    f" {HTTP_DEFAULT} ({PREFIX}OPEN=1 serves an open cell all the same)"
)


@dataclass(frozen=True, slots=True)
class Http:
    """How a gateway is asked. `author`: of requests that name none. `is_open`: a cell without a token is served, too,
    where others reach it. `tls`: with which it is served; `issued`: JWTs that count; `peers`: TLS with agents."""

    host: str
    port: int
    hosts: Hosts
    bridges: tuple[str, ...]
    author: str
    is_open: bool
    tls: ssl.SSLContext | None
    issued: "Jwts | None"
    peers: Peers | None


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Until `stop`. Raises SettingWrong, PortTaken, CoreStopped, DecisionGap, BusError."""
    host, port = read_address()
    hosts = served_hosts(settings, host)
    bridges = read_bridges()
    is_open = read_open()
    pair = read_pair("TLS_CERT_FILE", "TLS_KEY_FILE")
    tls = None if pair is None else server_tls(pair)
    peers = read_peers(settings)
    oidc = read_oidc()
    issued = None if oidc is None else await _begun(oidc)
    author = os.environ.get(f"{PREFIX}USER", "unknown")
    if settings.cells:
        await _run_cells(bus, settings, stop, Http(host, port, hosts, bridges, author, is_open, tls, issued, peers))
        return
    follower = Follower(bus, settings, stop=stop)

    async def served() -> None:
        if issued is None and not is_loopback(host):
            await _check_closed(follower, f"{host}:{port}", is_open=is_open)
        app = make_app(follower, author=author, hosts=hosts, bridges=bridges, issued=issued, peers=peers)
        if not stop.is_set():
            logger(service="gateway").info("listens", address=f"{host}:{port}", tls=tls is not None)
            await serve(app, listening or bound(host, port), stop, tls=tls)

    # Who may do what is known once the log has been read: until then nobody else's address is taken.
    listening = bound(host, port) if is_loopback(host) else None
    await _until_one_ends([asyncio.ensure_future(part) for part in (follower.run(), served())], stop)


async def _until_one_ends(parts: list[asyncio.Future[None]], stop: asyncio.Event) -> None:
    """Has all end in order once one has. Raises what that raised."""
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()
    finally:
        stop.set()
        await asyncio.gather(*parts, return_exceptions=True)


async def _begun(oidc: Oidc) -> "Jwts":
    from services.gateway.access.jwts import begun  # It takes long to import, and most gateways have no issuer.

    return await begun(oidc)


async def _run_cells(bus: Bus, settings: Settings, stop: asyncio.Event, http: Http) -> None:
    """All cells of the deployment. Raises PortTaken, BusError."""
    budget = Budget()

    async def admit(follower: Follower) -> None:
        if http.issued is None and not is_loopback(http.host):
            await _check_closed(follower, f"{http.host}:{http.port}", is_open=http.is_open)

    def made(follower: Follower) -> FastAPI:
        return make_app(
            follower,
            author=http.author,
            hosts=http.hosts,
            bridges=http.bridges,
            issued=http.issued,
            peers=http.peers,
            budget=budget,
            cells=cells.document,
            routing=routing,
        )

    def may_go(caller: Caller, queue: str) -> list[str]:
        return [
            name for name, app in sorted(cells.apps().items()) if may_submit(app.state.api.door.callers, caller, queue)
        ]

    routed = Routed(bus, settings.wait_ms)
    routing = Routing(routed, may_go)
    cells = ServedCells(bus, settings, admit, made)
    choice = CellChoice(cells.app_of, cells.known, settings.cell, by_routes(routed) if read_routed() else None)
    parts = [cells.run(stop), routed.run(stop), serve(choice, bound(http.host, http.port), stop, tls=http.tls)]
    await _until_one_ends([asyncio.ensure_future(part) for part in parts], stop)


async def _check_closed(follower: Follower, address: str, *, is_open: bool) -> None:
    """Waits until the log has been read. Raises SettingWrong where the cell has no token, unless it is to be open."""
    while not follower.ready and not follower.stop.is_set():
        await follower.changed(1)
    if follower.stop.is_set() or follower.state.tokens_made:
        return
    if not is_open:
        raise SettingWrong(OPEN_REFUSED.format(address=address, bus=follower.address))
    logger(service="gateway").warning(
        f"OPEN CELL: it has no token, so whoever reaches {address} may do everything; {PREFIX}OPEN=1 allows that",
        fix=FIRST_TOKEN.format(bus=follower.address),
    )


def read_open(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a cell without a token may be served to others. Raises SettingWrong."""
    return _read_switch("OPEN", environment)


def read_routed(environment: Mapping[str, str] | None = None) -> bool:
    """Whether jobs that name no cell go to the router. Raises SettingWrong."""
    return _read_switch("ROUTED", environment)


def _read_switch(name: str, environment: Mapping[str, str] | None) -> bool:
    text = (os.environ if environment is None else environment).get(f"{PREFIX}{name}", "")
    if text not in ("", "0", "1"):
        raise SettingWrong(f"{PREFIX}{name}={text}: has to be 1, or 0")
    return text == "1"


def read_address(environment: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Host and port to listen on. Raises SettingWrong."""
    text = (os.environ if environment is None else environment).get(f"{PREFIX}HTTP", HTTP_DEFAULT)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise SettingWrong(f"{PREFIX}HTTP={text}: write HOST:PORT, like {HTTP_DEFAULT}")
    return host.strip("[]"), int(port)
