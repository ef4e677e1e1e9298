"""`python -m services.bridge`: a bridge between MQTT and the bus that the environment names (settings.py)."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve
from largesse.process.usage import Usage
from largesse.settings import Settings
from services.bridge.asking import Asking
from services.bridge.settings import VARIABLES, read_broker
from services.bridge.shell import own_name, run

USAGE = Usage(
    "bridge",
    "Nodes that speak MQTT: tells them what the log has for them, and passes on what they report. Several share them.",
    VARIABLES,
)


def main() -> int:
    """Until a signal; returns the exit code."""
    name = own_name()
    asked: dict[str, Asking] = {}

    def asking_of(settings: Settings) -> Asking:
        return asked.setdefault(settings.cell, Asking(settings.cell, name))

    return serve(
        USAGE,
        lambda bus, settings, stop: run(bus, settings, read_broker(settings), stop, asking_of(settings)),
        lambda settings: asking_of(settings).pages,
    )


if __name__ == "__main__":
    sys.exit(main())
