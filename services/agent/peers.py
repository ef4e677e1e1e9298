"""Reads results of tasks from the agents of other nodes, over HTTP: one request, one answer of limited size and time.

An answer counts only under the node's own name, and nothing of it is believed that `largesse.task_results` does not
say. Blocks: made for threads.
"""

from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import quote

from largesse.task_output import NODE, PIECE_BYTES_MAX
from largesse.task_results import BadAnswer, FilePiece, Listed, WantedResults, answer_of, path_of
from services.agent.task_results import read_results

ANSWER_SECONDS = 5
NOT_FOUND, OK = 404, 200

Peer = Callable[[str, WantedResults], Listed | FilePiece | None]
"""Asks the agent of a node, given by its name; None: it keeps nothing of that. Raises Silent, NotServed."""


class Silent(Exception):
    """No answer, or none that counts: says why. It may come yet."""


class NotServed(Exception):
    """There is nothing to ask: says why."""


def by_address(address_of: Callable[[str], str | None]) -> Peer:
    """Asks agents where they say that they can be reached. `address_of`: HOST:PORT of a node; "" where its agent does
    not say, None where the cell does not know the node.
    """

    def ask(node: str, wanted: WantedResults) -> Listed | FilePiece | None:
        address = address_of(node)
        if address is None:
            raise NotServed("the node did not come back and is forgotten")
        if not address:
            raise NotServed("its agent does not serve results: LARGESSE_METRICS_PORT is not set there")
        try:
            return _asked(address, node, wanted)
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Silent(f"{address}: {why}") from None

    return ask


def by_folder(folder_of: Callable[[str], Path]) -> Peer:
    """Reads what agents of the same machine keep. `folder_of`: the data folder of a node."""

    def read(node: str, wanted: WantedResults) -> Listed | FilePiece | None:
        try:
            return read_results(folder_of(node), wanted)
        except OSError as error:
            raise Silent(f"it cannot be read: {error.strerror}") from None

    return read


def _asked(address: str, node: str, wanted: WantedResults) -> Listed | FilePiece | None:
    """Raises OSError, HTTPException, ValueError."""
    host, _, port = address.rpartition(":")
    with closing(HTTPConnection(host.strip("[]"), int(port), timeout=ANSWER_SECONDS)) as connection:
        connection.request("GET", path_of(wanted), headers={"Accept-Encoding": "identity"})
        response = connection.getresponse()
        body = _body(response)
    speaker = response.headers.get(NODE)
    if speaker is None:
        raise BadAnswer("what answers there shows no results: an agent of an older version, or something else")
    if speaker != quote(node, safe=""):
        raise BadAnswer("the agent of another node answers there")
    if response.status == NOT_FOUND:
        return None
    if response.status != OK:
        raise BadAnswer(f"it answers {response.status}: {body[:200].decode(errors='replace').strip()}")
    return answer_of(wanted, lambda name: response.headers.get(name, ""), body)


def _body(response: HTTPResponse) -> bytes:
    size = response.headers.get("Content-Length", "")
    if response.chunked or not size.isdecimal() or int(size) > PIECE_BYTES_MAX:
        raise BadAnswer("the length of its answer is missing, or too large")
    return response.read(PIECE_BYTES_MAX)
