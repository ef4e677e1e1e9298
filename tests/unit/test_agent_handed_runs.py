"""What stages hand on to later ones, also to those of a later run of their job."""

import pytest

from largesse.lifecycle import handed
from largesse.lifecycle import node_work as core
from largesse.lifecycle.handed import Handed
from schemas import JobAdmitted, JobEnd, JobEnded, JobSpec, Stage
from tests.unit.test_agent_core import Story, closed, finished, granted, registered

MAP = Stage("map", 4, {"cpu": 1_000}, command=["true"])
REDUCE = Stage("reduce", 1, {"cpu": 1_000}, ["map"], command=["true"], inputs=["map"])


def admitted(job="j", **more):
    return JobAdmitted(JobSpec(job, "default", [MAP, REDUCE]), 0, **more)


def handed_to_reduce(story, job="j", attempt=1):
    """What the only task of the later stage is handed once it is granted."""
    story.takes()
    story.then(closed(granted(0, stage="reduce", attempt=attempt, job=job)))
    (start,) = core.take(story.state, "n")
    return core.handed_to(story.state, start)


def once_over(*jobs):
    """A story in which these jobs ran, two of their first tasks on another node, and failed afterwards."""
    story = Story(registered(), *[admitted(job) for job in jobs])
    for job in jobs:
        story.then(finished(0, 2, job=job, node="m", epoch="e2", attempt=3))
        story.then(finished(2, 2, job=job, node="o", epoch="e3"))
    return story.then(JobEnded([JobEnd(job, "failed") for job in jobs]))


def test_a_later_stage_is_handed_where_tasks_of_this_run_succeeded():
    story = Story(registered(), admitted()).then(finished(0, 4, node="m", epoch="e2"))
    assert handed_to_reduce(story) == [Handed("map", 0, 4, 1, "m", 2)]


def test_a_stage_that_stays_hands_on_what_an_earlier_run_left():
    story = once_over("j").then(admitted(run=2, attempts=3, kept=["map"]))
    before = [Handed("map", 0, 2, 3, "m", 2), Handed("map", 2, 2, 1, "o", 2)]
    assert handed_to_reduce(story, attempt=4) == before

    story.then(JobEnded([JobEnd("j", "failed")]), admitted(run=3, attempts=4, kept=["map"]))
    story.takes()
    assert story.state.jobs["j"].handed == {"map": before}


def test_a_stage_that_runs_again_hands_on_what_it_leaves_now():
    story = once_over("j").then(admitted(run=2, attempts=3))
    story.then(finished(0, 4, attempt=4, node="m", epoch="e2"))
    (tasks,) = handed_to_reduce(story, attempt=4)
    assert tasks.run > 2


def test_an_agent_that_knows_it_no_more_says_so(monkeypatch):
    monkeypatch.setattr(handed, "PAST_JOBS_MAX", 1)
    story = once_over("i", "j").then(admitted("i", run=2, attempts=3, kept=["map"]))
    assert handed_to_reduce(story, "i", attempt=4) == [Handed("map", 0, 0, 0, "")]


@pytest.mark.parametrize(("records", "known"), [(4, ["i", "j"]), (3, ["j"]), (1, [])])
def test_it_is_kept_of_so_many_successes(monkeypatch, records, known):
    monkeypatch.setattr(handed, "PAST_RECORDS_MAX", records)
    past = once_over("i", "j").state.past
    assert list(past.jobs) == known
    assert past.records == 2 * len(known)
