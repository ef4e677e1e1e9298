"""Devices that an operator declares in a file, YAML or JSON: `gpu: [{index: 0, model: A100, memory_mib: 81920}]`."""

from pathlib import Path

from largesse.bodies import line_of, read_yaml
from schemas import Device
from schemas.edge.base import Malformed
from schemas.edge.nodes import DevicesInput, devices_in
from schemas.edge.validated import validated

DECLARED = '{"gpu": [{"index": 0, "model": "A100", "memory_mib": 81920, "numa": 0, "link": "a", "uuid": "GPU-..."}]}'


def read_declared(path: Path) -> list[Device]:
    """The devices of a file, by index. Raises Malformed with the line and the field of what is wrong, OSError."""
    data = path.read_bytes()
    document = read_yaml(data)
    try:
        listed = validated(DevicesInput, document)
        devices = devices_in(listed, "")
    except Malformed as fault:
        field = fault.field.removeprefix(".")
        raise Malformed(field, f"{fault.reason} (line {line_of(data.decode(), field)})") from None
    if not devices:
        raise Malformed("gpu", f"lists no device: write {DECLARED}, or set none")
    if any(device.out for device in devices):
        at = next(i for i, device in enumerate(listed.gpu) if device.out)
        reason = "is told as a device goes out, in the file of devices' health: leave it away here"
        raise Malformed(f"gpu[{at}].out", f"{reason} (line {line_of(data.decode(), f'gpu[{at}].out')})")
    return devices
