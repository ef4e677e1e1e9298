"""`python -m services.gateway`: the HTTP API over the bus that the environment names (shell.py)."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve
from largesse.process.usage import Usage
from services.gateway.shell import VARIABLES, run

USAGE = Usage(
    "gateway",
    "The HTTP API: follows the log, answers questions about the cell, and sends requests to the topics.",
    VARIABLES,
)

if __name__ == "__main__":
    sys.exit(serve(USAGE, lambda bus, settings, stop: run(bus, settings, stop=stop)))
