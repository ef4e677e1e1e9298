"""GPUs of NVIDIA, as their management library (NVML) describes them; `nvidia-ml-py` speaks to it.

`Library` is what is used of the module `pynvml`: a test brings another one. What a GPU or its driver does not support
is left out, question by question.
"""

import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar, cast

from schemas import Device
from schemas.quantities import MIB
from services.agent.devices.sysfs import SYS, numa_of

MODULE = "pynvml"
LINKS_MAX = 36
"""Links of one GPU that are asked for."""
TO_GPU, TO_SWITCH = 0, 2
"""What is at the other end of a link: NVML_NVLINK_DEVICE_TYPE_GPU and _SWITCH."""
MIG_PARTS = 7
"""The slices of a GPU that MIG divides."""
MIG_INDEXES = 100
"""Parts of GPU 0 have the indexes from 100 on, those of GPU 1 from 200 on."""

Handle = object
P = ParamSpec("P")
T = TypeVar("T")


class Memory(Protocol):
    """In bytes."""

    total: int


class Pci(Protocol):
    """Where it is on the bus."""

    busId: str | bytes  # noqa: N815 - NVML's name


class Attributes(Protocol):
    """Of a part of a divided GPU."""

    gpuInstanceSliceCount: int  # noqa: N815 - NVML's name


class Event(Protocol):
    """Something that the driver has told."""

    device: Handle
    eventType: int  # noqa: N815 - NVML's name
    eventData: int  # noqa: N815 - NVML's name


class Library(Protocol):
    """What is used of `pynvml`, with its own names. Each may raise `NVMLError`."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: Handle) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: Handle) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> Memory: ...  # noqa: N802
    def nvmlDeviceGetPciInfo(self, handle: Handle) -> Pci: ...  # noqa: N802
    def nvmlDeviceGetNvLinkState(self, handle: Handle, link: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Handle, link: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Handle, link: int) -> Pci: ...  # noqa: N802
    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]: ...  # noqa: N802
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetAttributes(self, handle: Handle) -> Attributes: ...  # noqa: N802
    def nvmlDeviceGetTotalEccErrors(self, handle: Handle, kind: int, counter: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetRemappedRows(self, handle: Handle) -> tuple[int, int, int, int]: ...  # noqa: N802
    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetTemperatureThreshold(self, handle: Handle, kind: int) -> int: ...  # noqa: N802
    def nvmlEventSetCreate(self) -> object: ...  # noqa: N802
    def nvmlDeviceRegisterEvents(self, handle: Handle, kinds: int, events: object) -> None: ...  # noqa: N802
    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Event: ...  # noqa: N802


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or a part of one. `whole`: the handle of the GPU that it is, or is a part of; `bus_id`: its place."""

    device: Device
    whole: Handle
    bus_id: str


class NoLibrary(Exception):
    """There is no NVML here: the library of Python is missing, or the driver. No fault of a machine without GPUs."""


def library() -> Library:
    """The module, ready to be asked. Raises NoLibrary."""
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        raise NoLibrary("the Python library nvidia-ml-py is not installed (extra `devices`)") from None
    nvml = cast("Library", module)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoLibrary(f"NVML: {error}") from None
    return nvml


def found(nvml: Library, root: Path = SYS) -> list[Gpu]:
    """The GPUs by index, in the order of the PCI bus; of one that MIG divides its parts in its place."""
    wholes = [handle for at in range(nvml.nvmlDeviceGetCount()) if (handle := _handle(nvml, at)) is not None]
    places = [place_of(nvml, handle) for handle in wholes]
    links = _groups(nvml, wholes, places)
    gpus: list[Gpu] = []
    for at, handle in enumerate(wholes):
        numa = numa_of(places[at], root)
        parts = _parts(nvml, handle)
        name = _text(asked(nvml, nvml.nvmlDeviceGetName, handle))
        if parts is None:
            device = _device(nvml, handle, Device(at, 1_000, name, numa=numa, link=links[at]))
            gpus.append(Gpu(device, handle, places[at]))
        for part, (inner, milli) in enumerate(parts or []):
            device = _device(nvml, inner, Device((at + 1) * MIG_INDEXES + part, milli, name, numa=numa))
            gpus.append(Gpu(device, handle, places[at]))
    return gpus


def asked(nvml: Library, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """The answer; None where the GPU or its driver has none."""
    with suppress(nvml.NVMLError):
        return question(*args, **kwargs)
    return None


def _handle(nvml: Library, at: int) -> Handle | None:
    return asked(nvml, nvml.nvmlDeviceGetHandleByIndex, at)


def place_of(nvml: Library, handle: Handle) -> str:
    """Where a GPU is on the bus, in capitals; empty: it does not say."""
    pci = asked(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return "" if pci is None else _text(pci.busId).upper()


def _device(nvml: Library, handle: Handle, device: Device) -> Device:
    memory = asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    device.memory_mib = 0 if memory is None else int(memory.total) // MIB
    device.uuid = _text(asked(nvml, nvml.nvmlDeviceGetUUID, handle))
    return device


def _parts(nvml: Library, handle: Handle) -> list[tuple[Handle, int]] | None:
    """The parts of a GPU that MIG divides, each with its size in thousandths of the whole; None: it is not divided."""
    mode = asked(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return None
    parts: list[tuple[Handle, int]] = []
    for at in range(asked(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = asked(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, at)
        attributes = None if part is None else asked(nvml, nvml.nvmlDeviceGetAttributes, part)
        if attributes is not None and (milli := 1_000 * int(attributes.gpuInstanceSliceCount) // MIG_PARTS):
            parts.append((part, milli))
    return parts


def _groups(nvml: Library, wholes: list[Handle], places: list[str]) -> list[str]:
    """By GPU, the group of those that NVLink joins, directly, by a switch or by others; empty: none."""
    lowest = list(range(len(wholes)))
    switched: int | None = None
    for at, handle in enumerate(wholes):
        for link in range(LINKS_MAX):
            if not asked(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link):
                continue
            kind = asked(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            other = None
            if kind == TO_SWITCH:
                other = switched = at if switched is None else switched
            elif kind == TO_GPU:
                pci = asked(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
                place = "" if pci is None else _text(pci.busId).upper()
                other = places.index(place) if place in places else None
            if other is not None:
                one, two = sorted((lowest[at], lowest[other]))
                lowest = [one if each == two else each for each in lowest]
    return [f"nvlink-{each}" if lowest.count(each) > 1 else "" for each in lowest]


def _text(text: str | bytes | None) -> str:
    return "" if text is None else text.decode() if isinstance(text, bytes) else str(text)
