"""Whatever a task leaves in its attempt's folder: the attempt is lost, and nothing else happens."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.task_output import Wanted
from schemas.edge.read import read_input
from services.agent import shim
from services.agent.attempts import Attempts
from services.agent.documents import CHILD, CLAIM, DOCUMENT_BYTES_MAX, RESULT, STOP, TASK
from services.agent.folders import attempt_folder
from services.agent.found import places
from services.agent.outbox import known_attempts
from services.agent.proc import start_ticks
from services.agent.settings import NodeSettings
from services.agent.task_output import read_piece

RUN = "5-e.1"
TASK_DOCUMENT = {
    "key": "j/map/0/1", "job": "j", "stage": "map", "index": 0, "attempt": 1, "admitted": 5, "command": ["true"],
}  # fmt: skip
DOCUMENTS = {
    TASK: TASK_DOCUMENT,
    CLAIM: {"pid": 1 << 22, "start": 1, "boot": "b"},
    RESULT: {"state": "succeeded", "run_ms": 7, "exit_code": 0, "peak_mib": 3, "detail": ""},
    STOP: {"reason": "killed", "grace_ms": 0},
    CHILD: {"pid": 1 << 22, "start": 1},
}

odd = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2),
    st.sampled_from([-1, 2**31, 2**53, 2**64, 10**400, "\ud800", "a/b", "", "x" * 1_000, "lost", "failed"]),
)  # fmt: skip


@st.composite
def forged(draw):
    """The documents of one attempt; some are missing, some have fields changed, some are anything."""
    documents = {}
    for name, document in DOCUMENTS.items():
        kind = draw(st.sampled_from(["right", "right", "changed", "missing", "anything"]))
        if kind == "anything":
            documents[name] = draw(st.one_of(st.binary(max_size=20), odd.map(lambda value: json.dumps(value).encode())))
        elif kind != "missing":
            fields = {**document, "reason": "exit_code"} if name == RESULT else document
            changes = st.dictionaries(st.sampled_from([*fields, "mono_ms", "wall_ms", "run_ms", "reason"]), odd)
            changed = {**document, **draw(changes)} if kind == "changed" else document
            documents[name] = json.dumps(changed).encode()
    return documents


def attempt(data: Path) -> Path:
    """The folder of attempt 1 of task 0."""
    folder = attempt_folder(data, "j", RUN, "map", 0, 1)
    folder.mkdir(parents=True)
    return folder


def scanned(data):
    """A table that has looked at the folder."""
    table = Attempts(NodeSettings("n", data, cgroup="off"))
    table.scan()
    return table


def registered(table):
    """What the agent says in its registration, as the cell reads it."""
    ended = [(local.name, local.result) for local in table.by_key.values() if local.result is not None]
    running = [local.name for local in table.by_key.values() if local.result is None]
    said = [*known_attempts(running, ended)]
    batches = said if said and isinstance(said[0], list) else [said]
    register = {"node": "n", "epoch": "e", "capacity": {"cpu": "1"}}
    for batch in batches:
        read_input("nodes", json.loads(json.dumps({"register": {**register, "attempts": batch}})), "agent:n")
    return batches


@pytest.mark.slow
@for_all(forged())
def test_whatever_documents_say_the_registration_is_accepted(documents):
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        folder = attempt(data)
        for document, text in documents.items():
            (folder / document).write_bytes(text)

        registered(scanned(data))
        registered(scanned(data))


def filled(folder: Path, name: str, kind: str) -> None:
    """Puts something that is no document in a document's place."""
    place = folder / name
    match kind:
        case "link":
            place.symlink_to("/etc/passwd")
        case "link to itself":
            place.symlink_to(name)
        case "pipe":
            os.mkfifo(place)
        case "folder":
            (place / "deep").mkdir(parents=True)
        case "device":
            place.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                here = Path.cwd()
                os.chdir(folder)
                listening.bind(name)
                os.chdir(here)
        case "huge":
            place.touch()
            os.truncate(place, 1 << 40)
        case "deep":
            place.write_text('{"a":' + "[" * 200_000)
        case "digits":
            place.write_text('{"run_ms": ' + "9" * 100_000 + "}")


KINDS = ["link", "link to itself", "pipe", "folder", "device", "socket", "huge", "deep", "digits"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [TASK, CLAIM, RESULT, STOP])
def test_what_is_no_document_is_a_failure_of_the_tasks_own(tmp_path, name, kind):
    folder = attempt(tmp_path)
    for other, document in DOCUMENTS.items():
        if other not in (name, RESULT):
            (folder / other).write_text(json.dumps(document))
    filled(folder, name, kind)

    (local,) = scanned(tmp_path).by_key.values()

    # Where the task is not known its folder's name tells which attempt it was.
    assert (local.name.job, local.name.stage, local.name.index, local.name.attempt) == ("j", "map", 0, 1)
    assert local.result.reason == "exit_code"
    assert local.result.detail.startswith(f"its folder was tampered with: {name}")


def test_a_document_of_the_largest_size_is_read_and_no_larger_one(tmp_path):
    folder = attempt(tmp_path)
    text = json.dumps({**TASK_DOCUMENT, "env": ""})
    for beyond, reason in ((0, "its guardian is gone"), (1, f"its folder was tampered with: {TASK} has")):
        room = DOCUMENT_BYTES_MAX - len(text) + beyond
        (folder / TASK).write_text(text.replace('"env": ""', f'"env": "{"x" * room}"'))
        (folder / RESULT).unlink(missing_ok=True)

        (local,) = scanned(tmp_path).by_key.values()

        assert local.result.detail.startswith(reason)


@pytest.mark.parametrize(
    "where",
    [
        "a.b", "j/a.b", "j/5-e.1/a.b", "j/5-e.1/map/a.b", "j/5-e.1/map/0", "j/5-e.1/map/0.0", "j/5-e.1/map/-1.1",
        "j/5-e.1/map/0.1.2", "j/5-e.1/map/99999999999999999999.1", "j/x/map/0.1", "j/5-e.1/map/\udcff.1",
        "\udcff/5-e.1/map/0.1", "j/5-e.1/map/٣.1",
    ],
)  # fmt: skip
def test_folders_that_only_look_like_attempts_are_passed_over(tmp_path, where):
    folder = attempt(tmp_path)
    (folder / TASK).write_text(json.dumps(TASK_DOCUMENT))
    forged = tmp_path / "jobs" / where
    forged.mkdir(parents=True)
    (forged / TASK).write_text(json.dumps(TASK_DOCUMENT))

    table = scanned(tmp_path)

    assert [local.folder for local in table.by_key.values()] == [folder]
    registered(table)
    assert read_piece(tmp_path, Wanted("j", "map", 0)) is not None


def test_a_task_that_names_another_attempt_does_not_speak_for_it(tmp_path):
    folder = attempt(tmp_path)
    (folder / TASK).write_text(json.dumps({**TASK_DOCUMENT, "job": "other", "key": "other/map/0/1"}))
    (folder / RESULT).write_text(json.dumps(DOCUMENTS[RESULT]))

    (local,) = scanned(tmp_path).by_key.values()

    assert (local.key, local.result.reason) == ("j/map/0/1", "exit_code")


def test_links_in_the_place_of_folders_lead_nowhere(tmp_path):
    data, outside = tmp_path / "data", tmp_path / "outside"
    folder = attempt(outside)
    (folder / TASK).write_text(json.dumps(TASK_DOCUMENT))
    (folder / "stdout").write_text("secret")
    (data / "jobs").mkdir(parents=True)
    (data / "jobs" / "j").symlink_to(outside / "jobs" / "j")

    assert list(places(data)) == []
    assert scanned(data).by_key == {}
    assert read_piece(data, Wanted("j", "map", 0)) is None
    (data / "jobs" / "j").unlink()
    (data / "jobs" / "j").mkdir()
    (data / "jobs" / "j" / RUN).symlink_to(outside / "jobs" / "j" / RUN)
    assert read_piece(data, Wanted("j", "map", 0)) is None
    shutil.rmtree(data / "jobs")
    (data / "jobs").symlink_to(outside / "jobs")
    assert read_piece(data, Wanted("j", "map", 0)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_output_that_is_no_file_is_not_shown(tmp_path, kind):
    folder = attempt(tmp_path)
    (folder / TASK).write_text(json.dumps(TASK_DOCUMENT))
    filled(folder, "stdout", kind)
    for number in range(3):
        filled(folder, f"stdout.{number}", "pipe")

    piece = read_piece(tmp_path, Wanted("j", "map", 0), most=100)

    assert piece is not None
    assert b"root:" not in piece.data
    assert piece.end < 2**63


@pytest.mark.parametrize("document", [CLAIM, CHILD])
def test_no_process_is_ended_because_a_document_names_it(tmp_path, document):
    """Another's process, with pid and start time right, in a session of its own."""
    folder = attempt(tmp_path)
    command = [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(1_000)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        named = {"pid": other.pid, "start": start_ticks(other.pid), "boot": shim.boot_id()}
        (folder / TASK).write_text(json.dumps(TASK_DOCUMENT))
        (folder / CLAIM).write_text(json.dumps({**DOCUMENTS[CLAIM], "boot": shim.boot_id()}))
        (folder / document).write_text(json.dumps(named))
        try:
            table = scanned(tmp_path)
            (local,) = table.by_key.values()
            table.stop(local, "killed", 0)
            table.look(1 << 60)

            assert local.result.reason == "lost"
            assert other.poll() is None
        finally:
            other.kill()
