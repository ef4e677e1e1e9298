"""`python -m services.planner`: the service on the bus that the environment names (largesse/settings.py); `solve` and
`ask`: one problem from stdin.
"""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve_core
from largesse.process.usage import Usage, answered
from services.planner import core
from services.planner.offline.dry_run import main as ask
from services.planner.offline.problem import KINDS
from services.planner.offline.solve import main as solve

USAGE = Usage(
    "planner",
    "When reserved work is to run (topic plans). A second instance stands by.",
    filters={
        "solve": 'Answers reservations offline, JSON on stdin, and writes the answer to stdout. Its "kind" is one of '
        f"{', '.join(KINDS)}. Exit code 2 where the problem is malformed.",
        "ask": "Says what the planner would answer to a request: one question as JSON on stdin, the answer on stdout."
        " `largesse reserve submit --dry-run` asks it. Exit code 2 where the question is malformed.",
    },
)

FILTERS = {"solve": solve, "ask": ask}


def main() -> int:
    """The service, or the filter that the first word names. Returns the exit code."""
    code = answered(USAGE, sys.argv[1:])
    if code is not None:
        return code
    return FILTERS[sys.argv[1]]() if sys.argv[1:] else serve_core(USAGE, core)


if __name__ == "__main__":
    sys.exit(main())
