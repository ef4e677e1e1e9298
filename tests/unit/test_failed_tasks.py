"""Which tasks of a stage have failed for good, as the view, documents and the command line have it."""

from itertools import pairwise

from hypothesis import strategies as st

from services.cli.watching import job_text
from services.gateway.documents.jobs import job_document
from services.gateway.documents.models.jobs import Job
from services.gateway.view import jobs as view_jobs
from services.gateway.view.jobs import add_span
from tests.gateway_watch import Watched, stage
from tests.strategies import for_all


@for_all(st.lists(st.integers(0, 40), unique=True), st.integers(1, 30))
def test_spans_are_in_order_and_apart_and_the_lowest_are_kept(indexes, most):
    spans, kept = [], view_jobs.SPANS_MAX
    view_jobs.SPANS_MAX = most
    try:
        for index in indexes:
            add_span(spans, index, index)
    finally:
        view_jobs.SPANS_MAX = kept
    found = [index for first, last in spans for index in range(first, last + 1)]

    assert found == sorted(found)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(spans))
    assert len(spans) <= most
    if len(spans) < most:
        assert found == sorted(indexes)


def failed_in(cell, name="j"):
    document = job_document(cell.view, name)
    Job.model_validate(document)
    return [each["failed_tasks"] for each in document["stages"]], job_text(document)


def test_every_task_that_failed_for_good_is_told_while_the_job_lives_and_afterwards():
    tasks = 60
    cell = Watched(nodes=1, cpu=tasks)
    cell.submit("j", stage(tasks=tasks, max_failed=tasks, retries=0)).start("j", "s", count=tasks)
    failing = [index for index in range(50) if index % 7 in (1, 2)]
    for index in failing:
        cell.fail("j", "s", index)
    spans = [[first, min(first + 1, failing[-1])] for first in failing[::2]]
    assert failed_in(cell)[0] == [spans]
    for index in set(range(tasks)) - set(failing):
        cell.finish("j", "s", first=index)

    found, text = failed_in(cell)
    assert cell.job("j")["state"] == "succeeded"
    assert found == [spans]
    assert f"These are the last {len(failing)}" not in text


def test_where_not_all_failed_attempts_are_shown_the_tasks_are():
    tasks = 30
    cell = Watched(nodes=1, cpu=tasks)
    cell.submit("j", stage(tasks=tasks, max_failed=tasks, retries=0)).start("j", "s", count=tasks)
    for index in (0, *range(2, 12), *range(14, 29)):
        cell.fail("j", "s", index)

    text = failed_in(cell)[1]
    assert "These are the last 20 of 26 failed attempts.\nFailed for good: s/0,2-11,14-28\n" in text


def test_of_a_gang_that_failed_for_good_it_is_every_task():
    cell = Watched(nodes=1, cpu=4)
    cell.submit("j", stage(tasks=3, gang=True, retries=0)).start("j", "s", count=3).fail("j", "s", 1)
    assert failed_in(cell)[0] == [[[0, 2]]]
