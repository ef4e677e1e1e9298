"""`python -m services.admission`: a sequencer, or a standby of it, on the bus that the environment names."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve
from largesse.process.usage import Usage
from services.admission.sequencer import run

USAGE = Usage(
    "admission",
    "The sequencer: validates input, writes the cell's log, opens and closes rounds. A second instance stands by.",
)

if __name__ == "__main__":
    sys.exit(serve(USAGE, lambda bus, settings, stop: run(bus, settings, stop=stop), takes_cells=True))
