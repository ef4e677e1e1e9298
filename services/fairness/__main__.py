"""`python -m services.fairness`: the service on the bus that the environment names; `solve`: one problem from stdin;
`effect`: what another config would do to shares, one question from stdin.
"""

import sys

from largesse.process import serve_core
from services.fairness import core
from services.fairness.effect import main as effect
from services.fairness.solve import main as solve

FILTERS = {"solve": solve, "effect": effect}

if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in FILTERS:
        sys.exit(FILTERS[sys.argv[1]]())
    sys.exit(serve_core(core))
