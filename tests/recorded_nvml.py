"""GPUs as NVML describes them, without any: names, sizes, places and codes as its documentation and `nvidia-smi` show.

`Recorded` has the functions of `pynvml` that the agent uses. What a card does not have in its record it does not
support, and says so as the library does.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

MIB = 1 << 20


class NVMLError(Exception):
    """What the library raises. `value`: its code."""

    def __init__(self, value):
        super().__init__(value)
        self.value = value


NOT_SUPPORTED, NOT_FOUND, TIMEOUT, GPU_IS_LOST = 3, 6, 10, 15


@dataclass
class Card:
    """One GPU. `links`: by number of the link, the place of the GPU at its other end, or `switch`. `parts`: what MIG
    has made of it, as (UUID, slices, MiB); None: it is not divided."""

    name: str
    uuid: str
    bus_id: str
    memory_mib: int
    links: dict[int, str] = field(default_factory=dict)
    parts: list[tuple[str, int, int]] | None = None
    ecc_uncorrected: int | None = None
    rows: tuple[int, int, int, int] | None = None
    pages_pending: int | None = None
    celsius: int | None = None
    slowdown: int | None = None
    lost: bool = False


class Recorded:
    """The library, over some cards. `events`: Xids that the driver has told since it was last asked, as (card, Xid)."""

    NVMLError = NVMLError

    def __init__(self, *cards: Card) -> None:
        self.cards = list(cards)
        self.events: list[tuple[Card, int]] = []
        self.watched: list[Card] = []

    def nvmlInit(self):
        return None

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self._here(self.cards[index])

    def nvmlDeviceGetName(self, handle):
        return self._here(handle).name

    def nvmlDeviceGetUUID(self, handle):
        return handle[0] if isinstance(handle, tuple) else self._here(handle).uuid

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=(handle[2] if isinstance(handle, tuple) else self._here(handle).memory_mib) * MIB)

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=self._here(handle).bus_id)

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if not self._here(handle).links:
            raise NVMLError(NOT_SUPPORTED)
        return int(link in handle.links)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):
        return 2 if self._here(handle).links[link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        return SimpleNamespace(busId=self._here(handle).links[link].encode())

    def nvmlDeviceGetMigMode(self, handle):
        if self._here(handle).parts is None and not handle.name.startswith("NVIDIA A100"):
            raise NVMLError(NOT_SUPPORTED)
        return [int(handle.parts is not None), int(handle.parts is not None)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index >= len(handle.parts):
            raise NVMLError(NOT_FOUND)
        return handle.parts[index]

    def nvmlDeviceGetAttributes(self, handle):
        return SimpleNamespace(gpuInstanceSliceCount=handle[1])

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter):
        assert (kind, counter) == (1, 0), "uncorrected, since the driver was loaded"
        return self._known(handle, self._here(handle).ecc_uncorrected)

    def nvmlDeviceGetRemappedRows(self, handle):
        return self._known(handle, self._here(handle).rows)

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle):
        return self._known(handle, self._here(handle).pages_pending)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self._known(handle, self._here(handle).celsius)

    def nvmlDeviceGetTemperatureThreshold(self, handle, kind):
        assert kind == 1, "slowdown"
        return self._known(handle, self._here(handle).slowdown)

    def nvmlEventSetCreate(self):
        return self.events

    def nvmlDeviceRegisterEvents(self, handle, kinds, events):
        assert kinds == 8, "critical Xids"
        self.watched.append(self._here(handle))

    def nvmlEventSetWait_v2(self, events, timeout_ms):
        if not events:
            raise NVMLError(TIMEOUT)
        card, xid = events.pop(0)
        return SimpleNamespace(device=card, eventType=8, eventData=xid)

    def _here(self, card):
        if card.lost:
            raise NVMLError(GPU_IS_LOST)
        return card

    def _known(self, card, value):
        if value is None:
            raise NVMLError(NOT_SUPPORTED)
        return value


def v100_pair(first: int = 0) -> list[Card]:
    """Two that NVLink joins directly."""
    places = [f"00000000:{0x15 + first + at:02X}:00.0" for at in range(2)]
    return [
        Card("Tesla V100-SXM2-32GB", f"GPU-{first + at:08x}-0000-0000-0000-000000000000", places[at], 32_768)
        for at in range(2)
    ]


def hybrid() -> Recorded:
    """Two pairs, each joined by NVLink, and a card of its own on the bus."""
    cards = [*v100_pair(), *v100_pair(2)]
    for one, two in ((0, 1), (2, 3)):
        cards[one].links = {0: cards[two].bus_id, 1: cards[two].bus_id}
        cards[two].links = {0: cards[one].bus_id.lower()}
    alone = Card("Tesla T4", "GPU-0000000t-0000-0000-0000-000000000000", "00000000:AF:00.0", 15_360)
    return Recorded(*cards, alone)


def a100_switched() -> Recorded:
    """Eight behind switches, the last one divided by MIG into 3, 2, 1 and 1 of 7 slices."""
    places = ("07", "0F", "47", "4E", "87", "90", "B7", "BD")
    cards = [
        Card("NVIDIA A100-SXM4-40GB", f"GPU-{at}", f"00000000:{place}:00.0", 40_960, {0: "switch", 11: "switch"})
        for at, place in enumerate(places)
    ]
    cards[-1].parts = [("MIG-a", 3, 19_968), ("MIG-b", 2, 9_856), ("MIG-c", 1, 4_864), ("MIG-d", 1, 4_864)]
    return Recorded(*cards)
