"""The router's log read as other logs are: its last records in a line each, where it leads, decided again."""

import asyncio
import json

import pytest

from largesse.log.record_lines import _SAY, JobPlaces, WantedRecords, line_of
from schemas.routes import RouterSet
from schemas.topics import BY_NAME, ROUTER_LOG
from services.cli import replaying, router_replaying, tailing
from services.cli.ending import Refused, Wrong
from services.replay import router_source
from services.replay.kafka_source import CellUnknown, place_of
from tests.routed_cells import RoutedCells, spec

LOG = "kafka://127.0.0.1:1/.router"
TASK = spec("j")["stages"][0]


async def told() -> tuple[list, list]:
    """Records of a router's log that has one of each kind of end, and its messages."""
    cells = await RoutedCells({"east": {"e1": "4"}, "west": {"w1": "2"}}, RouterSet(move_after_ms=2_000)).begin()
    for name in ("a", "b", "c"):
        await cells.submit(name)
    await cells.submit("huge", stages=[{**TASK, "demand": {"cpu": "99"}}])
    await cells.say({})
    await cells.run(20_000)
    cells.cells["west"].agents["w1"].away = True
    await cells.submit("late", cells=["west"])
    await cells.say({"cancel": "late"})
    await cells.run(20_000)
    _, end = await cells.bus.bounds(ROUTER_LOG, 0)
    return await cells.records(), list(await cells.bus.fetch(ROUTER_LOG, 0, 0, most=end + 1))


@pytest.fixture(scope="module")
def log():
    return asyncio.run(told())


@pytest.fixture
def there(log, monkeypatch):
    """That log is on Kafka."""
    places = []

    def read(place, *_):
        places.append(place)
        return iter(log[1])

    monkeypatch.setattr(router_source, "log_messages", read)
    yield log[0]
    assert {(place.bus, place.partition, place.topic) for place in places} == {("kafka://127.0.0.1:1", 0, ROUTER_LOG)}


def test_its_last_records_are_shown_in_a_line_each(there, capsys):
    tailing.tail(LOG, WantedRecords(types=["JobRouted"], jobs=["b"]), last=None, since=None, follow=False, json=False)
    (line,) = capsys.readouterr().out.splitlines()
    assert "JobRouted" in line
    assert "b to east, drawn of those with the least load: east" in line
    tailing.tail(LOG, WantedRecords(), last=1_000, since=None, follow=False, json=True)
    seqs = [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()]
    assert seqs == [record.seq for record in there if record.type != "SequencerAlive"]


def test_it_says_where_all_jobs_are_and_decides_itself_again(there, capsys):
    replaying.replay(LOG, until=None, json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["cell"], said["seq"]) == (".router", there[-1].seq)
    assert said["over"]["succeeded"] == 3
    replaying.replay(LOG, until=None, json=False)
    assert "3 succeeded" in capsys.readouterr().out
    replaying.replay_and_verify(LOG, until=None, json=False)
    assert "decided again, alike" in capsys.readouterr().out
    first = next(record.seq for record in there if record.type == "JobRouted")
    replaying.replay(LOG, until=first, json=True)
    assert json.loads(capsys.readouterr().out)["jobs"]["sent"] == 1
    with pytest.raises(Wrong, match="--until: the log ends at record"):
        replaying.replay(LOG, until=10**9, json=False)


def test_what_differs_is_refused(there, capsys, monkeypatch):
    def differs(records):
        found = check(records)
        found.wrong.append("a record")
        return found

    check = router_replaying.check
    monkeypatch.setattr(router_replaying, "check", differs)
    with pytest.raises(Refused, match="1 of"):
        replaying.replay_and_verify(LOG, until=None, json=False)
    assert capsys.readouterr().out == "a record\n"


def test_what_needs_rounds_says_who_reads_it():
    with pytest.raises(CellUnknown, match=r"tail, replay and `cell routes` read it"):
        place_of(LOG)


def test_every_record_has_a_line_and_is_found_by_its_job(log):
    places = JobPlaces()
    for record in log[0]:
        names = places.names_in(record)
        assert not line_of(record).startswith("{"), record.type
        assert bool(names.jobs) == (record.type not in ("SequencerAlive", "RouterSet", "CellsHeard", "InputRefused")), (
            record.type
        )
    assert {record.type for record in log[0]} >= {"CellsJudged", "RouteTaken", "RouteDeclined", "RouteEnded"}


def test_each_type_of_its_records_has_words():
    assert set(BY_NAME[ROUTER_LOG].bodies) - {kind.__name__ for kind in _SAY} == {"SequencerClaimed"}
