"""What a router asks of a cell: to admit a job in time, and to let go of one that has not begun."""

import pytest

from schemas import InputRefused, InputRepeated, JobAdmitted, JobCancelled, JobChanged, JobRejected
from schemas.edge.base import Malformed
from schemas.edge.job_document import job_document
from schemas.edge.jobs import RoutedJob
from schemas.edge.read import read_input
from tests.builders import job, node, stage
from tests.cells import AUTHOR, SlowCell, one_node_cell

UNSTARTED = JobCancelled("j", AUTHOR, if_unstarted=True)
MOVED = JobCancelled("j", "router", if_unstarted=True, moved_to="west")


# ---------------------------------------------------------------- in time
def test_a_routed_job_is_admitted_up_to_the_time_that_it_says():
    story = one_node_cell().at(5_000)

    assert isinstance(story.take(RoutedJob(job("j"), 5_000)), JobAdmitted)
    assert story.take(RoutedJob(job("j"), 5_000)) == InputRepeated("j", AUTHOR)


def test_a_routed_job_that_comes_too_late_is_refused():
    refused = one_node_cell().at(5_001).take(RoutedJob(job("j"), 5_000))

    assert isinstance(refused, InputRefused)
    assert refused.field == "before_ms"


def test_a_routed_job_is_judged_like_any_other():
    assert isinstance(one_node_cell().take(RoutedJob(job("j", stage(cpu=99_000)), 1)), JobRejected)


def test_what_is_sent_of_a_job_reads_back_to_it():
    spec = job("j", stage(tasks=3, labels={"zone": "a"}, command=["./run"], durations_ms=[]))

    assert read_input("jobs", {"route": job_document(spec), "before_ms": 7}, AUTHOR) == RoutedJob(spec, 7)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param({"before_ms": 1, "route": {"stages": [{"stage": "s"}]}}, "route.stages[0].demand", id="the job"),
        pytest.param({"before_ms": 1, "route": job_document(job("j")) | {"job": None}}, "route.job", id="no name"),
        pytest.param({"before_ms": 1, "route": job_document(job("j")) | {"rerun": True}}, "route.rerun", id="a rerun"),
        pytest.param({"route": job_document(job("j"))}, "before_ms", id="no time"),
        pytest.param({"cancel": "j", "moved_to": "west"}, "moved_to", id="a move of what may run"),
        pytest.param({"cancel": "j", "admitted": 3}, "admitted", id="an admission of what may run"),
    ],
)
def test_what_is_wrong_is_named(document, field):
    with pytest.raises(Malformed) as fault:
        read_input("jobs", document, AUTHOR)

    assert fault.value.field == field


def test_a_cancellation_says_what_it_depends_on():
    asked = {"cancel": "j", "if_unstarted": True, "admitted": 3, "moved_to": "west"}

    assert read_input("jobs", asked, AUTHOR) == JobCancelled("j", AUTHOR, True, 3, "west")
    assert read_input("jobs", {"cancel": "j"}, AUTHOR) == JobCancelled("j", AUTHOR)


# ---------------------------------------------------------------- if nothing has started
def waiting_cell():
    """A cell without nodes, and the job j."""
    story = SlowCell()
    story.take(job("j"))
    story.settle()
    return story


def test_a_job_of_which_nothing_was_started_ends():
    story = waiting_cell()

    assert story.take(UNSTARTED) == JobCancelled("j", AUTHOR, if_unstarted=True, admitted=1)
    story.settle()
    assert story.ended() == {"j": "cancelled"}


def test_a_job_that_was_started_stays():
    story = waiting_cell()
    story.take(node("n1"))
    story.settle()

    refused = story.take(UNSTARTED)

    assert isinstance(refused, InputRefused)
    assert refused.field == "if_unstarted"
    assert "has been started" in refused.reason


def test_a_job_that_was_started_once_stays_though_it_holds_nothing():
    story = SlowCell()
    story.take(node("n1"), job("j", stage(retries=3)))
    (grant,) = story.settle()
    story.start(grant)
    story.fail(grant)

    assert isinstance(story.take(UNSTARTED), InputRefused)


def test_a_grant_of_a_round_that_is_open_does_not_bind_any_more():
    story = waiting_cell()
    story.take(node("n1"))
    story.open()

    assert isinstance(story.take(UNSTARTED), JobCancelled)
    assert story.close().grants == []
    assert story.settle() == []
    assert story.ended() == {"j": "cancelled"}


def test_another_admission_of_the_name_is_not_meant():
    story = waiting_cell()

    assert isinstance(story.take(JobCancelled("j", AUTHOR, if_unstarted=True, admitted=99)), InputRefused)
    assert isinstance(story.take(JobCancelled("j", AUTHOR, if_unstarted=True, admitted=1)), JobCancelled)


def test_a_job_that_was_changed_is_not_the_one_that_was_submitted():
    story = waiting_cell()
    story.take(JobChanged("j", priority=5))

    assert isinstance(story.take(UNSTARTED), InputRefused)


def test_once_more_it_changes_nothing():
    story = waiting_cell()
    story.take(UNSTARTED)

    assert story.take(UNSTARTED) is None


# ---------------------------------------------------------------- for another cell
def test_the_cell_remembers_where_a_job_has_gone_and_does_not_run_it_again():
    story = waiting_cell()
    story.take(MOVED)
    story.settle()

    (ended,) = story.admission.ended.values()
    assert (ended.outcome, ended.moved_to) == ("cancelled", "west")
    (body,) = story.bodies_in_log("JobEnded")
    assert [end.detail for end in body.jobs] == ["moved to cell west"]
    story.take(node("n1"))
    assert isinstance(story.take(RoutedJob(job("j"), 1 << 40)), InputRepeated)
    assert story.settle() == []


def test_who_cancels_a_job_that_moves_is_told_where_it_goes():
    story = waiting_cell()
    story.take(MOVED)

    for _ in range(2):
        refused = story.take(JobCancelled("j", AUTHOR))
        assert isinstance(refused, InputRefused)
        assert refused.reason == 'job "j" moves to cell west: cancel it there'
        story.settle()
