"""A cell's log on a real Kafka, archived, followed, and read with its archive as one log."""

import asyncio
import os
import signal
import subprocess

import pytest

from largesse.archive.manifest import read_all
from largesse.archive.reader import check_archive, standing
from largesse.archive.store import FolderStore
from largesse.bus.open import open_bus
from largesse.bus.port import Outgoing
from schemas.topics import TOPICS
from services.gateway import view
from services.replay.onto_bus import put_onto
from services.replay.source import open_source
from tests.archives import Writer, recorded
from tests.contract.kafka_rig import put_right_at_once
from tests.kafka_broker import Broker
from tests.unit.cli_here import largesse
from tests.unit.cli_process import COMMAND, ROOT

GUARD_S = 300

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka archive")]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A broker of its own, since partition 0 has to be this log's alone."""
    if "LARGESSE_TEST_KAFKA" not in os.environ:
        pytest.skip("no broker to start: LARGESSE_TEST_KAFKA is not set, so no broker is wanted here")
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    try:
        asyncio.run(put_right_at_once(broker.address, TOPICS, cells=1))
        yield broker.address
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("kafka-archive") / "log")


async def all_messages(log):
    writer = Writer()
    await put_onto(open_source(log), writer, view.NAME, lambda _: None)
    return writer.messages


async def send(address, messages):
    bus = open_bus(f"kafka://{address}")
    try:
        await bus.writer().send([Outgoing(each.topic, each.partition, each.value) for each in messages])
    finally:
        await bus.close()


def test_a_log_on_kafka_is_archived_followed_and_read_as_one(log, address, tmp_path):
    url, folder = f"kafka://{address}/default", tmp_path / "archive"
    messages = asyncio.run(all_messages(log))
    third = len(messages) // 3
    asyncio.run(send(address, messages[:third]))

    said = largesse("archive", "run", folder, "--log", url)
    assert said.code == 0, said.err
    first = read_all(FolderStore(folder))[-1].manifest
    assert first.place is not None

    asyncio.run(send(address, messages[third : 2 * third]))
    assert largesse("archive", "run", folder, "--log", url).code == 0
    second = read_all(FolderStore(folder))[-1].manifest
    assert (second.number, second.start) == (2, first.end)

    words = ("archive", "run", folder, "--log", url, "--follow", "--segment-age", "1s")
    with subprocess.Popen([*COMMAND, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        asyncio.run(send(address, messages[2 * third :]))
        line = running.stdout.readline()
        assert line.startswith(f"records {second.end.seq + 1} to "), line
        while " to 431: " not in line:
            line = running.stdout.readline()
            assert line
        running.send_signal(signal.SIGINT)
        assert running.wait(GUARD_S) == 130

    store = FolderStore(folder)
    assert check_archive(store, standing(store).manifests, lambda _: None, 1) == []
    assert largesse("export", f"archive:{folder}", tmp_path / "a").code == 0
    assert largesse("export", url, tmp_path / "b").code == 0
    assert largesse("export", url, tmp_path / "c", "--archive", folder).code == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    verified = largesse("replay", url, "--archive", folder, "--verify", columns=200)
    assert verified.code == 0, verified.out
