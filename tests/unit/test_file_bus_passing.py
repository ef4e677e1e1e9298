"""What nobody keeps never reaches the disk of the embedded bus."""

import asyncio

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Outgoing
from schemas.topics import BEATS


def test_signs_of_life_are_not_written_and_are_gone_when_the_bus_is_opened_again(tmp_path):
    async def story():
        bus = FileBus(tmp_path)
        await bus.writer().send([Outgoing("jobs", 0, b"{}")])
        for number in range(100):
            await bus.writer().send([Outgoing(BEATS, 0, b"%d" % number)], durable=number % 2 == 0)
        assert await bus.bounds(BEATS, 0) == (0, 100)
        await bus.close()
        again = FileBus(tmp_path)
        assert await again.bounds(BEATS, 0) == (0, 0)
        assert await again.bounds("jobs", 0) == (0, 1)
        await again.close()

    asyncio.run(story())
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b'"jobs"' in written
    assert BEATS.encode() not in written


def test_where_a_sign_of_life_goes_with_what_is_kept_the_latter_is_durable(tmp_path):
    async def story():
        bus = FileBus(tmp_path)
        assert await bus.writer().send([Outgoing(BEATS, 0, b"b"), Outgoing("nodes", 0, b"{}")]) == [0, 0]
        await bus.close()
        again = FileBus(tmp_path)
        assert [message.value for message in await again.fetch("nodes", 0, 0)] == [b"{}"]
        await again.close()

    asyncio.run(story())
