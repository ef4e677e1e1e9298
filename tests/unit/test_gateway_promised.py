"""What users read of promises to others: why their tasks do not start, and for whom they are taken back."""

import pytest

from services.cli.watching import job_text
from services.gateway.documents.jobs import job_document
from services.gateway.documents.models.jobs import Job
from services.gateway.documents.tally import Tally
from tests.builders import job, stage
from tests.promised_cell import GRACE, HOUR, advance, give_back, lasting, reserved, step, unestimated
from tests.unit.test_gateway_metrics import assert_as_documents_say
from tests.unit.test_gateway_reserved import cell, why

MINUTE = 60_000


def test_what_cannot_end_before_a_lease_names_it_and_when_there_is_a_gap():
    story = cell(*[step(at * HOUR, at * HOUR + MINUTE, 4) for at in (1, 2, 5)])
    story.take(
        job("long", stage(duration_ms=2 * HOUR), queue="b"), job("longer", stage(duration_ms=4 * HOUR), queue="b")
    )
    story.settle()

    head = "room is promised to r from 1970-01-01T01:00:00Z until 1970-01-01T01:01:00Z, and a task takes"
    assert why(story, "long") == (
        [("promised", 1)],
        f"{head} 2 h; the first gap that is long enough begins at 1970-01-01T02:01:00Z",
    )
    assert why(story, "longer")[1] == f"{head} 4 h; no gap in what is promised by now is long enough"


def test_what_waits_behind_a_lease_in_use_names_it_and_when_it_ends():
    story = cell(step(0, HOUR, 4))
    story.take(reserved("mine", stage(tasks=4)))
    story.settle()
    story.take(job("other", stage(tasks=2, duration_ms=MINUTE), queue="b"))
    story.settle()

    assert why(story, "other") == ([("promised", 2)], "room is promised to r until 1970-01-01T01:00:00Z")


def test_what_waits_for_room_that_nobody_was_promised_does_not():
    story = cell(step(0, HOUR, 1))
    story.take(reserved("mine", stage(tasks=1)), job("old", stage(tasks=3, duration_ms=MINUTE), queue="b"))
    story.settle()
    story.take(job("wide", stage(cpu=3_000, duration_ms=MINUTE), queue="b"))
    story.settle()

    assert why(story, "wide")[0] == [("no_room", 1)]


def test_a_job_that_may_be_taken_back_says_until_when_and_by_whom_and_then_for_whom_it_was():
    story = cell(step(HOUR, HOUR + MINUTE, 4))
    story.take(lasting("long", stage(tasks=4, duration_ms=2 * HOUR), queue="b"))
    story.settle()

    document = job_document(story.view, "long")
    Job.model_validate(document)
    (shown,) = document["stages"]
    text = "revocable until 1970-01-01T01:01:00Z by r"
    assert shown["revocable"] == {
        "tasks": 4, "reservation": "r", "from_ms": HOUR, "until_ms": HOUR + MINUTE, "text": text,
    }  # fmt: skip
    assert "4 tasks revocable until" in job_text(document)

    story.take(reserved("mine", stage(tasks=4)))
    advance(story, HOUR - GRACE)
    give_back(story)
    story.settle()

    document = job_document(story.view, "long")
    assert document["stages"][0]["revocable"] is None
    assert {(each["reason"], each["detail"]) for each in document["failures"]} == {
        ("revoked", "its room was promised to r")
    }


def test_a_lease_that_is_over_or_was_given_back_takes_nothing_back():
    def shown(story):
        return job_document(story.view, "long")["stages"][0]["revocable"]

    story = cell(step(HOUR, HOUR + MINUTE, 4))
    story.take(lasting("long", stage(tasks=4, duration_ms=2 * HOUR), queue="b"))
    story.settle()
    assert shown(story)["tasks"] == 4
    story.view.reservations["r"].state = "deleted"
    assert shown(story) is None
    story.view.reservations["r"].state = "accepted"
    story.at(HOUR + MINUTE)
    story.take(job("later", stage(cpu=4_000), queue="b"))
    assert shown(story) is None


def test_repeated_revocations_are_counted():
    story = cell(step(2 * MINUTE, HOUR, 4), step(HOUR + MINUTE, 2 * HOUR, 4))
    story.take(unestimated("open", tasks=4))
    story.settle()
    story.take(reserved("mine", stage(tasks=4, duration_ms=MINUTE)))
    advance(story, 2 * MINUTE - GRACE)
    give_back(story)
    advance(story, HOUR)
    story.finish(*[grant for grant in story.granted if grant.job == "mine"])
    story.settle()

    assert "tasks were taken back 1 time: the next needs 2 min 59 s" in why(story, "open")[1]


@pytest.mark.parametrize("kind", ["lease ahead", "lease in use"])
def test_metrics_count_what_documents_say(kind):
    story = cell(step(HOUR if kind == "lease ahead" else 0, 2 * HOUR, 4))
    if kind == "lease in use":
        story.take(reserved("mine", stage(tasks=4)))
        story.settle()
    story.take(job("long", stage(tasks=3, duration_ms=3 * HOUR), queue="b"))
    story.settle()

    assert why(story, "long")[0] == [("promised", 3)]
    assert_as_documents_say(Tally(), story.view)
