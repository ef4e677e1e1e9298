"""Admission in stories: what becomes of each input."""

from typing import get_args

import pytest

from schemas import (
    ConfigChanged,
    Grant,
    InputRefused,
    InputRepeated,
    JobAdmitted,
    JobCancelled,
    JobRejected,
    Policy,
    Queue,
    ReservationRequested,
)
from schemas.edge.read import ConfigPatch
from schemas.sharing import LIST_POLICIES, Sharing
from services.admission.core import judge as core_judge
from services.admission.core.keys import digest_of
from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import AUTHOR, SlowCell, indexes, one_node_cell, running_cell
from tests.config_messages import CONTRADICTIONS

DAY_MS = 24 * 3_600_000


# ---------------------------------------------------------------- jobs
def test_a_job_is_admitted_with_its_class_and_the_capacity_it_was_judged_by():
    admitted = one_node_cell().take(job("j", stage(cpu=4_000)))

    assert isinstance(admitted, JobAdmitted)
    assert (admitted.job_class, admitted.reference, admitted.author) == (1, "total", AUTHOR)


def test_the_same_submission_again_is_answered_and_changes_nothing():
    story = one_node_cell(job("j"))

    assert story.take(job("j")) == InputRepeated("j", AUTHOR)
    assert story.settle() == [Grant("j", "map", 0, 1, 1, "n1", "e1")]
    assert story.take(job("j")) == InputRepeated("j", AUTHOR)


def test_another_job_of_a_taken_name_is_rejected():
    rejected = one_node_cell(job("j")).take(job("j", stage(tasks=2)))

    assert isinstance(rejected, JobRejected)
    assert (rejected.reason, rejected.field) == ("name_taken", "job")


@pytest.mark.parametrize(
    ("later_ms", "repeat", "other"),
    [
        pytest.param(0, InputRepeated, JobRejected, id="at once"),
        pytest.param(7 * DAY_MS, InputRepeated, JobRejected, id="seven days later"),
        pytest.param(7 * DAY_MS + 1, JobAdmitted, JobAdmitted, id="when seven days have gone by"),
    ],
)
def test_a_name_stays_taken_for_seven_days_after_its_jobs_end(later_ms, repeat, other):
    def ended():
        story = running_cell(job("j"))
        story.finish(*story.granted)
        story.settle()
        assert story.ended() == {"j": "succeeded"}
        return story.at(later_ms)

    assert type(ended().take(job("j"))) is repeat
    assert type(ended().take(job("j", stage(tasks=2)))) is other


def test_a_name_comes_free_although_nothing_else_ever_happened():
    story = running_cell(job("j"))
    story.cancel("j")
    story.settle()
    story.fail(*story.granted, reason="killed")

    story.at(8 * DAY_MS).take(job("j"))

    assert story.settle() == [Grant("j", "map", 0, 1, 1, "n1", "e1")]


def test_a_name_is_not_free_while_attempts_of_its_old_job_hold_room():
    story = one_node_cell(config(name_kept_ms=0), job("j", stage(tasks=2)))
    first = story.settle()
    story.cancel("j")
    story.settle()

    assert story.ended() == {"j": "cancelled"}
    assert type(story.at(1_000).take(job("j", stage(tasks=2)))) is InputRepeated
    assert story.take(job("j", stage(tasks=3))).reason == "name_taken"

    story.fail(single(first[0], 0), reason="killed")
    assert story.take(job("j", stage(tasks=3))).reason == "name_taken"

    story.finish(single(first[0], 1))
    assert type(story.take(job("j", stage(tasks=3)))) is JobAdmitted
    assert indexes(story.settle()) == [("map", 0), ("map", 1), ("map", 2)]


def test_a_spec_that_was_kept_is_recognised_by_every_python():
    unknown_to_some = "\U0001fae8"  # Assigned in Unicode 15, which Python 3.11 does not have.
    assert digest_of(job(unknown_to_some, stage(memory=1_024))) == "19393adeebc0cd797e08bd54e5268a04"
    assert digest_of(job("j")) != digest_of(job("j", stage(tasks=2)))


def test_names_are_forgotten_when_their_time_is_over():
    story = one_node_cell(config(name_kept_ms=1_000))
    for i in range(5):
        story.at(i * 1_000).take(job(f"j{i}"))
        story.finish(*story.settle())
        story.settle()

    assert list(story.admission.ended) == ["j3", "j4"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param("ads/prodd", 'is not in the tree; the nearest name is "ads/prod"', id="a slip of the pen"),
        pytest.param("ads", "has queues below it; name one of those: ads/prod, ads/test", id="an inner queue"),
        pytest.param("defualt", 'is not in the tree; the nearest name is "default"', id="the default one misspelt"),
        pytest.param("zzz", "is not in the tree; there is ads/prod, ads/test, ml, default", id="nothing like it"),
    ],
)
def test_a_queue_that_cannot_hold_jobs_is_named_with_the_nearest(asked, said):
    story = one_node_cell(config(tree(queue("ads", 60, "prod", "test"), queue("ml"))))

    rejected = story.take(job("j", queue=asked))

    assert (rejected.reason, rejected.field) == ("unknown_queue", "queue")
    assert said in rejected.detail
    assert f'queue "{asked}"' in rejected.detail


def test_without_a_tree_any_queue_will_do():
    assert isinstance(one_node_cell().take(job("j", queue="wherever/that/is")), JobAdmitted)


def test_the_default_queue_is_there_with_weight_one_and_gets_its_share_and_no_more():
    story = one_node_cell(config(tree(queue("a", 3))))
    story.take(job("mine", stage(tasks=9), queue="a"), job("any", stage(tasks=9)))

    assert sorted(grant.count for grant in story.settle() if grant.job == "mine") == [3]
    levels = {level.queue: level.target for level in story.bodies_of("Shares")[0].levels}
    assert levels == {"a": 750_000_000, "default": 250_000_000}


def test_a_tree_that_is_in_force_already_makes_no_record():
    story = one_node_cell()
    assert isinstance(story.take(config(tree(queue("a")))), ConfigChanged)
    assert story.take(config(tree(queue("a")))) is None


def test_knobs_change_one_by_one_and_a_knob_at_its_value_is_no_record():
    story = one_node_cell()
    assert story.take(config(round_gap_ms=5)).policy.round_gap_ms == 5
    assert story.take(config(seed=7)).policy.round_gap_ms == 5
    assert story.take(config(seed=7)) is None


@pytest.mark.parametrize(
    ("before", "policy"),
    [
        pytest.param([], {"seed": 7}, id="nothing was set"),
        pytest.param([config(round_gap_ms=5)], None, id="a knob was set"),
        pytest.param([config(tree("ads"))], None, id="queues were set"),
        pytest.param([config(round_gap_ms=5), config(round_gap_ms=0)], None, id="what was set was taken back"),
    ],
)
def test_an_initial_config_counts_only_where_nothing_was_set_before(before, policy):
    changed = one_node_cell(*before).take(ConfigPatch({"seed": 7}, None, initial=True))

    assert changed == (None if policy is None else ConfigChanged(Policy(**policy), None, AUTHOR))


@pytest.mark.parametrize(("knobs", "field", "reason"), CONTRADICTIONS)
def test_knobs_that_would_contradict_each_other_are_refused(knobs, field, reason):
    refused = one_node_cell().take(ConfigPatch(knobs, None))

    assert isinstance(refused, InputRefused)
    assert (refused.field, refused.reason) == (f"set.{field}", reason)


LISTED = tree(Queue("ads", children=[Queue("prod", policy="fifo"), Queue("test")]), "ml")


def test_a_tree_whose_queues_order_their_jobs_is_refused_under_a_preset_that_plans_all_jobs_together():
    refused = one_node_cell(config(preset="carbyne")).take(config(LISTED))

    assert isinstance(refused, InputRefused)
    assert refused.field == "queues"
    assert 'queue "ads/prod" has the policy fifo, which does not count under the preset carbyne' in refused.reason


def test_such_a_preset_is_refused_where_a_queue_orders_its_jobs():
    story = one_node_cell(config(LISTED))

    refused = story.take(config(preset="carbyne-dag"))
    assert isinstance(refused, InputRefused)
    assert (refused.field, "ads/prod" in refused.reason) == ("set.preset", True)
    assert isinstance(story.take(config(preset="hdrf")), ConfigChanged)
    assert isinstance(story.take(config(tree("ads"), preset="carbyne")), ConfigChanged), "both at once"
    assert isinstance(story.take(config(preset="drf")), ConfigChanged)
    assert isinstance(story.take(config(LISTED)), ConfigChanged)
    story.admission.policy.preset = "carbyne"  # As a log of an earlier version may have it.
    assert isinstance(story.take(config(seed=7)), ConfigChanged)


@pytest.mark.parametrize("sharing", get_args(Sharing))
def test_policies_among_queues_count_where_jobs_are_planned(sharing):
    """All that fairness fills from directions of work; those by what queues hold, or that order jobs, do not."""
    taken = one_node_cell(config(preset="carbyne")).take(
        config(tree(Queue("in", policy=sharing, children=[Queue("a")])))
    )

    assert isinstance(taken, ConfigChanged) == (sharing not in (*LIST_POLICIES, "naive-hdrf", "capacity"))


def test_knobs_are_judged_by_what_they_come_to_and_only_when_they_change():
    story = one_node_cell(config(theta_permille=300, class_thresholds_permille=[400]))

    assert isinstance(story.take(config(theta_permille=400)), InputRefused)
    assert isinstance(story.take(config(theta_permille=399)), ConfigChanged)
    assert isinstance(story.take(config(theta_permille=400, class_thresholds_permille=[401])), ConfigChanged)
    assert isinstance(story.take(config(reserve_ratio_permille_min=500)), ConfigChanged)
    assert isinstance(story.take(config(reserve_ratio_permille_min=501)), InputRefused)
    story.admission.policy.reserve_ratio_permille_min = 700  # As a log of an earlier version may have it.
    assert isinstance(story.take(config(seed=7)), ConfigChanged)


TOO_LARGE = [
    pytest.param(
        {"cpu": 9_000, "memory": 1_024},
        {},
        "stages[0].demand",
        "one task asks for cpu 9, memory 1Gi; the largest node that could take it, big, has cpu 8, memory 4Gi",
        id="the node that comes nearest is named",
    ),
    pytest.param(
        {"cpu": 5_000, "memory": 8_192},
        {},
        "stages[0].demand",
        "n1, has cpu 4, memory 16Gi",
        id="not all of it on one node",
    ),
    pytest.param(
        {"cpu": 5_000}, {"zone": "a"}, "stages[0].demand", "n1, has", id="only nodes with the labels are looked at"
    ),
    pytest.param({"cpu": 1}, {"zone": "c"}, "stages[0].labels", "no node has the labels zone=c", id="no such label"),
]


@pytest.mark.parametrize(("demand", "labels", "field", "said"), TOO_LARGE)
def test_what_no_node_can_hold_is_rejected_with_the_largest_node(demand, labels, field, said):
    story = SlowCell()
    story.take(node("n1", labels={"zone": "a"}), node("big", cpu=8_000, memory=4_096))

    rejected = story.take(job("j", stage(demand=demand, labels=labels)))

    assert (rejected.reason, rejected.field) == ("exceeds_capacity", field)
    assert said in rejected.detail


def test_what_a_refusal_says_is_asked_for_is_never_what_it_says_there_is():
    story = SlowCell()
    story.take(node("n1", cpu=1_000, memory=2_047))

    said = story.take(job("j", stage(demand={"cpu": 1_000, "memory": 2_048}))).detail

    assert said.startswith("one task asks for cpu 1, memory 2Gi;")
    assert said.endswith("n1, has cpu 1, memory 1.99Gi")


def test_a_gang_wider_than_all_nodes_together_is_rejected():
    story = one_node_cell(node("n2", cpu=2_500))

    rejected = story.take(job("j", stage(), stage("gang", tasks=7, gang=True)))

    assert (rejected.reason, rejected.field) == ("gang_too_wide", "stages[1].tasks")
    assert "room for 6" in rejected.detail
    assert isinstance(story.take(job("j", stage("gang", tasks=6, gang=True))), JobAdmitted)


def test_a_part_of_a_gpu_has_to_lie_on_one_device():
    story = one_node_cell(node("g", gpus=(600, 600, 600)))

    assert story.take(job("whole", stage(gpu=1_000))).reason == "exceeds_capacity"
    assert story.take(job("parts", stage(gpu=400, tasks=4, gang=True))).reason == "gang_too_wide"
    assert isinstance(story.take(job("fits", stage(gpu=400, tasks=3, gang=True))), JobAdmitted)


def test_a_resource_that_no_node_has_is_named_with_those_that_there_are():
    rejected = one_node_cell().take(job("j", stage(demand={"cpu": 1, "fpga": 1})))

    assert (rejected.reason, rejected.field) == ("unknown_resource", "stages[0].demand.fpga")
    assert "there is cpu, memory" in rejected.detail


def test_before_any_node_has_come_jobs_wait():
    story = SlowCell()
    story.take(job("j", stage(demand={"cpu": 1, "fpga": 1})))
    assert story.settle() == []

    story.take(node("n1"))
    assert story.settle() == []

    story.take(node("n2", fpga=1))
    assert indexes(story.settle()) == [("map", 0)]


def test_nodes_that_are_away_or_draining_may_come_back_and_so_count():
    story = one_node_cell()
    story.drain()
    assert isinstance(story.take(job("j1", stage(cpu=4_000))), JobAdmitted)
    story.lose()
    assert isinstance(story.take(job("j2", stage(cpu=4_000))), JobAdmitted)
    assert story.settle() == []


def test_a_cell_holds_so_many_jobs_and_no_more(monkeypatch):
    monkeypatch.setattr(core_judge, "LIVE_JOBS_MAX", 2)
    story = running_cell(job("j1"), job("j2"))

    assert story.take(job("j3")).reason == "too_many_jobs"
    assert type(story.take(job("j1"))) is InputRepeated

    story.finish(story.granted[0])
    story.settle()
    assert isinstance(story.take(job("j3")), JobAdmitted)


def test_only_a_job_that_lives_can_be_cancelled():
    story = running_cell(job("j"))

    assert isinstance(story.cancel("stranger"), InputRefused)
    assert story.cancel("j") == JobCancelled("j", AUTHOR)
    assert story.cancel("j") is None
    story.settle()
    assert "has ended" in story.cancel("j").reason


def test_a_cancelled_jobs_attempts_hold_their_room_until_they_have_ended():
    story = running_cell(job("j", stage(cpu=3_000)))
    story.cancel("j")
    story.take(job("next", stage(cpu=3_000)))
    assert story.settle() == []

    story.fail(story.granted[0], reason="killed")
    assert [grant.job for grant in story.settle()] == ["next"]


def test_a_reservation_is_a_fact_for_the_planner():
    asked = ReservationRequested("r1", "ann", "{}", AUTHOR)
    assert one_node_cell().take(asked) is asked
