"""A service as a process: it ends on a signal, in time, and says in its exit code how it went."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from largesse import process
from tests.conftest import ROOT


def started(service: str, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LARGESSE_")}
    return subprocess.Popen(
        [sys.executable, "-m", f"services.{service}"],
        cwd=ROOT,
        env=clean | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def until_it_answers(running: subprocess.Popen[str], url: str) -> bytes:
    """The answer, as soon as there is one. The process must not end before."""
    while running.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            continue
    raise AssertionError(running.communicate()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_in_order(tmp_path, number):
    port = free_port()
    running = started("fairness", LARGESSE_BUS=f"file:{tmp_path}", LARGESSE_METRICS_PORT=str(port))
    try:
        assert until_it_answers(running, f"http://127.0.0.1:{port}/readyz") == b"ready\n"
        running.send_signal(number)

        _, said = running.communicate(timeout=120)
        assert (running.returncode, said) == (0, "")
    finally:
        running.kill()


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        pytest.param({"LARGESSE_BUS": "redis://x:1"}, "LARGESSE_BUS=redis://x:1", id="no bus"),
        pytest.param({"LARGESSE_SHARD": "one"}, "LARGESSE_SHARD=one", id="no number"),
    ],
)
def test_a_wrong_setting_is_named_and_is_wrong_usage(environment, named):
    running = started("altruism", **environment)
    _, said = running.communicate(timeout=120)

    assert running.returncode == 2
    assert named in said


def test_a_port_that_is_taken_is_named_and_is_wrong_usage(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        running = started("planner", LARGESSE_BUS=f"file:{tmp_path}", LARGESSE_METRICS_PORT=str(port))
        _, said = running.communicate(timeout=120)

    assert running.returncode == 2
    assert f"127.0.0.1:{port}" in said


def test_a_service_that_does_not_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(process, "END_SECONDS", 0.01)
    seen = []

    async def deaf():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cut off")

    async def story():
        stop = asyncio.Event()
        stop.set()
        with pytest.raises(process.CutOff):
            await process._until_ended(deaf(), stop)
        assert seen == ["cut off"]

    asyncio.run(story())


def test_a_service_that_raises_ends_at_once_and_tells_what():
    async def broken():
        raise ArithmeticError("at seq 7")

    async def story():
        with pytest.raises(ArithmeticError, match="at seq 7"):
            await process._until_ended(broken(), asyncio.Event())

    asyncio.run(story())
