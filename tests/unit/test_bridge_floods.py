"""Which nodes a bridge shuts out since they flood it, and for how long."""

from services.bridge import floods
from services.bridge.floods import DROPPED_A_SECOND_MAX, FORGIVEN_MS, SHUT_OUT_MS, SHUT_OUT_MS_MAX, Floods


def flood(known, node, now_ms, count=DROPPED_A_SECOND_MAX + 1):
    """Whether any of so many dropped messages shuts the node out, and whether the last one does."""
    return [known.drop(node, now_ms) for _ in range(count)]


def test_a_node_is_shut_out_once_more_than_so_many_of_its_messages_are_dropped_within_a_second():
    known = Floods()
    assert flood(known, "n", 1_999, DROPPED_A_SECOND_MAX) == [False] * DROPPED_A_SECOND_MAX
    assert flood(known, "n", 2_000) == [False] * DROPPED_A_SECOND_MAX + [True], "each second is counted by itself"
    assert known.drop("n", 2_001) is False, "it is already"
    assert list(known.shut_out) == ["n"]
    assert known.over_in_ms(2_500) == SHUT_OUT_MS - 500


def test_what_one_sends_is_nobody_elses():
    known = Floods()
    flood(known, "n", 0, DROPPED_A_SECOND_MAX)
    flood(known, "m", 0, DROPPED_A_SECOND_MAX)
    assert not known.shut_out
    assert known.over_in_ms(0) is None


def test_it_is_heard_again_and_shut_out_for_twice_as_long_each_time():
    known, now_ms, lengths = Floods(), 0, []
    for _ in range(8):
        assert flood(known, "n", now_ms)[-1]
        lengths.append(known.over_in_ms(now_ms))
        assert known.end(now_ms + lengths[-1] - 1) == []
        now_ms += lengths[-1]
        assert known.end(now_ms) == ["n"]
        assert not known.shut_out
    assert lengths[:3] == [SHUT_OUT_MS, 2 * SHUT_OUT_MS, 4 * SHUT_OUT_MS]
    assert lengths[-1] == SHUT_OUT_MS_MAX

    now_ms += FORGIVEN_MS
    assert flood(known, "n", now_ms)[-1]
    assert known.over_in_ms(now_ms) == SHUT_OUT_MS, "what was long ago is forgotten"


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(floods, "NODES_MAX", 3)
    known = Floods()
    for number in range(9):
        flood(known, f"n{number}", 10_000 * number)
        known.end(10_000 * number + SHUT_OUT_MS)
    assert list(known._before) == ["n6", "n7", "n8"]
