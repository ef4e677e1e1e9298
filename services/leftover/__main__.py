"""`python -m services.leftover`: the service on the bus that the environment names (largesse/settings.py)."""

import sys

from largesse.process import serve_core
from services.leftover import core

if __name__ == "__main__":
    sys.exit(serve_core(core))
