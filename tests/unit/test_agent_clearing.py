"""What ended jobs left: put away in the order of their ends, and the oldest of it removed beyond the limits."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from largesse.task_output import Wanted, folder_name
from services.agent import clearing
from services.agent.clearing import ENDED, INDEX, JOBS, LOCK, clear
from services.agent.folders import Kept, attempt_folder, live_name
from services.agent.found import places
from services.agent.runs import BATCH_RUNS, ClearingFailed, Runs, put_away, runs_of_jobs
from services.agent.task_output import read_piece

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
ALL = {"age_ms": 10**12, "bytes": 1 << 60, "runs": 10**9, "inodes": 10**9}


def attempt(data: Path, job="j", run="7-e.1", **files) -> Path:
    """An attempt's folder with what a shim leaves behind."""
    folder = attempt_folder(data, job, run, "s", 0, 1)
    (folder / "work").mkdir(parents=True)
    left = {"task.json": b"{}", "claim.json": b"{}", "child.json": b"{}", "result.json": b"{}", "shim.err": b""}
    for name, content in (left | {"stdout": b"", "stderr": b""} | files).items():
        (folder / name).write_bytes(content)
    return folder


def some(data, count, first=0):
    """Runs of as many jobs, named as they have to be to be put away."""
    for number in range(first, first + count):
        attempt(data, job=f"j{number}", run=f"{number}-e.1")
    return [f"j{number}/{number}-e.1" for number in range(first, first + count)]


def kept(data) -> list[str]:
    """JOB/RUN of what has been put away and is still there, shelf by shelf."""
    shelves = sorted((data / ENDED).glob("[0-9]*"), key=lambda shelf: int(shelf.name))
    return [f"{run.parent.name}/{run.name}" for shelf in shelves for run in sorted(shelf.glob("*/*"))]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_runs_that_are_put_away_leave_the_folder_of_those_that_live(tmp_path):
    names = some(tmp_path, 3)
    done = clear(tmp_path, names[:2], ALL, NOW_MS)

    assert (done["failed"], done["runs"], done["removed"]) == ([], 2, 0)
    assert runs_of_jobs(tmp_path) == names[2:]
    assert kept(tmp_path) == names[:2]


def test_the_output_of_what_was_put_away_can_still_be_read(tmp_path):
    attempt(tmp_path, "a b", "7-e.1", stdout=b"told")
    clear(tmp_path, ["a b/7-e.1"], ALL, NOW_MS)

    piece = read_piece(tmp_path, Wanted("a b", "s", 0))
    assert piece is not None
    assert piece.data == b"told"


def test_only_what_somebody_may_want_to_see_is_kept_of_an_attempt(tmp_path):
    attempt(tmp_path, "empty", "1-e")
    left = attempt(tmp_path, "left", "2-e", **{"shim.err": b"oops"})
    (left / "work" / "found").write_bytes(b"x")
    clear(tmp_path, ["empty/1-e", "left/2-e"], ALL, NOW_MS)

    found = {place.job: names_in(place.folder) for place in places(tmp_path, ended=True)}
    assert found == {
        "empty": ["stderr", "stdout", "task.json"],
        "left": ["shim.err", "stderr", "stdout", "task.json", "work"],
    }


def test_ages_go_by_the_log_time_that_is_given(tmp_path):
    clear(tmp_path, some(tmp_path, 1), ALL, NOW_MS)

    assert clear(tmp_path, [], {**ALL, "age_ms": DAY_MS}, NOW_MS + DAY_MS)["removed"] == 0
    assert clear(tmp_path, [], {**ALL, "age_ms": DAY_MS}, NOW_MS + DAY_MS + 1)["removed"] == 1


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        ({"runs": 3}, 3),
        ({"runs": 0}, 0),
        ({"bytes": 2_999}, 2),
        ({"bytes": 3_000}, 3),
        ({"inodes": 3 * 7 - 1}, 2),
        ({"inodes": 3 * 7}, 3),
        ({"age_ms": -1}, 0),
    ],
)
def test_the_oldest_go_first_when_a_limit_is_passed(tmp_path, limit, left):
    names = []
    for number in range(5):
        attempt(tmp_path, f"j{number}", "7-e", stdout=b"x" * 998)
        names.append(f"j{number}/7-e")
    done = clear(tmp_path, names, {**ALL, **limit}, NOW_MS)

    assert kept(tmp_path) == names[5 - left :]
    assert (done["removed"], done["runs"]) == (5 - left, left)


def test_nothing_of_ended_jobs_is_kept_where_the_disk_has_not_the_room_that_has_to_stay_free(tmp_path, monkeypatch):
    names = some(tmp_path, 3)
    clear(tmp_path, names, {**ALL, "free_bytes": 0}, NOW_MS)
    assert kept(tmp_path) == names

    monkeypatch.setattr(clearing, "SMALL_DISK_PARTS", 1)

    assert clear(tmp_path, [], {**ALL, "free_bytes": 1 << 62}, NOW_MS)["removed"] == 3
    assert kept(tmp_path) == []


def test_shelves_fill_one_after_the_other_and_empty_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr(clearing, "SHELF_RUNS", 2)
    names = some(tmp_path, 5)
    clear(tmp_path, names, ALL, NOW_MS)
    assert names_in(tmp_path / ENDED) == ["1", "2", "3", LOCK]

    clear(tmp_path, [], {**ALL, "runs": 2}, NOW_MS)
    assert names_in(tmp_path / ENDED) == ["2", "3", LOCK]
    assert kept(tmp_path) == names[3:]
    clear(tmp_path, some(tmp_path, 1, first=5), {**ALL, "runs": 1}, NOW_MS)
    assert kept(tmp_path) == ["j5/5-e.1"]


def test_what_is_kept_is_known_again_without_a_look_into_its_folders(tmp_path):
    clear(tmp_path, some(tmp_path, 4), ALL, NOW_MS)
    first = clear(tmp_path, [], ALL, NOW_MS)
    for shelf in (tmp_path / ENDED).glob("[0-9]*/j[1-9]"):
        shelf.chmod(0)
    again = clear(tmp_path, [], ALL, NOW_MS)
    for shelf in (tmp_path / ENDED).glob("[0-9]*/j[1-9]"):
        shelf.chmod(0o700)
    assert {**again, "removed": 0} == first
    assert first["inodes"] == 4 * 7


def test_a_run_that_is_not_there_any_more_is_no_failure(tmp_path):
    assert clear(tmp_path, ["never/1-e"], ALL, NOW_MS)["failed"] == []
    clear(tmp_path, some(tmp_path, 1), ALL, NOW_MS)
    assert clear(tmp_path, ["j0/0-e.1", "j0/9-e"], ALL, NOW_MS)["failed"] == []


def test_a_run_of_the_same_name_is_put_beside_the_first(tmp_path):
    clear(tmp_path, some(tmp_path, 1), ALL, NOW_MS)
    assert clear(tmp_path, some(tmp_path, 1), ALL, NOW_MS)["failed"] == []
    assert len(list(places(tmp_path, ended=True))) == 2
    clear(tmp_path, [], {**ALL, "runs": 0}, NOW_MS)
    assert kept(tmp_path) == []


@pytest.mark.parametrize("at", ["before the run is moved", "after the run is moved"])
def test_a_process_that_dies_anywhere_leaves_nothing_that_would_never_go(tmp_path, monkeypatch, at):
    names = some(tmp_path, 2)
    whole = clearing.Shelves._move

    def dying(self, *args):
        if at.startswith("after"):
            whole(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(clearing.Shelves, "_move", dying)
    with pytest.raises(KeyboardInterrupt):
        clear(tmp_path, names[:1], ALL, NOW_MS)
    monkeypatch.setattr(clearing.Shelves, "_move", whole)

    clear(tmp_path, runs_of_jobs(tmp_path), ALL, NOW_MS)
    assert sorted(kept(tmp_path)) == names
    clear(tmp_path, [], {**ALL, "runs": 0}, NOW_MS)
    assert kept(tmp_path) == []
    assert runs_of_jobs(tmp_path) == []


def test_what_a_task_has_locked_is_put_away_and_removed_too(tmp_path):
    folder = attempt(tmp_path)
    (folder / "work" / "deep").mkdir()
    (folder / "work" / "deep" / "file").write_bytes(b"")
    (folder / "work" / "link").symlink_to("/")
    (folder / "work" / "deep").chmod(0o500)
    (folder / "work").chmod(0)
    folder.parent.chmod(0)

    assert clear(tmp_path, ["j/7-e.1"], {**ALL, "runs": 0}, NOW_MS)["removed"] == 1
    assert kept(tmp_path) == []


def test_no_link_leads_out_of_the_data_folder(tmp_path):
    outside = tmp_path / "outside"
    (outside / "7-e" / "s" / "0.1").mkdir(parents=True)
    (outside / "7-e" / "s" / "0.1" / "result.json").write_bytes(b"{}")
    data = tmp_path / "data"
    (data / JOBS).mkdir(parents=True)
    (data / JOBS / "j").symlink_to(outside)
    (data / JOBS / "k").mkdir()
    (data / JOBS / "k" / "7-e").symlink_to(outside / "7-e")

    assert clear(data, ["j/7-e", "k/7-e", "../outside", "x/../../outside"], {**ALL, "runs": 0}, NOW_MS)["removed"] == 0
    assert (outside / "7-e" / "s" / "0.1" / "result.json").exists()


@pytest.mark.parametrize(
    "line",
    [b"torn", b"[1,2,3]\n", b'[0,0,0,"..",".."]\n', b"{}\n", b'[0,-1,0,"a","b"]\n', b"\xff\n"],
)
def test_an_index_may_hold_anything(tmp_path, line):
    clear(tmp_path, some(tmp_path, 1), ALL, NOW_MS)
    with (tmp_path / ENDED / "1" / INDEX).open("ab") as index:
        index.write(line)
    assert clear(tmp_path, [], ALL, NOW_MS)["runs"] == 1


# ---------------------------------------------------------------- which runs are over
def test_a_run_is_over_once_its_job_has_ended_and_all_its_attempts_are_forgotten():
    runs, name = Runs(), live_name("a b", 7)
    runs.began(name, "a b/7-e.1")
    runs.began(name, "a b/7-e.2")
    runs.ended(name)
    assert runs.take() == []
    runs.forgotten(name)
    assert runs.take() == []
    runs.forgotten(name)
    assert runs.take() == ["a b/7-e.1", "a b/7-e.2"]
    assert (runs.folders, runs.held, runs.over) == ({}, {}, {})


def test_a_run_whose_job_lives_is_not_over_though_nothing_of_it_runs():
    runs, name = Runs(), live_name("j", 7)
    runs.began(name, "j/7-e.1")
    runs.forgotten(name)
    assert runs.take() == []
    runs.ended(name)
    assert runs.take() == ["j/7-e.1"]


def test_jobs_that_had_nothing_on_this_node_leave_nothing_to_remember():
    runs = Runs()
    runs.ended(live_name("elsewhere", 7))
    assert (runs.over, runs.waiting) == ({}, type(runs.waiting)())


def test_what_is_found_at_a_start_is_over_unless_its_job_lives():
    runs, live = Runs(), live_name("a", 7)
    runs.began(live_name("held", 2), "held/2-e.1")
    runs.found(["a/7-e.1", "a/77-e.1", "b/7-e.1", "held/2-e.1"], {live: True})
    assert runs.take() == ["a/77-e.1", "b/7-e.1"]
    runs.forgotten(live_name("held", 2))
    runs.ended(live)
    assert runs.take() == ["held/2-e.1", "a/7-e.1"]


def test_a_batch_has_a_limit_and_what_failed_is_tried_again():
    runs = Runs()
    runs.found([f"j{n}/1-e" for n in range(BATCH_RUNS + 1)], {})
    assert len(runs.take()) == BATCH_RUNS
    assert runs.behind == BATCH_RUNS + 1
    runs.put_away(["x/1-e"])
    assert runs.behind == 2
    runs.try_again()
    assert runs.take() == [f"j{BATCH_RUNS}/1-e", "x/1-e"]


# ---------------------------------------------------------------- the process
def test_a_process_of_its_own_puts_runs_away(tmp_path):
    names = some(tmp_path, 3)
    done = asyncio.run(put_away(tmp_path, names, replace(Kept(), runs=1), NOW_MS))
    assert done == {"failed": [], "removed": 2, "runs": 1, "bytes": 2, "inodes": 7}
    assert kept(tmp_path) == names[2:]


def test_a_process_that_cannot_do_it_says_why(tmp_path):
    with pytest.raises(ClearingFailed, match="No such file"):
        asyncio.run(put_away(tmp_path / "none", [], Kept(), NOW_MS))


def test_names_of_jobs_are_taken_as_they_lie_in_folders(tmp_path):
    attempt(tmp_path, "ä/ö".replace("/", " "), "7-e")
    (name,) = runs_of_jobs(tmp_path)
    assert name == f"{folder_name('ä ö')}/7-e"
    assert json.loads(json.dumps(name)) == name
    assert clear(tmp_path, [name], ALL, NOW_MS)["runs"] == 1
