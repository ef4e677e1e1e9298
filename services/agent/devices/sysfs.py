"""What the kernel says of GPUs, in sysfs: which there are, and to which NUMA node each is nearest."""

from pathlib import Path

SYS = Path("/sys")
_CONTROLLERS = ("0x0300", "0x0302")  # Classes of the PCI bus: VGA, and 3D without a display.
_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}


def numa_of(bus_id: str, root: Path = SYS) -> int | None:
    """The NUMA node nearest to what has this place on the PCI bus, as NVML writes it (`00000000:3B:00.0`); None: the
    kernel does not say."""
    domain, _, rest = bus_id.lower().partition(":")
    text = _word(root / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")
    return int(text) if text.isdecimal() else None  # -1: it has none.


def seen(root: Path = SYS) -> dict[str, int]:
    """How many GPUs the kernel sees, by vendor, whether or not a driver serves them. Cards that show a picture and no
    more are no GPUs here."""
    found: dict[str, int] = {}
    try:
        cards = sorted(path for path in (root / "class/drm").iterdir() if path.name.removeprefix("card").isdecimal())
    except OSError:
        return {}
    for card in cards:
        vendor = _VENDORS.get(_word(card / "device/vendor"))
        if vendor is not None and _word(card / "device/class")[:6] in _CONTROLLERS:
            found[vendor] = found.get(vendor, 0) + 1
    return found


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
