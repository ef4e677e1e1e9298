"""How calls are put into jobs: each goes into one, in order, and no job carries more than it may."""

import pickle
import zlib
from concurrent.futures import Future

import pytest
from hypothesis import strategies as st

from largesse.client import Stage
from largesse.client.payload import PAYLOAD_BYTES_MAX, Item, PayloadTooLarge, TaskFailed, batches_of, job_of, unpack
from largesse.client.specs import JobSpec
from tests.strategies import for_all

SIZES = st.integers(0, 4_000)
CALLS = st.lists(st.lists(st.tuples(st.sampled_from([b"f", b"g" * 700]), SIZES), min_size=1, max_size=3), max_size=12)
BYTES_MAX = 6_000


def noise(size):
    """What cannot be packed any smaller."""
    import random

    return random.Random(size).randbytes(size)


@for_all(CALLS, st.integers(1, 5))
def test_every_call_goes_into_one_job_or_is_told_that_it_is_too_large(calls, tasks_max):
    chunks = [[Item(Future(), function, noise(size)) for function, size in chunk] for chunk in calls]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("largesse.client.payload.PAYLOAD_BYTES_MAX", BYTES_MAX)
        batches = list(batches_of(chunks, tasks_max))

    carried = [item for batch in batches for item in batch.items]
    refused = [item for chunk in chunks for item in chunk if item.future.done()]
    assert [item for chunk in chunks for item in chunk if not item.future.done()] == carried
    assert all(isinstance(item.future.exception(), PayloadTooLarge) for item in refused)
    for batch in batches:
        assert 1 <= len(batch.chunks) == len(batch.packed) <= tasks_max
        assert sum(map(len, [*batch.functions, *batch.packed])) <= BYTES_MAX
        assert len(set(batch.functions)) == len(batch.functions)
        for chunk, data in zip(batch.chunks, batch.packed, strict=True):
            found = [(batch.functions[number], arguments) for number, arguments in pickle.loads(zlib.decompress(data))]
            assert found == [(item.function, item.arguments) for item in chunk]


def test_the_largest_job_fits_what_a_cell_takes():
    import json

    from largesse.client.specs import document_of
    from schemas.edge.read import read_input
    from schemas.edge.strict_json import INPUT_BYTES_MAX

    item = Item(Future(), zlib.compress(b"f"), noise(PAYLOAD_BYTES_MAX - 400))
    (batch,) = batches_of([[item]], 10)
    document = document_of(job_of(batch, Stage(stage="x", demand={"cpu": 1}), JobSpec(), "python3")) | {"job": "j"}

    assert len(json.dumps(document)) < INPUT_BYTES_MAX
    read_input("jobs", json.loads(json.dumps(document)), "ann")


@pytest.mark.parametrize(
    "data",
    [b"", b"no zlib", zlib.compress(b"no pickle"), zlib.compress(pickle.dumps([])), zlib.compress(pickle.dumps(3))],
)
def test_what_cannot_be_read_is_an_error_of_each_call(data):
    chunk = [Item(Future(), b"", b""), Item(Future(), b"", b"")]
    unpack(data, chunk)

    assert all(isinstance(item.future.exception(), TaskFailed) for item in chunk)
