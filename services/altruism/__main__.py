"""`python -m services.altruism`: the shards of the service that are this instance's own (largesse/sharing.py)."""

import sys

import largesse.privacy  # noqa: F401 - first: what the environment holds can be read until then
from largesse.process import serve_core
from largesse.usage import Usage
from services.altruism import core

USAGE = Usage(
    "altruism",
    "What each job asks for of its queue's share (topic asks). Shards are dealt out among the instances that run;"
    " what is left over stands by.",
)

if __name__ == "__main__":
    sys.exit(serve_core(USAGE, core))
