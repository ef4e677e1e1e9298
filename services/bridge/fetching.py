"""Passes on results between nodes that do not reach each other: one asks for what was handed on to it, and the bridge
asks the agent of the node that has it, over MQTT or where that says that it can be reached.

One question has one answer of limited size, and the bridge keeps nothing of it; who wants more asks for what follows.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl

from largesse.agents_http import NoAnswer, asked
from largesse.lifecycle.node_work import State
from largesse.mqtt.pages import reply_to
from largesse.mqtt.parts import dumps
from largesse.mqtt.port import MqttError, Session
from largesse.mqtt.topics import NameWrong, ask_topic, fetched_topic, fetcher_of
from largesse.task_output import NODE
from largesse.task_results import WantedResults, path_of, wanted_of
from largesse.telemetry import BRIDGE_FETCHED
from largesse.tls import Peers
from schemas.edge.base import Malformed
from schemas.edge.mqtt import NodeFetch, NodeReply, read_fetch
from services.bridge.asking import ANSWER_MS, Asking
from services.bridge.handed import HandedOn
from services.bridge.intake import Refusal
from services.bridge.pace import Pace, cost_ms

AT_ONCE = 32
"""Questions whose answers are waited for at a time; an answer may have 175 KB."""
OF_NODE_AT_ONCE = 2
"""Of them to one node: as many as its agent answers at a time."""
BY_NODE_MAX = 8
"""Questions of one node that are open: its agent has four."""
HTTP_AT_ONCE = 8
PIECE_BYTES = 128 << 10
"""Of a file in one answer."""
HEARD_MS = 600_000
"""A node that has reported over MQTT within so long is asked over MQTT, wherever it says that it can be reached."""
HEARD_MAX = 100_000


@dataclass(slots=True)
class _Turns:
    """Of questions to one node. `users`: how many wait for one, or have one."""

    free: asyncio.Semaphore
    users: int = 0


class Fetching:
    """Passes on for one bridge. `state`: what the log says so far. `peers`: its TLS among agents."""

    def __init__(self, cell: str, asking: Asking, state: Callable[[], State], peers: Peers | None = None) -> None:
        self._peers = peers
        self._cell, self._asking, self._state = cell, asking, state
        self._handed = HandedOn()
        self._heard_ms: dict[str, int] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of: dict[str, _Turns] = {}
        self._open = Counter[str]()
        self._pace = Pace(_mono_ms())
        self._pool = ThreadPoolExecutor(HTTP_AT_ONCE, thread_name_prefix="results")
        self._under_way: dict[asyncio.Task[None], None] = {}

    def close(self) -> None:
        """Passes on nothing more."""
        for task in list(self._under_way):
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def reported(self, node: str) -> None:
        """A node has been heard over MQTT."""
        self._heard_ms.pop(node, None)
        self._heard_ms[node] = _mono_ms()
        if len(self._heard_ms) > HEARD_MAX:
            del self._heard_ms[next(iter(self._heard_ms))]

    def hear(self, topic: str, payload: bytes) -> None:
        """A node has asked. Raises Refusal."""
        fetch, wanted = self._judged(fetcher_of(topic, self._cell), payload)
        session = self._asking.session
        if session is None:
            return  # It asks again.
        if self._open[fetch.node] >= BY_NODE_MAX:
            raise Refusal("busy", f"has asked {BY_NODE_MAX} questions that are not answered yet")
        self._open[fetch.node] += 1
        task = asyncio.ensure_future(self._pass_on(session, fetch, wanted))
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._ended(done, fetch.node))

    def _ended(self, task: "asyncio.Task[None]", node: str) -> None:
        del self._under_way[task]
        self._open[node] -= 1
        if not self._open[node]:
            del self._open[node]

    def _judged(self, node: str | None, payload: bytes) -> tuple[NodeFetch, WantedResults]:
        """What a node asks, where it may. Raises Refusal."""
        try:
            fetch = read_fetch(payload)
        except Malformed as fault:
            raise Refusal("malformed", str(fault)) from None
        if (fetch.cell, fetch.node) != (self._cell, node):
            raise Refusal("name", f"names node {fetch.node} of cell {fetch.cell} on the topic of node {node}")
        path, _, query = fetch.path.partition("?")
        try:
            wanted = wanted_of(path, dict(parse_qsl(query)))
        except ValueError as fault:
            raise Refusal("malformed", f"path: {fault}") from None
        if wanted is None or not self._handed.is_for(self._state(), fetch.node, fetch.of, wanted):
            raise Refusal("handed", f"asks for what was not handed on to it: {fetch.path:.200} of node {fetch.of}")
        return fetch, wanted

    async def _pass_on(self, session: Session, fetch: NodeFetch, wanted: WantedResults) -> None:
        outcome = "silent"
        try:
            with self._turns_to(fetch.of) as turns:
                async with asyncio.timeout(fetch.within_ms / 1_000), turns, self._turns:
                    await asyncio.sleep(self._pace.wait_ms(_mono_ms()) / 1_000)
                    payload, outcome = await self._answer(session, fetch, wanted)
                    self._pace.charge(cost_ms(len(payload)), _mono_ms())
                    await session.publish(fetched_topic(self._cell, fetch.node), payload)
        except (TimeoutError, MqttError):
            pass  # It asks again, or nobody any more.
        finally:
            BRIDGE_FETCHED.labels(outcome).inc()

    @contextmanager
    def _turns_to(self, node: str) -> Iterator[asyncio.Semaphore]:
        turns = self._turns_of.setdefault(node, _Turns(asyncio.Semaphore(OF_NODE_AT_ONCE)))
        turns.users += 1
        try:
            yield turns.free
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns_of[node]

    async def _answer(self, session: Session, fetch: NodeFetch, wanted: WantedResults) -> tuple[bytes, str]:
        """The message that answers, and a word for the metric. Raises MqttError."""
        address = self._state().addresses.get(fetch.of)
        is_near = _mono_ms() - self._heard_ms.get(fetch.of, -HEARD_MS) < HEARD_MS
        try:
            if address and not is_near:
                return await self._asked_over_http(fetch, wanted, address), "answered"
            ask_topic(self._cell, fetch.of)
            _, payload = await self._asking.ask(session, fetch.of, path_of(wanted), fetch.id, ANSWER_MS)
            return payload, "answered"
        except (NameWrong, NoAnswer) as why:
            return self._says(fetch, str(why)), "silent"
        except TimeoutError:
            return self._says(fetch, f'node "{fetch.of}" has not answered over MQTT within {ANSWER_MS} ms'), "silent"

    async def _asked_over_http(self, fetch: NodeFetch, wanted: WantedResults, address: str) -> bytes:
        """Raises NoAnswer."""
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, asked, address, fetch.of, path_of(wanted), self._peers
        )
        found = await work
        body = found.body if wanted.file is None else found.body[:PIECE_BYTES]
        headers = {name: text for name, text in found.headers.items() if name.startswith("Largesse-") and name != NODE}
        try:
            return dumps(reply_to(self._cell, fetch.of, fetch.id, found.status, headers, body))
        except ValueError:
            raise NoAnswer(f"{address}: an answer that cannot be passed on") from None

    def _says(self, fetch: NodeFetch, why: str) -> bytes:
        """Why there is no answer."""
        reply: NodeReply = reply_to(self._cell, fetch.of, fetch.id, 503, {}, why.encode())
        return dumps(reply)


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000
