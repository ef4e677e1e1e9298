"""One node's agent as a process, set up by LARGESSE_* (largesse/settings.py, and settings.py beside this)."""

import sys

from largesse.process import serve
from services.agent.settings import read_node_settings
from services.agent.shell import run

if __name__ == "__main__":
    sys.exit(serve(lambda bus, settings, stop: run(bus, read_node_settings(settings.partition), stop)))
