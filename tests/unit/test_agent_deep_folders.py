"""Folders of ended jobs that a task has made hard to remove: each goes, and none keeps others from going."""

import os
import resource
from pathlib import Path

import pytest

from services.agent.clearing import clear
from tests.unit.test_agent_clearing import ALL, NOW_MS, attempt, kept

DEPTH = 3_000
"""Deeper than Python recurses, and than a path can say."""


def make_deep(folder: Path, mode: int = 0o700) -> None:
    """DEPTH folders, each in the last, with a file in each hundredth."""
    here = os.open(folder, os.O_RDONLY)
    for level in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        if level % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.fchmod(here, mode)
        os.close(here)
        here = inner
    os.close(here)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o700, 0o500, 0])
def test_a_deep_folder_is_put_away_and_removed_with_all_others(tmp_path, mode):
    make_deep(attempt(tmp_path, "deep", "7-e.1") / "work", mode)
    attempt(tmp_path, "flat", "8-e.1")

    done = clear(tmp_path, ["deep/7-e.1", "flat/8-e.1"], ALL, NOW_MS)
    assert (done["failed"], done["runs"]) == ([], 2)

    done = clear(tmp_path, [], {**ALL, "runs": 0}, NOW_MS)
    assert (done["removed"], done["runs"], kept(tmp_path)) == (2, 0, [])


@pytest.mark.slow
def test_few_descriptors_are_enough_for_any_depth(tmp_path):
    make_deep(attempt(tmp_path, "deep", "7-e.1") / "work")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 120, limits[1]))
    try:
        clear(tmp_path, ["deep/7-e.1"], ALL, NOW_MS)
        done = clear(tmp_path, [], {**ALL, "runs": 0}, NOW_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (done["removed"], kept(tmp_path)) == (1, [])


@pytest.mark.slow
def test_many_folders_side_by_side_and_below_each_other_are_removed(tmp_path):
    work = attempt(tmp_path, "j", "7-e.1") / "work"
    make_deep(work)
    for number in range(50):
        (work / "d" / "d" / f"e{number}" / "d" / "d").mkdir(parents=True)
        (work / "d" / "d" / f"e{number}" / "link").symlink_to("/")

    clear(tmp_path, ["j/7-e.1"], ALL, NOW_MS)

    assert clear(tmp_path, [], {**ALL, "runs": 0}, NOW_MS)["removed"] == 1
    assert Path("/etc").is_dir()
