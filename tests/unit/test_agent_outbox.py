"""What a node has to say: kept until the log shows it, worded so that the edge takes it."""

import json

import pytest

from schemas.edge.read import read_input
from services.agent.outbox import REPEAT_MS, REPEAT_MS_MAX, Name, Outbox, Result, batches, known_attempts, messages

OK = Result(None, run_ms=5, exit_code=0, peak={"memory": 10})


def name(index=0, *, job="j", stage="map", attempt=1):
    return Name(job, stage, index, attempt)


def outbox_of(*pieces, at=0):
    """An outbox after `("started"|"ended", index[, result])`."""
    box = Outbox()
    for what, index, *result in pieces:
        if what == "started":
            box.started(f"k{index}", name(index), at)
        else:
            box.ended(f"k{index}", name(index), result[0] if result else OK, at)
    return box


def said(box, now_ms):
    """What is due, as read at the edge."""
    return [read_input("tasks", document, "agent:n") for document in messages(box.due(now_ms), "n", "e1")]


def test_a_start_is_said_at_once_and_again_until_the_log_has_it():
    box = outbox_of(("started", 0), at=100)

    for wait_ms in (REPEAT_MS, 2 * REPEAT_MS):
        at_ms = box.due_ms()
        assert [part.start for part in box.due(at_ms)] == [True]
        box.sent(box.due(at_ms), at_ms)
        assert box.due(at_ms + wait_ms - 1) == []
        assert box.due_ms() == at_ms + wait_ms
    box.begun("k0")
    assert box.due_ms() is None


def test_repeats_never_stop_and_grow_seldom():
    box = outbox_of(("ended", 0))

    at_ms = 0
    for _ in range(20):
        at_ms = box.due_ms() or 0
        box.sent(box.due(at_ms), at_ms)

    assert box.due_ms() == at_ms + REPEAT_MS_MAX


def test_an_end_is_said_at_once_though_the_start_was_said_a_moment_ago():
    box = outbox_of(("started", 0))
    box.sent(box.due(0), 0)

    box.ended("k0", name(), OK, 10)

    assert [(part.start, part.result) for part in box.due(10)] == [(False, OK)]


def test_the_log_may_have_the_end_without_the_start():
    box = outbox_of(("started", 0), ("ended", 0))

    box.over("k0")

    assert box.unreported == {}


def test_a_start_that_the_log_has_is_not_said_with_the_end():
    box = outbox_of(("started", 0), ("ended", 0))

    box.begun("k0")

    assert [(part.start, part.result) for part in box.due(0)] == [(False, OK)]


def test_the_first_result_stands():
    box = outbox_of(("ended", 0, OK), ("ended", 0, Result("killed")))

    assert [part.result for part in box.due(0)] == [OK]


def test_after_a_registration_everything_is_said_again():
    box = outbox_of(("started", 0), ("ended", 1))
    box.sent(box.due(0), 0)

    box.again(7)

    assert [(part.start, part.result) for part in box.due(7)] == [(True, None), (False, OK)]


def test_what_the_log_confirms_while_it_is_sent_stays_confirmed():
    box = outbox_of(("ended", 0), ("started", 1), ("started", 2))
    parts = box.due(0)

    box.over("k0")
    box.begun("k1")
    box.sent(parts, 0)

    assert box.due_ms() == REPEAT_MS
    assert list(box.awaited) == ["k2"]


def test_an_end_is_not_awaited_for_a_start_that_the_log_has_shown():
    box = outbox_of(("started", 0))
    parts = box.due(0)

    box.begun("k0")
    box.ended("k0", name(0), OK, 0)
    box.sent(parts, 0)

    assert box.awaited == {}
    assert box.due_ms() == 0


def test_tasks_in_a_row_are_one_item_with_a_run_time_each():
    pieces = [("ended", index, Result(None, run_ms=index, peak={"memory": 10 - index})) for index in (0, 1, 2, 4)]

    (finished,) = said(outbox_of(*pieces), 0)

    assert [(item.first, item.count, item.run_ms, item.peak) for item in finished.items] == [
        (0, 3, [0, 1, 2], {"memory": 10}),
        (4, 1, [4], {"memory": 6}),
    ]
    assert {(item.node, item.epoch) for item in finished.items} == {("n", "e1")}


def test_starts_come_before_ends():
    box = outbox_of(("started", 0), ("started", 1), ("ended", 0), ("ended", 1, Result("exit_code", exit_code=3)))

    assert [type(body).__name__ for body in said(box, 0)] == ["TaskStarted", "TaskFinished", "TaskFailed"]


def test_failures_that_differ_are_items_of_their_own():
    pieces = [("ended", index, Result("exit_code", exit_code=code)) for index, code in enumerate((1, 1, 2))]

    (failed,) = said(outbox_of(*pieces), 0)

    assert [(item.first, item.count, item.exit_code) for item in failed.items] == [(0, 2, 1), (2, 1, 2)]


def test_a_long_story_is_cut_to_what_the_edge_keeps():
    (failed,) = said(outbox_of(("ended", 0, Result("cannot_start", detail="x" * 10_000))), 0)

    assert len(failed.items[0].detail) == 500


def test_a_large_report_is_cut_into_messages_that_the_edge_takes():
    box = Outbox()
    for index in range(0, 8_000, 2):  # Nothing in a row.
        box.started(f"k{index}", name(index, job="j" * 250, stage="s" * 250), 0)

    batches = [body.items for body in said(box, 0)]

    assert len(batches) > 1
    assert [item.first for items in batches for item in items] == list(range(0, 8_000, 2))


def registration(running, ended):
    (attempts,) = known_attempts(running, ended)
    return read_input(
        "nodes", {"register": {"node": "n", "epoch": "e2", "capacity": {"cpu": 1}, "attempts": attempts}}, ""
    )


def test_a_registration_names_what_runs_and_what_has_ended():
    ended = [(name(7), OK), (name(3), Result("timeout", run_ms=9)), (name(6), OK)]

    body = registration([name(1), name(0), name(0, attempt=2)], ended)

    assert [(k.first, k.count, k.attempt, k.state, k.reason) for k in body.attempts] == [
        (0, 2, 1, "running", None),
        (0, 1, 2, "running", None),
        (3, 1, 1, "failed", "timeout"),
        (6, 2, 1, "succeeded", None),
    ]
    assert body.attempts[3].run_ms == [5, 5]


def test_a_registration_names_all_attempts_in_as_many_messages_as_it_takes(monkeypatch):
    monkeypatch.setattr("services.agent.outbox.REPORT_BYTES_MAX", 1_000)
    ended = [(name(index), OK) for index in range(100, 300, 2)]

    parts = known_attempts([name(index) for index in range(0, 10, 2)], ended)

    assert [k["first"] for part in parts for k in part] == [0, 2, 4, 6, 8, *range(100, 300, 2)]
    assert all(len(json.dumps(part)) <= 1_000 for part in parts)


def test_a_registration_of_a_node_that_knows_nothing_is_one_message():
    assert known_attempts([], []) == [[]]


@pytest.mark.parametrize("items", [[], [{"a": 1}]])
def test_batches_leave_nothing_out(items):
    assert [item for batch in batches(items) for item in batch] == items


def test_each_attempt_of_an_item_has_its_own_measurements():
    first = Result(None, run_ms=5, exit_code=0, peak={"memory": 10}, cpu_ms=3)
    second = Result(None, run_ms=6, exit_code=0, peak={"memory": 20}, cpu_ms=4)
    box = outbox_of(("ended", 0, first), ("ended", 1, second), ("ended", 2, OK))

    (body,) = said(box, 0)

    measured, unmeasured = body.items
    assert (measured.count, measured.peak, measured.peak_mib, measured.cpu_ms) == (2, {"memory": 20}, [10, 20], [3, 4])
    assert (unmeasured.count, unmeasured.peak_mib, unmeasured.cpu_ms) == (1, [], [])


def test_the_peak_of_cpu_is_of_all_attempts_of_an_item_or_not_said():
    first = Result(None, run_ms=5, exit_code=0, peak={"memory": 10, "cpu": 1_250}, cpu_ms=3)
    second = Result(None, run_ms=6, exit_code=0, peak={"memory": 20, "cpu": 700}, cpu_ms=4)
    older = Result(None, run_ms=6, exit_code=0, peak={"memory": 20}, cpu_ms=4)
    box = outbox_of(("ended", 0, first), ("ended", 1, second), ("ended", 2, older))

    (body,) = said(box, 0)

    assert [(item.count, item.peak) for item in body.items] == [
        (2, {"memory": 20, "cpu": 1_250}),
        (1, {"memory": 20}),
    ]
