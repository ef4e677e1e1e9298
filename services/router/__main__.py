"""`python -m services.router`: chooses cells for jobs that name none, on the bus that the environment names."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve
from largesse.process.usage import Usage
from services.router.settings import VARIABLES, read_knobs
from services.router.shell import run

USAGE = Usage(
    "router",
    "Chooses a cell for jobs that name none (topic router.jobs), and moves those that wait. A second one stands by.",
    VARIABLES,
)

if __name__ == "__main__":
    sys.exit(serve(USAGE, lambda bus, settings, stop: run(bus, settings, read_knobs(), stop=stop), takes_all=True))
