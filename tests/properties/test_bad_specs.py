"""Ten thousand bad job specs: each is refused, at the field where the slip was made, in a message of sane length."""

import copy
from random import Random

import pytest

from largesse.strict import loads
from schemas.edge import Malformed, read_input, read_workload_line
from schemas.edge_base import FIELD_MAX, REASON_MAX
from schemas.jobs import JobSpec
from tests.properties.bad_specs import SLIPS, text_of, valid_spec

BAD_SPECS = 10_000
VALID_SPECS = 2_000


@pytest.mark.parametrize("name", sorted(SLIPS))
def test_a_slip_is_refused_where_it_was_made(name):
    for seed in range(-(-BAD_SPECS // len(SLIPS))):
        random = Random(f"{name} {seed}")
        spec = valid_spec(random)
        fields = SLIPS[name](random, spec)

        with pytest.raises(Malformed) as refusal:
            read_input("jobs", loads(text_of(spec)), "ann")

        assert refusal.value.field in fields, f"seed {seed}: {refusal.value}"
        assert 0 < len(refusal.value.reason) <= REASON_MAX
        assert len(refusal.value.field) <= FIELD_MAX
        assert str(refusal.value).isprintable()


def test_a_spec_without_a_slip_is_taken():
    for seed in range(VALID_SPECS):
        spec = valid_spec(Random(seed))

        taken = read_input("jobs", loads(text_of(spec)), "ann")

        assert isinstance(taken, JobSpec)
        assert [stage.stage for stage in taken.stages] == [stage["stage"] for stage in spec["stages"]]
        assert taken.job == spec.get("job", "")


def test_reading_changes_nothing_in_the_document():
    for seed in range(200):
        document = valid_spec(Random(seed))
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
