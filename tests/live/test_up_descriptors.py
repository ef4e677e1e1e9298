"""A cell with few descriptors, and clients that would take them all: it goes on, and so do its jobs."""

import json
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.http_rig import request
from tests.live.up_process import GUARD_S, Up, up

SOFT, HARD = 200, 400


def job(name: str) -> str:
    command = ["sh", "-c", "ulimit -n"]
    return json.dumps(
        {"job": name, "stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": "10m"}, "command": command}]}
    )


def crowd(cell: Up, held: ExitStack) -> None:
    """Twice as many connections as there are descriptors; every other one with a body that does not end."""
    where = urlsplit(cell.url)
    body = request("POST", "/v1/jobs", where.netloc, content_length="900000", content_type="application/json") + b"{"
    for number in range(2 * HARD):
        client = held.enter_context(socket.create_connection((where.hostname, where.port or 0), timeout=GUARD_S))
        if number % 2:
            with suppress(OSError):  # It may have had to make room.
                client.send(body)


def test_connections_take_no_descriptor_that_the_cell_needs(tmp_path: Path) -> None:
    with up(tmp_path / "data", files_max=(SOFT, HARD)) as cell, ExitStack() as held:
        for number in range(3):
            crowd(cell, held)
            said = cell.ask("submit", "-", stdin=job(f"j{number}"))
            assert said.code == 0, said.err
            assert cell.until(f"j{number}", lambda document: document["ended_ms"])["state"] == "succeeded"
        # The cell takes what it may have open from its hard limit, and its tasks have what they would have without it.
        assert cell.ask("logs", "j0/s/0").out.strip() == str(SOFT)
        open_now = len(list(Path(f"/proc/{cell.process.pid}/fd").iterdir()))
        code, out, err = cell.end()

    assert (code, out.splitlines()[-1]) == (0, "ended"), err
    assert open_now < HARD
