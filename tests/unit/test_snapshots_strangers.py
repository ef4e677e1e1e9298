"""Snapshots whose checksum is right, and in whose head types are wrong: refused by name, and the one before serves."""

import zlib
from base64 import b64encode
from hashlib import sha256

import orjson
import pytest

from largesse.bus.port import Outgoing
from schemas.topics import SNAPSHOTS
from tests.bus_stories import story
from tests.unit.test_snapshots import restored, taken

HEAD = {"service": "toy", "shard": 0, "of": 1, "layout": 1, "number": 9, "landmark": "", "decisions": {}, "order": {}}


def forged(**about):
    """A message that is one whole snapshot with a right checksum, whatever its head says."""
    head = HEAD | about
    document = orjson.dumps(head) + b'\n{"jobs":[],"closed":[],"fed":[]}'
    said = {"service": "toy", "shard": 0, "seq": 9, "part": 0, "parts": 1, "sum": sha256(document).hexdigest()}
    return orjson.dumps({"snapshot": said, "data": b64encode(zlib.compress(document)).decode()})


@pytest.mark.parametrize(
    "about",
    [
        pytest.param({"order": []}, id="an order that is a list"),
        pytest.param({"order": None}, id="an order that is null"),
        pytest.param({"order": {"offset": "x"}}, id="an offset that is a text"),
        pytest.param({"order": {"offset": None}}, id="an offset that is null"),
        pytest.param({"order": {"positions": [1]}}, id="positions that are a list"),
        pytest.param({"order": {"positions": {"jobs/0": "x"}}}, id="a position that is a text"),
        pytest.param({"order": {"pieces": 7}}, id="pieces that are a number"),
        pytest.param({"decisions": [1]}, id="decisions that are a list"),
        pytest.param({"decisions": {"shares/0": []}}, id="a decision's position that is a list"),
        pytest.param({"layout": "one"}, id="a layout that is a text"),
        pytest.param({"number": {}}, id="a number that is a document"),
        pytest.param({"landmark": 5}, id="a landmark that is a number"),
    ],
)
def test_a_head_with_wrong_types_is_refused_and_the_one_before_serves(about):
    @story
    async def scenario(bus, scribe):
        await taken(bus, scribe, 1)
        await bus.writer().send([Outgoing(SNAPSHOTS, 0, forged(**about))])

        assert await restored(bus) == 1

    scenario()
