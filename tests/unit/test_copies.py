"""What becomes of the attempts of a task that was copied, case by case."""

import pytest

from schemas import InputRefused, TaskFailed, TaskFinished
from services.gateway import view
from services.gateway.documents.jobs import job_document
from tests.builders import config, job, known, node, single, stage
from tests.cells import SlowCell, attempts_of

KNOBS = {"speculation_permille": 2_000, "speculation_finished_min": 1, "retry_backoff_ms": 0}


def one_copied(**given):
    """A cell in which task 0 of j runs on one node and its copy on another. Returns the cell and both grants."""
    cell = SlowCell()
    cell.take(config(**KNOBS), node("n1", 1_000), node("n2", 1_000))
    cell.take(job("j", stage("map", 2, duration_ms=1_000, **given)))
    grants = [
        single(grant, index) for grant in cell.settle() for index in range(grant.first, grant.first + grant.count)
    ]
    first = next(grant for grant in grants if grant.first == 0)
    cell.finish(next(grant for grant in grants if grant.first == 1))
    cell.settle()
    (copy,) = cell.at(2_001).settle()
    assert (copy.why, copy.first, copy.attempt, copy.node != first.node) == ("speculative", 0, 2, True)
    return cell, first, copy


def spare(body):
    return [(each.index, each.attempt) for each in body.spare]


def test_a_round_opens_by_itself_when_a_task_becomes_a_straggler():
    cell = SlowCell()
    cell.take(config(**KNOBS), node("n1", 1_000), node("n2", 1_000))
    cell.take(job("j", stage("map", 1, duration_ms=1_000)))
    cell.settle()
    assert cell.next_ms() == 2_001


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_success_ends_the_task_and_the_second_comes_too_late(winner):
    cell, *attempts = one_copied()

    won = cell.finish(attempts[winner])
    assert spare(won) == []
    late = cell.finish(attempts[1 - winner])

    assert isinstance(late, TaskFinished)
    assert spare(late) == [(0, attempts[1 - winner].attempt)]
    cell.settle()
    assert cell.ended() == {"j": "succeeded"}
    assert not attempts_of(cell.admission)


def test_both_successes_in_one_report_are_one_success():
    cell, first, copy = one_copied()
    both = cell.finish(first, copy)
    assert spare(both) == [(0, 2)]


@pytest.mark.parametrize("loser", [0, 1])
def test_a_failure_beside_another_attempt_counts_against_no_retry_limit(loser):
    cell, *attempts = one_copied()

    assert spare(cell.fail(attempts[loser])) == [(0, attempts[loser].attempt)]
    cell.settle()
    assert cell.ended() == {}
    cell.finish(attempts[1 - loser])
    cell.settle()
    assert cell.ended() == {"j": "succeeded"}


def test_the_failure_of_the_last_attempt_is_that_of_the_task():
    cell, first, copy = one_copied()
    cell.fail(first)
    assert spare(cell.fail(copy)) == []
    cell.settle()
    assert cell.ended() == {"j": "failed"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_task_whose_attempts_have_all_failed_is_tried_again_under_a_number_of_its_own(order):
    cell, *attempts = one_copied(retries=1)
    for at in order:
        cell.fail(attempts[at])
    (again,) = cell.settle()
    assert (again.first, again.attempt, again.why != "speculative") == (0, 3, True)


def test_a_task_that_failed_once_under_two_attempts_has_used_one_retry():
    cell, first, copy = one_copied(retries=1)
    cell.fail(first)
    cell.fail(copy)
    (again,) = cell.settle()
    cell.fail(again)
    cell.settle()
    assert cell.ended() == {"j": "failed"}


@pytest.mark.parametrize("report", ["finish", "fail"])
def test_a_copy_is_struck_when_what_it_copies_ends_before_the_closing(report):
    cell = SlowCell()
    cell.take(config(**KNOBS), node("n1", 1_000), node("n2", 1_000))
    cell.take(job("j", stage("map", 1, duration_ms=1_000, retries=1), stage("end", after=["map"])))
    (first,) = cell.settle()
    cell.at(2_001).open()
    getattr(cell, report)(first)
    closing = cell.close()
    assert [struck.reason for struck in closing.struck] == ["task_over"]
    assert [grant.why for grant in cell.settle()] == ["required"]


def test_a_node_that_is_lost_with_one_attempt_leaves_the_other():
    cell, first, copy = one_copied()
    assert spare(cell.lose(first.node)) == [(0, 1)]
    assert cell.settle() == []
    cell.finish(copy)
    cell.settle()
    assert cell.ended() == {"j": "succeeded"}


def test_an_agent_that_comes_back_with_a_late_success_tells_of_a_spare_one():
    cell, first, copy = one_copied()
    cell.finish(copy)
    body = cell.take(node(first.node, 1_000, epoch="e2", attempts=[known(first, "succeeded")]))
    assert spare(body) == [(0, 1)]
    assert not attempts_of(cell.admission)


def test_an_agent_that_forgot_one_of_two_attempts_loses_only_that():
    cell, first, copy = one_copied()
    body = cell.take(node(copy.node, 1_000, epoch="e2"))
    assert spare(body) == [(0, 2)]
    assert [(key, held.attempt) for key, held in attempts_of(cell.admission)] == [("j/map/0", first.attempt)]


def test_what_is_repeated_of_either_attempt_changes_nothing_and_what_never_was_is_refused():
    cell, first, copy = one_copied()
    cell.start(first)
    assert cell.start(first) is None
    cell.fail(copy)
    assert cell.fail(copy) is None
    copy.attempt = 7
    assert isinstance(cell.fail(copy), InputRefused)


def test_cancellation_ends_both():
    cell, first, copy = one_copied()
    cell.cancel("j")
    cell.settle()
    body = cell.fail(first, copy, reason="killed")
    assert isinstance(body, TaskFailed)
    assert (len(body.items), spare(body)) == (2, [(0, 1)])
    assert not attempts_of(cell.admission)
    assert not cell.admission.copied


def viewer(cell):
    """What `get job` tells of the stage: tasks that start, run and have succeeded, copies, attempts that are ended, and
    attempts by node.
    """
    state, folded = view.start(), 0

    def look():
        nonlocal folded
        for record in cell.records[folded:]:
            if type(record.body) in view.FOLDS:
                view.fold(state, record)
        folded = len(cell.records)
        (of_stage,) = job_document(state, "j", whole=True)["stages"]
        tasks = of_stage["tasks"]
        at_work = tasks["starting"], tasks["running"], tasks["succeeded"]
        return *at_work, of_stage["copies"], of_stage["ending"], of_stage["nodes"]

    return look


@pytest.mark.parametrize("winner", [0, 1])
def test_get_job_tells_what_is_left_once_a_task_has_succeeded_as_ending_and_not_as_a_copy(winner):
    cell, *attempts = one_copied()
    counts = viewer(cell)
    cell.start(*attempts)

    cell.finish(attempts[winner])

    assert counts() == (0, 0, 2, 0, 1, {attempts[1 - winner].node: 1})
    cell.fail(attempts[1 - winner], reason="superseded")
    assert counts() == (0, 0, 2, 0, 0, {})


def test_get_job_counts_a_copied_task_once_and_says_how_many_copies_run():
    cell, first, copy = one_copied()
    counts = viewer(cell)
    assert counts() == (1, 0, 1, 1, 0, {first.node: 1, copy.node: 1})
    cell.start(copy)
    assert counts() == (1, 0, 1, 1, 0, {first.node: 1, copy.node: 1})
    cell.fail(first)
    assert counts() == (0, 1, 1, 0, 0, {copy.node: 1})
