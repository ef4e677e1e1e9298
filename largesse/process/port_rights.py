"""Who is answered at the ports of metrics and output: by how a port is set up, and by what who asks shows.

The port itself refuses by its handshake (health.py, tls.py); this is the table that its page shows and its test tries.
"""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["plain", "tls", "mutual"]
Caller = Literal["http", "tls", "stranger", "peer"]

MODES: dict[Mode, str] = {
    "plain": "no certificate",
    "tls": "`LARGESSE_PEER_CERT_FILE`",
    "mutual": "also `LARGESSE_PEER_CA_FILE`",
}
"""How a port is set up."""

CALLERS: dict[Caller, str] = {
    "http": "HTTP",
    "tls": "HTTPS, and shows no certificate",
    "stranger": "HTTPS, with a certificate of another authority",
    "peer": "HTTPS, with a certificate of the cell's authority",
}
"""How somebody asks."""

ANSWERED: dict[Mode, tuple[Caller, ...]] = {
    "plain": ("http",),
    "tls": ("tls", "stranger", "peer"),  # The port asks for none, so that none is shown.
    "mutual": ("peer",),
}


@dataclass(frozen=True, slots=True)
class PortPage:
    """What is answered there. `services`: by which; empty: by all."""

    path: str
    about: str
    services: tuple[str, ...] = ()


PAGES = (
    PortPage("/livez", "whether the process lives"),
    PortPage("/readyz", "whether it is ready, or what it waits for"),
    PortPage("/metrics", "its counters, for Prometheus"),
    PortPage("/v1/output/{job}/{stage}/{index}", "what a task has printed", ("agent",)),
    PortPage("/v1/results/{job}/{stage}/{index}", "what a task has left", ("agent",)),
    PortPage("/v1/nodes/{node}/output/...", "the same of a task on a node over MQTT", ("bridge",)),
    PortPage("/v1/nodes/{node}/results/...", "the same of what it has left", ("bridge",)),
)


def is_answered(mode: Mode, caller: Caller) -> bool:
    """Whether somebody who asks so is answered at all; then every page is."""
    return caller in ANSWERED[mode]
