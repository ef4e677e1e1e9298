"""Drawn cells in which capacity is taken back: decided again as they were, under any hash seed, and by the laws.

`python -m tests.simulation.test_preemption FIRST LAST` draws as many as are asked for.
"""

import subprocess
import sys
from hashlib import sha256
from random import Random

import pytest

from largesse.log.export import ExportWriter
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.run import Options, simulate
from tests.conftest import ROOT
from tests.properties.preemption_laws import Drawn

SEEDS = (50, 280, 1_045)
"""In each of them something is taken back. The last: a room whose queue may claim less by now goes to another."""


def drawn(seed):
    return Drawn(Random(f"preemption {seed}").choice)


def digest(seed):
    """Names all that is written of a cell."""
    cell, whole = drawn(seed), sha256()
    simulate(cell.lines, cell.cluster, Options(cell.knobs, None, lambda _, __, content: whole.update(content)))
    return whole.hexdigest()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_cell_keeps_the_laws(seed):
    assert drawn(seed).run().taken


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_with_takings_is_decided_again_as_it_was(seed, tmp_path):
    cell, path = drawn(seed), tmp_path / "log.jsonl.gz"
    with ExportWriter(path) as writer:
        simulate(cell.lines, cell.cluster, Options(cell.knobs, None, writer))

    verdict = verify(open_source(path))

    assert verdict.difference is None
    assert verdict.rounds_compared > 0


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_no_order_of_hashes_shows_in_what_is_written(hash_seed):
    code = f"from tests.simulation.test_preemption import *; print(*map(digest, {SEEDS}))"
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True)

    assert found.stdout.decode().split() == [digest(seed) for seed in SEEDS]


def campaign(first, last):
    """Draws cells; prints how much was taken back in how many of them, and what broke a law."""
    taken = cells = 0
    for seed in range(first, last):
        try:
            laws = drawn(seed).run()
        except AssertionError as error:
            print(f"seed {seed}: {error}", flush=True)
            continue
        taken, cells = taken + laws.taken, cells + (laws.taken > 0)
    print(f"{last - first} cells; in {cells} of them {taken} attempts were taken back")


if __name__ == "__main__":
    campaign(int(sys.argv[1]), int(sys.argv[2]))
