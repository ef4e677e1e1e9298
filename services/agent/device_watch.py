"""Devices that are out, and what runs on them."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from largesse.lifecycle.node_work import NodeWork
from largesse.telemetry import logger
from schemas.edge.nodes import with_gpus
from schemas.nodes import out_of
from services.agent.devices.found import Found
from services.agent.devices.health import Fault, Health
from services.agent.local import Local
from services.agent.machine import Machine
from services.agent.settings import NodeSettings


@dataclass(slots=True)
class DevicesWatch:
    """`faults`: by index, what the last look has found; `details`: by key of an attempt that is ended for its device,
    why. `known`: those that were out at the look before the last one, too."""

    health: Health
    faults: dict[int, Fault] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    known: dict[int, bool] = field(default_factory=dict)

    @property
    def is_asked(self) -> bool:
        """Whether there is anything to look at."""
        return self.health.is_asked

    @property
    def out(self) -> dict[int, str]:
        """Why each device that is out is, by index."""
        return {index: fault.text for index, fault in self.faults.items()}

    def look(self) -> list[str]:
        """Asks; returns what is to be logged. Blocks."""
        before, self.faults = self.faults, self.health.look()
        self.known = {index: True for index in self.faults if index in before}
        remarks, self.health.remarks = self.health.remarks, []
        return remarks

    def to_end(self, work: NodeWork, known: Mapping[str, Local]) -> Iterator[tuple[Local, str]]:
        """Attempts that are to be ended for their devices, and why: those on broken ones that the log has as out. Over
        MQTT an agent does not see that; it gives its word the time from look to look.
        """
        broken = {index: fault.text for index, fault in self.faults.items() if fault.ends}
        if not broken:
            return
        logged = self.known
        if work.offer is not None:
            logged = {device.index: True for device in out_of(work.offer.devices)}
        for local in [local for local in known.values() if local.phase != "ended" and not local.stopping]:
            held = work.held.get(local.key)
            shares = held.devices if held is not None and held.run == local.admitted else []
            for share in shares:
                if share.index in broken and share.index in logged:
                    self.details[local.key] = f"its device {share.index} is broken: {broken[share.index]}"
                    yield local, self.details[local.key]
                    break

    def explain(self, local: Local) -> None:
        """Says of an attempt that was ended for its device that it was."""
        if local.phase == "ended" and (detail := self.details.pop(local.key, "")) and local.result is not None:
            if local.result.reason == "lost":
                local.result = replace(local.result, detail=detail)


async def with_devices(node: NodeSettings, machine: Machine) -> tuple[NodeSettings, Health]:
    """The node with its GPUs, which it is to find or has listed, in its capacity; and where it is asked how they
    are."""
    found = Found()
    if node.find_devices:
        found = await asyncio.to_thread(machine.find_devices)
        logger(service="agent", node=node.name).info("devices", found=found.text)
        node = replace(node, devices=found.devices)
    if node.devices:
        node = replace(node, capacity=with_gpus(node.capacity, sum(device.milli for device in node.devices)))
    return node, Health(node.devices, found, node.device_health)
