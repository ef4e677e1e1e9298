"""When a node takes no new tasks for troubles of its own, and when it does again."""

import errno

import pytest

from services.agent import troubles
from services.agent.folders import JOBS
from services.agent.troubles import (
    PROBE,
    PROBE_MS,
    PROBE_MS_MAX,
    PROBES_GOOD,
    RELAPSE_MS,
    SUSPECTS_MAX,
    SUSPECTS_MS,
    Room,
    Troubles,
    failed_start,
    probe,
    short_of,
)

ANY_ROOM = Room(bytes=0, inodes=0)


def recovered(node, at_ms):
    """A node that was probed well until it came back; returns when."""
    while node.reason:
        at_ms = max(at_ms, node.probe_ms)
        node.probed("", at_ms, logged=True)
    return at_ms


def test_a_node_comes_back_after_probes_in_a_row_have_succeeded():
    node = Troubles()
    node.fall("full", 0)
    for good in range(PROBES_GOOD):
        assert node.reason == "full", good
        assert not node.is_due(node.probe_ms - 1)
        assert node.is_due(node.probe_ms)
        node.probed("", node.probe_ms, logged=True)
    assert node.reason == ""


def test_a_probe_that_fails_begins_the_row_anew_and_doubles_the_pause_up_to_its_limit():
    node, now_ms = Troubles(), 0
    node.fall("full", now_ms)
    pauses = []
    for _ in range(10):
        now_ms = node.probe_ms
        node.probed("", now_ms, logged=True)
        node.probed("full", now_ms, logged=True)
        pauses.append(node.probe_ms - now_ms)
    assert pauses[:3] == [2 * PROBE_MS, 4 * PROBE_MS, 8 * PROBE_MS]
    assert pauses[-1] == PROBE_MS_MAX
    assert node.reason == "full"


@pytest.mark.parametrize(("later_ms", "pause_ms"), [(RELAPSE_MS - 1, 2 * PROBE_MS), (RELAPSE_MS, PROBE_MS)])
def test_a_trouble_that_returns_soon_goes_on_with_longer_pauses(later_ms, pause_ms):
    node = Troubles()
    node.fall("full", 0)
    now_ms = recovered(node, 0) + later_ms
    node.fall("full", now_ms)
    assert node.probe_ms - now_ms == pause_ms


def test_the_first_reason_stands_until_the_node_is_back():
    node = Troubles()
    node.fall("full", 0)
    node.fall("broken", 1)
    assert node.reason == "full"


def test_a_node_does_not_come_back_before_the_log_knows_that_it_was_away():
    node = Troubles()
    node.fall("full", 0)
    for turn in range(10):
        node.probed("", turn * PROBE_MS, logged=False)
    assert node.reason == "full"
    node.probed("", 10 * PROBE_MS, logged=True)
    assert node.reason == ""


def test_a_suspicion_is_cleared_or_confirmed_by_one_probe():
    node = Troubles()
    node.suspect(0)
    assert node.is_due(0)
    node.probed("", 1, logged=False)
    assert (node.reason, node.suspected, node.is_due(1)) == ("", False, False)
    node.suspect(2)
    node.probed("full", 3, logged=False)
    assert (node.reason, node.suspected) == ("full", False)


@pytest.mark.parametrize(("span_ms", "is_trouble"), [(SUSPECTS_MS - 1, True), (SUSPECTS_MS, False)])
def test_suspicions_that_repeat_are_a_trouble_though_probes_succeed(span_ms, is_trouble):
    node = Troubles()
    for number in range(SUSPECTS_MAX):
        node.suspect(number * span_ms // (SUSPECTS_MAX - 1))
        node.probed("", number * span_ms // (SUSPECTS_MAX - 1), logged=False)
    assert bool(node.reason) == is_trouble


def test_a_reason_is_one_printable_line_that_the_edge_takes():
    node = Troubles()
    node.fall("a\nb" + "x" * 1_000, 0)
    assert node.reason.startswith("a?bx")
    assert len(node.reason) == troubles.UNSCHEDULABLE_MAX


# ---------------------------------------------------------------- probes
def test_a_probe_leaves_nothing_behind(tmp_path):
    assert probe(tmp_path, ANY_ROOM) == ""
    assert not (tmp_path / JOBS / PROBE).exists()


def test_a_probe_fails_where_a_start_would(tmp_path):
    (tmp_path / JOBS).write_text("in the way")
    assert probe(tmp_path, ANY_ROOM) == failed_start(NotADirectoryError(errno.ENOTDIR, "Not a directory"))


def test_a_probe_fails_where_no_process_can_be_started(tmp_path, monkeypatch):
    monkeypatch.setattr(troubles.sys, "executable", str(tmp_path / "none"))
    assert probe(tmp_path, ANY_ROOM) == "it could not start a task: No such file or directory"


@pytest.mark.parametrize(
    ("room", "trouble"),
    [
        (Room(bytes=1 << 62, inodes=0), f"its disk is full: less than {1 << 42} MiB were left"),
        (Room(bytes=0, inodes=1 << 62), f"its disk is full: less than {1 << 62} inodes were left"),
        (ANY_ROOM, ""),
    ],
)
def test_a_disk_with_less_room_than_the_limit_is_full(tmp_path, room, trouble):
    assert short_of(tmp_path, room) == trouble
    assert probe(tmp_path, room) == trouble
