"""Folders of attempts: names for everything, and limits on what stays."""

import os
import re
import shutil

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.task_output import folder_name
from services.agent import folders
from services.agent.documents import TASK, claim, read_json, write_json
from services.agent.folders import attempt_folder
from services.agent.found import attempt_folders

names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=253)


@for_all(names)
def test_any_name_has_a_folder(name):
    folder = folder_name(name)

    assert 0 < len(os.fsencode(folder)) <= 255
    assert "/" not in folder
    assert not folder.startswith(".")


@for_all(names, names)
def test_different_names_have_different_folders(one, other):
    assert (folder_name(one) == folder_name(other)) == (one == other)


def test_long_names_that_begin_alike_are_kept_apart():
    assert folder_name("x" * 252 + "a") != folder_name("x" * 252 + "b")
    assert folder_name(folder_name("x" * 252 + "a")) != folder_name("x" * 252 + "a")


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "#over.json", "a b", "~", "%2E", "ünï", "日本語"])
def test_awkward_names_stay_inside(name, tmp_path):
    folder = attempt_folder(tmp_path, name, "1-e", name, 0, 1)
    folder.mkdir(parents=True)

    assert folder.resolve().relative_to((tmp_path / "jobs").resolve()).parts == folder.parts[-4:]
    assert list(attempt_folders(tmp_path)) == [folder]


def attempt(data, *, job="j", run="5-e.1", stage="map", index=0, number=1, at_s=1_000, **streams):
    """An attempt's folder as a shim leaves it, made `at_s` seconds after 1970."""
    folder = attempt_folder(data, job, run, stage, index, number)
    folder.mkdir(parents=True)
    write_json(folder / TASK, {})
    os.utime(folder / TASK, (at_s, at_s))
    for name, text in streams.items():
        (folder / name).write_bytes(text)
    return folder


def test_an_attempt_is_claimed_once(tmp_path):
    assert claim(tmp_path, {"pid": 1})
    assert not claim(tmp_path, {"pid": 2})
    assert read_json(tmp_path / "claim.json") == {"pid": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["claim.json"]


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff"])
def test_half_a_document_is_none(text, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(text)

    assert read_json(path) is None


def test_every_epoch_of_a_folder_is_fresh_and_shows_whose_it_is(tmp_path):
    first = folders.take_identity(tmp_path)
    second = folders.take_identity(tmp_path)

    assert first.name == second.name
    assert first.epoch.startswith(f"{first.name}.1.")
    assert second.epoch.startswith(f"{first.name}.2.")
    assert second.issued == (first.epoch, second.epoch)


def test_copies_of_a_folder_have_epochs_of_their_own(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    common = folders.take_identity(one)
    shutil.copytree(one, other)

    mine, theirs = folders.take_identity(one), folders.take_identity(other)

    assert mine.issued == (common.epoch, mine.epoch)
    assert theirs.issued == (common.epoch, theirs.epoch)
    assert mine.epoch != theirs.epoch


def test_only_the_last_epochs_are_remembered(tmp_path):
    for _ in range(folders.ISSUED_MAX + 1):
        identity = folders.take_identity(tmp_path)

    assert len(identity.issued) == folders.ISSUED_MAX
    assert identity.epoch.startswith(f"{identity.name}.{folders.ISSUED_MAX + 1}.")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"identity": 5, "count": 1, "issued": []}',
        '{"identity": "0123456789ab", "count": "x", "issued": 7}',
        '{"identity": "0123456789ab", "count": 1e400, "issued": [7, null]}',
        '{"identity": "../../../..", "count": -1, "issued": ["a"]}',
        "[" * 100_000,
    ],
)
def test_an_identity_that_somebody_wrote_over_is_made_good(tmp_path, text):
    (tmp_path / folders.IDENTITY).write_text(text)

    identity = folders.take_identity(tmp_path)

    assert re.fullmatch(r"[0-9a-f]{12}\.[0-9]+\.[0-9a-f]{12}", identity.epoch)
    assert folders.take_identity(tmp_path).issued[-2] == identity.epoch
