"""What a task sees of its node's devices: its own, and no other.

CUDA and NVIDIA's runtime of containers take UUIDs as well as indexes. A UUID names the same device in whatever order
they are counted, and is the only name of a part that MIG has made; an index counts as `nvidia-smi` does, by the place
on the PCI bus, which is not CUDA's own order.
"""

from collections.abc import Sequence

from largesse.lifecycle.node_work import HeldAttempt
from schemas import Device, Vector

CUDA, CUDA_ORDER, NVIDIA = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"
NO_CUDA = "-1"
"""No device has this index: CUDA shows those before it in the list, so none."""
NO_NVIDIA = "void"
"""NVIDIA's runtime then leaves a container as it is."""


def names_of(held: HeldAttempt, listed: Sequence[Device]) -> list[str]:
    """Each of an attempt's devices by its UUID, where all have one, else by its index."""
    uuids = {device.index: device.uuid for device in listed}
    names = [uuids.get(share.index, "") for share in held.devices]
    return names if all(names) else [str(share.index) for share in held.devices]


def visible(held: HeldAttempt, listed: Sequence[Device], capacity: Vector) -> dict[str, str]:
    """What an attempt finds in its environment of devices; nothing on a node that has none. `listed`: by its node."""
    if held.devices:
        names = ",".join(names_of(held, listed))
        return {CUDA: names, CUDA_ORDER: "PCI_BUS_ID", NVIDIA: names}
    if listed or capacity.get("gpu"):
        return {CUDA: NO_CUDA, NVIDIA: NO_NVIDIA}
    return {}
