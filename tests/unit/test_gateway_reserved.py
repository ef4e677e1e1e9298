"""Why tasks of reserved jobs wait, and which reservation a job names, as the gateway shows them."""

import json

import pytest
from hypothesis import strategies as st

from largesse.log.snapshots import dump, load
from schemas import Plans, ReservationRequested
from schemas.plans import PlanAnswer
from schemas.quantities import quantity_texts
from services.cli.watching import job_text
from services.fairness.offline.dry_run import effect
from services.gateway import view
from services.gateway.documents.job_lists import job_documents
from services.gateway.documents.jobs import job_document
from services.gateway.documents.models.jobs import Job
from services.gateway.documents.queues import queue_document
from services.gateway.documents.reserved_waits import unpromised_warnings
from services.gateway.documents.tally import Tally
from services.gateway.http.dry_runs.config import compared, config_of, question_of
from services.gateway.http.dry_runs.reservations import is_live
from tests.builders import config, job, node, queue, stage, tree
from tests.promised_cell import promise, reserved, step
from tests.strategies import for_all
from tests.unit.test_gateway_metrics import Viewed, assert_as_documents_say, named, samples


class PlannedView(Viewed):
    """A cell with the gateway's view of it, in which the test is the planner."""

    def __init__(self):
        super().__init__()
        del self.states["planner"]

    def _ask(self, name, *asked):
        return [] if name == "planner" else super()._ask(name, *asked)


def cell(*steps, cpu=4_000, order=(), **knobs):
    """A cell with one node and an accepted reservation with these leases."""
    story = PlannedView()
    story.take(config(tree("a", "b"), **({"preset": "hdrf", "revoke_grace_ms": 1_000} | knobs)), node("n1", cpu=cpu))
    story.put(ReservationRequested("r", "", "{}", "tester", "a"))
    story.put(Plans(1, [PlanAnswer("r", accepted=True)], [], []))
    return promise(story, *steps, order=order)


def why(story, name):
    """What tasks of a job of one stage wait for: (reason, tasks), and the last text."""
    (each,) = job_document(story.view, name)["stages"]
    return [(reason["reason"], reason["tasks"]) for reason in each["why"]], each["why"][-1]["text"]


def test_before_its_lease_a_reserved_job_waits_for_that_and_knows_when_it_begins():
    story = cell(step(1_800_000_000_000, 1_800_000_060_000, 2))
    story.take(job("other", stage(tasks=9), queue="b"), reserved("mine", stage(tasks=3)))
    story.settle()

    assert why(story, "mine") == ([("lease", 3)], "waits for its lease, which begins at 2027-01-15T08:00:00Z")


def test_before_the_first_round_it_is_considered_in_the_next_one():
    story = cell(step(0, 60_000, 2))
    story.take(reserved("mine", stage(tasks=3)))

    assert why(story, "mine")[0] == [("next_round", 3)]


def test_while_the_first_round_that_sees_it_is_open_nothing_holds_it_back_yet():
    story = cell(step(1_800_000_000_000, 1_800_000_060_000, 2))
    story.take(reserved("mine", stage(tasks=9)))
    assert story.open()
    assert why(story, "mine")[0] == [("next_round", 9)]

    story.close()
    assert why(story, "mine")[0] == [("lease", 5)]


def test_tasks_beyond_a_promise_wait_because_it_is_in_use():
    story = cell(step(0, 60_000, 2))
    story.take(job("other", stage(tasks=9), queue="b"), reserved("mine", stage(tasks=5)))
    story.settle()

    reasons, text = why(story, "mine")
    assert reasons == [("promise_used", 3)]
    assert "reservation r promises now is in use" in text


def test_a_task_that_asks_for_what_was_not_reserved_says_so_when_it_is_submitted_and_while_it_waits():
    story = cell(step(0, 60_000, 2, memory=0))
    story.take(job("other", stage(tasks=4), queue="b"), reserved("mine", stage(tasks=5, memory=1_024)))
    story.settle()

    explanation = "asks for memory, which reservation r does not promise (its atoms do not name it in b)"
    reasons, text = why(story, "mine")
    assert (reasons[0][0], text) == ("promise_used", f"{explanation}; it may have what is free")
    document = {"reservation": "r", "stages": [{"demand": {"cpu": 1}}, {"demand": {"memory": "1Mi", "disk": 0}}]}
    assert unpromised_warnings(story.view.reservations, document) == [
        f"stages[1].demand: {explanation}: its tasks will not run inside the promise"
    ]
    assert unpromised_warnings(story.view.reservations, document | {"reservation": "another"}) == []
    assert unpromised_warnings(story.view.reservations, {"stages": document["stages"]}) == []


def test_a_gang_waits_for_a_promise_that_covers_all_of_it():
    story = cell(step(0, 60_000, 4))
    story.take(reserved("first", stage(tasks=1)), reserved("second", stage(tasks=4, gang=True)))
    story.settle()
    assert why(story, "second")[0] == [("promise_used", 4)]


def test_what_is_promised_and_finds_no_room_waits_for_room():
    story = cell()
    story.take(job("other", stage(tasks=4, duration_ms=90_000), queue="b"))
    story.settle()
    promise(story, step(0, 60_000, 2))
    story.take(reserved("mine", stage(tasks=2)))
    story.settle()

    reasons, text = why(story, "mine")
    assert reasons == [("no_room", 2)]
    assert text == "there is no room yet for what reservation r promises"


def test_the_part_that_a_job_is_bound_to_counts_and_not_the_others():
    story = cell(step(0, 60_000, 1, atom="0"), step(1_800_000_000_000, 1_800_000_060_000, 2, atom="1"), cpu=1_000)
    story.take(reserved("early", stage(tasks=2), part="0"), reserved("late", stage(tasks=1), part="1"))
    story.settle()

    assert why(story, "early")[0] == [("promise_used", 1)]
    assert why(story, "late")[0] == [("lease", 1)]


def test_a_later_part_waits_for_jobs_of_the_earlier_one():
    steps = step(0, 60_000, 1, atom="0"), step(0, 60_000, 1, atom="1")
    story = cell(*steps, order=[("1", ["0"])])
    story.take(reserved("first", stage(), part="0"), reserved("second", stage(), part="1"))
    story.settle()

    assert why(story, "second") == (
        [("lease", 1)],
        "waits for job first, which an earlier part of its reservation is for",
    )
    story.finish(*story.granted)
    story.settle()
    assert job_document(story.view, "second")["tasks"]["starting"] == 1


def test_after_its_last_lease_a_job_has_what_nobody_else_can_use():
    story = cell(step(0, 1_000, 1))
    story.take(job("other", stage(tasks=9, duration_ms=90_000), queue="b"), reserved("mine", stage(tasks=3)))
    story.settle()
    story.at(2_000).finish(*[grant for grant in story.granted if grant.job == "mine"])
    story.settle()

    reasons, text = why(story, "mine")
    assert reasons == [("promise_used", 2)]
    assert text.startswith("all leases of reservation r are over")


@pytest.mark.parametrize("how", ["off", "gone", "never"])
def test_a_job_whose_reservation_is_not_in_force_waits_like_any_other(how):
    story = cell(step(0, 60_000, 2), cpu=1_000)
    story.put(ReservationRequested("x", "", "{}", "tester", "a"))
    name = "x" if how == "never" else "r"
    story.take(job("other", stage(tasks=2), queue="a"), reserved("mine", stage(tasks=2), reservation=name))
    if how == "off":
        story.take(config(reservations="off"))
    else:
        promise(story, gone=["r"])
    story.settle()

    assert why(story, "mine")[0] == [("no_room", 2)]
    assert why(story, "mine")[1].startswith("no node has room for it now; ")


def test_metrics_follow_the_reasons_as_time_and_other_jobs_go_on():
    story, tally = cell(step(5_000, 60_000, 2)), Tally()
    story.take(job("other", stage(tasks=9, duration_ms=90_000), queue="b"))
    story.settle()
    for moment, name in ((0, "mine"), (1_000, "more"), (5_000, "third"), (9_000, "fourth")):
        story.at(moment).take(reserved(name, stage(tasks=2)))
        assert_as_documents_say(tally, story.view)
        story.settle()
        assert_as_documents_say(tally, story.view)
    story.finish(*[grant for grant in story.granted if grant.job == "mine"])
    assert_as_documents_say(tally, story.view)
    promise(story, gone=["r"])
    story.settle()
    assert_as_documents_say(tally, story.view)


def test_a_job_names_its_reservation_and_part_while_it_lives_and_after():
    story = cell(step(0, 60_000, 2))
    story.take(reserved("mine", stage(), part="0"), job("other", stage(), queue="b"))
    story.settle()

    def named():
        found = {each["job"]: each for each in job_documents(story.view, limit=9)}
        return [(found[name]["reservation"], found[name]["reservation_atom"]) for name in ("mine", "other")]

    assert named() == [("r", "0"), (None, "")]
    assert "reservation  r, part 0" in job_text(job_document(story.view, "mine"))
    assert "reservation" not in job_text(job_document(story.view, "other"))
    assert story.view.reserving == {"r": {"mine": True}}
    Job.model_validate(job_document(story.view, "mine"))
    story.finish(*story.granted)
    story.settle()
    assert named() == [("r", "0"), (None, "")]
    Job.model_validate(job_document(story.view, "mine"))
    assert story.view.reserving == {}


def test_a_view_that_is_restored_says_the_same():
    story = cell(step(0, 60_000, 1), step(0, 60_000, 1, atom="1"), order=[("1", ["0"])], cpu=1_000)
    story.take(reserved("first", stage(tasks=3), part="0"), reserved("second", stage(), part="1"))
    story.settle()
    before = [why(story, name) for name in ("first", "second")]

    story.view = load(view.State, dump(story.view))

    assert [why(story, name) for name in ("first", "second")] == before


def test_queues_show_what_is_promised_to_their_reservations_now():
    story = cell(step(0, 60_000, 2), step(70_000, 80_000, 1))
    usage = quantity_texts(story.view.reservations["r"].steps[0].usage)
    found = {queue["queue"]: queue["promised"] for queue in queue_document(story.view)["children"]}

    assert usage
    assert (found["a"], found["b"]) == (usage, {})
    assert queue_document(story.view)["promised"] == usage

    story.view.time = 60_000
    assert queue_document(story.view)["promised"] == {}


def test_what_a_queue_holds_of_a_promise_is_not_borrowed():
    story = cell(step(0, 600_000, 2))
    story.take(reserved("mine", stage(tasks=2)))
    story.settle()

    (queue,) = (each for each in queue_document(story.view)["children"] if each["queue"] == "a")
    assert queue["allocated"] > queue["guaranteed"]
    assert queue["borrowed"] == 0


def test_what_a_queue_has_is_a_part_of_the_whole_cell_in_documents_and_metrics():
    story = cell(step(0, 60_000, 4), cpu=5_000)
    story.take(reserved("mine", stage(tasks=4)), job("free", stage(tasks=1), queue="b"))
    story.settle()
    tree = queue_document(story.view)
    has = {each["queue"]: each["allocated"] for each in tree["children"]}
    metric = named(samples(story.view), "largesse_queue_allocated_share", "queue")

    assert has["a"] == 0.8
    assert {queue: metric[queue] for queue in ("a", "b")} == {queue: has[queue] for queue in ("a", "b")}


@for_all(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6), st.sampled_from(["hdrf", "largesse", "capacity"]))
def test_a_dry_run_begins_with_what_get_queues_shows_while_capacity_is_promised(units, tasks, others, preset):
    """Promised cores are not divided, and those who hold them by their promise ask for nothing of the rest."""
    story = cell(*([step(0, 600_000, units)] if units else []), cpu=5_000, preset=preset)
    story.take(reserved("mine", stage(tasks=2)), job("more", stage(tasks=tasks + 1), queue="a"))
    story.take(job("other", stage(tasks=others + 1), queue="b"))
    story.settle()
    shown = {each["queue"]: each for each in queue_document(story.view)["children"]}
    heavier = tree("a", queue("b", 4))
    now, then = [config_of(story.view, story.view.policy, shape) for shape in (story.view.queues, heavier)]

    answer = effect(json.loads(json.dumps(question_of(story.view, now, then))))
    told = {each["queue"]: each["before"] for each in compared(now, then, answer)}

    assert told
    for path, before in told.items():
        for name in ("guaranteed", "fair", "allocated", "lent", "borrowed"):
            assert before[name] == pytest.approx(shown[path][name], abs=0.002), (path, name)


def test_a_broken_promise_stays_until_it_is_tried_no_more():
    story = cell(step(0, 60_000, 1))
    broken = PlanAnswer("r", accepted=False, reason="broken", detail="why", retry_until_ms=90_000)
    story.put(Plans(2, [broken], [], ["r"]))
    row = story.view.reservations["r"]
    assert (row.state, row.retry_until_ms) == ("broken", 90_000)
    assert is_live(row)

    story.put(Plans(3, [PlanAnswer("r", accepted=False, reason="broken", detail="still", retry_until_ms=90_000)]))
    assert row.answer.detail == "still"
    assert "r" not in story.view.reservations_over
    story.put(Plans(4, [], [], ["r"]))
    assert (row.state, row.retry_until_ms) == ("broken", None)
    assert "r" in story.view.reservations_over
    assert not is_live(row)


def test_a_restored_promise_is_accepted_again_and_its_jobs_stand_outside_the_tree():
    story = cell(step(0, 60_000, 1))
    story.take(reserved("mine", stage(tasks=3)))
    story.put(Plans(2, [PlanAnswer("r", accepted=False, reason="broken", retry_until_ms=90_000)], [], ["r"]))
    story.take(reserved("later", stage(tasks=1)))
    assert story.admission.reservations["r"].accepted is False
    assert {"mine", "later"} <= story.view.jobs.keys()

    story.put(Plans(3, [PlanAnswer("r", accepted=True, reason="moved")]))
    promise(story, step(0, 60_000, 1))
    row = story.view.reservations["r"]
    assert (row.state, row.restored, row.moved, row.answer.accepted) == ("accepted", 1, 0, True)
    assert story.admission.reservations["r"].accepted


def test_admission_forgets_a_broken_promise_once_it_is_tried_no_more():
    story = cell(step(0, 60_000, 1))
    story.put(Plans(2, [PlanAnswer("r", accepted=False, reason="broken", retry_until_ms=90_000)], [], ["r"]))
    assert "r" in story.admission.reservations
    story.put(Plans(3, [], [], ["r"]))
    assert "r" not in story.admission.reservations
