"""The container engine of a node, as its agent asks it: by docker-py, which an agent without containers need not have.

Docker, or Podman by its compatible socket. What guards a single container asks for itself (engine_socket.py).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

AUTO, OFF = "auto", "off"
DOCKER_SOCKET = "/var/run/docker.sock"
SCHEME = "unix://"
ANSWER_S = 20
FETCH_S = 600
"""So long may be silent who fetches an image."""
NOT_FOUND = 404
FINAL = ("not found", "manifest unknown", "denied", "unauthorized", "no matching manifest", "invalid reference")
"""What registries say of an image that another try will not give."""
CREATED_BY = "largesse.attempt"
"""The label of every container of an attempt: the attempt's key."""
NODE = "largesse.data"
"""The label with the data folder's key, by which containers of one agent are found."""


class NoEngine(Exception):
    """There is no container engine at the moment: says why."""


class ImageRefused(Exception):
    """An image was not fetched: says why. `final`: another try would get the same answer."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


@dataclass(frozen=True, slots=True)
class About:
    """What an engine is. `groups`: whether the control groups of its containers lie where they are asked for; `init`:
    whether it has a first process for containers, which passes signals on and reaps orphans.
    """

    name: str
    version: str
    groups: bool
    init: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A container of an attempt, by its key."""

    name: str
    key: str
    running: bool


def socket_of(where: str) -> str:
    """The path of the engine's socket. Raises NoEngine where there is none to look for."""
    if where == OFF:
        raise NoEngine("LARGESSE_NODE_ENGINE=off")
    path = DOCKER_SOCKET if where == AUTO else where.removeprefix(SCHEME)
    if not Path(path).is_socket():
        raise NoEngine(f"there is no socket {path}")
    return path


class Engine:
    """The one at a place of LARGESSE_NODE_ENGINE. Everything blocks, and is for one thread at a time."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._client: docker.APIClient | None = None

    def close(self) -> None:
        """Keeps no connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def about(self) -> About:
        """What it is. Raises NoEngine."""
        with self.asked() as client:
            info, version = client.info(), client.version()
        parts = [str(part.get("Name", "")).lower() for part in version.get("Components") or []]
        podman = any("podman" in part for part in parts)
        docker_groups = not podman and info.get("CgroupDriver") == "cgroupfs" and os.geteuid() == 0
        init = podman or bool(info.get("InitBinary"))
        return About("Podman" if podman else "Docker", str(version.get("Version", "?")), docker_groups, init)

    def containers(self, node: str) -> list[Found]:
        """All of an agent's attempts, also those that have ended. Raises NoEngine."""
        with self.asked() as client:
            rows = client.containers(all=True, filters={"label": f"{NODE}={node}"})
        return [
            Found(row["Names"][0].lstrip("/"), row["Labels"].get(CREATED_BY, ""), row["State"] == "running")
            for row in rows
            if row.get("Names")
        ]

    def remove(self, name: str) -> None:
        """Ends a container, if it runs, and removes it, if it is there. Raises NoEngine."""
        from docker import errors

        with self.asked() as client:
            try:
                client.remove_container(name, v=True, force=True)
            except errors.NotFound:
                return
            except errors.APIError as error:
                raise NoEngine(f"it does not remove a container: {error.explanation or error}") from None

    # ---------------------------------------------------------------- images
    def has_image(self, image: str) -> bool:
        """Whether it is there. Raises NoEngine."""
        return self.image_bytes(image) is not None

    def image_bytes(self, image: str) -> int | None:
        """How large it is; None: it is not there. Raises NoEngine."""
        from docker import errors

        with self.asked() as client:
            try:
                return int(client.inspect_image(image).get("Size") or 0)
            except errors.NotFound:
                return None
            except errors.APIError as error:
                raise NoEngine(f"it does not say what it has: {error.explanation or error}") from None

    def fetch_image(self, image: str, over: Callable[[], bool], said: Callable[[str], None]) -> None:
        """Until it is there, or `over`; `said`: how far that has come. Raises ImageRefused, NoEngine."""
        from docker import errors, utils

        name, tag = utils.parse_repository_tag(image)
        layers: dict[str, tuple[int, int]] = {}
        with self.asked(FETCH_S) as client:
            try:
                for event in client.pull(name, tag=tag or "latest", stream=True, decode=True):
                    if "error" in event:
                        raise ImageRefused(event["error"], final=_is_final(event["error"]))
                    part = event.get("progressDetail") or {}
                    if part.get("total") and event.get("status") == "Downloading":
                        layers[event["id"]] = part["current"], part["total"]
                        got, whole = (sum(each[i] for each in layers.values()) >> 20 for i in (0, 1))
                        said(f"{got} of {whole} MiB of {len(layers)} layers")
                    if over():
                        raise ImageRefused("its agent has ended", final=True)
            except errors.APIError as error:
                why = str(error.explanation or error)
                raise ImageRefused(why, final=error.status_code == NOT_FOUND or _is_final(why)) from None

    def remove_image(self, image: str) -> bool:
        """False where containers, or other images, still need it. Raises NoEngine."""
        from docker import errors

        with self.asked() as client:
            try:
                client.remove_image(image)
            except errors.NotFound:
                return True
            except errors.APIError:
                return False
        return True

    @contextmanager
    def asked(self, wait_s: int = ANSWER_S) -> Iterator["docker.APIClient"]:
        """The client of docker-py; what it meets becomes NoEngine, but for what the engine says of one thing."""
        try:
            import docker
            import requests
        except ImportError:
            raise NoEngine("the library docker is not installed: pip install largesse[containers]") from None
        try:
            if self._client is None:
                base = f"{SCHEME}{socket_of(self._where)}"
                self._client = docker.APIClient(base_url=base, timeout=wait_s, version="1.40")
            yield self._client
        except (docker.errors.NotFound, docker.errors.APIError):
            raise
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            self.close()
            raise NoEngine(f"the container engine does not answer: {error}") from None


def _is_final(why: str) -> bool:
    return any(word in why.lower() for word in FINAL)
