"""`python -m services.altruism`: the service's shards that are this instance's own (largesse/process/shards.py)."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process.serve import serve_core
from largesse.process.usage import Usage
from services.altruism import core

USAGE = Usage(
    "altruism",
    "What each job asks for of its queue's share (topic asks). Instances divide the shards among themselves; further"
    " instances stand by.",
)

if __name__ == "__main__":
    sys.exit(serve_core(USAGE, core))
