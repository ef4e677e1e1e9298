"""An HTTP server on loopback that answers as a test says."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler, bytes], None],
    protocol: str = "HTTP/1.0",
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Passes every request and its body to `answer`, which writes the response. Yields the server's address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def handle_request(self) -> None:
            answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http{'s' if tls is not None else ''}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def respond(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    """Writes a whole response."""
    request.send_response(status)
    for name, value in (headers | {"Content-Length": str(len(body))}).items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)
