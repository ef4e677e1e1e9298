"""Records of a log in a line each: every type says something, and is found by what it speaks of."""

import json
from typing import get_args

import pytest

from largesse.log.record_lines import _SAY, JobPlaces, line_of
from schemas.registry import LogBody
from services.replay.source import open_source
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.outages import Outage
from tests.simulation.test_what_if import recorded
from tests.unit.cli_here import largesse


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """With nodes that fail, reservations, failures and refusals."""
    path = tmp_path_factory.mktemp("log") / "log"
    nodes = drawn_cluster(9)
    spans = [Outage(nodes.nodes[0].name, 20_000, 55_000)]
    arrivals = sorted(drawn_arrivals(9, "rayon"), key=lambda arrival: arrival[0])
    recorded(path, arrivals[:80], nodes, {"preset": "rayon", "seed": 9, **KNOBS}, spans)
    return path


def test_every_type_of_record_has_its_words():
    assert {kind.__name__ for kind in get_args(LogBody)} - {kind.__name__ for kind in _SAY} == {
        "JobTurns",  # As they stand: rare, and short.
        "SequencerClaimed",  # It has no seq, and is no part of a log that is read.
    }


def test_a_line_is_one_line_and_names_what_the_record_speaks_of(log):
    places, types = JobPlaces(), set()
    for step in open_source(log).steps():
        record = step.accepted.record
        names, line = places.names_in(record), line_of(record)
        types.add(record.type)
        assert "\n" not in line
        if len(names.jobs) == 1 and record.type not in ("NodeLost", "NodeRegistered"):
            assert next(iter(names.jobs)) in line
    assert len(types) >= 12


def shown(log, *words):
    said = largesse("tail", log, *words)
    assert (said.code, said.err) == (0, "")
    return [line.split(maxsplit=5) for line in said.out.splitlines()]


def test_the_last_ones_are_shown_or_all_from_a_point_on(log):
    records = [step.accepted.record for step in open_source(log).steps()]
    spoken = [each for each in records if each.type not in ("SequencerAlive", "TimeReached")]

    assert [int(row[0]) for row in shown(log)] == [each.seq for each in spoken[-20:]]
    assert [int(row[0]) for row in shown(log, "--last", 3)] == [each.seq for each in spoken[-3:]]
    assert [int(row[0]) for row in shown(log, "--from", 400)] == [each.seq for each in spoken if each.seq >= 400]
    some = [int(row[0]) for row in shown(log, "--from", "1970-01-01T00:01:00")]
    assert some == [each.seq for each in spoken if each.time >= 60_000]
    asked = {row[4] for row in shown(log, "--from", 1, "--type", "TimeReached", "--type", "JobEnded")}
    assert asked == {"TimeReached", "JobEnded"}


def test_what_speaks_of_a_job_a_node_a_queue_a_user_or_a_reservation_is_found(log):
    whole = [json.loads(line) for line in largesse("tail", log, "--from", 1, "--json").out.splitlines()]
    submitted = next(each["body"]["spec"] for each in whole if each["type"] == "JobAdmitted" and each["seq"] > 100)
    job, queue, user = submitted["job"], submitted["queue"], submitted["user"]

    of_job = shown(log, "--from", 1, "--job", job)
    assert of_job[0][4] == "JobAdmitted"
    assert of_job[-1][4] == "JobEnded"
    assert {row[0] for row in of_job} <= {row[0] for row in shown(log, "--from", 1, "--queue", queue.partition("/")[0])}
    if user:
        assert {row[0] for row in of_job} <= {row[0] for row in shown(log, "--from", 1, "--user", user)}
    node = next(each["body"]["node"] for each in whole if each["type"] == "NodeLost")
    assert {"NodeRegistered", "NodeLost", "RoundClosed"} <= {row[4] for row in shown(log, "--from", 1, "--node", node)}
    reservation = next(each["body"]["reservation"] for each in whole if each["type"] == "ReservationRequested")
    found = {row[4] for row in shown(log, "--from", 1, "--reservation", reservation)}
    assert {"ReservationRequested", "Plans"} <= found
    nothing = largesse("tail", log, "--from", 1, "--job", "nobody")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no record of this log is as asked for" in nothing.err


def test_what_makes_no_sense_is_named(log):
    for words, fault in (
        (("--type", "Nothing"), "--type: 'Nothing' is no type of record: one of "),
        (("--last", 3, "--from", 2), "--last: cannot be combined with --from"),
        (("--from", "then"), "--from: 'then' is neither a record's seq nor a time"),
    ):
        said = largesse("tail", log, *words)
        assert (said.code, said.out) == (2, "")
        assert fault in said.err
