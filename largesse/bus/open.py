"""A bus by its URL: `kafka[s]://host:port[,host:port]`, `file:DIRECTORY` or `file:///DIRECTORY`, `memory:`."""

from pathlib import Path

from largesse.bus.file.bus import CACHE_BYTES, FileBus
from largesse.bus.file.head import HEAD_NAME
from largesse.bus.kafka.cluster import Access, BusUrlWrong, cluster_of, is_cluster
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Bus

__all__ = ["BusUrlWrong", "open_bus"]


def open_bus(
    url: str, *, client_id: str = "largesse", cache_bytes: int = CACHE_BYTES, access: Access | None = None
) -> Bus:
    """The bus at `url`; Kafka knows this process as `client_id` and by `access`, or what the environment says of that;
    a directory's bus keeps `cache_bytes` of what was written in memory. A memory bus is a new, empty one each time.

    Raises BusUrlWrong, AccessWrong; what opening a directory raises. A Kafka cluster is connected to when it is first
    used.
    """
    kind, colon, place = url.partition(":")
    if kind == "memory" and colon and not place.strip("/"):
        return MemoryBus()
    if kind == "file":
        directory = place.removeprefix("//")
        if directory:
            _check_no_data_folder(directory)
            return FileBus(directory, cache_bytes=cache_bytes, packs=True)
    if is_cluster(url):
        return _kafka(url, client_id, access)
    raise BusUrlWrong(f"{url!r} is not a bus: write kafka[s]://HOST:PORT, file:DIRECTORY or memory:")


def _check_no_data_folder(directory: str) -> None:
    """Raises BusUrlWrong for the data folder of `largesse up`, whose bus lies in it: another, empty one would be made
    beside that."""
    folder = Path(directory)
    if (folder / "bus" / HEAD_NAME).exists() and not (folder / HEAD_NAME).exists():
        raise BusUrlWrong(f"file:{directory} is the data folder of `largesse up`: its bus is file:{folder / 'bus'}")


def _kafka(url: str, client_id: str, access: Access | None) -> Bus:
    cluster = cluster_of(url, access)
    try:
        # Only who uses Kafka needs its client installed.
        from largesse.bus.kafka.bus import KafkaBus
    except ModuleNotFoundError as error:
        raise BusUrlWrong(f"{url} needs {error.name}: pip install largesse") from error
    return KafkaBus(cluster, client_id=client_id)
