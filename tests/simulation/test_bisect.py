"""Where something held in a log: as a look at the whole view after each record finds it, and as the command says it."""

import json
from random import Random

import pytest

from largesse.log.export import ExportWriter
from largesse.rounds import read_by
from schemas import JobAdmitted, NodeRegistered, RoundClosed
from schemas.quantities import SHARE_UNITS
from services.replay.bisect.language import Compared, Joined, Lasting, Negated, measures_in, read_expression
from services.replay.bisect.measures import World
from services.replay.bisect.scan import bisect, compare
from services.replay.bundling import Slice, write_bundle
from services.replay.source import open_source
from services.replay.verify import recorded_winners
from services.replay.viewing import viewing
from tests.simulation.test_bundles import drawn, records_of
from tests.unit.cli_here import largesse


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A log in which nodes fail, jobs are reserved for, and gangs wait."""
    return drawn(tmp_path_factory.mktemp("told") / "log.gz", 3)


@pytest.fixture(scope="module")
def looks(told):
    """After each record: its seq, its time, and the value of any measure, read from the state by itself."""
    view = viewing(None)
    found = []
    wanted = [measure for text in expressions(told) for measure in measures_in(read_expression(text))]
    for step in told.steps():
        record = step.accepted.record
        world = alone(view.state, record.time)
        late = {each: world.value(each) for each in wanted}
        if isinstance(record.body, RoundClosed):
            for winner in read_by(view, recorded_winners(step, record)):
                view.core.FOLDS[type(winner.body)](view.state, winner)
        if type(record.body) in view.core.FOLDS:
            view.core.FOLDS[type(record.body)](view.state, record)
        world = alone(view.state, record.time)
        found.append((record.seq, record.time, late, {each: world.value(each) for each in wanted}))
    return found


def alone(state, time):
    """A world that knows nothing from before."""
    state.touched = None
    world = World(state, time)
    world.catch_up()
    return world


def expressions(told):
    records = records_of(told)
    jobs = [record.body.spec for record in records if isinstance(record.body, JobAdmitted)]
    node = next(record.body.node for record in records if isinstance(record.body, NodeRegistered))
    job, queue = jobs[len(jobs) // 2].job, jobs[len(jobs) // 2].queue
    top = queue.partition("/")[0]
    return [
        "pending() > 10",
        "pending() > 0 for 20s",
        "running() >= 5 and not pending() > 3",
        "nodes() < 3 or jobs() == 0 for 1s",
        f'queue("{queue}").held < queue("{queue}").due',
        f'queue("{top}").held > 20% for 3s',
        f'queue("{top}").pending > queue("{top}").running',
        f'queue("{queue}").used.cpu > 1',
        f'job("{job}").waiting > 2s',
        f'job("{job}").age > 10s and job("{job}").state == "running"',
        f'not job("{job}").pending == 0',
        f'node("{node}").used > node("{node}").capacity',
        f'node("{node}").used.cpu != 0',
        f'node("{node}").state != "ready"',
    ]


NUMBERS = range(14)


def holds(condition, values, time, since):
    """Without what a scan remembers, but since when what has to last has held."""
    match condition:
        case Compared(left, operator, right):
            return compare(values[left], operator, values.get(right, right) if not isinstance(right, str) else right)
        case Negated(of):
            return not holds(of, values, time, since)
        case Joined(parts, is_all):
            found = [holds(part, values, time, since) for part in parts]
            return all(found) if is_all else any(found)
        case Lasting(of, ms):
            if not holds(of, values, time, since):
                since.pop(of, None)
                return False
            return time - since.setdefault(of, time) >= ms


@pytest.mark.parametrize("number", NUMBERS)
def test_spans_are_those_that_a_whole_look_after_each_record_finds(told, looks, number):
    condition = read_expression(expressions(told)[number])
    since, held, late = {}, {}, {}
    for seq, time, before, after in looks:
        if seq > 1 and holds(condition, before, time, since):
            late[seq - 1] = True
        held[seq] = holds(condition, after, time, since)
    expected = [seq for seq in held if held[seq] or late.get(seq)]
    found = bisect(told, condition, every=True)
    covered = [seq for span in found.spans for seq in range(span.first, span.last + 1)]

    assert covered == expected
    assert found.records == len(looks)
    first = bisect(told, condition)
    assert [span.first for span in first.spans] == expected[:1]
    assert first.document()["held"] == bool(expected)


def test_the_expressions_hold_and_do_not(told, looks):
    shares = [len(bisect(told, read_expression(text), every=True).spans) for text in expressions(told)]

    assert len(shares) == len(NUMBERS)
    assert sum(map(bool, shares)) >= 9


def test_in_a_bundle_it_is_found_at_the_same_records(told, tmp_path):
    last = len(records_of(told))
    start = Random(5).randrange(last // 4, last // 2)
    write_bundle(told, tmp_path / "bundle", Slice(start))
    bundle = open_source(tmp_path / "bundle")
    for text in expressions(told):
        if "for" in text:
            continue  # Since when it has held before the bundle is not in it.
        of_log = bisect(told, read_expression(text), every=True).spans
        of_bundle = bisect(bundle, read_expression(text), every=True).spans
        begins = bundle.start.seq
        assert [(s.first, s.last) for s in of_bundle if s.first > begins + 1] == [
            (s.first, s.last) for s in of_log if s.first > begins + 1
        ]


def test_a_queue_above_others_is_due_what_these_are_together(told):
    tops, view = {}, viewing(None)
    for step in told.steps():
        record = step.accepted.record
        if isinstance(record.body, RoundClosed):
            for winner in read_by(view, recorded_winners(step, record)):
                view.core.FOLDS[type(winner.body)](view.state, winner)
        if type(record.body) in view.core.FOLDS:
            view.core.FOLDS[type(record.body)](view.state, record)
        for path, level in view.state.levels.items():
            top, _, rest = path.partition("/")
            if rest:
                tops.setdefault(top, {}).setdefault(record.seq, 0)
                tops[top][record.seq] += level
    assert tops
    for top in tops:
        found = bisect(told, read_expression(f'queue("{top}").due > 10%'), every=True)
        covered = {seq for span in found.spans for seq in range(span.first, span.last + 1)}
        expected = {seq for seq, level in tops[top].items() if 10 * level > SHARE_UNITS}
        assert expected
        assert covered == expected


# ---------------------------------------------------------------- the command
def test_the_command_finds_the_first_record_or_all(told, tmp_path):
    found = bisect(told, read_expression("pending() > 10"), every=True)
    first = found.spans[0]
    said = largesse("bisect", told.name, "pending() > 10", columns=60)

    assert said.code == 0
    assert said.out.startswith(f"record {first.first:,} at ")
    assert largesse("bisect", told.name, "pending() > 10", "--json").json["seq"] == first.first
    listed = largesse("bisect", told.name, "pending() > 10", "--all", columns=60).out
    assert len(listed.splitlines()) == len(found.spans) + 1
    assert max(map(len, listed.splitlines())) <= 60
    spans = largesse("bisect", told.name, "pending() > 10", "--all", "--json").json["spans"]
    assert spans == [[span.first, span.last] for span in found.spans]
    assert json.dumps(found.document())


def test_the_command_says_what_is_wrong_under_the_place(told, tmp_path):
    said = largesse("bisect", told.name, "pending() > 10 or\tfoo() > 1")

    assert said.code == 2
    line, caret = said.err.splitlines()[-2:]
    assert line[caret.index("^") :].startswith("foo()")
    never = largesse("bisect", told.name, 'node("nowhere").running > 0', "--json")
    assert (never.code, never.json["held"], never.json["seq"], never.json["spans"]) == (1, False, None, [])
    assert "there is no node 'nowhere'" in never.err
    never = largesse("bisect", told.name, 'queue("nowhere").held > 0')
    assert (never.code, "there is no queue 'nowhere'" in never.err) == (1, True)
    with ExportWriter(tmp_path / "empty"):
        pass
    assert largesse("bisect", tmp_path / "empty", "pending() >= 0").code == 1
    (tmp_path / "damaged").write_bytes(b'{"largesse_export":1}\n')
    assert largesse("bisect", tmp_path / "damaged", "pending() > 0").code == 2
    assert largesse("bisect", tmp_path / "none", "pending() > 0").code == 2
