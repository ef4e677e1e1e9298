"""A service as a process: what holds for all of them before their own work begins."""

import os
import subprocess
import sys

from tests.conftest import ROOT

SERVED = """
import gc
from largesse.process import COLLECTED_AFTER, serve
from largesse.usage import Usage

async def start(bus, settings, stop):
    gc.callbacks.append(lambda phase, info: walked.append(len(gc.get_objects())) if phase == "start" else None)
    gc.collect()
    print(gc.get_threshold() == COLLECTED_AFTER, gc.get_freeze_count() > 5 * walked[0])

walked = []
raise SystemExit(serve(Usage("toy", "A toy."), start))
"""


def test_the_collector_leaves_what_was_imported_alone():
    done = subprocess.run(
        [sys.executable, "-c", SERVED],
        cwd=ROOT,
        env=os.environ | {"LARGESSE_BUS": "memory:"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
