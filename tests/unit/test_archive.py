"""An archive: what is not as it was written is named, and whoever is stopped goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from largesse.archive.archiver import AnotherLog
from largesse.archive.manifest import ArchiveDamaged, read_all
from largesse.archive.reader import check_archive, read_archive, standing
from largesse.archive.store import FolderStore
from services.replay.source import NoLog, open_source
from tests.archives import archived, recorded, up_to
from tests.unit.cli_here import largesse
from tests.unit.cli_process import largesse as process

BYTES = 60_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("archive") / "log")


@pytest.fixture(scope="module")
def other_log(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("archive") / "other", seed=1)


@pytest.fixture
def folder(log, tmp_path):
    archived(log, tmp_path / "archive", BYTES)
    return tmp_path / "archive"


@pytest.fixture
def other(other_log, tmp_path):
    archived(other_log, tmp_path / "other", BYTES)
    return tmp_path / "other"


def segments(folder):
    return sorted((folder / "segments").iterdir())


def manifests(folder):
    return sorted((folder / "manifests").iterdir())


def problems(folder):
    """What a verification says, and that whoever reads the archive is told so, too."""
    store = FolderStore(folder)
    try:
        found = check_archive(store, standing(store).manifests, lambda _: None, 1)
    except ArchiveDamaged as damaged:
        found = [str(damaged)]
    with pytest.raises((ArchiveDamaged, NoLog)) as caught:
        list(open_source(f"archive:{folder}").steps())
    assert any(str(caught.value).split(":")[0] in each for each in found)
    return found


def only(folder):
    (problem,) = problems(folder)
    return problem


def test_a_flipped_bit_is_named(folder):
    path = segments(folder)[2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)

    assert only(folder).startswith(f"{path}: its bytes are not those that were written")


def test_a_segment_that_was_cut_is_named(folder):
    path = segments(folder)[2]
    path.write_bytes(path.read_bytes()[:-7])

    assert only(folder).startswith(f"{path}: has ")


def test_a_missing_segment_is_named_with_what_it_had(folder):
    path = segments(folder)[2]
    path.unlink()
    first, last = (int(each) for each in path.name.split("-")[:2])

    assert only(folder) == f"{path}: is missing; it has records {first} to {last} of the log"


def test_segments_that_have_changed_places_are_named(folder):
    one, two = segments(folder)[1:3]
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)

    assert only(folder).startswith(f"{one}: has ")


def test_a_segment_of_another_archive_in_its_place_is_named(folder, other):
    path = segments(folder)[1]
    path.write_bytes(segments(other)[1].read_bytes())

    assert only(folder).startswith(f"{path}: ")


def test_a_missing_manifest_is_named(folder):
    path = manifests(folder)[1]
    path.unlink()

    assert only(folder).startswith(f"{path}: is missing; behind it there is manifests/000000000003.json")


def test_a_manifest_that_was_changed_is_named(folder):
    path = manifests(folder)[1]
    path.write_bytes(path.read_bytes().replace(b'"round": ', b'"round": 1'))

    assert f"{manifests(folder)[2]}: was not written behind the manifests/000000000002.json" in only(folder)


def test_a_manifest_of_another_archive_is_named(folder, other):
    path = manifests(folder)[-1]
    path.write_bytes(manifests(other)[len(manifests(folder)) - 1].read_bytes())

    assert only(folder).startswith(f"{path}: was not written behind")


def test_a_manifest_in_anothers_place_is_named(folder):
    path = manifests(folder)[-1]
    path.write_bytes(manifests(folder)[0].read_bytes())

    assert only(folder) == f"{path}: by its content it is manifest 1"


def test_a_manifest_of_another_cell_is_named(folder):
    path = manifests(folder)[-1]
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "cell": "north"}))

    assert f"{path}: is of cell 'north', and the archive up to there of 'default'" in only(folder)


def test_what_is_no_manifest_is_named_with_its_field(folder):
    path = manifests(folder)[-1]
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "number": "many"}))

    assert only(folder).startswith(f"{path}: it is no manifest: number: ")


def test_a_segment_whose_manifest_was_forged_with_it_does_not_fit_its_neighbours(log, other_log, tmp_path):
    """Whoever can write everything can make a whole archive of another log, and no part of one."""
    folder = tmp_path / "archive"
    archived(up_to(open_source(log), 200), folder, BYTES)

    with pytest.raises(AnotherLog, match="up to record"):
        archived(other_log, folder, BYTES)


def test_several_damaged_segments_are_all_named(folder):
    for path in segments(folder)[1:4]:
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)

    assert [each.split(":")[0] for each in problems(folder)] == [str(path) for path in segments(folder)[1:4]]


def test_a_log_that_ends_before_its_archive_is_refused(log, folder):
    with pytest.raises(AnotherLog, match=r"ends with record 100, and .* has records up to"):
        archived(up_to(open_source(log), 100), folder)


def test_an_archive_that_has_everything_stays_as_it_is(log, folder):
    before = {path: path.stat().st_mtime_ns for path in [*segments(folder), *manifests(folder)]}

    assert archived(log, folder, BYTES).segments == 0
    assert {path: path.stat().st_mtime_ns for path in [*segments(folder), *manifests(folder)]} == before


def test_the_last_records_are_read_without_the_rest(log, folder):
    for path in segments(folder)[:-3]:
        path.write_bytes(b"damaged")

    found = open_source(f"archive:{folder}").last(20)

    assert found is not None
    assert not found.all
    assert [each.record.seq for each in found.records][-20:] == list(range(412, 432))


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_segment", "after_segment", "before_manifest", "after_manifest"])
@pytest.mark.parametrize("hit", [1, 3])
def test_killed_anywhere_the_next_one_goes_on(log, tmp_path, point, hit):
    folder = tmp_path / "archive"
    words = ("archive", "run", folder, "--log", log)
    assert _in_small_segments(words, LARGESSE_FAILPOINT=f"archive:{point}:{hit}") == -signal.SIGKILL

    assert largesse(*words).code == 0

    store = FolderStore(folder)
    found = standing(store)
    assert check_archive(store, found.manifests, lambda _: None, 1) == []
    assert [each.line for each in read_archive(store, found.manifests)]
    assert len(found.orphans) == (1 if point in ("after_segment", "before_manifest") else 0)
    assert largesse("export", f"archive:{folder}", tmp_path / "export").code == 0
    assert (tmp_path / "export").read_bytes() == log.read_bytes()


def _in_small_segments(words, **environment):
    """The command in a process of its own, with segments of a few rounds; how it ends."""
    text = (
        f"import sys; from services.replay import archiving as a; real = a.archive_log;"
        f"a.archive_log = lambda source, store, _, *told: real(source, store, a.Limits({BYTES}), *told);"
        f"sys.argv = ['largesse', *{[str(word) for word in words]!r}]; from services.cli.main import main; main()"
    )
    return subprocess.run([sys.executable, "-c", text], env={**os.environ, **environment}, check=False).returncode


def test_what_killed_writers_left_is_listed(folder):
    (folder / "segments" / ".unfinished-7-1").write_bytes(b"half")
    shutil.copy(segments(folder)[1], folder / "segments" / "000000000001-000000000009-0123456789abcdef.jsonl.zst")

    said = largesse("archive", "status", folder, "--json").json

    assert [each["name"] for each in said["orphans"]] == [
        "segments/000000000001-000000000009-0123456789abcdef.jsonl.zst"
    ]
    assert said["unfinished"] == [{"name": "segments/.unfinished-7-1", "bytes": 4}]
    assert said["segments"] == len(manifests(folder))
    text = largesse("archive", "status", folder)
    assert "no manifest names segments/000000000001-000000000009" in text.err
    assert "segments/.unfinished-7-1" in text.err


def test_the_command_says_what_is_there_and_what_it_did_not_look_at(log, tmp_path):
    folder = tmp_path / "archive"

    said = largesse("archive", "run", folder, "--log", log, columns=100)
    assert said.code == 0
    assert said.out.startswith("431 records in 1 segment (")
    assert largesse("archive", "run", folder, "--log", log).out.startswith("the archive has everything")
    verified = largesse("archive", "verify", folder, "--processes", 1, columns=100)
    assert (verified.code, verified.out) == (0, "records 1 to 431: one chain in 1 segment, as written\n")
    assert "not looked at: whether each decision follows" in verified.err
    assert largesse("replay", f"archive:{folder}", "--verify").code == 0


def test_a_damaged_archive_ends_the_command_with_1_and_names_it(folder):
    path = segments(folder)[2]
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    said = process("archive", "verify", folder, "--processes", 1)

    assert said.code == 1
    assert said.out.startswith(f"{path}: its bytes are not those")
    assert said.err.endswith("not as written\n")
    assert largesse("replay", f"archive:{folder}").code == 2


def test_nothing_is_written_behind_an_archive_in_which_something_is_missing(log, folder):
    path = segments(folder)[0]
    path.unlink()

    said = largesse("archive", "run", folder, "--log", log)

    assert said.code != 0
    assert path.name in said.err


def test_the_hash_of_the_manifest_stands_in_one_piece_however_narrow(folder):
    found = read_all(FolderStore(folder))[-1].sha256

    assert f"its SHA-256  {found}\n" in largesse("archive", "status", folder, columns=60).out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("archive", "status", "http://x/y"), 2, "STORE: 'http://x/y' is no store: write a folder"),
        (("archive", "status", ""), 2, "STORE: is empty"),
        (("replay", "archive:http://x/y"), 2, "'http://x/y' is no store"),
        (("archive", "run", "x", "--log", "nowhere"), 2, "nowhere: there is no such file"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(words, code, says):
    said = largesse(*words)

    assert said.code == code
    assert says in said.err


def test_a_store_without_an_archive_says_so(tmp_path):
    said = largesse("archive", "verify", tmp_path / "nothing")

    assert said.code == 2
    assert "there is no archive: it has no manifests/000000000001.json" in said.err


def test_the_archive_may_be_named_by_the_environment(log, folder):
    said = largesse("archive", "status", "--json", LARGESSE_ARCHIVE=str(folder))

    assert said.json["seq"] == read_all(FolderStore(folder))[-1].manifest.end.seq
