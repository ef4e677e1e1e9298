"""Rooms stand on floors: none imports, by whatever way, a room that imports it; and pages name files that exist."""

import re

import pytest

from tests.conftest import ROOT
from tests.house.floors import Room, floors_of, name_of, read_rooms, table, tops_of

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/DECISIONS.md"))
)
PLACED = re.compile(r"`(\w+)` in\s+\[[^\]]+\]\((\S+\.py)\)")  # "`name` in [file](path)"
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:schemas|largesse|services|tests|benchmarks|infra|examples|docs)/[\w/.-]+\.\w+)`")
BUILT = ("services/cli/shipped/", "services/cli/commit.txt")
"""Files that only an installation has."""


@pytest.fixture(scope="module")
def rooms():
    """All of the code, read once."""
    return read_rooms()


def test_no_room_imports_one_that_imports_it(rooms):
    floors = floors_of(rooms)

    assert sum(len(floor) for floor in floors) == len(rooms)


def test_rooms_that_import_each_other_are_named():
    rooms = {
        "a": Room("a"),
        "b": Room("b", imports={"a", "d"}),
        "c": Room("c", imports={"b"}),
        "d": Room("d", imports={"c"}),
    }

    with pytest.raises(ValueError, match="import each other in a circle: b, c, d"):
        floors_of(rooms)


def test_a_room_stands_one_floor_above_the_highest_that_it_imports():
    rooms = {"a": Room("a"), "b": Room("b", imports={"a"}), "c": Room("c", imports={"a", "b"}), "d": Room("d")}

    assert [[room.name for room in floor] for floor in floors_of(rooms)] == [["a", "d"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("largesse.bus.file.lines", "largesse.bus"),
        ("largesse.core", "largesse.core"),
        ("services.fairness.core.decide", "services.fairness.core"),
        ("schemas", "schemas"),
    ],
)
def test_a_folder_is_one_room(module, room):
    assert name_of(module) == room


def test_every_room_is_in_one_table(rooms):
    shown = [line for top in tops_of(rooms) for line in table(top, rooms)[1:]]

    assert len(shown) == len(rooms) - 1  # `services` itself only holds the others.


def test_every_folder_of_code_says_what_it_is_for(rooms):
    assert [room.name for room in rooms.values() if not room.about] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_exist(page):
    text = (ROOT / page).read_text()
    beside = (ROOT / page).parent

    gone = [link for link in LINK.findall(text) if not (beside / link.replace("\\", "")).exists()]
    gone += [path for path in FILE.findall(text) if not path.startswith(BUILT) and not (ROOT / path).exists()]

    assert gone == []


def test_a_name_that_a_page_places_in_a_file_stands_there():
    page = ROOT / "docs" / "lifecycle.md"
    placed = [(name, page.parent / path) for name, path in PLACED.findall(page.read_text())]

    assert len(placed) > 10
    assert [(name, path.name) for name, path in placed if not re.search(rf"\b{name}\b", path.read_text())] == []
