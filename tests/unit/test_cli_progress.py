"""Progress of commands that last: on a terminal's stderr, and nowhere else."""

import os
import pty
import subprocess
import sys
import tempfile

import pytest

from services.cli import progress
from tests.unit.cli_here import largesse
from tests.unit.cli_process import CLUSTER, ROOT, WORKLOAD

AT_ONCE = """
import sys
from services.cli import progress
progress.QUIET_S, progress.SHOWN_EVERY = {quiet}, 1
sys.argv[0] = "largesse"
from services.cli.main import main
main()
"""
"""The command, which does not wait before it shows progress."""
SMALL = ("--workload", WORKLOAD, "--cluster", CLUSTER)
SWF = [f"{job} 0 0 60 2 -1 -1 2 60 -1 1 7 1 -1 -1 -1 -1 -1\n" for job in range(1, 101)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a log and a trace."""
    path = tmp_path_factory.mktemp("progress")
    assert largesse("simulate", *SMALL, "--log", path / "log").code == 0
    (path / "trace.swf").write_text("".join(SWF))
    return path


def on_a_terminal(*words, quiet=0.0, shared=False):
    """What a command writes to a terminal that is its stderr, and to its stdout, which is another unless `shared`."""
    ours, theirs = pty.openpty()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-c", AT_ONCE.format(quiet=quiet), *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=theirs if shared else out,
            stderr=theirs,
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
        )
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        os.close(ours)
        assert process.wait() == 0, shown
        out.seek(0)
        return shown.decode(), out.read()


def _read(terminal):
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so where the last writer has gone.
        return b""


COMMANDS = [
    pytest.param(("simulate", *SMALL, "--preset", "drf", "--json"), "drf", "20/20 jobs", id="simulate"),
    pytest.param(("compare", *SMALL, "--presets", "drf,fifo", "--json"), "fifo", "20/20 jobs", id="compare"),
    pytest.param(("replay", "LOG", "--json"), "reading", " records", id="replay"),
    pytest.param(("replay", "LOG", "--verify", "--json"), "verifying", " records", id="verify"),
    pytest.param(("export", "LOG", "/dev/null", "--json"), "exporting", " records", id="export"),
    pytest.param(("import", "swf", "TRACE"), "importing", " jobs", id="import"),
]


SUMMARY = "kept: "
"""How the summary begins that an import ends with, on the same stream."""


def with_paths(words, place):
    return [{"LOG": place / "log", "TRACE": place / "trace.swf"}.get(word, word) for word in words]


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize(("words", "what", "count"), COMMANDS)
def test_what_lasts_shows_how_far_it_is_and_clears_it_away(place, words, what, count):
    shown, out = on_a_terminal(*with_paths(words, place))
    shown = shown.partition(SUMMARY)[0]

    assert what in shown
    assert count in shown
    assert "\x1b[2K" in shown.rpartition(count)[2]  # The line is cleared in the end.
    assert out.startswith(b"{")


@pytest.mark.parametrize(("words", "what", "count"), COMMANDS)
def test_no_progress_goes_where_no_terminal_is(place, monkeypatch, words, what, count):
    monkeypatch.setattr(progress, "QUIET_S", 0)
    monkeypatch.setattr(progress, "SHOWN_EVERY", 1)
    said = largesse(*with_paths(words, place))

    assert said.out.startswith("{")
    assert (said.code, said.err.partition(SUMMARY)[0]) == (0, "")


@pytest.mark.slow
def test_what_is_over_soon_shows_nothing(place):
    assert on_a_terminal("replay", place / "log", "--json", quiet=600)[0] == ""


def test_results_that_go_to_the_terminal_as_they_come_are_not_written_over(place):
    shown, _ = on_a_terminal("import", "swf", place / "trace.swf", shared=True)

    assert shown.startswith("{")
    assert "importing" not in shown
