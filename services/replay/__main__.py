"""`python -m services.replay`: what a gateway asks in a process of its own. `trial`: what would become of a job;
`whatif`: what the cell would have done otherwise.
"""

import os
import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.usage import Usage, answered
from largesse.telemetry import configure
from services.replay.live.hindsight import answer as whatif
from services.replay.live.trial import answer as trial

USAGE = Usage(
    "replay",
    "What a gateway asks in a process of its own.",
    filters={
        "trial": "Says what would become of a job that is submitted now: one question as JSON on stdin, the answer on"
        " stdout; between them it reads the bus of the gateway by the same way. `largesse submit --dry-run` asks it.",
        "whatif": "Decides the log of a cell again under what is different: one question as JSON on stdin, how far it"
        " is and then the answer on stdout. `largesse whatif` asks it.",
    },
)

FILTERS = {"trial": trial, "whatif": whatif}


def main() -> int:
    """The filter that the first word names. Returns the exit code."""
    code = answered(USAGE, sys.argv[1:])
    if code is not None:
        return code
    if not sys.argv[1:]:
        sys.stderr.write(USAGE.text())
        return 2
    configure(level="error")  # What it says of snapshots, the services say themselves.
    # Whatever else is printed must not stand between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        FILTERS[sys.argv[1]](sys.stdin.buffer, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
