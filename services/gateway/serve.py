"""Serves an app on a socket that is bound already, until it is told to stop. Signals are the host's business."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

LAST_WORDS_S = 2
"""So long may open requests take once the gateway is to end."""

BACKLOG = 128


class PortTaken(OSError):
    """Somebody else listens there, or it may not be listened to: names address and port."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on host and port (0: any free one). Raises PortTaken."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise PortTaken(f"{host}:{port}: {error.strerror or error}") from None
    return found


async def serve(app: FastAPI, listening: socket.socket, stop: asyncio.Event) -> None:
    """Until `stop` is set; then open requests get LAST_WORDS_S seconds."""
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=LAST_WORDS_S
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve([listening]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        listening.close()
