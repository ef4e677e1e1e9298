"""What guards a container and its engine say to each other, against an engine that says what a test writes."""

import json
import socket
import threading

import pytest
from hypothesis import strategies as st

from services.agent.engine_socket import EngineRefused, EngineSilent, Line, _unchunked
from tests.strategies import for_all


@pytest.fixture
def engine(tmp_path):
    """An engine that gives each connection the next of `answers`, and keeps what it was asked."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{tmp_path}/e.sock")
    server.listen()
    answers, asked = [], []

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65_536))
                for part in answers.pop(0):
                    connection.sendall(part)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"{tmp_path}/e.sock", answers, asked
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def answered(status, body, *headers):
    lines = [f"HTTP/1.1 {status} word", *headers, f"Content-Length: {len(body)}", "", ""]
    return ["\r\n".join(lines).encode() + body]


def test_a_question_is_one_request_and_its_answer_a_document(engine):
    path, answers, asked = engine
    answers += [answered(201, b'{"Id": "x"}'), answered(204, b"")]

    assert Line(path).ask("POST", "/containers/create", {"Image": "i"}) == {"Id": "x"}
    assert Line(path).ask("POST", "/containers/x/start") == {}

    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1.40/containers/create HTTP/1.1\r\n")
    assert json.loads(body) == {"Image": "i"}


def test_a_refusal_has_the_engines_words(engine):
    path, answers, _ = engine
    answers += [answered(404, b'{"message": "no such image"}'), answered(500, b"oh")]

    with pytest.raises(EngineRefused, match="no such image") as why:
        Line(path).ask("GET", "/x")
    assert why.value.status == 404
    with pytest.raises(EngineRefused, match="oh"):
        Line(path).ask("GET", "/x")


@pytest.mark.parametrize("parts", [[b""], [b"nonsense\r\n\r\n"], [b"HTTP/1.1\r\n\r\n"], [b"HTTP/1.1 200 O"]])
def test_an_engine_that_breaks_off_is_silent(engine, parts):
    path, answers, _ = engine
    answers.append(parts)
    with pytest.raises(EngineSilent):
        Line(path).ask("GET", "/x")


def test_an_answer_that_ends_early_is_none(engine):
    path, answers, _ = engine
    answers.append([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
    with pytest.raises(EngineSilent):
        Line(path).ask("GET", "/x")


def test_nobody_there_is_silence(tmp_path):
    with pytest.raises(EngineSilent):
        Line(f"{tmp_path}/none.sock").ask("GET", "/x")


@for_all(st.lists(st.binary(min_size=1, max_size=20), max_size=5), st.integers(0, 200))
def test_a_body_in_parts_is_put_together_wherever_it_is_cut(parts, cut):
    text = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    assert _unchunked(text) == b"".join(parts)
    short = text[: min(cut, len(text) - 5)]
    assert _unchunked(short) is None
