"""`python -m services.altruism`: the shards of the service that are this instance's own (largesse/sharing.py)."""

import sys

from largesse.process import serve_core
from services.altruism import core

if __name__ == "__main__":
    sys.exit(serve_core(core))
