"""How many live jobs one user may have in a queue and below it."""

from dataclasses import replace

import pytest

from schemas import JobAdmitted, JobCancelled, JobChanged, JobRejected
from schemas.edge.queues import tree_document
from services.cli.queues import limits_text
from services.gateway.documents.queues import settings_document
from tests.builders import config, job, queue, stage, tree
from tests.cells import AUTHOR, one_node_cell


def cell(**limits):
    """The root, `eng` below it, and leaves `eng/dev`, `eng/ops` and `web`, with these limits by their last name."""
    named = {name: {"user_jobs_max": most} for name, most in limits.items()}
    dev, ops = queue("dev", **named.get("dev", {})), queue("ops")
    return one_node_cell(
        config(tree(queue("eng", 1, dev, ops, **named.get("eng", {})), queue("web"), **named.get("root", {})))
    )


def asked(name, user="ann", leaf="eng/dev"):
    return replace(job(name, stage(tasks=1), queue=leaf), user=user)


@pytest.mark.parametrize(
    ("limits", "leaf", "where"),
    [
        ({"dev": 2}, "eng/dev", 'queue "eng/dev"'),
        ({"dev": 9, "eng": 2}, "eng/ops", 'queue "eng"'),
        ({"root": 2}, "web", "the root of the tree"),
    ],
)
def test_one_job_more_is_refused_and_the_queue_named(limits, leaf, where):
    story = cell(**limits)
    for name in ("a", "b"):
        assert isinstance(story.take(asked(name)), JobAdmitted)
    refused = story.take(asked("c", leaf=leaf))
    assert isinstance(refused, JobRejected)
    assert (refused.reason, refused.field) == ("too_many_jobs", "user")
    assert f'user "ann" has 2 live jobs in {where if "queue" in where else "the cell"}' in refused.detail
    assert f"one user may have 2 there (user_jobs_max of {where})" in refused.detail


def test_other_users_and_other_queues_are_not_concerned():
    story = cell(dev=1)
    story.take(asked("a"))
    assert isinstance(story.take(asked("b", user="bob")), JobAdmitted)
    assert isinstance(story.take(asked("c", leaf="eng/ops")), JobAdmitted)
    assert isinstance(story.take(asked("d")), JobRejected)


def test_jobs_that_name_no_user_count_as_one_users():
    story = cell(dev=1)
    story.take(asked("a", user=""))
    assert '1 live job in queue "eng/dev" names no user' in story.take(asked("b", user="")).detail


def test_a_job_that_has_ended_counts_no_more():
    story = cell(dev=1)
    story.take(asked("a"))
    story.take(JobCancelled("a", AUTHOR))
    assert isinstance(story.take(asked("b")), JobAdmitted)
    story.settle()
    story.take(JobCancelled("b", AUTHOR))
    story.settle()
    assert not story.admission.user_jobs
    assert isinstance(story.take(asked("c")), JobAdmitted)


def test_a_lower_limit_ends_nothing_and_holds_for_what_comes():
    story = cell()
    for name in ("a", "b", "c"):
        story.take(asked(name))
    story.take(config(tree(queue("eng", 1, queue("dev", user_jobs_max=1), queue("ops")), queue("web"))))
    assert len(story.admission.jobs) == 3
    assert "has 3 live jobs" in story.take(asked("d")).detail
    story.take(config(tree(queue("eng", 1, "dev", "ops"), queue("web"))))
    assert isinstance(story.take(asked("d")), JobAdmitted)


def test_a_job_that_gets_another_queue_counts_there():
    story = cell(dev=1, eng=2)
    for name, leaf in (("a", "eng/dev"), ("b", "eng/ops"), ("c", "web")):
        assert isinstance(story.take(asked(name, leaf=leaf)), JobAdmitted)
    assert "user_jobs_max" in story.take(JobChanged("b", queue="eng/dev")).reason
    assert "user_jobs_max" in story.take(JobChanged("c", queue="eng/ops")).reason
    story.take(JobCancelled("a", AUTHOR))
    assert isinstance(story.take(JobChanged("b", queue="eng/dev")), JobChanged)
    assert story.admission.user_jobs == {"ann": {"": 2, "eng": 1, "eng/dev": 1, "web": 1}}


def test_the_same_job_once_more_is_a_repeat_and_not_refused():
    story = cell(dev=1)
    story.take(asked("a"))
    assert type(story.take(asked("a"))).__name__ == "InputRepeated"


@pytest.mark.parametrize(
    ("limit", "text"),
    [("user_jobs_max", "3 jobs of one user"), ("user_running_max", "3 tasks of one user run at once")],
)
def test_it_is_shown(limit, text):
    limited = queue("dev", **{limit: 3})
    assert tree_document(limited)[limit] == 3
    assert limit not in tree_document(queue("dev"))
    document = settings_document(limited)
    assert document["limits"][limit] == 3
    assert limits_text(document) == text
