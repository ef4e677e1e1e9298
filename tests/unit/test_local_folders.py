"""Where results lie: the folders themselves where they are on this machine, else the pattern that a gateway knows."""

import pytest

from services.cli.local_folders import folders_here
from services.cli.show import tabbed
from services.cli.watching import job_text
from tests.unit.test_cli_rows import job


def made(top, *below):
    for each in below:
        (top / each).mkdir(parents=True)
    return [str(top / each) for each in below]


@pytest.mark.parametrize("name", ["data", "[a]*", "with space/jobs/ended"])
def test_a_pattern_is_every_folder_of_the_run_that_is_here(tmp_path, name):
    top = tmp_path / name
    first, second, _, _, live = made(
        top, "ended/1/j/7-a.1", "ended/12/j/7-b.2", "ended/1/j/71-a.1", "ended/1/k/7-a.1", "jobs/j/7-b.2"
    )

    assert folders_here(f"{top}/ended/*/j/7-*") == [first, second]
    assert folders_here(f"{top}/jobs/j/7-*") == [live]


@pytest.mark.parametrize("pattern", ["ended/*/j/7-*", "jobs/j/7-*"])
def test_what_is_not_here_stays_a_pattern(tmp_path, pattern):
    made(tmp_path, "ended/1/j/8-a.1", "jobs/k/7-a.1")
    (tmp_path / "jobs" / "j").mkdir()
    (tmp_path / "jobs" / "j" / "7-file").write_text("")

    assert folders_here(f"{tmp_path}/{pattern}") == [f"{tmp_path}/{pattern}"]


def test_get_job_shows_folders_that_are_here_and_which_run_it_is(tmp_path):
    (folder,) = made(tmp_path, "ended/3/j/9-a.1")
    results = [
        {"node": "here", "folder": f"{tmp_path}/ended/*/j/9-*", "until_ms": 5},
        {"node": "away", "folder": "/srv/ended/*/j/9-*", "until_ms": 5},
    ]
    document = job("j", "succeeded") | {"ended_ms": 1, "stages": [], "failures": [], "results": results}
    lines = job_text(document | {"run": 2}, tabbed).splitlines()

    assert [line.rpartition("\t")[2] for line in lines[-2:]] == [folder, "/srv/ended/*/j/9-*"]
    assert "run\t2" in lines
    assert not any(line.startswith("run\t") for line in job_text(document | {"run": 1}, tabbed).splitlines())
