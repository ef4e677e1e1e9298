"""`python -m services.admission`: a sequencer, or a standby of it, on the bus that the environment names."""

import sys

from largesse.process import serve
from services.admission.shell import run

if __name__ == "__main__":
    sys.exit(serve(lambda bus, settings, stop: run(bus, settings, stop=stop)))
