"""One node's agent as a process, set up by LARGESSE_* (largesse/settings.py, and settings.py beside this)."""

import socket
import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.mqtt.settings import VARIABLES as MQTT
from largesse.process.health import Pages
from largesse.process.serve import serve
from largesse.process.usage import Usage
from largesse.settings import Settings
from schemas.edge.nodes import HTTPS
from services.agent.edge import opened
from services.agent.settings import VARIABLES, read_node_settings
from services.agent.shell import run
from services.agent.task_output import pages_of
from services.agent.task_results import results_beside

USAGE = Usage(
    "agent",
    "A node's agent: starts and stops tasks on this machine as the log says, and reports on them. It reads the log, or "
    "what a bridge has for it: LARGESSE_BUS=mqtt://USER@HOST:PORT, or mqtts://.",
    {**VARIABLES, **MQTT},
)


def _pages(settings: Settings) -> Pages:
    node = read_node_settings(settings)
    return results_beside(pages_of(node.name, node.data), node.name, node.data)


def _name(settings: Settings) -> str:
    """The host that LARGESSE_ADVERTISE names: the gateway asks for it. Over MQTT it may name none."""
    address = read_node_settings(settings).address.removeprefix(HTTPS)
    return address.rpartition(":")[0].strip("[]").lower() or socket.gethostname().lower()


if __name__ == "__main__":
    sys.exit(
        serve(USAGE, lambda bus, settings, stop: run(bus, read_node_settings(settings), stop), _pages, _name, opened)
    )
