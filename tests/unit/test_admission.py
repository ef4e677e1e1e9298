"""Admission in stories: what becomes of each input."""

from dataclasses import replace

import pytest

from schemas import (
    ConfigChanged,
    Device,
    Grant,
    InputRefused,
    InputRepeated,
    JobAdmitted,
    JobCancelled,
    JobRejected,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    ReservationRequested,
    TaskEnd,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.edge import ConfigPatch
from schemas.edge_nodes import NodeLeft
from services.admission import core_judge
from services.admission.core_names import digest_of
from services.admission.core_rounds import due
from tests.cells import (
    AUTHOR,
    EPOCH,
    SlowCell,
    config,
    holds_of,
    indexes,
    job,
    known,
    node,
    place,
    queue,
    report,
    single,
    stage,
    tree,
)

DAY_MS = 24 * 3_600_000


def cell(*inputs, shards=1):
    """A cell with one node n1 of four cores, and whatever else is given."""
    story = SlowCell(shards)
    story.take(node("n1"), *inputs)
    return story


def running(*jobs, **nodes):
    """A cell whose jobs have been granted what fits."""
    story = cell(*jobs, **nodes)
    story.settle()
    return story


# ---------------------------------------------------------------- jobs
def test_a_job_is_admitted_with_its_class_and_the_capacity_it_was_judged_by():
    admitted = cell().take(job("j", stage(cpu=4_000)))

    assert isinstance(admitted, JobAdmitted)
    assert (admitted.job_class, admitted.reference, admitted.author) == ("large", "total", AUTHOR)


def test_the_same_submission_again_is_answered_and_changes_nothing():
    story = cell(job("j"))

    assert story.take(job("j")) == InputRepeated("j", AUTHOR)
    assert story.settle() == [Grant("j", "map", 0, 1, 1, "n1", "e1")]
    assert story.take(job("j")) == InputRepeated("j", AUTHOR)


def test_another_job_of_a_taken_name_is_rejected():
    rejected = cell(job("j")).take(job("j", stage(tasks=2)))

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
        story = running(job("j"))
        story.finish(*story.granted)
        story.settle()
        assert story.ended() == {"j": "succeeded"}
        return story.at(later_ms)

    assert type(ended().take(job("j"))) is repeat
    assert type(ended().take(job("j", stage(tasks=2)))) is other


def test_a_name_comes_free_although_nothing_else_ever_happened():
    story = running(job("j"))
    story.cancel("j")
    story.settle()
    story.fail(*story.granted, reason="killed")

    story.at(8 * DAY_MS).take(job("j"))

    assert story.settle() == [Grant("j", "map", 0, 1, 1, "n1", "e1")]


def test_a_name_is_not_free_while_attempts_of_its_old_job_hold_room():
    story = cell(config(name_kept_ms=0), job("j", stage(tasks=2)))
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
    assert digest_of(job(unknown_to_some)) == "8e2dc33b73892db1ea0212859e3fa982"
    assert digest_of(job("j")) != digest_of(job("j", stage(tasks=2)))


def test_names_are_forgotten_when_their_time_is_over():
    story = cell(config(name_kept_ms=1_000))
    for i in range(5):
        story.at(i * 1_000).take(job(f"j{i}"))
        story.finish(*story.settle())
        story.settle()

    assert list(story.admission.ended) == ["j3", "j4"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param("ads/prodd", 'is not in the tree; the nearest name is "ads/prod"', id="a slip of the pen"),
        pytest.param("ads", "has queues below it; name one of those", id="an inner queue"),
        pytest.param("defualt", 'is not in the tree; the nearest name is "default"', id="the default one misspelt"),
    ],
)
def test_a_queue_that_cannot_hold_jobs_is_named_with_the_nearest(asked, said):
    story = cell(config(tree(queue("ads", 60, "prod", "test"), queue("ml"))))

    rejected = story.take(job("j", queue=asked))

    assert (rejected.reason, rejected.field) == ("unknown_queue", "queue")
    assert said in rejected.detail
    assert f'queue "{asked}"' in rejected.detail


def test_without_a_tree_any_queue_will_do():
    assert isinstance(cell().take(job("j", queue="wherever/that/is")), JobAdmitted)


def test_the_default_queue_is_there_with_weight_one_and_gets_its_share_and_no_more():
    story = cell(config(tree(queue("a", 3))))
    story.take(job("mine", stage(tasks=9), queue="a"), job("any", stage(tasks=9)))

    assert sorted(grant.count for grant in story.settle() if grant.job == "mine") == [3]
    levels = {level.queue: level.target for level in story.bodies_of("Shares")[0].levels}
    assert levels == {"a": 750_000_000, "default": 250_000_000}


def test_a_tree_that_is_in_force_already_makes_no_record():
    story = cell()
    assert isinstance(story.take(config(tree(queue("a")))), ConfigChanged)
    assert story.take(config(tree(queue("a")))) is None


def test_knobs_change_one_by_one_and_a_knob_at_its_value_is_no_record():
    story = cell()
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
    changed = cell(*before).take(ConfigPatch({"seed": 7}, None, initial=True))

    assert changed == (None if policy is None else ConfigChanged(Policy(**policy), None, AUTHOR))


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
    pytest.param({"cpu": 1}, {"zone": "c"}, "stages[0].demand", "no node has the labels zone=c", id="no such label"),
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
    story = cell(node("n2", cpu=2_500))

    rejected = story.take(job("j", stage(), stage("gang", tasks=7, gang=True)))

    assert (rejected.reason, rejected.field) == ("gang_too_wide", "stages[1].tasks")
    assert "room for 6" in rejected.detail
    assert isinstance(story.take(job("j", stage("gang", tasks=6, gang=True))), JobAdmitted)


def test_a_part_of_a_gpu_has_to_lie_on_one_device():
    story = cell(node("g", gpus=(600, 600, 600)))

    assert story.take(job("whole", stage(gpu=1_000))).reason == "exceeds_capacity"
    assert story.take(job("parts", stage(gpu=400, tasks=4, gang=True))).reason == "gang_too_wide"
    assert isinstance(story.take(job("fits", stage(gpu=400, tasks=3, gang=True))), JobAdmitted)


def test_a_resource_that_no_node_has_is_named_with_those_that_there_are():
    rejected = cell().take(job("j", stage(demand={"cpu": 1, "fpga": 1})))

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
    story = cell()
    story.drain()
    assert isinstance(story.take(job("j1", stage(cpu=4_000))), JobAdmitted)
    story.lose()
    assert isinstance(story.take(job("j2", stage(cpu=4_000))), JobAdmitted)
    assert story.settle() == []


def test_a_cell_holds_so_many_jobs_and_no_more(monkeypatch):
    monkeypatch.setattr(core_judge, "LIVE_JOBS_MAX", 2)
    story = running(job("j1"), job("j2"))

    assert story.take(job("j3")).reason == "too_many_jobs"
    assert type(story.take(job("j1"))) is InputRepeated

    story.finish(story.granted[0])
    story.settle()
    assert isinstance(story.take(job("j3")), JobAdmitted)


def test_only_a_job_that_lives_can_be_cancelled():
    story = running(job("j"))

    assert isinstance(story.cancel("stranger"), InputRefused)
    assert story.cancel("j") == JobCancelled("j", AUTHOR)
    assert story.cancel("j") is None
    story.settle()
    assert "has ended" in story.cancel("j").reason


def test_a_cancelled_jobs_attempts_hold_their_room_until_they_have_ended():
    story = running(job("j", stage(cpu=3_000)))
    story.cancel("j")
    story.take(job("next", stage(cpu=3_000)))
    assert story.settle() == []

    story.fail(story.granted[0], reason="killed")
    assert [grant.job for grant in story.settle()] == ["next"]


def test_a_reservation_is_a_fact_for_the_planner():
    asked = ReservationRequested("r1", "ann", "{}", AUTHOR)
    assert cell().take(asked) is asked


# ---------------------------------------------------------------- reports of tasks
def test_an_end_is_folded_once():
    story = running(job("j", stage(tasks=2)))
    grant = story.granted[0]

    assert isinstance(story.finish(single(grant, 0)), TaskFinished)
    assert story.finish(single(grant, 0)) is None
    assert isinstance(story.start(single(grant, 1)), TaskStarted)
    assert story.start(single(grant, 1)) is None


def test_an_attempt_that_a_batch_names_twice_ends_once():
    story = running(job("j", stage(tasks=3)))
    grant = story.granted[0]

    body = story.finish(single(grant, 1), grant, single(grant, 2))

    assert [(item.first, item.count) for item in body.items] == [(1, 1), (0, 1), (2, 1)]
    story.settle()
    assert story.ended() == {"j": "succeeded"}
    assert story.admission.nodes["n1"].free == {"cpu": 4_000, "memory": 16_384}


def test_an_attempt_that_a_batch_fails_twice_counts_once():
    story = running(job("j", stage(retries=1)))
    story.fail(story.granted[0], story.granted[0])

    assert story.ended() == {}
    assert story.admission.jobs["j"].tries.failed == {"0/0": 1}


FOREIGN = [
    pytest.param({"job": "stranger"}, id="a job that never was"),
    pytest.param({"stage": "reduce"}, id="no stage of the job"),
    pytest.param({"first": 3}, id="no task of the stage"),
    pytest.param({"attempt": 2}, id="an attempt that was never granted"),
    pytest.param({"node": "n2"}, id="another node"),
    pytest.param({"epoch": "e0"}, id="another agent epoch"),
]


@pytest.mark.parametrize("change", FOREIGN)
def test_a_report_of_what_was_never_granted_is_refused_and_meets_no_core(change):
    story = running(job("j", stage(tasks=2)))
    before = holds_of(story.admission)

    refused = story.finish(replace(story.granted[0], count=1, **change))

    assert isinstance(refused, InputRefused)
    assert (refused.topic, refused.field) == ("tasks", "items")
    assert "never granted" in refused.reason
    assert holds_of(story.admission) == before


def test_of_a_batch_only_what_was_granted_is_taken():
    story = running(job("j", stage(tasks=2)), job("k"))
    theirs, mine = story.granted

    body = story.finish(replace(theirs, count=3), replace(mine, node="n2"))

    assert body.items == [TaskEnd(*place(theirs), [1_000])]
    assert body.refused == [
        TaskRange(*place(replace(theirs, first=2, count=1))),
        TaskRange(*place(replace(mine, node="n2"))),
    ]


def test_each_task_of_a_split_report_keeps_its_own_run_time():
    story = running(job("j", stage(tasks=3)))
    grant = story.granted[0]
    story.finish(single(grant, 1))

    body = story.take(TaskFinished([TaskEnd(*place(grant), [5, 6, 7])]))

    assert [(item.first, item.run_ms) for item in body.items] == [(0, [5]), (2, [7])]


def test_an_attempt_that_is_over_is_stale_and_the_one_after_it_is_not():
    story = running(job("j", stage(retries=3)))
    first = story.granted[0]
    story.fail(first, reason="lost")
    second = story.settle()[0]
    assert second.attempt == 2

    assert story.finish(first) is None
    assert story.ended() == {}
    story.finish(second)
    story.settle()
    assert story.ended() == {"j": "succeeded"}
    assert story.finish(second) is None


# ---------------------------------------------------------------- nodes
def test_a_node_says_its_state_and_only_what_changed_is_a_record():
    story = cell()

    assert story.take(node("n1")) is None
    assert story.take(report("n1")) is None
    assert isinstance(story.take(report("n1", cpu=2_000)), NodeReported)
    assert isinstance(story.take(report("n1", cpu=2_000, labels={"zone": "a"})), NodeReported)
    assert story.take(report("n1", cpu=2_000, labels={"zone": "a"})) is None


def test_devices_that_a_report_lists_no_more_are_a_change():
    story = cell(node("g", gpus=(500, 500)))

    assert story.take(report("g", devices=(Device(0, 500), Device(1, 500)), gpu=1_000)) is None
    assert isinstance(story.take(report("g", gpu=1_000)), NodeReported)
    assert story.admission.nodes["g"].devices_free == {"0": 1_000}


@pytest.mark.parametrize("told", [report("n9"), report("n1", epoch="e0")], ids=["unknown node", "another epoch"])
def test_a_report_without_a_registration_is_refused(told):
    assert "register it" in cell().take(told).reason


def test_a_lost_node_reports_in_vain_until_it_registers():
    story = cell()
    story.lose()

    assert isinstance(story.take(report("n1")), InputRefused)
    assert isinstance(story.take(node("n1")), NodeRegistered)
    assert story.take(report("n1")) is None


def test_what_a_lost_node_held_is_asked_again_and_its_late_word_changes_nothing():
    story = running(job("j", stage(tasks=2)))
    first = story.granted[0]
    lost = story.lose()

    assert [(r.first, r.attempt, r.node) for r in lost.lost] == [(0, 1, "n1"), (1, 1, "n1")]
    assert story.lose() is None
    assert story.settle() == []
    assert story.finish(first) is None

    story.take(node("n2"))
    assert [(grant.node, grant.attempt, grant.count) for grant in story.settle()] == [("n2", 2, 2)]


def test_an_agent_that_goes_gives_back_what_it_held_at_once():
    story = running(job("j", stage(tasks=2)))

    gone = story.take(NodeLeft("n1", EPOCH))

    assert isinstance(gone, NodeLost)
    assert (gone.node, gone.epoch, gone.left) == ("n1", EPOCH, True)
    assert [(r.first, r.attempt) for r in gone.lost] == [(0, 1), (1, 1)]
    assert story.take(NodeLeft("n1", EPOCH)) is None
    story.take(node("n2"))
    assert [(grant.node, grant.attempt, grant.count) for grant in story.settle()] == [("n2", 2, 2)]


@pytest.mark.parametrize("word", [NodeLeft("n1", "e0"), NodeLeft("n9", EPOCH)], ids=["an older epoch", "a stranger"])
def test_only_the_agent_in_charge_can_say_that_its_node_goes(word):
    story = running(job("j"))

    assert story.take(word) is None
    assert not story.admission.nodes["n1"].lost


def forget_until(story, time):
    """What is due by then; returns the names that were forgotten."""
    story.at(time).settle()
    return [body.node for body in story.bodies(NodeForgotten)]


def test_a_node_that_does_not_come_back_is_forgotten_after_a_day_with_the_jobs_that_only_it_could_run():
    story = cell(node("big", cpu=64_000))
    story.at(7).lose("big")
    story.settle()
    assert story.next_ms() == 7 + DAY_MS
    assert isinstance(story.take(job("early", stage(cpu=64_000))), JobAdmitted)

    assert forget_until(story, 6 + DAY_MS) == []
    assert forget_until(story, 7 + DAY_MS) == ["big"]
    assert story.take(job("late", stage(cpu=64_000))).reason == "exceeds_capacity"
    assert isinstance(story.take(report("big")), InputRefused)
    story.take(node("big", cpu=64_000, epoch="e2"))
    assert [(grant.job, grant.node) for grant in story.settle()] == [("early", "big")]


def test_nodes_are_forgotten_in_the_order_in_which_they_were_lost_and_not_those_that_came_back():
    story = cell(config(node_kept_ms=1_000), node("n2"), node("n3"))
    for time, name in ((1, "n2"), (2, "n1"), (3, "n3")):
        story.at(time).lose(name)
    story.take(node("n1", epoch="e2"))

    assert forget_until(story, 1_002) == ["n2"]
    assert forget_until(story, 5_000) == ["n2", "n3"]
    assert list(story.admission.nodes) == ["n1"]


def test_a_drain_is_remembered_until_somebody_takes_it_back():
    story = cell(config(node_kept_ms=1_000), node("n2"))
    story.drain("n1")
    story.lose("n1")
    story.lose("n2")

    assert forget_until(story, 5_000) == ["n2"]
    assert story.next_ms() is None
    story.resume("n1")
    assert forget_until(story, 5_000) == ["n2", "n1"]


def test_nobody_is_forgotten_while_a_round_is_open():
    story = cell(config(node_kept_ms=0), job("j"))
    story.open()
    story.lose()

    assert due(story.admission, DAY_MS, b"") is None
    assert [struck.reason for struck in story.close().struck] == ["node_lost"]
    story.settle()
    assert story.bodies(NodeForgotten) == [NodeForgotten("n1")]


def test_a_node_that_comes_back_finds_its_attempts_over():
    story = running(job("j"))
    story.lose()

    story.take(node("n1", epoch="e2", attempts=[known(story.granted[0])]))

    assert story.bodies(NodeRegistered)[-1].attempts == []
    assert [(grant.epoch, grant.attempt) for grant in story.settle()] == [("e2", 2)]


def test_a_restarted_agent_keeps_what_it_knows_and_loses_the_rest():
    story = running(job("j", stage(tasks=4, retries=1)))
    grant = story.granted[0]
    attempts = [
        known(single(grant, 0)),
        known(single(grant, 1), "succeeded"),
        known(single(grant, 2), "failed", reason="exit_code", exit_code=3),
    ]

    body = story.take(node("n1", epoch="e2", attempts=attempts))

    assert [r.first for r in body.lost] == [3]
    assert list(holds_of(story.admission)) == ["j/map/0"]
    assert [(g.first, g.attempt, g.epoch) for g in story.settle()] == [(3, 2, "e2")]  # The failed one backs off.
    assert isinstance(story.finish(single(grant, 0)), InputRefused)
    assert isinstance(story.finish(replace(single(grant, 0), epoch="e2")), TaskFinished)


def test_an_attempt_that_was_adopted_has_started():
    story = running(job("j"))
    story.take(node("n1", epoch="e2", attempts=[known(story.granted[0])]))
    assert story.start(replace(story.granted[0], epoch="e2")) is None


def test_what_a_restarted_agent_tells_twice_counts_once():
    story = running(job("j", stage(tasks=2)))
    grant = story.granted[0]

    body = story.take(node("n1", epoch="e2", attempts=[known(grant), known(single(grant, 0), "succeeded")]))

    assert [(a.first, a.count, a.state) for a in body.attempts] == [(0, 2, "running")]
    assert body.lost == []


def test_an_agent_cannot_keep_what_it_was_never_given():
    story = running(job("j"), job("k"))
    mine, theirs = story.granted
    story.take(node("n2"))
    made_up = [known(replace(mine, attempt=2)), known(replace(mine, job="x")), known(replace(mine, node="n2"))]

    assert story.take(node("n2", epoch="e2", attempts=made_up)).attempts == []
    told = [known(mine, run_ms=[1, 2, 3]), known(replace(theirs, attempt=2))]
    body = story.take(node("n1", epoch="e2", attempts=told))
    assert [a.job for a in body.attempts] == ["j"]
    assert [r.job for r in body.lost] == [theirs.job]


def test_the_room_of_adopted_attempts_stays_taken_and_their_devices_too():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), job("j", stage(gpu=1_400)), job("k", stage(gpu=700)))
    first = story.settle()
    assert [grant.job for grant in first] == ["j"]

    story.take(node("g", gpus=(1_000, 1_000, 1_000), epoch="e2", attempts=[known(first[0])]))

    assert story.admission.nodes["g"].devices_free == {"0": 0, "1": 600, "2": 1_000}
    assert [[(s.index, s.milli) for s in grant.devices[0]] for grant in story.settle()] == [[(2, 700)]]
    story.finish(replace(first[0], epoch="e2"))
    assert story.admission.nodes["g"].devices_free == {"0": 1_000, "1": 1_000, "2": 300}


def test_a_device_that_vanishes_under_a_task_comes_back_empty():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), job("j", stage(gpu=2_000)))
    grant = story.settle()[0]

    story.take(report("g", gpu=1_000, devices=[Device(1, 1_000)]))
    story.take(job("k", stage(gpu=500)))
    assert story.settle() == []

    story.finish(grant)
    assert [[s.index for s in g.devices[0]] for g in story.settle()] == [[1]]


def test_a_draining_node_gets_nothing_new_and_runs_on():
    story = running(job("j"))
    story.drain()
    story.take(job("k"))

    assert story.drain() is None
    assert story.settle() == []
    assert isinstance(story.finish(story.granted[0]), TaskFinished)
    story.resume()
    assert [grant.job for grant in story.settle()] == ["k"]
    assert isinstance(story.drain("n9"), InputRefused)


def test_a_drain_outlives_the_agent():
    story = cell(job("j"))
    story.drain()
    story.take(node("n1", epoch="e2"))
    assert story.settle() == []

    story.lose()
    story.take(node("n1", epoch="e3"))
    assert story.settle() == []
    assert story.take(NodeDrained("n1", False, AUTHOR)) is not None
    assert len(story.settle()) == 1


def test_capacity_may_shrink_below_what_runs():
    story = running(job("j", stage(tasks=4)))
    story.take(report("n1", cpu=1_500))
    story.take(job("k"))

    assert story.settle() == []
    story.finish(single(story.granted[0], 0), single(story.granted[0], 1), single(story.granted[0], 2))
    assert story.settle() == []
    story.finish(single(story.granted[0], 3))
    assert [grant.job for grant in story.settle()] == ["k"]
