"""Answers before starts: rounds that wait while jobs are submitted, and answers that do not."""

from schemas import RoundOpened
from services.admission.pacing import GAP_MS, QUIET_MS, ROUND_PARTS
from tests.desk import JOB, NODE, desk, kinds

STEP_MS = QUIET_MS // 2
"""Submissions that are so far apart leave no room for rounds."""


async def round_of(desk, took_ms):
    """A submission and the round that it opens, which takes so long; meanwhile others come. Returns when it opened."""
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted", "RoundOpened"]
    opened_ms = desk.now_ms
    assert await submit_until(desk, opened_ms + took_ms) == []
    desk.now_ms = opened_ms + took_ms
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted"]
    await desk.answer()
    return opened_ms


async def submit_until(desk, until_ms):
    """Submissions STEP_MS apart; returns when rounds opened meanwhile. Every one of them is answered at once."""
    opened = []
    while desk.now_ms + STEP_MS < until_ms:
        desk.now_ms += STEP_MS
        first, *more = kinds(await desk.take("jobs", JOB))
        assert first == "JobAdmitted"
        opened += [desk.now_ms for _ in more]
    return opened


@desk(paced=True)
async def test_a_lone_submission_opens_a_round_at_once(desk):
    await round_of(desk, took_ms=30)
    desk.now_ms += GAP_MS

    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted", "RoundOpened"]


@desk(paced=True)
async def test_while_jobs_are_submitted_rounds_take_a_part_of_the_time_and_every_job_is_answered_at_once(desk):
    opened_ms = await round_of(desk, took_ms=30)
    next_ms = opened_ms + ROUND_PARTS * 30

    assert await submit_until(desk, next_ms) == []
    desk.now_ms = next_ms
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted", "RoundOpened"]


@desk(paced=True)
async def test_however_long_rounds_take_the_next_one_waits_for_a_gap_at_most(desk):
    opened_ms = await round_of(desk, took_ms=GAP_MS - 2 * STEP_MS)
    assert len(await desk.bodies(RoundOpened)) == 1

    assert await submit_until(desk, opened_ms + GAP_MS + STEP_MS) == [opened_ms + GAP_MS]


@desk(paced=True)
async def test_a_round_opens_once_nothing_was_submitted_for_a_moment(desk):
    await round_of(desk, took_ms=GAP_MS // ROUND_PARTS)
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted"]
    assert desk.sequencer.wait_ms() == QUIET_MS
    assert await desk.turn(by_ms=QUIET_MS - 1) == []

    assert kinds(each.record.body for each in await desk.turn(by_ms=1)) == ["RoundOpened"]


@desk(paced=True)
async def test_submissions_that_are_further_apart_hold_no_round_back(desk):
    await desk.take("jobs", JOB)
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted"]
    desk.now_ms += GAP_MS - QUIET_MS
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted"]
    await desk.answer()
    assert len(await desk.bodies(RoundOpened)) == 2
    desk.now_ms += QUIET_MS
    await desk.answer()

    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted", "RoundOpened"]


@desk(paced=True)
async def test_nothing_but_submissions_holds_a_round_back(desk):
    for name in ("n1", "n2", "n3"):
        document = {"register": {**NODE, "node": name}}
        assert kinds(await desk.take("nodes", document)) == ["NodeRegistered", "RoundOpened"]
        desk.now_ms += STEP_MS
        await desk.answer()


@desk(paced=True)
async def test_what_holds_a_round_back_is_all_in_the_next_one(desk):
    opened_ms = await round_of(desk, took_ms=GAP_MS // ROUND_PARTS)
    await submit_until(desk, opened_ms + GAP_MS)
    assert len(await desk.bodies(RoundOpened)) == 1

    await desk.turn(by_ms=QUIET_MS)
    assert len(await desk.bodies(RoundOpened)) == 2
    await desk.answer()
    await desk.turn(by_ms=GAP_MS)
    assert len(await desk.bodies(RoundOpened)) == 2


@desk
async def test_elsewhere_rounds_open_as_soon_as_the_last_has_closed(desk):
    await round_of(desk, took_ms=30)

    assert len(await desk.bodies(RoundOpened)) == 2
