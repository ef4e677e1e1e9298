"""The examples of the client library run as they are shipped."""

import os
import subprocess
import sys

import pytest

from tests.live.up_process import GUARD_S
from tests.unit.cli_process import ROOT

EXAMPLES = sorted((ROOT / "examples" / "client").glob("*.py"))
LAST = {"word_count": "3 to\n2 be\n2 the", "primes": "9592 primes below 100000", "several_at_once": "three three"}
"""What each prints in the end."""


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_shipped(cell, path):
    env = os.environ | {"LARGESSE_URL": cell.url, "LARGESSE_USER": "ann", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=env, timeout=GUARD_S, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(LAST[path.stem] + "\n"), done.stdout
