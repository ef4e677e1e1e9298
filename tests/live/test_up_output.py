"""What tasks of an embedded cell print, and what limits they are held to, as its users see it."""

import sys

from tests.live.up_jobs import job, shell


def test_what_all_tasks_printed_stands_behind_their_names(cell):
    script = shell("echo one $LARGESSE_TASK_INDEX; echo two; printf three; echo err >&2")
    cell.ask("submit", "-", stdin=job("many", *script, tasks=2))
    assert cell.ask("watch", "many").code == 0

    assert cell.ask("logs", "many").out == (
        "run/0: one 0\nrun/0: two\nrun/0: three\nrun/1: one 1\nrun/1: two\nrun/1: three\n"
    )
    assert cell.ask("logs", "many/run", "--tail", 1).out == "run/0: three\nrun/1: three\n"
    assert cell.ask("logs", "many/run/1", "--tail", 2, "--since", "1h").out == "two\nthree"
    assert cell.ask("logs", "many/run/1", "--tail", 1, "--follow").out == "three"
    assert cell.ask("logs", "many", "--follow", "--stderr").out == "run/0: err\nrun/1: err\n"
    documents = cell.ask("logs", "many", "--json").json
    assert [task["task"] for task in documents["tasks"]] == ["many/run/0", "many/run/1"]
    assert documents["tasks"][0] | {"task": ""} == {
        "task": "", "output": "one 0\ntwo\nthree", "printed_bytes": 15, "cuts": []
    }  # fmt: skip
    assert cell.ask("logs", "many/walk").code == 1
    assert "--since: 'soon' is not a duration: write it like 90s" in cell.ask("logs", "many", "--since", "soon").err


LONG = "for i in range(500_000): print(str(i).zfill(99))"


def test_fifty_megabytes_of_output_come_back_whole(cell):
    cell.ask("submit", "-", stdin=job("long", sys.executable, "-S", "-c", LONG, cpu="1"))
    assert cell.ask("watch", "long").code == 0

    printed = cell.ask("logs", "long/run/0").out

    assert len(printed) == 50_000_000
    assert printed == "".join(f"{i:099}\n" for i in range(500_000))


FLOOD = "import os\nblock = (b'x' * 1023 + b'\\n') * 1024\nfor _ in range(1024): os.write(1, block)"


def test_a_flood_of_output_fills_no_disk_and_holds_up_nobody(cell):
    """A GiB of it, of which both ends are kept."""
    cell.ask("submit", "-", stdin=job("flood", sys.executable, "-S", "-c", FLOOD, cpu="1"))

    assert cell.ask("run", "--cpu", "0.1", "--memory", "64Mi", "--", "echo", "meanwhile").out == "meanwhile\n"
    assert cell.ask("watch", "flood").code == 0
    said = cell.ask("logs", "flood/run/0", "--tail", 1, "--json").json
    assert said["printed_bytes"] == 1 << 30
    (cut,) = said["cuts"]
    assert cut["at"] == 128 << 20
    assert 768 << 20 <= cut["bytes"] < 1 << 30
    sizes = sum(path.stat().st_size for path in cell.data.glob("nodes/*/*/**/stdout*"))
    assert sizes < (256 + 50 + 1) << 20
    assert [node["state"] for node in cell.ask("get", "nodes", "--json").json] == ["ready", "ready"]


def test_a_hog_ends_at_its_limit_for_its_memory(cell):
    hog = "hoard = []\nwhile True: hoard.append(bytearray(1 << 20)); __import__('time').sleep(0.005)"
    cell.ask("submit", "-", stdin=job("hog", sys.executable, "-S", "-c", hog, cpu="500m"))

    watched = cell.ask("watch", "hog")

    assert watched.code == 1
    assert "hog: failed" in watched.out
    assert "run/0 memory: used" in watched.out
    (failure,) = cell.ask("get", "job", "hog", "--json").json["failures"]
    assert (failure["reason"], failure["exit_code"]) == ("memory", None)
