"""`python -m services.fairness`: the service on the bus that the environment names; `solve`: one problem from stdin;
`effect`: what another config would do to shares, one question from stdin.
"""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve_core
from largesse.process.usage import Usage, answered
from services.fairness import core
from services.fairness.offline.dry_run import main as effect
from services.fairness.offline.problem import KINDS
from services.fairness.offline.solve import main as solve

FILTERS = {"solve": solve, "effect": effect}

USAGE = Usage(
    "fairness",
    "What every queue and job is entitled to (topic shares). A second instance stands by.",
    filters={
        "solve": 'Solves one problem of sharing, JSON on stdin, and writes the answer to stdout. Its "kind" is one of '
        f"{', '.join(KINDS)}. Exit code 2 where the problem is malformed.",
        "effect": "Says what another config would do to the shares of a cell: one question as JSON on stdin, the answer"
        " on stdout. `largesse config apply --dry-run` asks it. Exit code 2 where the question is malformed.",
    },
)


def main() -> int:
    """The service, or the filter that the first word names. Returns the exit code."""
    code = answered(USAGE, sys.argv[1:])
    if code is not None:
        return code
    return FILTERS[sys.argv[1]]() if sys.argv[1:] else serve_core(USAGE, core)


if __name__ == "__main__":
    sys.exit(main())
