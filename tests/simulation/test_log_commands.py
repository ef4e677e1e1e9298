"""Every command that looks into a log, on every kind of log: on a narrow terminal, in a pipe, as JSON, interrupted."""

import asyncio
import gzip
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from largesse.log.codec import Undecodable
from largesse.log.export import ExportDamaged, ExportWriter
from services.gateway.documents.summary import summary_document
from services.gateway.documents.tally import Tally
from services.replay.live.hindsight import what_if
from services.replay.source import open_source
from services.replay.viewing import learn, viewing
from tests.golden import log_path
from tests.simulation.why_truth import recorded
from tests.unit.cli_here import largesse
from tests.unit.cli_process import ROOT
from tests.unit.stub_server import respond, serving

COLUMNS = 60
COMMANDS = {
    "why": ["why", "root", "--log", "LOG"],
    "whatif": ["whatif", "--preset", "fifo", "--since", "1"],
    "replay --what-if": ["replay", "LOG", "--what-if", "--preset", "fifo"],
    "bisect": ["bisect", "LOG", "jobs() > 1", "--all"],
    "diff": ["diff", "LOG", "LOG"],
    "bundle": ["bundle", "LOG", "OUT"],
    "tail": ["tail", "LOG", "--last", "40"],
    "audit": ["audit", "LOG"],
    "top": ["top", "--once"],
}
LIVE = ("whatif", "top")
"""They ask a gateway, which answers here from the log."""
OF_LINES = ("tail", "audit")
"""With --json they print a document a line."""
WHOLE = {"tail": ["--queue", "none"]}
"""What has these read a log from its beginning."""
LOGS = ("whole", "empty", "damaged", "older")
STYLE = re.compile("\x1b\\[[0-9;]*m")


# ---------------------------------------------------------------- logs
def damaged(path: Path, whole: Path) -> Path:
    """The same, with another bit in its middle."""
    data = bytearray(gzip.decompress(whole.read_bytes()))
    data[len(data) // 2] ^= 1
    path.write_bytes(gzip.compress(bytes(data)))
    return path


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("logs")
    whole = folder / "whole.gz"
    recorded(whole, 1, 16)
    with ExportWriter(folder / "empty.gz"):
        pass
    return {
        "whole": whole,
        "empty": folder / "empty.gz",
        "damaged": damaged(folder / "damaged.gz", whole),
        "older": log_path(7),
    }


@contextmanager
def a_gateway(log: Path) -> Iterator[str]:
    """Answers what-ifs and summaries from a log, as far as it can be read."""
    source = open_source(log)

    def answer(request, body):
        try:
            if request.command == "POST":
                document = {"answer": what_if(source, json.loads(body), 1 << 40, lambda *_: None)}
            else:
                hosted = viewing(source.start)
                for step in source.steps():
                    learn(hosted, step)
                document = summary_document(hosted.state, asyncio.run(Tally().look(hosted.state)))
        except (ExportDamaged, Undecodable) as error:
            document = {"type": "urn:largesse:effect", "status": 503, "detail": f"the log cannot be read: {error}"}
            document = {"problem": document} if request.command == "POST" else document
        status = 503 if document.get("status") else 200
        kind = "application/jsonl" if request.command == "POST" else "application/json"
        respond(request, status, {"Content-Type": kind}, json.dumps(document).encode() + b"\n")

    with serving(answer) as url:
        yield url


def run(command: str, log: Path, folder: Path, *more: str, **how):
    out = folder / "out.gz"
    out.unlink(missing_ok=True)
    words = [{"LOG": str(log), "OUT": str(out)}.get(word, word) for word in COMMANDS[command]]
    with a_gateway(log) if command in LIVE else nullcontext() as url:
        return largesse(*words, *more, *(("--url", url) if url else ()), columns=COLUMNS, **how)


# ---------------------------------------------------------------- what they say
@dataclass(frozen=True)
class Expected:
    """Exit code, and what stderr says (of a command with --json also an error document, where the answer is no)."""

    code: int
    err: str = ""


DONE = Expected(0)
DAMAGED = Expected(2, "line ")
BY_LOG: dict[str, dict[str, Expected]] = {
    "whole": {},
    "empty": {
        "why": Expected(2, "the log has no record"),
        "bisect": Expected(1, "it never holds in 0 records"),
        "bundle": Expected(2, "no record"),
        "tail": Expected(0, "no record"),
    },
    "damaged": {**dict.fromkeys(COMMANDS, DAMAGED), **dict.fromkeys(LIVE, Expected(3, "the log cannot be read"))},
    "older": {},
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("mode", ["terminal", "pipe", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_it_in_its_place_and_form(logs, tmp_path, command, mode, log):
    expected = BY_LOG[log].get(command, DONE)
    said = run(command, logs[log], tmp_path, *(["--json"] if mode == "json" else []), terminal=mode == "terminal")

    assert (said.code, expected.err in said.err) == (expected.code, True), said
    assert "Traceback" not in said.err
    assert mode == "terminal" or len(said.err.splitlines()) <= 1  # A terminal shows how far it is, if that takes long.
    if mode == "terminal":
        lines = STYLE.sub("", said.out).splitlines()
        assert [line for line in lines if len(line) > COLUMNS and line.strip() != str(tmp_path / "out.gz")] == []
    elif mode == "pipe":
        assert "\x1b" not in said.out + said.err
    elif command in OF_LINES:
        assert all(json.loads(line)["seq"] for line in said.out.splitlines())
    else:
        assert json.loads(said.out or "{}") or expected.code == 2
    assert (tmp_path / "out.gz").exists() == (command == "bundle" and expected.code == 0)


# ---------------------------------------------------------------- Ctrl-C
WHILE_READING = """
import os, signal, sys
from services.cli.main import process
import services.replay.source as source

def steps(read, hear):
    for number, step in enumerate(read(hear)):
        if number == 40:
            os.kill(os.getpid(), signal.SIGINT)
        yield step

source.Source.steps = lambda self, hear=source.deaf: steps(self.read, hear)
sys.argv = ["largesse", *sys.argv[1:]]
process()
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["plain", "json"])
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in LIVE])
def test_ctrl_c_while_a_log_is_read_is_one_line_and_leaves_nothing_behind(logs, tmp_path, command, more):
    out = tmp_path / "out.gz"
    words = [{"LOG": str(logs["whole"]), "OUT": str(out)}.get(word, word) for word in COMMANDS[command]]
    words += WHOLE.get(command, [])
    said = subprocess.run(
        [sys.executable, "-c", WHILE_READING, *words, *more], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (said.returncode, said.stderr) == (130, "largesse: interrupted\n")
    assert said.stdout == "" or command in OF_LINES
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", LIVE)
def test_ctrl_c_while_a_gateway_works_is_one_line(command):
    processes: list[subprocess.Popen[str]] = []

    def answer(request, body):
        processes[0].send_signal(signal.SIGINT)
        processes[0].wait()

    with serving(answer) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.cli.main", *COMMANDS[command], "--url", url],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            processes.append(process)
            said, err = process.stdout.read(), process.stderr.read()

    assert (process.returncode, said, err) == (130, "", "largesse: interrupted\n")
