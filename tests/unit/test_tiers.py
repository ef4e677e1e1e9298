"""What a daily run takes: parts of rotating tests by the commit, fewer examples, and at least one case of each test."""

import os
import subprocess
import sys

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.durations import function_of
from tests.tiers import taken, turn_of

SUITE = """
import pytest
from hypothesis import settings

@pytest.mark.whole
def test_whole(): pass

@pytest.mark.parametrize("case", [1, pytest.param(2, marks=pytest.mark.whole)])
def test_table(case): pass

@pytest.mark.rotating(3)
@pytest.mark.parametrize("case", range(12))
def test_rotating(case): pass

def test_examples(request):
    assert settings.default.max_examples == (10 if request.config.getoption("--daily") else 40)
"""


@for_all(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**64))
def test_the_parts_of_a_rotating_test_share_out_all_its_cases(count, parts, turn):
    cases = [f"case {number}" for number in range(count)]
    dealt = [taken(cases, parts, turn + each) for each in range(parts)]

    assert {case for part in dealt for case in part} == {*cases}
    assert all(dealt)
    assert count < parts or sum(map(len, dealt)) == count
    assert max(map(len, dealt)) <= -(-count // parts)


def test_commits_take_turns_and_one_commit_always_has_the_same():
    turns = [turn_of(f"{number:040x}") for number in range(100)]

    assert turns == [turn_of(f"{number:040x}") for number in range(100)]
    assert {turn % 3 for turn in turns} == {0, 1, 2}
    assert turn_of("") == 0


@pytest.mark.slow
def test_a_daily_run_leaves_out_what_is_whole_and_two_thirds_of_what_rotates_by_three(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)

    assert ran(tmp_path) == {"test_whole": 1, "test_table": 2, "test_rotating": 12, "test_examples": 1}
    assert ran(tmp_path, "--daily") == {"test_table": 1, "test_rotating": 4, "test_examples": 1}


def ran(folder, *options):
    """How many cases of each test ran in a process of its own, with this suite's conftest."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-v", *options]
    command += [f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}", str(folder)]
    env = {name: value for name, value in os.environ.items() if name != "HYPOTHESIS_PROFILE"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [function_of(line.split()[0]).rpartition("::")[2] for line in done.stdout.splitlines() if " PASSED" in line]
    return {name: found.count(name) for name in found}
