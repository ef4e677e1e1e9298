"""`python -m services.fairness`: the service on the bus that the environment names; `solve`: one problem from stdin."""

import sys

from largesse.process import serve_core
from services.fairness import core
from services.fairness.solve import main as solve

if __name__ == "__main__":
    if sys.argv[1:] == ["solve"]:
        sys.exit(solve())
    sys.exit(serve_core(core))
