"""Reads results of tasks from the agents of other nodes: over HTTP where they say that they can be reached, or by a
bridge. Nothing of an answer is believed that `largesse.task_results` does not say. Blocks: made for threads.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from largesse.agents_http import NOT_FOUND, NoAnswer, asked
from largesse.task_results import BadAnswer, FilePiece, Listed, WantedResults, answer_of, path_of
from largesse.tls import Peers
from services.agent.local import mono_ms
from services.agent.task_results import read_results

DETOUR_MS = 60_000
"""For so long an agent that was silent at its address is asked by a bridge."""
DETOURS_MAX = 10_000

Peer = Callable[[str, WantedResults], Listed | FilePiece | None]
"""Asks the agent of a node, given by its name; None: it keeps nothing of that. Raises Silent, NotServed."""


class Silent(Exception):
    """No answer, or none that counts: says why. It may come yet."""


class NotServed(Exception):
    """There is nothing to ask: says why."""


def by_address(address_of: Callable[[str], str | None], bridge: Peer | None = None, peers: Peers | None = None) -> Peer:
    """Asks agents where they say that they can be reached, and by a bridge where they say nothing or are silent there.
    `address_of`: HOST:PORT of a node; "" where its agent does not say, None where the cell does not know the node.
    `bridge`: None where there is none. `peers`: TLS of this process.
    """
    detours: dict[str, int] = {}

    def ask(node: str, wanted: WantedResults) -> Listed | FilePiece | None:
        address = address_of(node)
        if address is None:
            raise NotServed("the node did not come back and is forgotten")
        if bridge is None and not address:
            raise NotServed(
                "its agent does not say where it serves results (LARGESSE_METRICS_PORT), and no bridge is known that "
                "could ask it (LARGESSE_BRIDGES)"
            )
        silent = ""
        if address and (bridge is None or mono_ms() >= detours.get(address, 0)):
            try:
                return _asked(address, node, path_of(wanted), wanted, peers)
            except Silent as why:
                if bridge is None:
                    raise
                silent = f"{why}; "
                _note(detours, address)
        assert bridge is not None
        try:
            return bridge(node, wanted)
        except Silent as why:
            detours.pop(address, None)
            raise Silent(f"{silent}{why}") from None

    return ask


def by_bridges(bridges: tuple[str, ...], peers: Peers | None = None) -> Peer | None:
    """Asks by the first of these bridges, HOST:PORT, that answers; None: there are none."""
    if not bridges:
        return None

    def ask(node: str, wanted: WantedResults) -> Listed | FilePiece | None:
        # Dots too are encoded: a name that is `..` leads nowhere else.
        name = quote(node, safe="").replace(".", "%2E")
        path = f"/v1/nodes/{name}/{path_of(wanted).removeprefix('/v1/')}"
        silent = []
        for bridge in bridges:
            try:
                return _asked(bridge, node, path, wanted, peers)
            except Silent as why:
                silent.append(f"by bridge {why}")
        raise Silent("; ".join(silent))

    return ask


def by_folder(folder_of: Callable[[str], Path]) -> Peer:
    """Reads what agents of the same machine keep. `folder_of`: the data folder of a node."""

    def read(node: str, wanted: WantedResults) -> Listed | FilePiece | None:
        try:
            return read_results(folder_of(node), wanted)
        except OSError as error:
            raise Silent(f"it cannot be read: {error.strerror}") from None

    return read


def found_in(wanted: WantedResults, status: int, headers: Mapping[str, str], body: bytes) -> Listed | FilePiece | None:
    """What an answer says. Raises BadAnswer."""
    return None if status == NOT_FOUND else answer_of(wanted, lambda name: headers.get(name, ""), body)


def _asked(address: str, node: str, path: str, wanted: WantedResults, peers: Peers | None) -> Listed | FilePiece | None:
    """Raises Silent."""
    try:
        found = asked(address, node, path, peers)
        return found_in(wanted, found.status, found.headers, found.body)
    except NoAnswer as why:
        raise Silent(str(why)) from None
    except BadAnswer as why:
        raise Silent(f"{address}: {why}") from None


def _note(detours: dict[str, int], address: str) -> None:
    if len(detours) >= DETOURS_MAX:
        detours.clear()
    detours[address] = mono_ms() + DETOUR_MS
