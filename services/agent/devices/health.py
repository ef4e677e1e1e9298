"""Which devices of a node are not well: by what NVML says of them, and by a file that an operator's script writes.

A device that is not well is *out*: nothing starts on it. What runs there runs on where the fault leaves it alone (a row
of memory to be remapped, heat), and is ended where it can come to no good (the GPU has fallen off the bus). A line of
the file is `DEVICE STATE WHY`: the index or the UUID, `ok`, `drain` or `broken`, and words for people. The file has the
last word.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas import Device
from schemas.edge.nodes import OUT_MAX
from services.agent.devices.found import Found
from services.agent.devices.nvml import Event, Gpu, Handle, Library, asked, place_of

OF_PROGRAMS: Final = (13, 31, 43, 45, 68, 109)
"""Xids that a program brings about by itself: its device is as good as before."""
DRAINING: Final = {
    63: "a page or row of memory is to be retired",
    92: "many corrected ECC errors",
    94: "contained ECC error",
}
"""Xids after which what runs elsewhere on the device runs on, and a reset is due when it is free."""
XIDS: Final = {
    48: "double-bit ECC error",
    62: "microcontroller halted",
    64: "a page or row of memory could not be retired",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained ECC error",
    119: "GSP does not answer",
    120: "GSP error",
}
XID_EVENTS: Final = 8
"""nvmlEventTypeXidCriticalError."""
UNCORRECTED, SINCE_LOAD = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC."""
SLOWDOWN, OF_GPU = 1, 0
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_GPU."""
COOLER = 5
"""By how many degrees below it a device that was too hot has to cool down."""
LOST: Final = 15
"""NVML_ERROR_GPU_IS_LOST."""
EVENTS_MAX = 1_000
"""Events that one look takes in."""
FILE_BYTES_MAX = 1 << 20
STATES = ("ok", "drain", "broken")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a device is out, for people. `ends`: what runs there is ended."""

    text: str
    ends: bool


@dataclass(slots=True)
class Health:
    """The devices of one node, and where it is asked how they are. `file`: None: there is none.

    `look` is called again and again; `remarks` is what it has to say for the log of the agent, once.
    """

    devices: list[Device]
    found: Found = field(default_factory=Found)
    file: Path | None = None
    remarks: list[str] = field(default_factory=list)
    _watch: "NvmlWatch | None" = None
    _said: dict[int, Fault | None] = field(default_factory=dict)
    _wrong: str = ""

    def __post_init__(self) -> None:
        """Begins to listen for what the driver tells."""
        if self.found.library is not None:
            self._watch = NvmlWatch(self.found.library, self.found.gpus)

    @property
    def is_asked(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.devices) and (self._watch is not None or self.file is not None)

    def look(self) -> dict[int, Fault]:
        """The devices that are out, by index. Blocks."""
        faults = {} if self._watch is None else self._watch.look()
        said: dict[int, Fault | None] = {**faults, **self._by_file()}
        return {index: fault for index, fault in sorted(said.items()) if fault is not None}

    def _by_file(self) -> dict[int, Fault | None]:
        """What the file says, or said as long as it could be read."""
        if self.file is None:
            return {}
        try:
            with self.file.open("rb") as opened:
                data = opened.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            self._remark(f"{self.file} cannot be read: {error.strerror}")
            return self._said
        self._said, wrong = read_health(data.decode(errors="replace"), self.devices)
        self._remark(f"{self.file}: {wrong}" if wrong else "")
        return self._said

    def _remark(self, text: str) -> None:
        if text != self._wrong and text:
            self.remarks.append(text)
        self._wrong = text


def read_health(text: str, devices: list[Device]) -> tuple[dict[int, Fault | None], str]:
    """What the lines of a file say, by index of the device; None: it is well. The last line of a device counts. And
    what is wrong with the first line that cannot be read, if any is: it is left out.
    """
    named = {str(device.index): device.index for device in devices}
    named |= {device.uuid: device.index for device in devices if device.uuid}
    said: dict[int, Fault | None] = {}
    wrong = ""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split(maxsplit=2)
        if not words or words[0].startswith("#"):
            continue
        if words[0] not in named or len(words) < 2 or words[1] not in STATES:
            what = (
                f"no device here is called {words[0]}" if words[0] not in named else "write DEVICE ok|drain|broken WHY"
            )
            wrong = wrong or f"line {number}: {what}"
            continue
        why = "".join(c for c in (words[2].strip() if len(words) > 2 else "an operator says so") if c.isprintable())
        fault = Fault(why[:OUT_MAX], words[1] == "broken")
        said[named[words[0]]] = None if words[1] == "ok" else fault
    return said, wrong


class NvmlWatch:
    """What NVML says of some GPUs. An Xid counts until the agent starts again; all else until it is over."""

    def __init__(self, nvml: Library, gpus: list[Gpu]) -> None:
        self._nvml, self._gpus = nvml, gpus
        self._xids: dict[str, int] = {}  # By place on the bus, the worst that was told.
        self._hot: dict[str, bool] = {}
        self._events = asked(nvml, nvml.nvmlEventSetCreate)
        if self._events is not None:
            for whole in {gpu.bus_id: gpu.whole for gpu in gpus}.values():
                asked(nvml, nvml.nvmlDeviceRegisterEvents, whole, XID_EVENTS, self._events)

    def look(self) -> dict[int, Fault]:
        """The devices that are not well, by index; all parts of a GPU share its faults."""
        self._hear()
        of_whole: dict[str, Fault | None] = {}
        for gpu in self._gpus:
            if gpu.bus_id not in of_whole:
                of_whole[gpu.bus_id] = self._fault(gpu.bus_id, gpu.whole)
        found = [(gpu.device.index, of_whole[gpu.bus_id]) for gpu in self._gpus]
        return {index: fault for index, fault in found if fault is not None}

    def _hear(self) -> None:
        """Takes in what the driver has told since the last look."""
        for _ in range(EVENTS_MAX if self._events is not None else 0):
            event: Event | None = asked(self._nvml, self._nvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                return  # Nothing more was told.
            xid = int(event.eventData)
            if event.eventType & XID_EVENTS and xid not in OF_PROGRAMS:
                place = place_of(self._nvml, event.device)
                before = self._xids.get(place)
                if before is None or before in DRAINING:
                    self._xids[place] = xid

    def _fault(self, place: str, whole: Handle) -> Fault | None:
        nvml, xid = self._nvml, self._xids.get(place)
        if xid is not None and xid not in DRAINING:
            return Fault(f"Xid {xid}" + (f": {XIDS[xid]}" if xid in XIDS else ""), ends=True)
        if self._is_lost(whole):
            return Fault("fallen off the bus", ends=True)
        rows = asked(nvml, nvml.nvmlDeviceGetRemappedRows, whole)
        if rows is not None and rows[3]:
            return Fault("a row of its memory could not be remapped", ends=True)
        if xid is not None:
            return Fault(f"Xid {xid}: {DRAINING[xid]}", ends=False)
        if (rows is not None and rows[2]) or asked(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, whole):
            return Fault("memory is to be retired: it has to be reset", ends=False)
        if asked(nvml, nvml.nvmlDeviceGetTotalEccErrors, whole, UNCORRECTED, SINCE_LOAD):
            return Fault("uncorrected ECC errors", ends=False)
        return Fault("too hot", ends=False) if self._is_hot(place, whole) else None

    def _is_lost(self, whole: Handle) -> bool:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(whole)
        except self._nvml.NVMLError as error:
            return getattr(error, "value", None) == LOST
        return False

    def _is_hot(self, place: str, whole: Handle) -> bool:
        """Whether it is so hot that it slows itself down, and afterwards until it is some degrees cooler."""
        degrees = asked(self._nvml, self._nvml.nvmlDeviceGetTemperature, whole, OF_GPU)
        most = asked(self._nvml, self._nvml.nvmlDeviceGetTemperatureThreshold, whole, SLOWDOWN)
        if degrees is None or not most:
            return False
        self._hot[place] = degrees >= (most - COOLER if self._hot.get(place) else most)
        return self._hot[place]
