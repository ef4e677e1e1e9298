"""Which GPUs this machine has, for an agent that was told to find them."""

from dataclasses import dataclass, field

from schemas import Device
from services.agent.devices import nvml, sysfs


@dataclass(frozen=True, slots=True)
class Found:
    """What was found. `gpus`: those by which NVML is asked later on, of `library`; `text`: for the log of the agent."""

    gpus: list[nvml.Gpu] = field(default_factory=list)
    library: nvml.Library | None = None
    text: str = ""

    @property
    def devices(self) -> list[Device]:
        """As the node lists them."""
        return [gpu.device for gpu in self.gpus]


def find_devices() -> Found:
    """Asks NVML. Without the library or the driver there are none, which is no error. Blocks."""
    try:
        library = nvml.library()
    except nvml.NoLibrary as fault:
        return Found(text=f"none found: {fault}{_unserved()}")
    try:
        gpus = nvml.found(library)
    except library.NVMLError as error:
        return Found(text=f"none found: NVML: {error}")
    models = [gpu.device.model for gpu in gpus]
    counted = ", ".join(f"{models.count(model)} {model}" for model in dict.fromkeys(models))
    return Found(gpus, library, counted or "none found: NVML knows of none")


def _unserved() -> str:
    seen = sysfs.seen()
    if not seen:
        return ""
    counted = ", ".join(f"{count} of {vendor}" for vendor, count in seen.items())
    return f"; the kernel sees {counted}: declare them in a file, or install what is missing"
