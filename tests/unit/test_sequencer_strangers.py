"""What strangers write where the sequencer reads: it leads all the same, and forgets nothing that was to be done."""

import orjson
import pytest

from largesse.bus.port import Outgoing
from largesse.log import dead_letters
from largesse.log.codec import wrap
from largesse.log.decisions import messages_of
from largesse.log.wanted import Wanted, answer
from schemas import Header, JobAdmitted, Releases, RoundOpened, SequencerAlive
from schemas.topics import DEADLETTER
from tests.bus_stories import append_raw, story
from tests.desk import JOB, NODE, Desk, desk, pass_time, watched

LETTER = {"seq": 3, "type": "InputRefused", "topic": "jobs", "partition": 0, "offset": 0}


def letter(header, **said):
    return wrap(Header("", **header), orjson.dumps({**LETTER, **said}))


async def seqs(made):
    """Seqs of the letters that were written for refusals of `jobs`, in their order."""
    found = []
    for message in await made.bus.fetch(DEADLETTER, 0, (await made.bus.bounds(DEADLETTER, 0))[0]):
        if message.value.startswith(b'{"header":{"token":"","topic":"jobs"'):
            found.append(orjson.loads(message.value)["content"]["seq"])
    return found


def restarted(garbage):
    """A sequencer that refused two inputs, garbage in its dead letters, and another sequencer in its place."""

    async def scenario(bus):
        made = Desk(bus)
        await made.turn()
        for _ in range(2):
            await made.take("jobs", b"bad")
        written = await seqs(made)
        for value in garbage:
            await append_raw(bus, DEADLETTER, value)
        made.start()
        await made.turn()
        return made, written

    return scenario


STRANGE = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"hello", id="no JSON"),
    pytest.param(b'{"header":{"token":""},"content":7}', id="a number"),
    pytest.param(b'{"header":{"token":""},"content":[1]}', id="a list"),
    pytest.param(b'{"header":{"token":""},"content":{}}', id="no seq"),
    pytest.param(letter({}, seq="x"), id="a seq that is a text"),
    pytest.param(letter({}, seq=None), id="a seq that is null"),
    pytest.param(letter({}, seq=10**15), id="a huge seq"),
    pytest.param(letter({"topic": "nodes", "offset": 0}, seq=4), id="the seq of a refusal, of another input"),
    pytest.param(b'{"header":{"token":""},"piece":{"seq":[],"id":1,"text":null}}', id="a part of wrong types"),
]


@pytest.mark.parametrize("value", STRANGE)
def test_a_sequencer_leads_whatever_the_last_dead_letter_is_and_writes_none_again(value):
    @story
    async def scenario(bus, scribe):
        made, written = await restarted([value] * 40)(bus)

        assert made.sequencer.is_leading
        assert await seqs(made) == written, "the last right one was found behind it"
        await made.take("jobs", b"bad again")
        assert len(await seqs(made)) == len(written) + 1, "and the next is written"

    scenario()


def test_behind_more_garbage_than_is_looked_through_letters_are_written_again(monkeypatch):
    monkeypatch.setattr(dead_letters, "LOOKED_AT", 20)

    @story
    async def scenario(bus, scribe):
        made, written = await restarted([b"hello"] * 20)(bus)
        assert await seqs(made) == written * 2
        made, written = await restarted([b"hello"] * 19)(bus)
        assert await seqs(made) == written, "at the limit it is still found"

    scenario()


@story
async def test_a_hole_behind_the_last_dead_letter_is_passed(bus, scribe):
    made = Desk(bus)
    await made.turn()
    await made.take("jobs", b"bad")
    bus.skip(DEADLETTER, 0, 30)
    made.start()
    await made.turn()

    assert made.sequencer.is_leading
    assert len(await seqs(made)) == 1


@desk
async def test_a_forecast_with_a_huge_seq_does_not_drop_those_that_follow(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.take("jobs", JOB)
    opening = await desk.opening()
    forged = type(opening)(**{**vars(opening), "seq": 10**15, "id": f"default/{10**15}/r9/00", "round": 9})
    for each in (forged, opening):
        wanted = Wanted("releases", 0, 1)
        record, content = answer(each, wanted, Releases(0, 5_000))
        await desk.bus.writer().send(messages_of(record, content, wanted, 0, "estimator"))
        await desk.turn()

    assert [body.at_ms for body in await desk.bodies(Releases)] == [5_000]


@desk
async def test_garbage_on_forecasts_and_decisions_stops_no_sequencer(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.take("jobs", JOB)
    for topic in ("releases", "plans", "shares", "asks", "grants"):
        await desk.bus.writer().send([Outgoing(topic, 0, value) for value in (b"hello", letter({}), b"[]")])
    await desk.answer()

    assert desk.sequencer.is_leading
    assert len(await desk.bodies(RoundOpened)) >= 1


@desk
async def test_a_dead_node_is_noticed_although_the_last_offsets_of_its_topics_never_come(desk):
    await watched(desk)
    for topic in ("nodes", "tasks"):
        desk.bus.skip(topic, 0)
    lost = await pass_time(desk, 10_500)

    assert [each.record.body.node for each in lost] == ["n1"]
    await desk.turn(60_000)
    assert [body.positions[0].offset for body in (await desk.bodies(SequencerAlive))[-1:]] == [1], "the hole is passed"


@desk
async def test_inputs_behind_a_hole_are_taken_also_by_a_sequencer_that_starts_at_it(desk):
    await desk.take("jobs", {**JOB, "job": "before"})
    desk.bus.skip("jobs", 0, 5)
    desk.start()
    await desk.turn()
    await desk.take("jobs", {**JOB, "job": "behind"})

    assert [body.spec.job for body in await desk.bodies(JobAdmitted)] == ["before", "behind"]
