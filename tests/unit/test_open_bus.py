"""A bus is opened by its URL, and a URL that is none says what would be right."""

import asyncio

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.memory import MemoryBus
from largesse.bus.open import BusUrlWrong, open_bus
from largesse.settings import Settings, SettingWrong
from largesse.settings import open_bus as open_bus_of


def opened(url: str) -> type:
    async def story() -> type:
        bus = open_bus(url)
        await bus.close()
        return type(bus)

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryBus),
        ("memory://", MemoryBus),
        ("file:{folder}", FileBus),
        ("file://{folder}", FileBus),
        ("kafka://127.0.0.1:9092", KafkaBus),
        ("kafka://one:9092,two:9092,[::1]:9092/", KafkaBus),
    ],
)
def test_a_url_names_its_bus(url, kind, tmp_path):
    assert opened(url.format(folder=tmp_path / "data")) is kind


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:",
        "file://",
        "kafka:one:9092",
        "kafka://",
        "kafka://one",
        "kafka://one:9092,",
        "kafka://user@one:9092",
        "kafka://one:9092/topic",
        "memory:x",
        "redis://one:1",
        "/data",
    ],
)
def test_a_url_that_is_none_is_refused_with_what_would_be_right(url):
    with pytest.raises(BusUrlWrong, match="write"):
        open_bus(url)
    with pytest.raises(SettingWrong, match="LARGESSE_BUS="):
        open_bus_of(Settings(bus=url))


@pytest.mark.parametrize(("url", "alone"), [("file:x", True), ("memory:", True), ("kafka://one:9092", False)])
def test_only_a_bus_of_one_process_is_alone(url, alone):
    assert Settings(bus=url).is_alone is alone
