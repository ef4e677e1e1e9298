"""Jobs that come after other jobs: what is read, when they are let go, when they can run no more, what is told."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from largesse.log.codec import decode, encode
from schemas import InputRefused, InputRepeated, JobAdmitted, JobCancelled, JobChanged, JobEnded, JobSpec
from schemas.edge.base import Malformed
from schemas.edge.job_document import job_document
from schemas.edge.jobs import read_job, read_workload_line
from schemas.jobs import JobDependency, JobRerun
from services.admission.core.keys import digest_of
from tests.builders import job, node, stage
from tests.cells import AUTHOR, SlowCell
from tests.gateway_watch import Watched

STAGE = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "command": ["x"]}


def after(name, *others, on="success", **more):
    """A job of one task that comes after others."""
    dependencies = [each if isinstance(each, JobDependency) else JobDependency(each, on) for each in others]
    return replace(job(name, stage(tasks=1)), after_jobs=dependencies, **more)


@pytest.fixture
def cell():
    cell = SlowCell()
    cell.take(node(cpu=9_000))
    return cell


def outcomes(cell):
    return {end.job: end.outcome for each in cell.records if isinstance(each.body, JobEnded) for end in each.body.jobs}


def runs(cell):
    """Who holds room."""
    return sorted({grant.job for grant in cell.granted} - {*outcomes(cell)})


def end(cell, name, outcome="succeeded"):
    """Ends a job that has been granted its one task."""
    grant = next(each for each in reversed(cell.granted) if each.job == name)
    if outcome == "cancelled":
        cell.cancel(name)
    elif outcome == "succeeded":
        cell.finish(grant)
    else:
        cell.fail(grant)
    cell.settle()


# ---------------------------------------------------------------- what is read
def test_a_job_names_those_that_it_comes_after():
    document = {"job": "b", "stages": [STAGE], "after_jobs": [{"job": "a"}, {"job": "c", "on": "any"}]}
    spec = read_job(document, "")
    assert spec.after_jobs == [JobDependency("a", "success"), JobDependency("c", "any")]
    assert read_job(job_document(spec), "") == spec


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([{"job": "b"}], "after_jobs[0].job: is this job itself"),
        ([{"job": "a"}, {"job": "a", "on": "any"}], 'after_jobs[1].job: "a" is named twice'),
        ([{"job": "a", "on": "succes"}], "after_jobs[0].on: has to be one of"),
    ],
)
def test_what_is_wrong_with_it(said, reason):
    with pytest.raises(Malformed) as caught:
        read_job({"job": "b", "stages": [STAGE], "after_jobs": said}, "")
    assert str(caught.value).startswith(reason)


def test_a_router_and_a_workload_take_no_such_job():
    waits = {"job": "b", "stages": [STAGE], "after_jobs": [{"job": "a"}]}
    with pytest.raises(Malformed, match="names jobs of one cell: send the job there"):
        read_job({"route": waits, "before_ms": 5}, "")
    timed = {**waits, "submit_ms": 0, "stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": 1}, "duration_ms": 1}]}
    with pytest.raises(Malformed, match="after_jobs: jobs of a workload come when"):
        read_workload_line(timed)


def test_specs_without_it_keep_the_name_that_they_had():
    """As this was computed before the field was there."""
    assert digest_of(job("j", stage(max_failed=1))) == "e46643c3adadf653dd53fa87ae3c4453"
    assert len({digest_of(each) for each in (after("j"), after("j", "a"), after("j", "a", on="any"))}) == 3


# ---------------------------------------------------------------- what is admitted
def test_a_job_waits_until_the_other_has_ended(cell):
    cell.take(job("a", stage(tasks=1)), after("b", "a"))
    cell.settle()
    assert runs(cell) == ["a"]
    admitted = cell.records[2].body
    assert (admitted.waits_for, admitted.spec.hold, admitted.held) == (["a"], True, False)
    assert decode(encode(cell.records[2])).body.submitted == after("b", "a")
    end(cell, "a")
    assert runs(cell) == ["b"]
    release = [each.body for each in cell.records if isinstance(each.body, JobChanged)]
    assert [(each.job, each.hold, each.author) for each in release] == [("b", False, "sequencer")]


@pytest.mark.parametrize(
    ("on", "outcome", "then"),
    [
        ("success", "succeeded", "runs"),
        ("success", "failed", 'job "a" has ended as failed, and this one comes after its success'),
        ("success", "cancelled", 'job "a" has ended as cancelled, and this one comes after its success'),
        ("failure", "failed", "runs"),
        ("failure", "cancelled", "runs"),
        ("failure", "succeeded", 'job "a" has ended as succeeded, and this one comes after its failure'),
        ("any", "succeeded", "runs"),
        ("any", "failed", "runs"),
    ],
)
def test_how_the_other_ends_decides(cell, on, outcome, then):
    cell.take(job("a", stage(tasks=1)), after("b", "a", on=on), after("c", "b"))
    cell.settle()
    end(cell, "a", outcome)
    if then == "runs":
        assert runs(cell) == ["b"]
        return
    ends = [end for each in cell.records if isinstance(each.body, JobEnded) for end in each.body.jobs]
    assert [(each.job, each.outcome) for each in ends] == [("a", outcome), ("b", "cancelled"), ("c", "cancelled")]
    assert ends[1].detail == then
    assert cell.admission.waits == cell.admission.waited_by == {}


def test_what_can_run_no_more_stays_held_where_it_says_so(cell):
    cell.take(job("a", stage(tasks=1)), after("b", "a", on_unmet="hold"))
    cell.settle()
    end(cell, "a", "failed")
    assert runs(cell) == []
    assert cell.take(JobChanged("b", hold=False)).hold is False
    cell.settle()
    assert runs(cell) == ["b"]


def test_a_job_that_has_ended_counts(cell):
    cell.take(job("a", stage(tasks=1)))
    cell.settle()
    end(cell, "a")
    assert cell.take(after("b", "a")).waits_for == []
    refused = cell.take(after("c", "a", on="failure"))
    assert (refused.reason, refused.field) == (
        'job "a" has ended as succeeded, and this one comes after its failure',
        "after_jobs[0].job",
    )
    cell.settle()
    assert runs(cell) == ["b"]


def test_an_unknown_job_is_refused_with_the_nearest_name(cell):
    cell.take(job("load", stage(tasks=1)))
    refused = cell.take(after("b", "laod"))
    assert isinstance(refused, InputRefused)
    assert refused.reason == 'no job "laod" is known here: did you mean "load"?'
    assert "submit that first" in cell.take(after("b", "zzzzzz")).reason


# ---------------------------------------------------------------- beside other changes
def test_a_user_cannot_release_what_waits_and_a_hold_besides_stays(cell):
    cell.take(job("a", stage(tasks=1)), after("b", "a", hold=True), after("c", "a"))
    refused = cell.take(JobChanged("c", hold=False))
    assert isinstance(refused, InputRefused)
    assert refused.reason == 'it comes after "a", and is released when that has ended'
    cell.take(JobChanged("c", hold=True))
    cell.settle()
    end(cell, "a")
    assert runs(cell) == []
    cell.take(JobChanged("b", hold=False), JobChanged("c", hold=False))
    cell.settle()
    assert runs(cell) == ["b", "c"]


def test_a_resubmission_is_a_repetition_and_a_rerun_waits_again(cell):
    cell.take(job("a", stage(tasks=1)), after("b", "a"))
    assert isinstance(cell.take(after("b", "a")), InputRepeated)
    cell.settle()
    end(cell, "a")
    end(cell, "b")
    assert isinstance(cell.take(after("b", "a")), InputRepeated)
    cell.take(JobRerun(job("a", stage(tasks=1))))
    again = cell.take(JobRerun(after("b", "a")))
    assert isinstance(again, JobAdmitted)
    assert (again.run, again.waits_for) == (2, ["a"])
    cell.settle()
    assert runs(cell) == []  # Both have ended before: the grant that counts is the new one.
    end(cell, "a")
    assert cell.granted[-1].job == "b"


def test_what_is_waited_for_and_what_waits_do_not_move(cell):
    cell.take(job("a", stage(tasks=1)), after("b", "a"))
    for name, why in (("a", "is one that other jobs come after"), ("b", "was changed")):
        refused = cell.take(JobCancelled(name, AUTHOR, if_unstarted=True, moved_to="x"))
        assert why in refused.reason


def test_a_job_that_waits_can_be_cancelled(cell):
    cell.take(job("a", stage(tasks=1)), after("b", "a"))
    cell.cancel("b")
    cell.settle()
    assert (cell.admission.waits, cell.admission.waited_by) == ({}, {})
    end(cell, "a")
    assert runs(cell) == []


def test_why_and_get_job_name_the_others():
    watched = Watched(cpu=9).submit("a", stage("s"))
    watched.take(after("b", "a")).settle()
    assert watched.why("b") == [("held", 1)]
    assert watched.job("b")["why"] == "comes after a (success)"
    assert watched.job("b")["held"]["by"] == "after_jobs"


# ---------------------------------------------------------------- laws, against looking at everything each time
ACTIONS = st.lists(
    st.tuples(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=3, unique=True), st.integers(0, 8)), max_size=14
)


def settled(live, ends):
    """What follows from ends of jobs, by looking at all of them until nothing changes: who is cancelled, who runs."""
    while True:
        unmet = [
            name
            for name, spec in live.items()
            if any(each.job in ends and not met(each.on, ends[each.job]) for each in spec.after_jobs)
        ]
        if not unmet:
            break
        for name in unmet:
            ends[name] = "cancelled"
            del live[name]
    return sorted(name for name, spec in live.items() if all(each.job in ends for each in spec.after_jobs))


def met(on, outcome):
    return {"success": outcome == "succeeded", "failure": outcome != "succeeded", "any": True}[on]


@given(ACTIONS)
def test_jobs_run_and_end_as_looking_at_all_of_them_says(actions):
    cell = SlowCell()
    cell.take(node(cpu=99_000))
    live: dict[str, JobSpec] = {}
    ends: dict[str, str] = {}
    for number, (which, others, what) in enumerate(actions):
        running = settled(live, ends)
        if what < 4 and running:
            name, outcome = running[which % len(running)], ("succeeded", "failed", "cancelled", "succeeded")[what]
            end(cell, name, outcome)
            ends[name] = outcome
            del live[name]
        elif what < 6 and live:
            name = sorted(live)[which % len(live)]
            cell.cancel(name)
            cell.settle()
            ends[name] = "cancelled"
            del live[name]
        else:
            known = sorted({*live, *ends})
            on = ("success", "failure", "any")[what % 3]
            spec = after(f"j{number}", *{known[each % len(known)]: True for each in others if known}, on=on)
            taken = isinstance(cell.take(spec), JobAdmitted)
            cell.settle()
            assert taken == all(each.job in live or met(on, ends[each.job]) for each in spec.after_jobs)
            if taken:
                live[spec.job] = spec
        assert runs(cell) == settled(live, ends)
        assert outcomes(cell) == ends
        assert sorted(cell.admission.waits) == sorted({*live} - {*runs(cell)})
