"""`python -m services.planner`: the service on the bus that the environment names (largesse/settings.py)."""

import sys

from largesse.process import serve
from largesse.shell import run
from services.planner import core

if __name__ == "__main__":
    sys.exit(serve(lambda bus, settings, stop: run(core, bus, settings, stop=stop)))
