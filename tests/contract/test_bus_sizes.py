"""The largest message is the same on every bus, and one above it fails alone: its sender is told, nobody else notices.

Runs over the adapters of test_bus.py.
"""

import asyncio

import pytest

from largesse.bus.port import MESSAGE_BYTES_MAX, MessageTooLarge, Outgoing, size_of
from largesse.log.fencing import RECORD_BYTES_MAX
from schemas.edge.strict_json import INPUT_BYTES_MAX
from tests.contract.test_bus import RIGS, tell, values

__all__ = ["tell"]  # The fixture.


def sized(topic, size, **more):
    """A message of so many bytes, all counted."""
    empty = Outgoing(topic, 0, b"", **more)
    return Outgoing(topic, 0, b"x" * (size - size_of(empty)), **more)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="bare"),
        pytest.param(
            {"key": "é" * 5_000, "headers": {"author": "漢" * 5_000}}, id="with long texts of long characters"
        ),
        pytest.param({"headers": {f"h{number}": "" for number in range(5_000)}}, id="with many headers"),
    ],
)
def test_a_message_of_the_largest_size_passes_and_one_byte_more_is_refused(tell, more):
    async def story(rig):
        topic, writer = await rig.topic(1), rig.bus.writer()
        largest = sized(topic, MESSAGE_BYTES_MAX, **more)
        with pytest.raises(MessageTooLarge) as refused:
            await writer.send([sized(topic, MESSAGE_BYTES_MAX + 1, **more)])

        assert await writer.send([largest]) == [0]
        assert await values(rig.bus, topic) == [largest.value]
        assert str(refused.value).startswith(f"{topic}: ")
        assert str(MESSAGE_BYTES_MAX + 1) in str(refused.value)
        assert str(MESSAGE_BYTES_MAX) in str(refused.value).replace(str(MESSAGE_BYTES_MAX + 1), "")

    tell(story)


def test_a_message_that_is_too_large_fails_alone_among_the_sends_of_one_writer(tell):
    async def story(rig):
        topic, writer = await rig.topic(1), rig.bus.writer()
        # The first send opens what the writer needs; the others go out at once beside each other.
        assert await writer.send([Outgoing(topic, 0, b"first")]) == [0]
        too_large = sized(topic, 2 * MESSAGE_BYTES_MAX)
        sends = [[Outgoing(topic, 0, b"%d" % number)] for number in range(20)]
        sends.insert(7, [too_large])
        sends.insert(14, [Outgoing(topic, 0, b"its companion"), too_large])
        heard = await asyncio.gather(*(writer.send(batch) for batch in sends), return_exceptions=True)

        assert [type(each) for each in heard if not isinstance(each, list)] == [MessageTooLarge, MessageTooLarge]
        assert sorted(each[0] for each in heard if isinstance(each, list)) == list(range(1, 21))
        # A batch comes as a whole: what was beside the message that is too large is not there either.
        assert b"its companion" not in await values(rig.bus, topic)
        assert await writer.send([Outgoing(topic, 0, b"last")]) == [21]

    tell(story)


def test_there_is_room_for_an_input_and_a_record_with_what_stands_around_them():
    room = MESSAGE_BYTES_MAX - max(INPUT_BYTES_MAX, RECORD_BYTES_MAX)
    assert room >= 32 * 1024
    assert RIGS
