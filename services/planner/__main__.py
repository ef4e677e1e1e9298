"""`python -m services.planner`: the service on the bus that the environment names (largesse/settings.py); `solve` and
`ask`, `reorganise`: one problem from stdin.
"""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve
from largesse.process.shards import run_assigned
from largesse.process.usage import Usage, answered
from services.planner import core
from services.planner.offline.dry_run import main as ask
from services.planner.offline.problem import KINDS
from services.planner.offline.reorganise_cell import main as reorganise
from services.planner.offline.solve import main as solve
from services.planner.shell import drive

USAGE = Usage(
    "planner",
    "When reserved work is to run (topic plans). A second instance stands by.",
    filters={
        "solve": 'Answers reservations offline, JSON on stdin, and writes the answer to stdout. Its "kind" is one of '
        f"{', '.join(KINDS)}. Exit code 2 where the problem is malformed.",
        "ask": "Says what the planner would answer to a request: one question as JSON on stdin, the answer on stdout."
        " `largesse reserve submit --dry-run` asks it. Exit code 2 where the question is malformed.",
        "reorganise": "Looks for a better plan of what a cell has promised: the cell as JSON on stdin, the plans on"
        " stdout. The service itself asks it (knob reservation_solver_ms). Exit code 2 where the question is"
        " malformed.",
    },
)

FILTERS = {"solve": solve, "ask": ask, "reorganise": reorganise}


def main() -> int:
    """The service, or the filter that the first word names. Returns the exit code."""
    code = answered(USAGE, sys.argv[1:])
    if code is not None:
        return code
    if sys.argv[1:]:
        return FILTERS[sys.argv[1]]()
    return serve(
        USAGE, lambda bus, settings, stop: run_assigned(core, bus, settings, stop=stop, drive=drive), takes_cells=True
    )


if __name__ == "__main__":
    sys.exit(main())
