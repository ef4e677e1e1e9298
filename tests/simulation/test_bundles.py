"""A slice of a log in one file: it is decided again by itself, opens as a log, and is refused where it was changed."""

import gzip
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from largesse.ids import PREFIX_OF_NOTHING, chain
from largesse.log.export import ExportDamaged, ExportWriter, read_export
from schemas import JobAdmitted, RoundClosed, RoundOpened
from schemas.presets import Preset
from services.gateway import view
from services.replay.bundle import FORMAT
from services.replay.bundling import Slice, SliceEmpty, write_bundle
from services.replay.log_diff import diff
from services.replay.source import open_source
from services.replay.start import StartRefused
from services.replay.verify import verify
from services.replay.viewing import viewing
from services.replay.whatif.run import Question, ask
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.outages import Outage
from tests.conftest import ROOT
from tests.golden import log_path
from tests.simulation.test_what_if import recorded
from tests.unit.cli_here import largesse

PRESETS = get_args(Preset)


JOBS = 16


def drawn(path, seed, preset="largesse"):
    """A log in which nodes fail, jobs are reserved for under presets that plan them, and gangs wait."""
    nodes = drawn_cluster(seed)
    spans = [Outage(node.name, 2_000 + 1_000 * at, 35_000) for at, node in enumerate(nodes.nodes[:3])]
    arrivals = sorted(drawn_arrivals(seed, preset), key=lambda arrival: arrival[0])[:JOBS]
    return recorded(path, arrivals, nodes, {"preset": preset, "seed": seed, **KNOBS}, spans)[0]


def records_of(source):
    return [step.accepted.record for step in source.steps()]


def prefixes_of(source):
    """By seq."""
    prefix, found = PREFIX_OF_NOTHING, {}
    for step in source.steps():
        prefix = chain(prefix, step.accepted.content)
        found[step.accepted.record.seq] = prefix.hex()
    return found


def bundled(source, path, first=None, last=None):
    write_bundle(source, path, Slice(first, None, last))
    return open_source(path)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """One that no test changes."""
    return drawn(tmp_path_factory.mktemp("told") / "log.gz", 3)


@pytest.fixture(scope="module")
def middle(told, tmp_path_factory):
    """A bundle of its middle."""
    seqs = len(records_of(told))
    return bundled(told, tmp_path_factory.mktemp("middle") / "bundle", seqs // 3, 2 * seqs // 3)


# ---------------------------------------------------------------- it is a log
@pytest.mark.rotating(3)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_bundle_from_any_record_is_decided_again_the_same(tmp_path, preset):
    random = Random(preset)
    source = drawn(tmp_path / "log", random.randrange(100), preset)
    records, prefixes = records_of(source), prefixes_of(source)
    for number in range(2):
        first, last = sorted(random.sample(range(1, len(records) + 1), 2))
        found = bundled(source, tmp_path / f"{number}", first, last)
        slice_ = records_of(found)

        assert [record.seq for record in slice_] == list(range(slice_[0].seq, last + 1))
        assert slice_ == records[slice_[0].seq - 1 : last]
        assert slice_[0].seq == first or isinstance(slice_[0].body, RoundOpened)
        verdict = verify(found)
        assert verdict.difference is None, verdict.text()
        assert verdict.rounds_compared == sum(isinstance(record.body, RoundClosed) for record in slice_)
        assert verdict.prefix == prefixes[last]


def test_of_a_live_cell_it_is_decided_again_from_any_record(tmp_path):
    source = open_source(log_path())
    prefixes = prefixes_of(source)
    for first in range(2, len(prefixes), len(prefixes) // 8):
        verdict = verify(bundled(source, tmp_path / f"{first}", first))

        assert verdict.difference is None
        assert (verdict.prefix, verdict.seq) == (prefixes[len(prefixes)], len(prefixes))


def test_a_bundle_of_a_bundle_is_that_of_the_log(told, middle, tmp_path):
    seqs = [record.seq for record in records_of(middle)]
    again = bundled(middle, tmp_path / "again", seqs[len(seqs) // 2], seqs[-9])
    at_once = bundled(told, tmp_path / "at once", seqs[len(seqs) // 2], seqs[-9])

    assert (tmp_path / "again").read_bytes() == (tmp_path / "at once").read_bytes()
    assert again.start.before == at_once.start.before != []
    same = bundled(middle, tmp_path / "same", seqs[0], seqs[-1])
    assert records_of(same) == records_of(middle)


def test_from_the_first_record_on_it_needs_no_states(told, tmp_path):
    found = bundled(told, tmp_path / "whole")

    assert found.start is None
    assert records_of(found) == records_of(told)
    assert verify(found).is_same


def test_what_if_nothing_were_different_all_goes_as_in_the_log(told, tmp_path):
    records = records_of(told)
    found = bundled(told, tmp_path / "second half", len(records) // 2)
    of_bundle, of_log = ask(found, Question()), ask(told, Question(fork=found.start.seq))
    rows = {seq: row for seq, row in of_log.decided.jobs.items() if seq in of_bundle.decided.jobs}

    assert any(seq < found.start.seq for seq in rows)
    assert of_bundle.decided.jobs == rows
    assert of_bundle.recorded.jobs == {seq: of_log.recorded.jobs[seq] for seq in rows}
    assert of_bundle.digest == of_log.digest
    ended = [seq for seq, row in of_log.decided.jobs.items() if seq not in rows]
    assert all(of_log.decided.jobs[seq]["end_ms"] <= found.start.time for seq in ended)


def test_another_policy_decides_otherwise_behind_its_start(middle, told):
    question = Question(values={"preset": "fifo"}, until=records_of(middle)[-1].seq)
    answer = ask(middle, question)
    of_log = ask(told, replace(question, fork=middle.start.seq))

    assert answer.fork >= middle.start.seq
    assert answer.digest == of_log.digest != ask(middle, Question()).digest


def test_it_differs_in_nothing_from_the_part_of_its_log(told, tmp_path):
    seqs = len(records_of(told))
    for at, last in enumerate([None, 3 * seqs // 4]):
        bundle = bundled(told, tmp_path / f"part-{at}", seqs // 2, last)
        for found in (diff(told, bundle), diff(bundle, told)):
            assert (found.difference, found.round, found.jobs) == (None, None, [])
            assert found.records[0] == found.records[1] > seqs // 5


def test_the_gateway_shows_what_it_showed(told, middle):
    state = viewing(middle.start).state
    plain = view.start()
    for record in records_of(told)[: middle.start.seq]:
        if type(record.body) in view.FOLDS:
            view.fold(plain, record)

    assert (state.seq, state.time, state.round) == (plain.seq, plain.time, plain.round)
    assert list(state.jobs) == list(plain.jobs) != []
    assert state.nodes == plain.nodes


def test_elsewhere_it_is_decided_again_by_a_process_that_has_nothing_else(middle, tmp_path):
    moved = tmp_path / "b"
    moved.write_bytes(Path(middle.name).read_bytes())
    moved.chmod(0o644)
    tmp_path.chmod(0o755)
    asked = "import sys; from services.replay.verify import verify; from services.replay.source import open_source\n"
    asked += "found = verify(open_source(sys.argv[1])); print(found.text()); sys.exit(not found.is_same)"
    said = subprocess.run(
        [sys.executable, "-c", asked, "b"],
        cwd=tmp_path,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.startswith("b: same")


# ---------------------------------------------------------------- what is refused
def test_a_bundle_that_is_cut_anywhere_is_refused(middle, tmp_path):
    whole = Path(middle.name).read_bytes()
    for at in Random(1).sample(range(len(FORMAT), len(whole)), 25):
        path = tmp_path / "cut"
        path.write_bytes(whole[:at])
        with pytest.raises(ExportDamaged, match=r"cut, line \d+: "):
            records_of(open_source(path))


def test_a_bundle_with_one_other_bit_is_refused(middle, tmp_path):
    whole = Path(middle.name).read_bytes()
    for at in Random(2).sample(range(len(FORMAT), len(whole)), 25):
        path = tmp_path / "flipped"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(ExportDamaged, match=r"flipped, line \d+: "):
            records_of(open_source(path))


def lines_of(source):
    return [(each.topic, each.header if each.topic == "cluster.log" else None, each.content)
            for each in read_export(source.name, FORMAT)]  # fmt: skip


def written(path, lines):
    """A bundle whose checksums are made anew: only what it says can give it away."""
    with ExportWriter(path, FORMAT) as writer:
        for line in lines:
            writer(*line)
    return path


@pytest.mark.parametrize("part", ["start", "state", "before", "log", "end"])
def test_a_bundle_spliced_from_two_is_refused_though_its_checksums_are_right(middle, told, tmp_path, part):
    other = bundled(told, tmp_path / "other", middle.start.seq + 30)
    lines, others = lines_of(middle), lines_of(other)
    kinds = [line[0] for line in lines]
    its = [line[0] for line in others]
    if part == "log":
        begins, ends = kinds.index("cluster.log"), kinds.index("end")
        spliced = [*lines[: begins + 12], *others[its.index("cluster.log") :]]
        assert begins + 12 < ends
    else:
        spliced = [line for line in lines if line[0] != part]
        at = kinds.index(part)
        spliced[at:at] = [line for line in others if line[0] == part]
    refused = r"not the state of|should stand here|do not follow|it is not what there was"
    with pytest.raises(ExportDamaged, match=refused):
        records_of(open_source(written(tmp_path / "spliced", spliced)))


def test_a_beginning_amid_records_is_refused_by_file_and_line(middle, tmp_path):
    """As a splice leaves it that puts two whole bundles one behind the other."""
    lines = lines_of(middle)
    kinds = [line[0] for line in lines]
    at = kinds.index("cluster.log") + 12
    path = written(tmp_path / "spliced", [*lines[:at], *lines[kinds.index("state") :]])
    with pytest.raises(ExportDamaged, match=rf"{path}, line {at + 2}: "):  # One line before them names the format.
        records_of(open_source(path))


def test_a_record_put_in_by_somebody_who_makes_all_checksums_anew_is_found_by_verify(middle, tmp_path):
    lines = lines_of(middle)
    at = next(i for i, line in enumerate(lines) if b'"type":"TaskFinished"' in line[2] and line[0] == "cluster.log")
    lines[at] = (*lines[at][:2], lines[at][2].replace(b'"attempt":', b'"attempt":1'))
    prefix = middle.start.prefix
    for topic, _, content in lines:
        prefix = chain(prefix, content) if topic == "cluster.log" else prefix
    lines[-1] = ("end", None, b'{"prefix":"%b"}' % prefix.hex().encode())
    verdict = verify(open_source(written(tmp_path / "forged", lines)))

    assert verdict.difference is not None


def test_states_of_another_layout_are_named_and_records_can_still_be_read(middle, monkeypatch):
    from services.leftover import core

    assert all(a.seq + 1 == b.seq for a, b in pairwise(records_of(middle)))
    monkeypatch.setattr(core, "LAYOUT", core.LAYOUT + 1)
    with pytest.raises(StartRefused, match=f"state of leftover has layout {core.LAYOUT - 1}, this version has"):
        verify(middle)
    assert records_of(middle)


def test_a_slice_without_a_record_is_no_bundle(told, tmp_path):
    last = len(records_of(told))
    for wanted in (Slice(last + 1), Slice(None, 10**15), Slice(50, None, 40), Slice(None, None, None, -1)):
        with pytest.raises(SliceEmpty):
            write_bundle(told, tmp_path / "none", wanted)


# ---------------------------------------------------------------- the command
def test_the_command_writes_one_that_every_command_opens(told, tmp_path):
    records = records_of(told)
    path = tmp_path / "incident.gz"
    said = largesse("bundle", told.name, path, "--from", "150", "--to", "400", columns=60)
    first = open_source(path).start.seq + 1

    assert (said.code, said.out) == (
        0,
        f"{401 - first} records ({first} to 400, with decisions and the states before) in {path}\n",
    )
    assert largesse("bundle", told.name, path, "--json").code == 2
    again = largesse("bundle", told.name, path, "--from", "150", "--to", "400", "--force", "--json")
    assert again.json == {"log": told.name, "bundle": str(path), "from_seq": first, "to_seq": 400}
    assert largesse("replay", path, "--verify").code == 0
    assert largesse("replay", path, "--verify", "--until", "300").code == 0
    assert largesse("replay", path, "--verify", "--until", "401").code == 2
    assert largesse("replay", path, "--json").json == largesse("replay", told.name, "--until", "400", "--json").json
    assert largesse("replay", path, "--what-if", "--preset", "drf", "--json").json["from_seq"] >= first - 1
    for words in (["--from", "300", "--to", "100"], ["--from", "2026-11-02", "--to", "2026-11-01"]):
        assert "--to: lies before --from" in largesse("bundle", told.name, tmp_path / "none", *words).err
    assert "--from, --to: no record" in largesse("bundle", told.name, tmp_path / "none", "--from", "999999").err
    assert largesse("diff", path, told.name, "--json").json["records"] == [401 - first, 401 - first]
    assert largesse("diff", told.name, path).code == 0, "a bundle that ends sooner differs in nothing else"
    early = largesse("tail", path, "--from", "10")
    assert (early.code, f"the bundle begins behind record {first - 1}" in early.err) == (0, True)
    asked = largesse("why", "node-0", "--log", path, "--at", first - 2)
    assert (asked.code, f"--at: the bundle begins behind record {first - 1}" in asked.err) == (2, True)
    queue = next(record.body.spec.queue for record in records if isinstance(record.body, JobAdmitted))
    shown = largesse("tail", path, "--queue", queue, "--last", "1000", "--json").out.splitlines()
    of_log = largesse("tail", told.name, "--queue", queue, "--from", str(first), "--json").out.splitlines()
    assert shown == of_log[: len(shown)] != []
    assert "use bundle" in largesse("export", path, tmp_path / "whole").err


def test_the_command_says_what_is_wrong(told, tmp_path):
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(FORMAT + b"}\n"))
    empty = tmp_path / "empty"
    with ExportWriter(empty):
        pass
    target = tmp_path / "out"
    for log, option, words in (
        (damaged, (), "line 1: "),
        (empty, (), "no record"),
        (told.name, ("--from", "1000000"), "no record"),
        (told.name, ("--from", "yesterday"), "neither a record's seq nor a time"),
        (tmp_path / "none", (), "there is no such file"),
    ):
        said = largesse("bundle", log, target, *option)

        assert (said.code, words in said.err) == (2, True), said.err
        assert not target.exists()
    assert largesse("bundle", told.name, tmp_path).code == 2
