"""What every store of an archive does. One suite, run once for each kind."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from largesse.archive.store import (
    FolderStore,
    NameTaken,
    NameUnknown,
    ObjectStore,
    Stored,
    StoreError,
    StoreUrlWrong,
    open_store,
)
from tests.object_store import environment, new_bucket, served


@pytest.fixture(scope="module")
def address():
    with served() as found:
        yield found


@pytest.fixture(params=["folder", "s3", "s3 with a prefix"])
def url(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return str(tmp_path / "archive")
    address = request.getfixturevalue("address")
    for name, value in environment(address).items():
        monkeypatch.setenv(name, value)
    return new_bucket(address) + ("/cells/north/" if request.param != "s3" else "")


@pytest.fixture
def store(url):
    return open_store(url)


def test_what_was_put_is_there_for_whoever_opens_the_store_again(store, url):
    data = bytes(range(256)) * 5_000

    store.put("segments/a.zst", data)

    assert open_store(url).get("segments/a.zst") == data
    assert open_store(url).names() == [Stored("segments/a.zst", len(data))]


def test_a_name_that_is_taken_keeps_what_it_has(store):
    store.put("a", b"first")

    with pytest.raises(NameTaken, match=r"a: is there already$"):
        store.put("a", b"second")

    assert store.get("a") == b"first"
    assert store.unfinished() == []


def test_of_many_who_put_one_name_at_once_one_does(store):
    def put(number: int) -> bool:
        try:
            store.put("manifests/1.json", str(number).encode() * 10_000)
        except NameTaken:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(put, range(8)))

    assert made.count(True) == 1
    assert store.get("manifests/1.json") == str(made.index(True)).encode() * 10_000


def test_what_is_not_there_has_a_name_in_the_error(store):
    store.put("b/c", b"")

    for name in ("a", "b", "b/c/d"):
        with pytest.raises(NameUnknown, match=rf"{name}: is not there$"):
            store.get(name)


def test_an_empty_store_has_no_names(store):
    assert store.names() == []
    assert store.names("a") == []
    assert store.unfinished() == []


def test_names_come_in_order_and_by_what_they_begin_with(store):
    for name in ("b/2", "b/10", "b/1", "a", "bb/1", "c/d/e"):
        store.put(name, name.encode())

    assert [each.name for each in store.names()] == ["a", "b/1", "b/10", "b/2", "bb/1", "c/d/e"]
    assert [each.name for each in store.names("b")] == ["b/1", "b/10", "b/2", "bb/1"]
    assert [each.name for each in store.names("b/")] == ["b/1", "b/10", "b/2"]
    assert [each.name for each in store.names("b/1")] == ["b/1", "b/10"]
    assert store.names("c/d/") == [Stored("c/d/e", 5)]
    assert store.names("x/") == []


@pytest.mark.slow
def test_more_names_than_one_page_of_a_listing_has(store):
    names = [f"m/{number:05d}" for number in range(1_100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))

    assert [each.name for each in store.names("m/")] == names


def test_what_was_deleted_is_gone_and_may_be_put_again(store):
    store.put("a/b", b"1")

    store.delete("a/b")
    store.delete("a/b")

    assert store.names() == []
    store.put("a/b", b"2")
    assert store.get("a/b") == b"2"


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a b", "ä"])
def test_other_names_are_a_mistake_of_the_caller(store, name):
    with pytest.raises(AssertionError):
        store.put(name, b"")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("archive", "archive"),
        ("/a/b", "/a/b"),
        ("./a:b", "./a:b"),
        ("file:a", "a"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
    ],
)
def test_a_path_or_a_file_url_names_a_folder(url, path):
    found = open_store(url)

    assert isinstance(found, FolderStore)
    assert found.url == str(Path(path))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "write a folder"),
        ("http://host/x", "write a folder"),
        ("kafka://host:1/cell", "write a folder"),
        ("file:", "names no folder"),
        ("file://host/x", "names the host 'host'"),
        ("s3://", "write s3://BUCKET/PREFIX"),
        ("s3:bucket", "write s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket", "write s3://BUCKET/PREFIX"),
        ("s3://bucket/x?region=y", "write s3://BUCKET/PREFIX"),
    ],
)
def test_what_names_no_store_is_refused_with_what_would(url, says):
    with pytest.raises(StoreUrlWrong, match=says):
        open_store(url)


def test_a_bucket_that_is_not_there_is_named(address, monkeypatch):
    for name, value in environment(address).items():
        monkeypatch.setenv(name, value)
    store = open_store("s3://nobody-has-made-it/x")

    assert isinstance(store, ObjectStore)
    for call in (lambda: store.get("a"), store.names, lambda: store.put("a", b"")):
        with pytest.raises(StoreError, match="nobody-has-made-it/x: there is no such bucket: make it") as found:
            call()
        assert type(found.value) is StoreError


def test_a_folder_is_made_but_not_what_it_lies_in(tmp_path):
    store = open_store(str(tmp_path / "not-mounted" / "archive"))

    with pytest.raises(StoreError, match=r"not-mounted.*No such file or directory"):
        store.put("a", b"")

    assert not (tmp_path / "not-mounted").exists()


def test_a_file_where_the_folder_should_be_is_named(tmp_path):
    (tmp_path / "archive").write_text("")

    with pytest.raises(StoreError, match=r"archive.*Not a directory"):
        open_store(str(tmp_path / "archive")).put("a", b"")


_DIES = """
import os, signal, sys
from largesse.archive import store
store.os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.open_store(sys.argv[1]).put("a/b", b"half")
"""


def test_who_is_killed_in_the_middle_leaves_no_name(tmp_path):
    folder = str(tmp_path / "archive")
    done = subprocess.run([sys.executable, "-c", _DIES, folder], env=os.environ, check=False)

    assert done.returncode == -signal.SIGKILL
    store = open_store(folder)
    assert store.names() == []
    assert [each.size for each in store.unfinished()] == [4]
    store.put("a/b", b"whole")
    assert store.get("a/b") == b"whole"
