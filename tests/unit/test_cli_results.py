"""`largesse results`: lists that control no terminal, and files that are fetched whole, once, and never outside."""

import json

import pytest

from tests.result_folders import tree
from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving

EVIL = "\x1b]0;PWNED\x07\u202ex"
HEAD = {"stage": "map", "index": 0, "attempt": 2, "left_out": 0}


def row(path, kind="file", size=4, **more):
    each = {"stage": "map", "index": 0, "path": path, "kind": kind, "changed_ms": 5_000}
    return each | ({"size": size, "executable": False} if kind == "file" else {}) | more


def gateway(rows, data=b"text", breaks=0, asked=None):
    """A gateway with such a list, all of whose files are alike. `breaks`: so many answers end in the middle."""
    left = [breaks]

    def answer(request, body):
        path, _, query = request.path.partition("?")
        if asked is not None:
            asked.append(request.path)
        if path.endswith("/v1/jobs/j/results"):
            lines = b"".join(json.dumps(each).encode() + b"\n" for each in rows)
            respond(request, 200, {"Content-Type": "application/jsonl"}, lines)
            return
        said = dict(part.split("=") for part in query.split("&"))
        rest = data[int(said["offset"]) :]
        if left[0] > 0:
            left[0] -= 1
            request.send_response(200)
            for name, value in {"Content-Type": "application/octet-stream", "Content-Length": str(len(rest))}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(rest[:1])
        else:
            respond(request, 200, {"Content-Type": "application/octet-stream"}, rest)

    return serving(answer)


def fetched(folder, rows, **more):
    with gateway([HEAD, *rows], **more) as url:
        return largesse("results", "j", folder, LARGESSE_URL=url)


def test_files_go_where_tasks_of_later_stages_find_them(tmp_path):
    said = fetched(
        tmp_path / "new" / "out", [row("d", "folder"), row("d/f", executable=True), row("l", "link", target="d/f")]
    )

    assert (said.code, said.out) == (0, "")
    assert said.err == f"1 file, 4 bytes, of 1 task in {tmp_path}/new/out\n"
    top = tmp_path / "new" / "out"
    assert tree(top) == {
        "map": None, "map/0": None, "map/0/d": None, "map/0/d/f": b"text", "map/0/l": "-> d/f",
    }  # fmt: skip
    assert ((top / "map/0/d/f").stat().st_mtime, bool((top / "map/0/d/f").stat().st_mode & 0o100)) == (5, True)


def test_what_is_there_already_is_not_fetched_again_and_never_overwritten(tmp_path):
    asked = []
    fetched(tmp_path, [row("f"), row("g")])
    (tmp_path / "map/0/g").unlink()
    assert fetched(tmp_path, [row("f"), row("g")], asked=asked).err.startswith("2 files (1 there already), 4 bytes")
    assert [path for path in asked if "file=f" in path] == []

    (tmp_path / "map/0/f").write_text("mine")
    said = fetched(tmp_path, [row("f")])
    assert said.code == 1
    assert "map/0/f is there already, and is another one: name another folder, remove it, or replace" in said.err
    assert (tmp_path / "map/0/f").read_text() == "mine"


def test_files_of_an_earlier_run_are_replaced_where_that_is_asked_for(tmp_path):
    fetched(tmp_path, [row("f"), row("g")])
    rows = [row("f", changed_ms=9_000, size=3), row("g")]

    with gateway([HEAD, *rows], data=b"new") as url:
        said = largesse("results", "j", tmp_path, "--overwrite", LARGESSE_URL=url)

    assert (said.code, said.err) == (0, f"2 files (1 there already), 3 bytes, of 1 task in {tmp_path}\n")
    assert [(tmp_path / "map/0" / name).read_text() for name in "fg"] == ["new", "text"]
    assert (tmp_path / "map/0/f").stat().st_mtime == 9


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_only_files_are_replaced(tmp_path, kind):
    (tmp_path / "map/0").mkdir(parents=True)
    (tmp_path / "map/0/f").mkdir() if kind == "folder" else (tmp_path / "map/0/f").symlink_to("elsewhere")

    with gateway([HEAD, row("f")]) as url:
        said = largesse("results", "j", tmp_path, "--overwrite", LARGESSE_URL=url)

    assert said.code == 1
    assert "map/0/f is there already, and is another one" in said.err


def test_overwriting_needs_a_folder():
    said = largesse("results", "j", "--overwrite")

    assert (said.code, said.err) == (2, "largesse: --overwrite: only with DIR, the folder that files go to\n")


def test_a_file_whose_answer_breaks_off_is_fetched_from_there_on(tmp_path, monkeypatch):
    monkeypatch.setattr("services.cli.patience.PAUSE_S", 0.01)
    asked = []
    said = fetched(tmp_path, [row("f", size=6)], data=b"abcdef", breaks=2, asked=asked)

    assert said.code == 0, said.err
    assert (tmp_path / "map/0/f").read_bytes() == b"abcdef"
    assert [path.rpartition("offset=")[2] for path in asked[1:]] == ["0", "1", "2"]


def test_a_file_that_has_become_shorter_is_no_result(tmp_path):
    said = fetched(tmp_path, [row("f", size=9)])

    assert said.code == 3
    assert "f has become shorter while it was fetched" in said.err
    assert tree(tmp_path) == {"map": None, "map/0": None}


@pytest.mark.parametrize("path", ["../f", "/f", "a/../../f", "", "a//f"])
def test_nothing_is_written_outside_the_folder(tmp_path, path):
    said = fetched(tmp_path / "in", [row(path)])

    assert said.code == 0
    assert "1 left out" in said.err
    assert tree(tmp_path) == {"in": None, "in/map": None, "in/map/0": None}


def test_links_that_lead_elsewhere_are_left_out_and_none_is_followed(tmp_path):
    said = fetched(tmp_path / "in", [row("l", "link", target="/etc"), row("m", "link", target="..")])
    assert "2 links left out: outside a task's own folder they would lead elsewhere" in said.err

    (tmp_path / "in/map/0/d").symlink_to(tmp_path)
    said = fetched(tmp_path / "in", [row("d/f")])
    assert said.code != 0
    assert not (tmp_path / "f").exists()


def test_names_of_files_control_no_terminal(tmp_path):
    rows = [HEAD | {"stage": EVIL}, row(EVIL) | {"stage": EVIL}, row("l", "link", target=EVIL) | {"stage": EVIL}]
    rows.append({"stage": "z", "index": 0, "problem": {"detail": EVIL}})
    with gateway(rows) as url:
        for words in ([], [tmp_path / "out"], ["--json"]):
            said = largesse("results", "j", *words, LARGESSE_URL=url)
            assert said.code == 3
            assert "\x1b" not in said.out + said.err
            assert "\u202e" not in said.out + said.err


def test_a_list_says_size_and_kind_and_json_the_same(tmp_path):
    rows = [HEAD, row("d", "folder"), row("d/f"), row("l", "link", target="d/f")]
    with gateway(rows) as url:
        lines = largesse("results", "j", LARGESSE_URL=url).out.splitlines()
        document = largesse("results", "j", "--json", LARGESSE_URL=url).json

    assert [line.split(maxsplit=1) for line in lines] == [
        ["0", "map/0/d/"], ["4", "map/0/d/f"], ["0", "map/0/l -> d/f"],
    ]  # fmt: skip
    assert [entry["path"] for entry in document["tasks"][0]["entries"]] == ["d", "d/f", "l"]


def test_nothing_to_list_is_an_answer_of_no(tmp_path):
    with gateway([]) as url:
        said = largesse("results", "j/map/0", tmp_path / "out", LARGESSE_URL=url)

    assert said.code == 1
    assert "there are no results of j/map/0: nothing of it has started, or they were removed" in said.err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    said = fetched(tmp_path / "file", [row("f")])
    assert said.code == 2
    assert f"DIR: {tmp_path}/file: " in said.err
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
