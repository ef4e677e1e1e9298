"""The same story gives the same log of the router, byte by byte, whatever the hash seed."""

import json
import os
import subprocess
import sys

from tests.conftest import ROOT


def told(seed):
    command = [sys.executable, "-m", "tests.simulation.router_story"]
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_two_hash_seeds_give_one_log_and_every_decision_follows_from_it():
    first, second = told("1"), told("2")

    assert first == second
    assert first["wrong"] == []
    assert first["moved"] > 0
    assert first["decided"] >= 30 + first["moved"]
    assert first["succeeded"] == sorted([f"j{number}", 1] for number in range(30))
