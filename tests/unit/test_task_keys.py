"""Keys of tasks say again what they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from largesse.lifecycle.task_keys import in_job, index_of, job_of, parts_of, position_of, stage_in, task_key

NAMES = st.text(st.characters(exclude_characters="/", codec="ascii"), min_size=1, max_size=9)
INDEXES = st.integers(0, 10**6)


@given(NAMES, NAMES, INDEXES)
def test_a_key_says_job_stage_and_index(job, stage, index):
    key = task_key(job, stage, index)

    assert parts_of(key) == (job, stage, index)
    assert (job_of(key), in_job(key), index_of(key)) == (job, f"{stage}/{index}", index)
    assert (stage_in(in_job(key)), index_of(in_job(key))) == (stage, index)


@given(INDEXES, INDEXES)
def test_a_stage_may_be_named_by_its_position(position, index):
    assert (position_of(f"{position}/{index}"), index_of(f"{position}/{index}")) == (position, index)


@given(NAMES, NAMES)
def test_a_stage_of_a_job_has_a_key_too(job, stage):
    assert (job_of(f"{job}/{stage}"), in_job(f"{job}/{stage}")) == (job, stage)
