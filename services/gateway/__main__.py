"""`python -m services.gateway`: the HTTP API over the bus that the environment names (shell.py)."""

import sys

from largesse.process import serve
from services.gateway.shell import run

if __name__ == "__main__":
    sys.exit(serve(lambda bus, settings, stop: run(bus, settings, stop=stop)))
