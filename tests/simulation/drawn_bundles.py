"""Bundles of drawn logs, redacted and not, judged elsewhere: `python -m tests.simulation.drawn_bundles --count 100`.

Each log is drawn by a seed: nodes that fail, gangs, graphs, reservations, commands, and names that all have one mark.
A drawn span of it is bundled as it is and with other names, whose bytes must not have the mark. Other processes decide
both again: in another folder, where they run as root also under another user, and by every Python that is found and has
what Largesse needs. Each bundle is cut, flipped and spliced, and has to be refused by name.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from largesse.log.export import ExportDamaged, ExportWriter, read_export
from schemas import JobSpec
from schemas.edge.cluster import ClusterNode
from schemas.edge.read import Cluster
from schemas.presets import Preset
from services.replay.bundle import FORMAT
from services.replay.bundling import Slice, write_bundle
from services.replay.redacting import write_redacted
from services.replay.redaction import KEPT_WORDS, Names, words_of
from services.replay.source import Source, open_source
from services.simulator.drawn import Dice, drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate

ROOT = Path(__file__).resolve().parents[2]
PRESETS: tuple[Preset, ...] = get_args(Preset)
JOBS = 24
MARK = "quoll"
MARKED = re.compile(MARK.encode(), re.IGNORECASE)
DAMAGES = ("cut", "flipped", "spliced")
NOBODY = 65_534
PYTHONS = "LARGESSE_TEST_PYTHONS"
"""Further interpreters, separated by colons; those that pyenv has are found without."""
REFUSED = re.compile(r"line \d+: ")


# ---------------------------------------------------------------- logs
class _Marked(Names):
    """Every word of a name gets the mark, but for words that rules know, and numbers."""

    def __init__(self) -> None:
        super().__init__((), b"-")

    def of(self, name: str) -> str:
        for word in dict.fromkeys(words_of(name)):
            if word not in KEPT_WORDS and not word.isdecimal():
                name = re.sub(rf"(?<![^\W_]){word}(?![^\W_])", MARK + word, name)
        return name


def marked(spec, names):
    """What is submitted, with marked names, and in free texts as well."""
    spec = names.body(spec)
    if isinstance(spec, JobSpec):
        free = {"command": [f"{MARK}.sh", f"--{MARK}=7"], "env": {f"{MARK}key": f"a {MARK} value"}, "cwd": f"/{MARK}"}
        spec = replace(spec, user=f"{MARK}-ann", stages=[replace(stage, **free) for stage in spec.stages])
    return spec


def drawn_log(path: Path, seed: int) -> Source:
    """A log in which nodes fail; its preset follows from the seed."""
    names, preset = _Marked(), PRESETS[seed % len(PRESETS)]
    drawn = drawn_cluster(seed)
    nodes = [names.body(node) for node in drawn.nodes]
    assert all(isinstance(node, ClusterNode) for node in nodes)
    cluster = Cluster(nodes, names.body(drawn.queues))  # type: ignore[arg-type]
    arrivals = sorted(drawn_arrivals(seed, preset), key=lambda arrival: arrival[0])[:JOBS]
    spans = [Outage(node.name, 2_000 + 1_000 * at, 35_000) for at, node in enumerate(cluster.nodes[:2])]
    with ExportWriter(path) as writer:
        options = Options({"preset": preset, "seed": seed, **KNOBS}, listener=writer, outages=spans)
        simulate([(at_ms, marked(spec, names)) for at_ms, spec in arrivals], cluster, options)
    return open_source(path)


def drawn_span(seed: int, records: int) -> Slice:
    """A slice that begins anywhere in the log."""
    dice = Dice(seed)
    first, last = sorted((1 + dice.upto(records - 1, "first"), 1 + dice.upto(records - 1, "last")))
    return Slice(first, None, last)


# ---------------------------------------------------------------- damage
def lines_of(path):
    return [
        (each.topic, each.header if each.topic == "cluster.log" else None, each.content)
        for each in read_export(path, FORMAT)
    ]


def damaged(path: Path, other: Path, seed: int) -> Iterator[tuple[str, Path]]:
    """The bundle cut, with another bit, and with a part of another bundle, under checksums made anew."""
    dice, whole = Dice(seed), path.read_bytes()
    for what in DAMAGES:
        broken = path.with_name(f"{what}-{path.name}")
        at = len(FORMAT) + dice.upto(len(whole) - len(FORMAT) - 1, path.name, what)
        if what == "cut":
            broken.write_bytes(whole[:at])
        elif what == "flipped":
            broken.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.upto(7, "bit"))]) + whole[at + 1 :])
        else:
            _splice(broken, path, other, dice)
        yield what, broken


def _splice(into: Path, path: Path, other: Path, dice: Dice) -> None:
    """The head of one bundle and the rest of another."""
    lines, others = lines_of(path), lines_of(other)
    at = 1 + dice.upto(len(lines) - 2, path.name, "spliced at")
    begins = min(1 + dice.upto(len(others) - 2, path.name, "spliced from"), len(others) - 1)
    with ExportWriter(into, FORMAT) as writer:
        for line in [*lines[:at], *others[begins:]]:
            writer(*line)


def is_refused(path: Path) -> bool:
    """Whether reading it names the file and the line."""
    try:
        for _ in open_source(path).steps():
            pass
    except ExportDamaged as fault:
        return path.name in str(fault) and REFUSED.search(str(fault)) is not None
    return False


# ---------------------------------------------------------------- elsewhere
NEEDED = "import sys; sys.version_info >= (3, 14) or __import__('backports.zstd'); "
NEEDED += "import orjson, pydantic, numpy, structlog, mypy_extensions, lark, prometheus_client; "
NEEDED += "assert orjson.__version__.split('.') >= ['3', '10'], f'orjson {orjson.__version__}'"
ELSEWHERE = """
import os, sys
from services.replay.source import open_source
from services.replay.verify import verify
user, *names = sys.argv[1:]
verify(open_source(names[0]))  # All is imported now: another user may not read where this Python lies.
if user != "-":
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
for name in names:
    found = verify(open_source(name))
    print("same" if found.is_same or not found.rounds_compared and found.difference is None else "OTHER", found.text())
"""


def pythons() -> list[Path]:
    """This one, those of the environment, and those of pyenv that may run Largesse."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    given = [Path(each) for each in os.environ.get(PYTHONS, "").split(":") if each]
    found = [*given, *sorted(pyenv.glob("3.1[1-9].*/bin/python"))]
    return [Path(sys.executable), *found]


def lacks(python: Path) -> str:
    """What keeps an interpreter from running Largesse; empty: nothing."""
    try:
        said = subprocess.run([python, "-c", NEEDED], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return said.stderr.strip().splitlines()[-1] if said.returncode else ""


def elsewhere(python, folder, names, user):
    """What a process of its own finds about bundles of a folder, a line each."""
    words = [str(python), "-c", ELSEWHERE, "-" if user is None else str(user), *names]
    env = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    said = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=3_000, check=False)
    return said.stdout + said.stderr


# ---------------------------------------------------------------- the campaign
@dataclass
class Campaign:
    """Of all bundles drawn: their names, what was refused of those that were damaged, and what went wrong."""

    folder: Path
    names: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    faults: list[str] = field(default_factory=list)

    def draw(self, seed: int) -> None:
        """One log, a bundle of it and one with other names."""
        source = drawn_log(self.folder / f"log-{seed}.gz", seed)
        span = drawn_span(seed, sum(1 for _ in source.steps()))
        plain, hidden = self.folder / f"plain-{seed}", self.folder / f"hidden-{seed}"
        write_bundle(source, plain, span)
        _, names = write_redacted(source, hidden, span, f"secret {seed}".encode())
        self._look_for_names(seed, plain, hidden, names)
        for path, other in ((plain, hidden), (hidden, plain)):
            path.chmod(0o644)
            self.names.append(path.name)
            self.bytes += path.stat().st_size
            for what, broken in damaged(path, other, seed):
                if is_refused(broken):
                    self.refused[what] += 1
                else:
                    self.faults.append(f"seed {seed}: {broken.name} is not refused by name")
                broken.unlink()
        Path(source.name).unlink()

    def _look_for_names(self, seed: int, plain: Path, hidden: Path, names: Names) -> None:
        if not MARKED.search(plain.read_bytes()):
            self.faults.append(f"seed {seed}: no name is marked")
        if found := MARKED.search(hidden.read_bytes()):
            around = hidden.read_bytes()[max(0, found.start() - 60) : found.end() + 20]
            self.faults.append(f"seed {seed}: an original name is left: {around!r}")
        if not any(MARK in name for name in names.given.values()):
            self.faults.append(f"seed {seed}: the map has no original name")

    def judge(self, python: Path, user: int | None) -> None:
        """All of them, decided again elsewhere."""
        said = elsewhere(python, self.folder, self.names, user).splitlines()
        right = [line for line in said if line.startswith("same ")]
        if len(right) != len(self.names) or len(said) != len(right):
            wrong = [line for line in said if not line.startswith("same ")]
            self.faults.append(f"{python}, user {user}: {len(right)} of {len(self.names)} are the same: {wrong[:5]}")


def users() -> list[int | None]:
    """As whom bundles are decided again: as this user, and where that may be changed, as nobody."""
    return [None, NOBODY] if os.geteuid() == 0 else [None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.drawn_bundles", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        campaign = Campaign(Path(folder))
        for seed in range(given.seed, given.seed + given.count):
            campaign.draw(seed)
        print(
            f"{len(campaign.names)} bundles of {campaign.bytes:,} bytes; refused: {dict(campaign.refused)}", flush=True
        )
        for python in pythons():
            if missing := lacks(python):
                print(f"left out: {python}: {missing}")
                continue
            before = len(campaign.faults)
            campaign.judge(python, users()[-1])
            said = "same" if len(campaign.faults) == before else "NOT ALL THE SAME"
            print(f"{python}, user {users()[-1] or os.geteuid()}: {said}", flush=True)
        print("\n".join(campaign.faults) or "nothing is wrong")
    return bool(campaign.faults)


if __name__ == "__main__":
    sys.exit(main())
