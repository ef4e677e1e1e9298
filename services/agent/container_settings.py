"""How one agent runs containers: by which engine, and what it allows them of its node."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from largesse.settings import PREFIX, SettingWrong
from schemas.jobs import Network
from services.agent.engine import AUTO, OFF, SCHEME

CONTAINER_VARIABLES = {
    "NODE_ENGINE": (
        "auto",
        "container engine: auto (Docker, where socket and library are there), off, or unix:///PATH of a socket",
    ),
    "NODE_MOUNTS": (
        "none",
        "folders that containers may mount, with all below them, commas between; PATH:rw also to write",
    ),
    "NODE_IMAGES_KEEP_HOURS": (
        "168",
        "images that the agent has fetched are removed so long after their last use; 0: never",
    ),
    "NODE_IMAGES_KEEP_MIB": ("20480", "most disk space that they may take: those unused longest go first; 0: no limit"),
    "NODE_NETWORKS": ("none,bridge", "networks that containers may ask for: none, bridge, host, commas between"),
}
"""By name without the prefix: default and what it is."""
WRITABLE = ":rw"
NUMBER_MAX = 10**9


@dataclass(frozen=True, slots=True)
class AllowedMount:
    """A folder that containers may mount, and all below it."""

    path: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """`engine`: as in CONTAINER_VARIABLES."""

    engine: str = OFF
    mounts: tuple[AllowedMount, ...] = ()
    networks: tuple[str, ...] = ("none", "bridge")
    images_keep_s: int = 168 * 3_600
    images_keep_bytes: int = 20_480 << 20


def read_containers(environment: Mapping[str, str]) -> ContainerSettings:
    """As the environment has it. Raises SettingWrong."""
    engine = _text(environment, "NODE_ENGINE")
    if engine not in (AUTO, OFF) and not engine.startswith(f"{SCHEME}/"):
        raise SettingWrong(f"{PREFIX}NODE_ENGINE={engine}: has to be auto, off, or unix:///PATH")
    networks = tuple(word for word in _text(environment, "NODE_NETWORKS").split(",") if word)
    for network in networks:
        if network not in get_args(Network):
            known = ", ".join(get_args(Network))
            raise SettingWrong(f"{PREFIX}NODE_NETWORKS={network}: has to be some of {known}, commas between")
    keep_s = _number(environment, "NODE_IMAGES_KEEP_HOURS") * 3_600
    keep_bytes = _number(environment, "NODE_IMAGES_KEEP_MIB") << 20
    return ContainerSettings(engine, _mounts(_text(environment, "NODE_MOUNTS")), networks, keep_s, keep_bytes)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = _text(environment, name)
    if not text.isascii() or not text.isdecimal() or int(text) > NUMBER_MAX:
        raise SettingWrong(f"{PREFIX}{name}={text}: has to be a whole number from 0 to {NUMBER_MAX}")
    return int(text)


def _mounts(text: str) -> tuple[AllowedMount, ...]:
    if text == "none":
        return ()
    found = []
    for word in text.split(","):
        path = os.path.normpath(word.removesuffix(WRITABLE))
        if not path.startswith("/"):
            raise SettingWrong(f"{PREFIX}NODE_MOUNTS={word}: has to be paths that begin with /, or none")
        found.append(AllowedMount(path, word.endswith(WRITABLE)))
    return tuple(found)


def _text(environment: Mapping[str, str], name: str) -> str:
    return environment.get(f"{PREFIX}{name}") or CONTAINER_VARIABLES[name][0]
