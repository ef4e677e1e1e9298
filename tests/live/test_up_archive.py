"""`largesse up --archive`: a running cell has its log archived and checkpoints made, and its beginning is let go of."""

import json
import os
import signal
from pathlib import Path

import pytest

from largesse.archive.store import FolderStore
from largesse.bus.file.lock import DirectoryHeld, DirectoryLock
from largesse.bus.file.trimming import ASKED_NAME, TRIMMED_NAME
from services.cli.hosting import BUS
from services.cli.keeping import LOCK_NAME
from services.replay.checkpoint_logs import in_folder, noted
from tests.live.up_process import eventually, up
from tests.unit.cli_here import largesse

pytestmark = pytest.mark.slow

SETTINGS = {
    "LARGESSE_SNAPSHOT_ROUNDS": "2",
    "LARGESSE_CHECKPOINT_EVERY": "0",
    "LARGESSE_KEEP_LOG": "0",
    "LARGESSE_SEGMENT_AGE": "1s",
}


def job(name):
    stage = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "1m"}}
    return json.dumps({"job": name, "stages": [stage]})


def holder(data):
    """The process that keeps the log; None while there is none."""
    try:
        DirectoryLock(data / BUS, LOCK_NAME).release()
    except DirectoryHeld as held:
        return held.pid
    return None


def test_the_log_of_a_running_cell_is_archived_checkpointed_and_let_go_of_also_after_a_kill(tmp_path):
    data, store = tmp_path / "data", tmp_path / "archive"
    with up(data, "--archive", store, **SETTINGS) as cell:
        numbers = iter(range(1_000))

        def has(count):
            name = f"j{next(numbers)}"
            cell.ask("submit", "-", stdin=job(name))
            cell.until(name, lambda document: document["state"] == "succeeded")
            return len(noted(FolderStore(store), in_folder(data / BUS))) >= count

        eventually(lambda: has(1))
        first = eventually(lambda: holder(data))
        os.kill(first, signal.SIGKILL)
        eventually(lambda: has(2))
        assert eventually(lambda: holder(data)) != first
        eventually(lambda: any((data / BUS / name).exists() for name in (ASKED_NAME, TRIMMED_NAME)))
        code, _, err = cell.end()
    assert code == 0, err
    assert holder(data) is None, "it ends with the cell"
    assert largesse("archive", "verify", str(store)).code == 0
    said = largesse("replay", str(data), "--archive", str(store), "--verify")
    assert said.code == 0, said.err


@pytest.mark.parametrize("store", ["", "ftp://there/north"])
def test_what_is_no_store_is_refused(tmp_path, store):
    said = largesse("up", "--data", str(tmp_path / "data"), "--archive", store)

    assert said.code == 2
    assert "--archive" in said.err
    assert not Path(tmp_path / "data").exists()
