"""The sequencer step by step, on a clock of its own: what it makes of inputs, when it speaks, and when it stands by."""

import json
from hashlib import sha256

import pytest

from largesse.bus.port import BusFull, Outgoing, PositionGap
from largesse.log.inputs import InputStopped
from largesse.log.reader import LogReader
from largesse.log.snapshots import dump
from largesse.telemetry import exposition
from schemas import (
    Grants,
    InputRefused,
    JobAdmitted,
    JobCancelled,
    NodeLost,
    Position,
    SequencerAlive,
)
from schemas.edge.beats import SequencerBeat, document_of, read_beat
from schemas.edge.strict_json import loads
from schemas.topics import BEATS, SNAPSHOTS
from services.admission import letters
from services.admission.sequencer import Sequencer
from tests.bus_stories import answers_in, append_raw
from tests.desk import JOB, NODE, desk, kinds, pass_time, watched


async def beats(desk):
    """What was said on `beats`."""
    return [read_beat(loads(value)) for value in await answers_in(desk.bus, BEATS)]


# ---------------------------------------------------------------- leading and standing by
@desk
async def test_where_nobody_else_can_write_a_starter_claims_at_once(desk):
    assert desk.sequencer.is_leading
    assert kinds(await desk.bodies(object)) == ["SequencerClaimed"]


@desk(alone=False)
async def test_where_others_can_a_starter_waits_for_a_silence_of_one_lease(desk):
    await desk.turn(2_999)
    assert not desk.sequencer.is_leading
    assert desk.sequencer.wait_ms() == 1
    await desk.turn(1)

    assert desk.sequencer.is_leading


@desk(alone=False)
async def test_every_record_of_another_begins_the_silence_anew(desk):
    await desk.scribe.claim("another")
    await desk.turn(2_999)
    await desk.turn(2_999)
    assert not desk.sequencer.is_leading
    await desk.turn(1)

    assert desk.sequencer.is_leading


async def give_sign(desk, token):
    """A sign of life of whoever has this token."""
    value = json.dumps(document_of(SequencerBeat(token, 0, 0))).encode()
    await desk.bus.writer().send([Outgoing(BEATS, 0, value)])


@desk(alone=False)
async def test_a_sign_of_life_of_who_holds_the_latest_claim_begins_the_silence_anew(desk):
    await desk.scribe.claim("another")
    for _ in range(4):
        await desk.turn(2_999)
        await give_sign(desk, "another")
    await desk.turn(2_999)
    assert not desk.sequencer.is_leading
    await desk.turn(3_000)

    assert desk.sequencer.is_leading


@desk(alone=False)
async def test_signs_of_life_of_others_keep_nobody_from_claiming(desk):
    await desk.scribe.claim("another")
    await desk.turn(1_000)
    for token in ("of an older claim", "another-too"):
        await desk.turn(1_000)
        await give_sign(desk, token)
    await desk.bus.writer().send([Outgoing(BEATS, 0, b'{"node":{"node":"n1","epoch":"e1"}}'), Outgoing(BEATS, 0, b"x")])
    await desk.turn(1_000)

    assert desk.sequencer.is_leading


@desk(alone=False)
async def test_whoever_may_have_missed_signs_of_life_waits_for_a_lease_more(desk):
    await desk.scribe.claim("another")
    await desk.turn(2_999)
    await give_sign(desk, "another")
    desk.bus.retire(BEATS, 0, 1)
    await desk.turn(1)
    assert not desk.sequencer.is_leading
    await desk.turn(3_000)

    assert desk.sequencer.is_leading


@desk(alone=False)
async def test_it_looks_for_signs_of_life_often_enough_and_is_woken_by_none(desk):
    await desk.scribe.claim("another")
    await desk.turn()

    assert desk.sequencer.wait_ms() == 500
    assert (BEATS, 0) not in desk.sequencer.waiting_for()


@desk
async def test_a_newer_claim_makes_it_stand_by_for_a_lease(desk):
    await desk.scribe.claim("another")
    await desk.turn()
    assert not desk.sequencer.is_leading
    await desk.turn(2_999)
    assert not desk.sequencer.is_leading
    await desk.turn(1)

    assert desk.sequencer.is_leading


@desk
async def test_who_stands_by_tells_the_last_seq_folded_as_the_leader_does(desk):
    def exported():
        line = b'largesse_log_seq{service="admission"} '
        return [float(each.removeprefix(line)) for each in exposition()[1].splitlines() if each.startswith(line)]

    await desk.take("jobs", {**JOB, "job": "a"})
    (leading,) = exported()
    assert leading == (await desk.records())[-1].record.seq

    await desk.scribe.claim("another")
    await desk.turn()
    last = await desk.scribe.write(JobCancelled("a"))
    await desk.turn()
    assert not desk.sequencer.is_leading
    assert exported() == [last.seq]
    assert last.seq > leading


@desk
async def test_a_full_bus_ends_it_and_the_next_one_loses_nothing(desk):
    desk.bus.inject("full", topic="cluster.log")
    with pytest.raises(BusFull):
        await desk.take("jobs", {**JOB, "job": "a"})
    desk.start()
    await desk.turn()

    assert [body.spec.job for body in await desk.bodies(JobAdmitted)] == ["a"]


@pytest.mark.parametrize("fault", ["lost", "late", "unknown"])
def test_an_append_that_failed_or_may_have_loses_and_doubles_nothing(fault):
    @desk
    async def test(desk):
        desk.bus.inject(fault, topic="cluster.log")
        await desk.take("jobs", {**JOB, "job": "a"})
        desk.bus.deliver_late()
        assert not desk.sequencer.is_leading
        await desk.turn(3_000)

        assert [body.spec.job for body in await desk.bodies(JobAdmitted)] == ["a"]
        assert desk.sequencer.is_leading

    test()


@desk
async def test_nothing_outside_sees_what_was_not_read_back(desk):
    desk.bus.inject("lost", topic="cluster.log")
    await desk.take("jobs", b"no json")

    assert await desk.letters() == []


@desk
async def test_a_successor_goes_on_where_the_log_says(desk):
    await desk.take("jobs", {**JOB, "job": "a"})
    await desk.send("jobs", {**JOB, "job": "b"})
    desk.start()
    records = await desk.turn()

    assert kinds(each.record.body for each in records) == ["SequencerClaimed", "JobAdmitted"]
    assert (records[1].header.topic, records[1].header.offset) == ("jobs", 1)
    assert records[1].header.token == "token-2"


@desk
async def test_an_input_that_is_gone_stops_it_by_name(desk):
    await desk.take("jobs", JOB)
    desk.bus.lose_tail("jobs", 0, 0)
    desk.start()

    with pytest.raises(PositionGap, match="jobs partition 0: position 1 is beyond the end"):
        await desk.turn()


@desk
async def test_log_time_never_goes_back(desk):
    await desk.take("jobs", JOB)
    await desk.turn(-900)
    await desk.take("jobs", JOB)

    times = [each.record.time for each in await desk.records()]
    assert times == sorted(times)


# ---------------------------------------------------------------- inputs
@desk
async def test_what_cannot_be_read_is_refused_with_its_field_size_and_hash(desk):
    raw = b'{"stages": [{"stage": "s", "demand": {"memory": 512}, "tasks": 1, "duration_ms": 1}]}'
    refused = (await desk.take("jobs", raw, "bob"))[0]

    assert isinstance(refused, InputRefused)
    assert (refused.topic, refused.author, refused.field) == ("jobs", "bob", "stages[0].demand.memory")
    assert (refused.size, refused.hash) == (len(raw), sha256(raw).hexdigest())


@desk
async def test_an_input_above_the_limit_is_refused(desk):
    refused = (await desk.take("jobs", b'{"job": "%b"}' % (b"x" * 950_000)))[0]

    assert "too large" in refused.reason


@desk
async def test_a_job_without_a_name_is_named_after_its_place(desk):
    await desk.take("jobs", {**JOB, "job": "first"})
    await desk.take("jobs", JOB)

    assert [body.spec.job for body in await desk.bodies(JobAdmitted)] == ["first", "jobs-0-1"]


@desk
async def test_the_second_of_two_like_inputs_in_a_batch_meets_the_first(desk):
    await desk.send("jobs", {**JOB, "job": "a"})
    await desk.send("jobs", {**JOB, "job": "a"})
    records = await desk.turn()

    assert kinds(each.record.body for each in records)[:2] == ["JobAdmitted", "InputRepeated"]


@desk
async def test_what_frees_comes_before_what_asks(desk):
    await desk.send("jobs", JOB)
    await desk.send("nodes", {"register": NODE})
    await desk.send("config", {"set": {"seed": 3}})
    records = await desk.turn()

    assert kinds(each.record.body for each in records)[:3] == ["ConfigChanged", "NodeRegistered", "JobAdmitted"]


@desk
async def test_a_report_that_changes_nothing_makes_no_record(desk):
    await desk.take("nodes", {"register": NODE})

    assert await desk.take("nodes", {"report": NODE}) == []


@desk
async def test_judging_that_raises_stops_it_at_that_input(desk):
    await desk.take("nodes", {"register": NODE})
    desk.sequencer.state.nodes = None  # As a bug in a core might.
    await desk.send("nodes", {"report": NODE})
    with pytest.raises(InputStopped, match="the input in nodes, partition 0, offset 1"):
        await desk.turn()


# ---------------------------------------------------------------- speaking of its own accord
@desk(alone=False)
async def test_it_gives_a_sign_of_life_every_third_of_a_lease_without_a_record(desk):
    await desk.turn(3_000)
    token, leads_ms = "token-1", desk.now_ms
    assert await desk.turn(999) == []
    assert await beats(desk) == []
    assert desk.sequencer.wait_ms() == 1
    assert await desk.turn(1) == []
    assert await beats(desk) == [SequencerBeat(token, leads_ms + 1_000, 0)]

    await desk.turn(900)
    await desk.take("config", {"set": {"seed": 7}})
    await desk.turn(999)
    assert len(await beats(desk)) == 1, "a record says as much"
    await desk.turn(1)
    assert (await beats(desk))[1:] == [SequencerBeat(token, leads_ms + 2_900, 2)]


@desk
async def test_where_nobody_else_can_lead_it_gives_one_a_lease(desk):
    for _ in range(4):
        assert await desk.turn(1_000) == []

    assert len(await beats(desk)) == 1


@desk(alone=False)
async def test_where_its_sign_of_life_fails_a_record_says_it(desk):
    await desk.turn(3_000)
    desk.bus.inject("lost", topic=BEATS)

    assert kinds(each.record.body for each in await desk.turn(1_000)) == ["SequencerAlive"]
    assert await desk.turn(1_000) == []
    assert len(await beats(desk)) == 1


@pytest.mark.parametrize(("jobs", "every_ms"), [([], 60_000), ([{**JOB, "job": "a"}], 10_000)], ids=["idle", "live"])
def test_log_time_goes_on_more_often_while_jobs_live(jobs, every_ms):
    @desk
    async def test(desk):
        for job in jobs:
            await desk.take("jobs", job)
            await desk.answer()
        for _ in range(2):
            found = [each for _ in range(every_ms // 1_000) for each in await desk.turn(1_000)]
            assert kinds(each.record.body for each in found) == ["SequencerAlive"]
            assert found[0].record.body.positions == [], "nothing was read"

    test()


@desk
async def test_who_asked_for_what_is_so_already_is_told_within_a_third_of_a_lease_also_under_load(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.take("nodes", {"drain": {"node": "n1", "draining": True}})
    await desk.send("nodes", {"drain": {"node": "n1", "draining": True}})
    found = []
    for number in range(5):
        await desk.send("config", {"set": {"seed": number}})
        found += [each.record.body for each in await desk.turn(250)]

    assert [body.positions for body in found if isinstance(body, SequencerAlive)] == [[Position("nodes", 0, 2)]]


@desk(inputs_most=50)
async def test_after_a_thousand_inputs_that_change_nothing_it_says_how_far_it_is(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.answer()
    for _ in range(1_000):
        await desk.send("nodes", {"report": NODE})
    alive = [each.record.body for each in await desk.turn() if isinstance(each.record.body, SequencerAlive)]

    assert [(at.topic, at.offset) for at in alive[0].positions] == [("nodes", 1_000)]


@desk
async def test_positions_of_skipped_inputs_are_kept_for_a_successor(desk):
    await desk.take("nodes", {"register": NODE})
    for _ in range(10):
        await desk.take("nodes", {"report": NODE})
    await desk.turn(60_000)
    reader = LogReader(desk.bus)
    while await reader.read():
        pass

    assert reader.order.positions["nodes/0"] == 10


# ---------------------------------------------------------------- node leases
@desk
async def test_a_node_that_is_silent_for_its_lease_is_lost(desk):
    await watched(desk)
    assert await pass_time(desk, 9_500) == []
    lost = await pass_time(desk, 500)

    assert [each.record.body.node for each in lost] == ["n1"]
    assert await pass_time(desk, 20_000) == []


@desk
async def test_a_node_whose_agent_says_goodbye_is_lost_at_once_and_only_once(desk):
    await watched(desk)
    await desk.take("nodes", {"leave": {"node": "n1", "epoch": NODE["epoch"]}})

    assert [(lost.node, lost.left) for lost in await desk.bodies(NodeLost)] == [("n1", True)]
    assert await pass_time(desk, 20_000) == []


@desk
async def test_a_heartbeat_that_changes_nothing_renews_the_lease(desk):
    await watched(desk)
    for _ in range(4):
        assert await pass_time(desk, 9_500) == []
        await desk.send("nodes", {"report": NODE})

    assert await desk.turn() == []


@desk
async def test_an_agent_of_an_older_epoch_renews_nothing(desk):
    await watched(desk)
    for _ in range(4):
        await pass_time(desk, 2_500)
        await desk.send("nodes", {"report": {**NODE, "epoch": "e0"}})

    assert len(await desk.bodies(NodeLost)) == 1


@desk
async def test_after_a_take_over_every_node_has_a_full_lease(desk):
    await watched(desk)
    await pass_time(desk, 9_500)
    desk.start()

    assert await pass_time(desk, 9_500) == []
    assert len(await pass_time(desk, 1_000)) == 1


@desk
async def test_a_sequencer_that_was_away_itself_believes_every_node_for_a_lease_more(desk):
    await watched(desk)
    assert kinds(each.record.body for each in await desk.turn(60_000)) == ["SequencerAlive"]

    assert await pass_time(desk, 9_500) == []
    assert len(await pass_time(desk, 500)) == 1


@desk(inputs_most=1)
async def test_nobody_is_lost_while_reports_lie_unread(desk):
    await watched(desk)
    await pass_time(desk, 9_500)
    for _ in range(3):
        await desk.send("nodes", {"report": {**NODE, "epoch": "e0"}})
    await desk.send("nodes", {"report": NODE})
    desk.now_ms += 500
    while await desk.sequencer.step():
        assert await desk.bodies(NodeLost) == []

    assert await desk.bodies(NodeLost) == []


# ---------------------------------------------------------------- snapshots
@desk(snapshot_rounds=3)
async def test_a_restart_from_a_snapshot_leads_on_with_the_same_state(desk):
    await desk.take("nodes", {"register": NODE})
    for number in range(7):
        await desk.answer(grants=Grants([], wake_ms=None))
        await desk.take("jobs", {**JOB, "job": f"j{number}"})
    before = dump(desk.sequencer.state)
    desk.start()
    await desk.sequencer.step()
    restored_at = desk.sequencer.state.round
    await desk.turn()

    assert len(await answers_in(desk.bus, SNAPSHOTS)) == 2
    assert restored_at >= 6
    assert dump(desk.sequencer.state) == before
    assert kinds(await desk.take("jobs", {**JOB, "job": "j0"})) == ["InputRepeated"]


@desk(snapshot_rounds=1)
async def test_a_refusal_before_a_snapshot_has_its_letter_before_it(desk):
    """Whoever restores the snapshot does not look for refusals before it."""
    await desk.send("jobs", JOB)
    await desk.send("jobs", b"bad")
    await desk.turn()
    await desk.answer()

    assert len(await answers_in(desk.bus, SNAPSHOTS)) == 1
    assert len(await desk.letters()) == 1


@desk
async def test_standing_by_keeps_no_more_refusals_than_it_must(desk):
    before, letters.REFUSALS_KEPT = letters.REFUSALS_KEPT, 3
    standby = Sequencer(desk.bus, desk.settings, clock=lambda: 0, draw_token=lambda: "never", alone=False)
    try:
        for _ in range(8):
            await desk.take("jobs", b"bad")
            while await standby.step():
                pass
    finally:
        letters.REFUSALS_KEPT = before

    assert len(standby._letters) <= 4


@desk
async def test_what_a_stranger_wrote_to_the_log_is_passed_over_by_the_sequencer(desk):
    await append_raw(desk.bus, "cluster.log", b"hello")

    assert await desk.take("config", {"set": {"seed": 7}})
    assert desk.sequencer.is_leading
