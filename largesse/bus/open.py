"""A bus by its URL: `kafka://host:port[,host:port]`, `file:DIRECTORY` or `file:///DIRECTORY`, `memory:`."""

import re

from largesse.bus.file.bus import CACHE_BYTES, FileBus
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Bus

_BROKERS = re.compile(r"(?:[^\s,:/@\[\]]+|\[[0-9a-fA-F:]+\]):\d{1,5}")


class BusUrlWrong(ValueError):
    """An address of a bus that cannot be used: says what would be right."""


def open_bus(url: str, *, client_id: str = "largesse", cache_bytes: int = CACHE_BYTES) -> Bus:
    """The bus at `url`; Kafka knows this process as `client_id`, a directory's bus keeps `cache_bytes` of what was
    written in memory. A memory bus is a new, empty one each time.

    Raises BusUrlWrong; what opening a directory raises. A Kafka cluster is connected to when it is first used.
    """
    kind, colon, place = url.partition(":")
    if kind == "memory" and colon and not place.strip("/"):
        return MemoryBus()
    if kind == "file":
        directory = place.removeprefix("//")
        if directory:
            return FileBus(directory, cache_bytes=cache_bytes)
    if kind == "kafka" and place.startswith("//"):
        return _kafka(place.removeprefix("//").removesuffix("/"), client_id)
    raise BusUrlWrong(f"{url!r} is not a bus: write kafka://HOST:PORT, file:DIRECTORY or memory:")


def _kafka(brokers: str, client_id: str) -> Bus:
    for broker in brokers.split(","):
        if not _BROKERS.fullmatch(broker):
            raise BusUrlWrong(f"{broker!r} is not a broker: write kafka://HOST:PORT[,HOST:PORT]")
    try:
        # Only who uses Kafka needs its client installed.
        from largesse.bus.kafka.bus import KafkaBus
    except ModuleNotFoundError as error:
        raise BusUrlWrong(f"kafka:// needs {error.name}: pip install largesse") from error
    return KafkaBus(brokers, client_id=client_id)
