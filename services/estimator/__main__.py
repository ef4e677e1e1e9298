"""`python -m services.estimator`: the service on the bus that the environment names (largesse/settings.py)."""

import sys

from largesse.process import serve_core
from services.estimator import core

if __name__ == "__main__":
    sys.exit(serve_core(core))
