"""A cell of real shells, agents and a client under every order of faults (tests/faults): what holds, and what is found.

Fixed seeds on every run, and a few fresh ones, which are printed first. A seed that has found a bug is a test by name.
"""

import os
import secrets
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.conftest import ROOT
from tests.faults.batch import play
from tests.faults.checks import check
from tests.faults.plan import Fault, draw
from tests.faults.planted import PLANTED
from tests.faults.shrink import candidates, shrink
from tests.faults.world import run

FIXED, FRESH = 50, 5
DIGESTED = (3, 6)
"""Two seeds that are played in two processes of unlike hash seeds."""


def test_fixed_seeds_hold_and_meet_all_that_there_is_to_meet():
    batch = play(range(FIXED))

    assert [(report.plan.seed, str(report.wrong[0])) for report in batch.failed] == []
    assert batch.missed() == []


def test_fresh_seeds_hold():
    first = secrets.randbelow(1 << 32)
    print(f"seeds {first} to {first + FRESH - 1}")

    batch = play(range(first, first + FRESH))

    assert [(report.plan.seed, str(report.wrong[0])) for report in batch.failed] == []


def digests(hash_seed: int) -> list[str]:
    """What two seeds come to in a process of its own."""
    code = "import sys\nfrom tests.faults.plan import draw\nfrom tests.faults.world import run\n"
    code += "print([run(draw(int(seed))).digest for seed in sys.argv[1:]])"
    command = [sys.executable, "-c", code, *map(str, DIGESTED)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    return [subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout]


def test_a_seed_is_the_same_run_to_the_byte_under_any_hash_seed():
    assert digests(1) == digests(2)


def test_a_seed_is_the_same_run_whatever_was_played_before():
    first = run(draw(DIGESTED[0])).digest
    run(draw(DIGESTED[1]))

    assert run(draw(DIGESTED[0])).digest == first


# ---------------------------------------------------------------- planted bugs
FOUND = {
    "no_fsync": 0,
    "seq_unchecked": 3,
    "newer_claim_ignored": 7,
    "running_state_kept": 0,
    "snapshot_before_closing": 0,
    "lease_cut_short": 19,
    "shims_heed_no_lease": 5,
    "outbox_forgets": 6,
    "dropped_run_on": 13,
    "starts_after_a_pause": 5,
    "inputs_skipped": 0,
    "adopted_as_lost": 1,
    "opening_unanswered": 0,
}
"""Bugs, and the seeds from 0 on that find them first: it takes one seed more than that."""


@pytest.mark.parametrize("bug", FOUND)
def test_a_planted_bug_is_found(bug):
    with PLANTED[bug]():
        assert run(draw(FOUND[bug]), check=check).wrong


def test_a_failing_seed_shrinks_to_what_it_takes():
    def breaks(plan):
        return any(fault.kind == "power" for fault in plan.faults)

    plan = replace(draw(2), faults=(Fault(4_000, "kill", "gateway", 500), Fault(9_000, "power", "everything", 900)))
    small = shrink(plan, breaks)

    assert small.faults == (Fault(9_000, "power", "everything", 900),)
    assert (len(small.jobs), len(small.nodes), small.standbys) == (1, 1, ())
    assert all(candidate.size() < plan.size() for candidate in candidates(plan))
