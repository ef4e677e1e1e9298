"""`python -m services.gateway`: the HTTP API over the bus that the environment names (shell.py)."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve
from largesse.process.usage import Usage
from services.gateway.shell import VARIABLES, run

USAGE = Usage(
    "gateway",
    "The HTTP API: follows the log, answers what is in the cell, and sends what is asked for to the topics.",
    VARIABLES,
)

if __name__ == "__main__":
    sys.exit(serve(USAGE, lambda bus, settings, stop: run(bus, settings, stop=stop)))
