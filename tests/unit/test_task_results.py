"""Results on their way: paths lead nowhere else, links stay inside, and no answer of an agent is taken as it comes."""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from hypothesis import example
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.task_results import (
    PATH_BYTES_MAX,
    BadAnswer,
    Entry,
    FilePiece,
    Listed,
    WantedResults,
    answer_of,
    names_in,
    page_of,
    path_of,
    stays_inside,
    wanted_of,
)
from largesse.unpacked import Unpacked

WANTED = WantedResults("j", "s", 0)
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
GOOD = NAMES.filter(lambda name: name not in (".", ".."))
PATHS = st.lists(GOOD, min_size=1, max_size=4).map("/".join)
COUNTS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize("path", ["", "/", "a/", "/a", "a//b", ".", "a/..", "../a", "a/./b", "a\0b", "x" * 1_100])
def test_a_path_that_could_lead_elsewhere_is_none(path):
    assert names_in(path) is None


@for_all(
    st.builds(WantedResults, NAMES, NAMES, COUNTS, COUNTS | st.none(), COUNTS | st.none(), st.text(), PATHS, COUNTS)
)
def test_what_is_wanted_comes_through_a_request(wanted):
    path, _, query = path_of(wanted).partition("?")
    assert wanted_of(path, dict(parse_qsl(query))) == wanted
    assert "/../" not in path


ENTRIES = st.builds(Entry, PATHS, st.sampled_from(["file", "folder", "link"]), COUNTS, COUNTS, st.booleans(), st.text())


@for_all(st.lists(ENTRIES, max_size=5), COUNTS, st.booleans())
def test_a_list_comes_through_an_answer(entries, left_out, too_many):
    listed = Listed(3, tuple(entries), left_out=left_out, too_many=too_many)
    page = page_of("n", listed)

    assert answer_of(WANTED, lambda name: page.headers[name], page.body) == listed


def answered(body, wanted=WANTED, **headers):
    said = {"Largesse-Output-Attempt": "1", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return answer_of(wanted, lambda name: said.get(name, ""), body)


ROW = ["a", "file", 1, 1, False, ""]
FINE = {"entries": [ROW], "more": False, "left_out": 0, "too_many": False}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"\xff", id="no JSON"),
        pytest.param([], id="no object"),
        pytest.param({}, id="nothing"),
        pytest.param(FINE | {"entries": [["../a", *ROW[1:]]]}, id="a path that leads out"),
        pytest.param(FINE | {"entries": [["a", "pipe", *ROW[2:]]]}, id="an unknown kind"),
        pytest.param(FINE | {"entries": [["a", "file", -1, *ROW[3:]]]}, id="a negative size"),
        pytest.param(FINE | {"entries": [["a", "file", True, *ROW[3:]]]}, id="a size that is none"),
        pytest.param(FINE | {"entries": [["a"]]}, id="half an entry"),
        pytest.param(FINE | {"left_out": -1}, id="a negative count"),
        pytest.param(FINE | {"more": True, "entries": []}, id="a list that does not end"),
        pytest.param({**FINE, "more": True, "after": "a"}, id="a list that goes back"),
    ],
)
def test_a_strange_list_is_not_believed(document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    wanted = WantedResults("j", "s", 0, after="b")
    assert answered(json.dumps(FINE).encode()).entries == (Entry("a", "file", 1, 1),)

    with pytest.raises(BadAnswer):
        answered(body, wanted)


@pytest.mark.parametrize(
    ("start", "size", "data"),
    [("1", "4", b"abc"), ("0", "2", b"abc"), ("0", "4", b""), ("", "4", b"abc"), ("0", "-4", b"abc")],
)
def test_a_strange_piece_is_not_believed(start, size, data):
    wanted = WantedResults("j", "s", 0, file="a")
    said = {"Largesse_Output_Start": "0", "Largesse_Output_End": "4", "Largesse_Result_Changed": "9"}
    assert answered(b"abc", wanted, **said) == FilePiece(1, 0, 4, 9, b"abc")

    with pytest.raises(BadAnswer):
        answered(data, wanted, **said | {"Largesse_Output_Start": start, "Largesse_Output_End": size})


TARGETS = st.lists(st.sampled_from(["..", ".", "a", "b", "c"]), min_size=1, max_size=6).map("/".join)
PLACES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join)


@example([("a/b/c", "../.."), ("d", "a/b/c/..")])  # As texts alone, both stay inside.
@for_all(st.lists(st.tuples(PLACES, TARGETS), max_size=12))
def test_links_that_are_made_lead_nowhere_out_of_their_folder(wanted):
    """Whatever they are and in whatever order: the system itself says where they lead."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name), "results")
        top.mkdir()
        with Unpacked(os.open(top, os.O_RDONLY)) as folder:
            for path, target in wanted:
                for at in range(path.count("/")):
                    try:
                        folder.make_folder("/".join(path.split("/")[: at + 1]))
                    except OSError:
                        break  # A link, or below one.
                try:
                    folder.make_link(path, target)
                except OSError:
                    continue
        for path in top.rglob("*"):
            assert Path(os.path.realpath(path)).is_relative_to(top)
        assert [each.name for each in top.parent.iterdir()] == ["results"]


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("latest", "run/3", True),
        ("a/b", "../c", True),
        ("a/b", "..", True),
        ("a", "..", False),
        ("a", "/etc/passwd", False),
        ("a/b", "c/../../../d", False),
        ("a", "x" * (PATH_BYTES_MAX + 1), False),
        ("a", "", False),
    ],
)
def test_which_links_stay_inside(path, target, inside):
    assert stays_inside(path, target) is inside


def test_nothing_is_written_through_a_link_that_lies_there(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("mine")
    top = tmp_path / "top"
    top.mkdir()
    (top / "folder").symlink_to(tmp_path / "outside")
    (top / "file").symlink_to(tmp_path / "outside" / "file")
    with Unpacked(os.open(top, os.O_RDONLY)) as folder:
        with pytest.raises(OSError):
            folder.make_folder("folder")
        with pytest.raises(OSError), folder.writing(Entry("folder/new", "file", 1)):
            pass
        with pytest.raises(FileExistsError):
            folder.has(Entry("file", "file", 4))
        with folder.writing(Entry("file", "file", 3, 5_000, executable=True)) as file:
            os.write(file, b"new")

    assert (tmp_path / "outside" / "file").read_text() == "mine"
    assert [each.name for each in (tmp_path / "outside").iterdir()] == ["file"]
    assert not (top / "file").is_symlink()
    assert ((top / "file").read_bytes(), (top / "file").stat().st_mtime, (top / "file").stat().st_mode & 0o777) == (
        b"new",
        5,
        0o700,
    )


def test_a_file_that_was_not_written_to_its_end_is_not_there(tmp_path):
    with Unpacked(os.open(tmp_path, os.O_RDONLY)) as folder:
        with suppress(KeyError), folder.writing(Entry("file", "file", 3)) as file:
            os.write(file, b"ne")
            raise KeyError
        assert not folder.has(Entry("file", "file", 3))
    assert list(tmp_path.iterdir()) == []
