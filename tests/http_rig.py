"""A gateway on a port of this machine with every service behind it, and clients that say what they like, in bytes."""

import asyncio
import json
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from largesse import shell
from largesse.bus.memory import MemoryBus
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.tls import server_tls
from schemas.policy import LEASE_MS_MAX
from services.admission import sequencer as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.gateway.follow import Follower
from services.gateway.http import api
from services.gateway.http.app import make_app
from services.gateway.http.connections import Door, Limits
from services.gateway.http.dry_runs import config as dry_run
from services.gateway.http.serve import bound, serve
from services.leftover import core as leftover
from services.planner import core as planner

TLS = None
"""Files of a certificate, where a whole module of stories is told over TLS."""

GUARD_S = 240
"""Ends a story that hangs."""
HOST = "127.0.0.1"
PATIENT = Limits(head_s=GUARD_S, body_s=GUARD_S, body_grace_s=GUARD_S, idle_s=GUARD_S, stall_s=GUARD_S)
"""Times that no machine is too slow for. A story that is about one moves the clock on."""
JOB = {"job": "j", "stages": [{"stage": "s", "tasks": 2, "command": ["true"], "demand": {"cpu": "1"}}]}
NODE = {"register": {"node": "n1", "epoch": "e1", "capacity": {"cpu": "4", "memory": "8Gi"}, "address": ""}}


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def document(self):
        return json.loads(self.body)


class Client:
    """One connection. `host`: what its requests call the server."""

    def __init__(self, reader, writer, host):
        self.reader, self.writer, self.host = reader, writer, host

    async def say(self, data: bytes):
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, method, path, *, body=b"", **headers):
        """One request, with a Host of its own unless `host` says otherwise."""
        await self.say(request(method, path, **{"host": self.host, "body": body} | headers))
        return await self.answer()

    async def head(self):
        """Status and headers of the next answer; None: the server has closed the connection."""
        try:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), headers

    async def answer(self):
        """The next answer; None: the server has closed the connection."""
        head = await self.head()
        if head is None:
            return None
        status, headers = head
        return Answer(status, headers, await self.reader.readexactly(int(headers["content-length"])))

    async def is_closed(self):
        """Waits until the server has closed the connection; what it still says is passed over."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self):
        self.writer.close()


def request(method, path, host, *, body=b"", **headers):
    fields = {"host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body:
        fields.setdefault("content-length", str(len(body)))
        fields.setdefault("content-type", "application/json")
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body


class Served:
    """A gateway that listens at `port`. `ahead_s`: how far the clock of its limits is ahead; a story may move it.
    `trust`: with what clients verify its certificate."""

    ahead_s = 0.0
    trust = None

    def __init__(self, port, bus, follower, door, app):
        self.port, self.bus, self.follower, self.door = port, bus, follower, door
        self.watching, self.places = app.state.api.watching, app.state.api.watchers
        self.callers, self.failures = app.state.api.door.callers, app.state.api.door.failures
        self.change_places = app.state.api.change_places
        self.what_ifs = app.state.api.what_ifs
        self._clients = []

    async def connect(self, host=None, *, source=None):
        """`source`: the address from which it comes."""
        local = None if source is None else (source, 0)
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=self.trust, local_addr=local)
        client = Client(reader, writer, host or f"{HOST}:{self.port}")
        self._clients.append(client)
        return client

    async def connect_deaf(self):
        """A connection whose client takes hardly anything until it is asked to read; returns its socket."""
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.setblocking(False)
        self._clients.append(deaf)
        await asyncio.get_running_loop().sock_connect(deaf, (HOST, self.port))
        return deaf if self.trust is None else await self._secured(deaf)

    async def _secured(self, connected):
        secured = self.trust.wrap_socket(connected, server_hostname=HOST, do_handshake_on_connect=False)
        self._clients.append(secured)
        while True:
            try:
                secured.do_handshake()
                return secured
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                await asyncio.sleep(0.005)

    async def ask(self, method, path, **request):
        """One request on a connection of its own."""
        client = await self.connect()
        try:
            return await client.ask(method, path, **request)
        finally:
            client.close()

    async def submit(self, name="j", **more):
        return await self.ask("POST", "/v1/jobs", body=json.dumps(JOB | {"job": name} | more).encode())

    def close(self):
        for client in self._clients:
            client.close()


@asynccontextmanager
async def gateway(*, address=HOST, hosts=None, limits=None, send_buffer=None, tls=None, issued=None):
    """A cell with one node, served over a socket. `send_buffer`: bytes that the kernel keeps of an answer. `tls`: files
    of a certificate. `issued`: JWTs that count."""
    bus, stop = MemoryBus(), asyncio.Event()
    settings = Settings(bus="file:memory")
    follower = Follower(bus, settings, stop=stop)
    # No agent reports: the node is never lost, however long a story takes.
    await publish_input(bus.writer(), "config", {"set": {"node_lease_ms": LEASE_MS_MAX}}, "tester")
    await publish_input(bus.writer(), "nodes", NODE, "n1")
    listening = bound(address, 0)
    if send_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # Connections inherit it.
    clock = asyncio.get_running_loop().time
    tls = tls or TLS
    door = Door(limits or PATIENT, clock, None if tls is None else server_tls(tls.pair))
    app = make_app(follower, author="tester", hosts=hosts, issued=issued)
    running = [follower.run(), admission.run(bus, settings, stop=stop), serve(app, listening, stop, door)]
    running += [
        shell.run(core, bus, settings, stop=stop) for core in (fairness, altruism, leftover, estimator, planner)
    ]
    tasks = [asyncio.ensure_future(each) for each in running]
    served = Served(listening.getsockname()[1], bus, follower, door, app)
    served.trust = None if tls is None else tls.trust()
    door.clock = lambda: clock() + served.ahead_s
    patch = pytest.MonkeyPatch()
    patch.setattr(api, "ANSWER_WAIT_S", GUARD_S)  # Wall-clock time, which a busy machine may use up.
    patch.setattr(dry_run, "EFFECT_WAIT_S", GUARD_S)
    try:
        assert await follower.until(lambda view: "n1" in view.nodes, GUARD_S)
        await until(lambda: follower.ready)
        yield served
    finally:
        patch.undo()
        served.close()
        stop.set()
        await asyncio.gather(*tasks)


def run_over_http(story, **given):
    """Runs a story with a gateway and returns what it returns."""

    async def run():
        async with asyncio.timeout(GUARD_S), gateway(**given) as served:
            return await story(served)

    return asyncio.run(run())


async def until(holds):
    """Waits until something holds; GUARD_S ends it where it never does."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)
