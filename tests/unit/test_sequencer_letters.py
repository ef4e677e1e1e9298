"""Dead letters: what was refused, with the reason, the place and the bytes as they came."""

import json
from base64 import b64decode

from schemas import (
    JobRejected,
)
from schemas.topics import DEADLETTER
from tests.desk import JOB, NODE, desk, kinds


@desk
async def test_a_dead_letter_has_the_reason_and_the_original_bytes(desk):
    raw = b"\xff{ no json"
    await desk.take("jobs", raw, "bob")
    letter = (await desk.letters())[0]
    refusal = (await desk.records())[-1].record

    assert b64decode(letter["original"]) == raw
    assert (letter["seq"], letter["topic"], letter["offset"], letter["author"]) == (refusal.seq, "jobs", 0, "bob")
    assert letter["reason"] == refusal.body.reason


@desk
async def test_a_job_that_the_cell_refuses_has_one_too(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.answer()
    huge = {"stages": [{**JOB["stages"][0], "demand": {"cpu": "99"}}]}
    assert kinds(await desk.take("jobs", huge)) == ["JobRejected"]
    letter = (await desk.letters())[0]

    assert (letter["type"], letter["reason"]) == ("JobRejected", "exceeds_capacity")
    assert json.loads(b64decode(letter["original"])) == huge
    assert len(await desk.bodies(JobRejected)) == 1


@desk
async def test_a_successor_writes_the_letters_that_are_missing_and_no_other(desk):
    await desk.take("jobs", b"one")
    await desk.take("jobs", b"two")
    desk.bus.lose_tail(DEADLETTER, 0, 1)
    desk.start()
    await desk.turn()

    assert [b64decode(letter["original"]) for letter in await desk.letters()] == [b"one", b"two"]


@desk
async def test_a_letter_whose_original_is_gone_says_so(desk):
    await desk.take("jobs", b"one")
    desk.bus.lose_tail(DEADLETTER, 0, 0)
    desk.bus.retire("jobs", 0, 1)
    desk.start()
    await desk.turn()

    assert (await desk.letters())[0]["original"] is None
