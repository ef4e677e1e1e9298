"""The history of a cell: what is kept of it, and what of that is shown."""

from schemas.quantities import SHARE_UNITS
from schemas.rounds import SequencerAlive
from services.gateway.documents.history import history_document
from services.gateway.documents.models.history import History
from services.gateway.view import history as kept
from tests.builders import job, stage
from tests.gateway_cell import GUARD_S, JOB, run_in_memory
from tests.promised_cell import HOUR, advance, reserved, step
from tests.properties.test_history import FOREVER, at_each, said_of
from tests.unit.test_gateway_reserved import cell

MINUTE = 60_000


def shown(story, points=1_000, from_ms=0, to_ms=FOREVER):
    document = history_document(story.view, from_ms, to_ms, points)
    History.model_validate(document)
    return document


def test_each_minute_is_kept_and_half_of_them_once_a_log_is_longer_than_there_is_room_for():
    story = cell()
    story.settle()
    ticks = kept.SAMPLES_MAX
    every = []
    for minute in range(1, 4 * ticks + 2):
        story.at(minute * MINUTE)
        if minute % 3 == 0:
            story.take(job(f"j{minute}", stage(), queue="b"))  # So that no sample is as the one before.
        story.put(SequencerAlive([]))
        every.append(story.view.history.every_ms // MINUTE)
        assert len(story.view.history.samples) <= ticks
    assert sorted(set(every)) == [1, 2, 4, 8]
    assert (every.index(2), every.index(4)) == (ticks, 2 * ticks)
    document = shown(story)
    assert document["times_ms"][:3] == [0, 8 * MINUTE, 16 * MINUTE]
    assert document["times_ms"][-1] == story.view.time == (4 * ticks + 1) * MINUTE
    assert document["jobs"] == [ms // MINUTE // 3 for ms in document["times_ms"]]


def test_a_long_silence_is_as_it_was_before():
    story = cell()
    story.settle()
    story.take(job("j", stage(), queue="b"))
    story.at(100_000 * MINUTE + 1)
    story.put(SequencerAlive([]))
    document = shown(story)
    assert document["kept_ms"] == 256 * MINUTE
    assert document["jobs"][0] == 1
    assert set(document["jobs"]) == {1}
    assert len(document["times_ms"]) == 100_000 // 256 + 2


def test_what_is_promised_is_shown_while_a_lease_lasts():
    story = cell(step(HOUR, 2 * HOUR, 3))
    story.take(reserved("mine", stage(tasks=2)))
    for minute in (59, 60, 61, 119, 120, 121):
        advance(story, minute * MINUTE + 1)
        story.put(SequencerAlive([]))
    document = shown(story)
    promised = dict(zip(document["times_ms"], document["resources"]["cpu"]["promised"], strict=True))
    assert promised[59 * MINUTE] == 0
    assert promised[61 * MINUTE] == promised[119 * MINUTE] == 3_000
    assert promised[121 * MINUTE] == 0
    assert at_each(document)[story.view.time] == said_of(story.view)


def test_a_span_is_shown_with_as_many_points_as_are_asked_for():
    story = cell()
    story.settle()
    for minute in range(1, 101):
        story.at(minute * MINUTE + 1)
        story.put(SequencerAlive([]))
    whole = shown(story)
    assert whole["times_ms"] == [*range(0, 101 * MINUTE, MINUTE), 100 * MINUTE + 1]
    few = shown(story, 11)
    assert len(few["times_ms"]) <= 11
    assert few["interval_ms"] == 11 * MINUTE
    assert few["times_ms"] == [*range(0, 100 * MINUTE, 11 * MINUTE), 100 * MINUTE + 1]
    part = shown(story, 1_000, 10 * MINUTE + 1, 20 * MINUTE)
    assert part["times_ms"] == [*range(11 * MINUTE, 21 * MINUTE, MINUTE)]
    assert shown(story, 1_000, FOREVER - 1)["times_ms"] == []
    assert shown(story, 2)["times_ms"][-1] == story.view.time


def test_the_queues_that_hold_most_are_kept(monkeypatch):
    monkeypatch.setattr(kept, "QUEUES_MAX", 1)
    story = cell()
    story.take(job("x", stage(), queue="a"), job("y", stage(tasks=2), queue="b"))
    story.settle()
    story.at(MINUTE + 1)
    story.put(SequencerAlive([]))
    document = shown(story)
    assert document["queues"]["b"]["held"][-1] == SHARE_UNITS // 2
    assert list(document["queues"]) == ["b"]
    assert document["queues_left_out"] == 1


def test_a_history_ends_at_the_moment_that_is_asked_for():
    async def story(cell):
        assert (await cell.post(JOB)).status_code == 201
        assert await cell.follower.until(lambda view: view.holds, GUARD_S)
        seq = cell.follower.state.seq
        past = (await cell.get("/v1/history", at=str(seq))).json()
        first = (await cell.get("/v1/history", at="1")).json()
        return seq, past, first, await cell.get("/v1/history", points=1), await cell.get("/v1/history", at="99999999")

    seq, past, first, malformed, later = run_in_memory(story)
    assert past["seq"] == past["at"]["seq"] == seq
    assert past["times_ms"][-1] == past["time_ms"]
    assert past["running"][-1] >= 1
    assert first["seq"] == 1
    assert first["running"][-1] == 0
    assert (malformed.status_code, later.status_code) == (422, 422)


def test_what_a_round_decides_belongs_to_the_time_of_its_end():
    story = cell()
    story.take(job("x", stage(), queue="a"))
    story.open()
    before = said_of(story.view)
    story.at(MINUTE + 1)
    story.close()
    found = at_each(shown(story))
    assert found[MINUTE] == before
    assert found[MINUTE]["queues"] != found[MINUTE + 1]["queues"] == said_of(story.view)["queues"]
