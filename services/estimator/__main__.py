"""`python -m services.estimator`: the service on the bus that the environment names (largesse/settings.py)."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve_core
from largesse.process.usage import Usage
from services.estimator import core

USAGE = Usage(
    "estimator",
    "What running tasks of each class of jobs will have given back soon (topic releases). A second instance stands by.",
)

if __name__ == "__main__":
    sys.exit(serve_core(USAGE, core))
