"""Inputs that the sequencer cannot survive, and the operator's way past them: `admin skip-input`."""

from base64 import b64decode

import pytest

from largesse.ids import content_hash
from largesse.log.inputs import InputStopped
from largesse.log.snapshots import dump, load
from schemas import ConfigChanged, InputRefused, InputSkipped, JobAdmitted, Record
from schemas.edge.config import SKIP_REASON_MAX
from schemas.edge.read import Malformed, read_input
from schemas.topics import INPUTS
from services.admission import core
from services.admission.core import skips as core_skips
from services.admission.core.state import State
from services.admission.intake import SKIP_BYTES_MAX
from tests.desk import JOB, NODE, desk


class Poison(bytes):
    """A message that cannot be parsed within the memory that there is."""

    def decode(self, *_):
        raise MemoryError("no memory for that")


POISON = b'{"cancel":"x"}'


async def stuck(desk, topic="jobs"):
    """Good inputs around one at offset 1 that ends the sequencer at every start."""
    await desk.send("jobs", JOB)
    if topic != "jobs":
        await desk.send(topic, b"{}")
    await desk.send(topic, Poison(POISON))
    await desk.send("jobs", JOB)
    for _ in range(2):
        desk.start()
        with pytest.raises(InputStopped, match=f"the input in {topic}, partition 0, offset 1"):
            await desk.turn()


async def skip(desk, topic="jobs", offset=1, reason="too large to read", author="ops"):
    await desk.send("config", {"skip_input": {"topic": topic, "offset": offset, "reason": reason}}, author)


@desk
async def test_an_input_that_ends_the_sequencer_at_every_start_can_be_skipped(desk):
    await stuck(desk)
    await skip(desk)
    desk.start()

    await desk.turn()

    assert await desk.bodies(InputSkipped) == [InputSkipped("jobs", 0, 1, "too large to read", "ops")]
    refused = await desk.bodies(InputRefused)
    assert [(each.topic, each.reason, each.size, each.hash, each.author, each.offset) for each in refused] == [
        ("jobs", "skipped by ops: too large to read", len(POISON), content_hash(POISON), "ann", 1)
    ]
    assert [each.spec.job for each in await desk.bodies(JobAdmitted)] == ["jobs-0-0", "jobs-0-2"]


@desk
async def test_what_was_skipped_goes_to_the_dead_letters_as_it_was(desk):
    await stuck(desk)
    await skip(desk)
    desk.start()
    await desk.turn()

    (letter,) = await desk.letters()

    assert (letter["topic"], letter["offset"], letter["reason"]) == ("jobs", 1, "skipped by ops: too large to read")
    assert b64decode(letter["original"]) == POISON


@desk
async def test_a_skip_is_found_behind_poison_in_its_own_topic(desk):
    await stuck(desk, "config")
    await skip(desk, "config")
    desk.start()
    await desk.turn()
    assert [(each.topic, each.offset) for each in await desk.bodies(InputSkipped)] == [("config", 1)]
    assert len(await desk.bodies(JobAdmitted)) == 2


@pytest.mark.slow
@desk
async def test_a_skip_is_found_behind_thousands_of_inputs(desk):
    await stuck(desk)
    for seed in range(2_500):
        await desk.send("config", {"set": {"seed": seed + 1}})
    await skip(desk)
    desk.start()
    await desk.turn()
    assert len(await desk.bodies(JobAdmitted)) == 2
    assert (await desk.bodies(ConfigChanged))[-1].policy.seed == 2_500


@desk
async def test_looking_ahead_moves_no_position_and_the_wish_changes_nothing_in_its_turn(desk):
    await stuck(desk)
    await desk.send("config", {"set": {"seed": 7}})
    await skip(desk)
    desk.start()

    records = await desk.turn()

    ahead = next(each for each in records if isinstance(each.record.body, InputSkipped))
    assert ahead.header.topic == ""
    (changed,) = (each for each in records if isinstance(each.record.body, ConfigChanged))
    assert (changed.header.topic, changed.header.offset) == ("config", 0)
    assert changed.record.seq > ahead.record.seq
    assert not [each for each in records if (each.header.topic, each.header.offset) == ("config", 1)]


@desk
async def test_two_poisons_are_skipped_one_after_the_other(desk):
    await stuck(desk)
    await desk.send("jobs", Poison(POISON))
    await skip(desk)
    desk.start()
    with pytest.raises(InputStopped, match="offset 3"):
        await desk.turn()
    assert len(await desk.bodies(InputSkipped)) == 1, "the first is a fact already"

    await skip(desk, offset=3)
    desk.start()
    await desk.turn()

    assert len(await desk.bodies(InputSkipped)) == 2
    assert len(await desk.bodies(JobAdmitted)) == 2


@desk
async def test_a_skip_outlives_a_crash_right_after_it(desk):
    await stuck(desk)
    await skip(desk)
    for _ in range(3):
        desk.start()
        await desk.sequencer.step()
    await desk.turn()
    assert len(await desk.bodies(InputSkipped)) == 1
    assert len(await desk.bodies(JobAdmitted)) == 2


@desk
async def test_an_input_is_skipped_that_was_read_with_the_wish_but_not_judged(desk):
    await desk.send("jobs", JOB)
    await skip(desk, offset=0)
    await desk.turn()
    assert [each.offset for each in await desk.bodies(InputRefused)] == [0]
    assert await desk.bodies(JobAdmitted) == []


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        pytest.param(0, "jobs has been read up to offset 0: what 0 says is in the log already", id="taken already"),
        pytest.param(1, "jobs ends before offset 1: there is nothing at 1 yet", id="not there yet"),
    ],
)
def test_an_input_that_cannot_be_skipped_any_more_or_yet_is_named(offset, reason):
    @desk
    async def test(desk):
        await desk.take("jobs", JOB)
        await skip(desk, offset=offset)
        await desk.turn()
        (refused,) = await desk.bodies(InputRefused)
        assert (refused.topic, refused.field, refused.reason) == ("config", "skip_input.offset", reason)
        assert await desk.bodies(InputSkipped) == []

    test()


@desk
async def test_asked_twice_an_input_is_skipped_once(desk):
    await stuck(desk)
    await skip(desk)
    await skip(desk, reason="again", author="bob")
    desk.start()
    await desk.turn()
    await skip(desk)
    await desk.turn()
    assert [each.author for each in await desk.bodies(InputSkipped)] == ["ops"]
    assert len(await desk.bodies(InputRefused)) == 1


@desk
async def test_a_long_message_is_not_looked_at_before_its_turn(desk):
    """Looking ahead may not die of what it looks for: of what is parsed there is a limit."""
    wish = b'{"skip_input":{"topic":"jobs","offset":0,"reason":"%b"}}'
    longest = wish % (b"\\u00e9" * SKIP_REASON_MAX)
    assert len(longest) <= SKIP_BYTES_MAX
    await desk.send("config", Poison(wish % (b" " * SKIP_BYTES_MAX)))
    with pytest.raises(InputStopped, match="config, partition 0, offset 0"):
        await desk.turn()
    desk.start()
    await desk.send("jobs", JOB)
    await desk.send("config", {"skip_input": {"topic": "config", "offset": 0}})
    await desk.send("config", longest)
    await desk.turn()
    assert [(each.topic, each.offset) for each in await desk.bodies(InputSkipped)] == [("config", 0), ("jobs", 0)]


@pytest.mark.parametrize(
    "poison",
    [
        pytest.param(b'{"skip_input":1}', id="no object"),
        pytest.param(b'{"skip_input":{"topic":"jobs","offset":0}}', id="a wish that cannot be read"),
        pytest.param(b'{"skip_input":{"topic":[[[[0]]]],"offset":0}}', id="nested"),
        pytest.param(b'{"skip_input":' + b"[" * 8_000, id="nested deep"),
        pytest.param(b'{"skip_input":{"topic":"jobs","offset":%b}}' % (b"9" * 8_000), id="a number without end"),
        pytest.param(b'{"set":{"skip_input":1},"skip_input":{}}', id="among others"),
        pytest.param(b'"skip_input"\xff', id="no text"),
    ],
)
def test_poison_that_looks_like_a_wish_is_passed_over_when_looking_ahead(poison):
    @desk
    async def test(desk):
        await desk.send("config", Poison(poison))
        await desk.send("config", {"skip_input": {"topic": "config", "offset": 0}})
        desk.start()
        await desk.turn()
        assert [(each.topic, each.offset) for each in await desk.bodies(InputSkipped)] == [("config", 0)]

    test()


@desk
async def test_judging_that_raises_is_passed_by_a_skip_too(desk):
    await desk.take("nodes", {"register": NODE})
    desk.sequencer.state.nodes = None  # As a bug in a core might.
    await desk.send("nodes", {"report": NODE})
    with pytest.raises(InputStopped, match="judging the input in nodes, partition 0, offset 1"):
        await desk.turn()
    await skip(desk, "nodes", 1)
    desk.start()
    await desk.turn()
    assert [each.topic for each in await desk.bodies(InputRefused)] == ["nodes"]


# ---------------------------------------------------------------- what is remembered
def folded(*bodies, state=None):
    state = state or State()
    for body in bodies:
        core.fold(state, Record(type(body).__name__, 1, "c", 1, 0, 0, "c/1", "", body))
    return state


def test_only_so_many_skips_are_remembered_and_those_that_wait_are_never_forgotten(monkeypatch):
    monkeypatch.setattr(core_skips, "SKIPS_MAX", 2)
    state = folded(InputSkipped("jobs", 0, 5, ""), InputSkipped("jobs", 0, 6, ""))
    asked = read_input("config", {"skip_input": {"topic": "jobs", "offset": 7}}, "ops").skip

    full = core_skips.judge_skip(state, asked, 0, 4, 9, "ops")
    assert "2 skipped inputs wait for their turn" in full.reason

    folded(InputRefused("jobs", "skipped by ops", "", 1, "", "ann", 6), state=state)
    state = load(State, dump(state))
    skipped = core_skips.judge_skip(state, asked, 0, 4, 9, "ops")
    assert isinstance(skipped, InputSkipped)
    folded(skipped, state=state)
    assert list(state.skips) == ["jobs/5", "jobs/7"]


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        pytest.param({"topic": "grants", "offset": 0}, "topic", f"has to be one of {', '.join(INPUTS)}", id="topic"),
        pytest.param({"topic": "jobs", "offset": -1}, "offset", "at least 0", id="below the start"),
        pytest.param({"topic": "jobs"}, "offset", "is missing", id="no offset"),
        pytest.param(
            {"topic": "jobs", "offset": 0, "reason": "x" * (SKIP_REASON_MAX + 1)}, "reason", "too long", id="too long"
        ),
        pytest.param({"topic": "jobs", "offset": 0, "reason": "a\nb"}, "reason", "control", id="two lines"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_with_its_field(document, field, message):
    with pytest.raises(Malformed, match=message) as refused:
        read_input("config", {"skip_input": document}, "ops")
    assert refused.value.field == f"skip_input.{field}"


@pytest.mark.parametrize("more", [{"set": {"seed": 1}}, {"initial": True}, {"abandon_round": 1}])
def test_a_wish_stands_alone(more):
    with pytest.raises(Malformed, match="stands alone"):
        read_input("config", {"skip_input": {"topic": "jobs", "offset": 0}, **more}, "ops")
