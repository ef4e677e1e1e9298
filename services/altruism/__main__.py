"""`python -m services.altruism`: one shard of the service (LARGESSE_SHARD) on the bus that the environment names."""

import sys

from largesse.process import serve
from largesse.shell import run
from services.altruism import core

if __name__ == "__main__":
    sys.exit(serve(lambda bus, settings, stop: run(core, bus, settings, stop=stop, shard=settings.shard or 0)))
