"""A single broker acknowledges from memory: it is said, and set where somebody asks for it."""

import pytest

from largesse.bus.kafka.topic_settings import FLUSH, Found, is_volatile, settings_of
from largesse.bus.kafka.topics_admin import put_right
from schemas.topics import BY_NAME, LOG
from tests.contract.kafka_rig import make_topic, new_name, put_right_at_once
from tests.contract.test_kafka_bus import address, needs_kafka, open_bus, out, tell
from tests.contract.test_kafka_topics import found_as

__all__ = ["address"]


@pytest.mark.parametrize("name", ["jobs", LOG, "grants"])
@pytest.mark.parametrize(
    ("replicas", "flush", "volatile"),
    [
        pytest.param(1, False, True, id="one copy, in memory"),
        pytest.param(1, True, False, id="one copy, on disk"),
        pytest.param(3, False, False, id="three copies"),
        pytest.param(3, True, False, id="three copies are not flushed"),
    ],
)
def test_one_copy_in_memory_is_volatile_and_flushed_only_on_request(name, replicas, flush, volatile):
    settings = settings_of(BY_NAME[name], replicas, flush=flush)

    assert is_volatile(BY_NAME[name], Found(1, replicas, settings, settings)) == volatile
    assert settings.get(FLUSH) == ("1" if flush and replicas == 1 else None)


@pytest.mark.parametrize("name", ["snapshots", "deadletter"])
def test_what_can_be_made_again_is_never_volatile(name):
    assert not is_volatile(BY_NAME[name], found_as(BY_NAME[name]))
    assert FLUSH not in settings_of(BY_NAME[name], 1, flush=True)


@needs_kafka
def test_a_service_warns_of_one_broker_alone_and_the_command_sets_it(address, capsys):
    async def story():
        name = new_name("jobs")
        topic = type(BY_NAME["jobs"])(name, "input", (), (), ())
        await put_right_at_once(address, [topic], cells=1)
        async with open_bus(address, topics={name: topic}) as bus:
            await bus.writer().send([out(name, "a")])
            await bus.bounds(name, 0)
        assert capsys.readouterr().out.count("one_replica_not_flushed") == 1

        assert await put_right(address, [topic], cells=1, check=True) == ([f"{name}: right"], True)
        assert await put_right(address, [topic], cells=1, flush=True, check=True) == (
            [f"{name}: {FLUSH} 9223372036854775807 -> 1"],
            False,
        )
        await put_right_at_once(address, [topic], cells=1, flush=True)
        async with open_bus(address, topics={name: topic}) as bus:
            await bus.bounds(name, 0)
        assert "one_replica_not_flushed" not in capsys.readouterr().out

    tell(story)


@needs_kafka
def test_topics_that_are_not_ours_are_nobodys_to_warn_of(address, capsys):
    async def story():
        name = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            await bus.bounds(name, 0)

    tell(story)
    assert "one_replica_not_flushed" not in capsys.readouterr().out
