"""Ten thousand bad job specs: each is refused, at the field where the slip was made, and the stream goes on.

Hypothesis draws valid specs and a slip in each of them. A sequencer takes handfuls of these with a good job behind.
"""

import asyncio
import copy
from base64 import b64decode
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.log.dead_letters import read_letter
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import InputRefused, JobAdmitted
from schemas.edge.base import FIELD_MAX, REASON_MAX
from schemas.edge.read import Malformed, read_input, read_workload_line
from schemas.edge.strict_json import loads
from schemas.jobs import JobSpec
from schemas.topics import DEADLETTER
from services.admission.sequencer import Sequencer
from tests.bus_stories import answers_in
from tests.properties.bad_specs import SLIPS, text_of, valid_spec

BAD_SPECS = 10_000
VALID_SPECS, VALID_SPECS_DAILY = 2_000, 400
HANDFUL = 16
HANDFULS = -(-BAD_SPECS // (len(SLIPS) * HANDFUL))
"""Of each kind of slip."""
DICE = st.randoms(use_true_random=False)
GOOD = {"job": "good", "stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 1}]}


async def taken(*submissions):
    """What a sequencer makes of them: the records that inputs became, and the dead letters."""
    bus = MemoryBus()
    sequencer = Sequencer(bus, Settings(bus="memory:"), clock=lambda: 1_000, draw_token=lambda: "token", alone=True)
    for submission in submissions:
        await publish_input(bus.writer(), "jobs", submission, "ann")
    while await sequencer.step():
        pass
    records, reader = [], LogReader(bus)
    while more := await reader.read():
        records += more
    letters = [read_letter(message) for message in await answers_in(bus, DEADLETTER)]
    return [each for each in records if each.header.topic], letters


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", sorted(SLIPS))
def test_a_slip_is_refused_where_it_was_made_and_the_stream_goes_on(name):
    judged = 0

    @settings(max_examples=HANDFULS)
    @given(DICE)
    def judge(dice):
        nonlocal judged
        specs = [valid_spec(dice) for _ in range(HANDFUL)]
        fields = [SLIPS[name](dice, spec) for spec in specs]
        texts = [text_of(spec) for spec in specs]

        (*refused, good), letters = asyncio.run(taken(*texts, GOOD))

        assert [each.header.offset for each in (*refused, good)] == list(range(HANDFUL + 1))
        assert isinstance(good.record.body, JobAdmitted)
        assert good.record.body.spec.job == "good"
        for each, allowed in zip(refused, fields, strict=True):
            assert_refusal(each.record.body, allowed)
        assert [letter["seq"] for letter in letters] == [each.record.seq for each in refused]
        assert [letter["field"] for letter in letters] == [each.record.body.field for each in refused]
        assert [b64decode(letter["original"]) for letter in letters] == texts
        judged += HANDFUL

    judge()
    assert judged >= BAD_SPECS / len(SLIPS)


def assert_refusal(body, fields):
    """It names one of these fields, in a message of sane length."""
    assert isinstance(body, InputRefused), body
    assert body.field in fields, f"{body.field}: {body.reason}"
    assert 0 < len(body.reason) <= REASON_MAX
    assert len(body.field) <= FIELD_MAX
    assert f"{body.field}: {body.reason}".isprintable()


def test_a_spec_without_a_slip_is_taken(daily):
    @settings(max_examples=VALID_SPECS_DAILY if daily else VALID_SPECS)
    @given(DICE)
    def judge(dice):
        spec = valid_spec(dice)

        taken = read_input("jobs", loads(text_of(spec)), "ann")

        assert isinstance(taken, JobSpec)
        assert [stage.stage for stage in taken.stages] == [stage["stage"] for stage in spec["stages"]]
        assert taken.job == spec.get("job", "")

    judge()


@settings(max_examples=200)
@given(DICE)
def test_reading_changes_nothing_in_the_document(dice):
    document = valid_spec(dice)
    before = copy.deepcopy(document)

    read_input("jobs", document, "ann")

    assert document == before


def test_what_is_cut_off_anywhere_is_refused():
    random = Random(1)
    text = text_of(valid_spec(random))

    for length in range(len(text)):
        with pytest.raises(Malformed):
            loads(text[:length])


def test_a_workload_line_needs_its_name_and_its_time():
    line = {**valid_spec(Random(3)), "job": "a", "submit_ms": 5}
    for stage in line["stages"]:
        stage.pop("command", None)
        stage.pop("durations_ms", None)
        stage |= {"duration_ms": 1, "tasks": 1}

    assert read_workload_line(line)[0] == 5
    for field in ("job", "submit_ms"):
        with pytest.raises(Malformed) as refusal:
            read_workload_line({key: value for key, value in line.items() if key != field})
        assert refusal.value.field == field
