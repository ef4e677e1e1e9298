"""Leftover in stories: who is served first, where tasks go, and what is said of those that wait."""

from dataclasses import replace

import pytest

from largesse.core import OpenRound
from schemas import Device, Grants
from services.leftover import core as leftover
from tests.builders import (
    config,
    job,
    node,
    queue,
    report,
    single,
    stage,
    tree,
)
from tests.cells import SlowCell, drop_caches, indexes, served


def cell(*jobs, nodes=None, queues=(), **knobs):
    """A cell; one node of four cores where no nodes are given, jobs served by their shares where no preset is."""
    story = SlowCell()
    story.take(config(tree(*queues) if queues else None, seed=1, **{"preset": "hdrf", **knobs}))
    story.take(*(nodes or [node("n1")]), *jobs)
    return story


def where(grants):
    """(job, node) of every grant, in order."""
    return [(grant.job, grant.node) for grant in grants]


def waits(story):
    """What is in force of the classes that wait: cores asked for -> reason."""
    return {wait.demand["cpu"]: wait.reason for wait in story.leftover.reasons.values()}


def said(story):
    """What the last round said of classes: cores asked for -> reason."""
    return {wait.demand["cpu"]: wait.reason for wait in story.answer("grants").waits}


# ---------------------------------------------------------------- whose turn
def test_jobs_of_one_leaf_share_by_dominant_share():
    story = cell(job("j", stage(tasks=9)), job("k", stage(tasks=9)), job("l", stage(tasks=9)), nodes=[node(cpu=9_000)])
    assert served(story.settle()) == {"j": 3, "k": 3, "l": 3}


def test_who_holds_least_comes_first_and_equals_by_admission():
    story = cell(job("z", stage(tasks=2)), job("a", stage(tasks=2)), nodes=[node(cpu=3_000)])
    assert served(story.settle()) == {"z": 2, "a": 1}


def test_a_newcomer_is_served_before_those_that_hold():
    story = cell(job("j", stage(tasks=99)))
    story.settle()
    story.take(job("k", stage(tasks=99)))
    story.finish(single(story.granted[0], 0), single(story.granted[0], 1))
    assert served(story.settle()) == {"k": 2}


def test_higher_priority_comes_first_inside_a_leaf_whatever_it_holds():
    story = cell(job("low", stage(tasks=9)), job("high", stage(tasks=3), priority=5))
    assert served(story.settle()) == {"high": 3, "low": 1}


def test_priority_means_nothing_to_another_leaf():
    queues = [queue("a"), queue("b")]
    jobs = [job("j", stage(tasks=9), queue="a", priority=9), job("k", stage(tasks=9), queue="b")]
    assert served(cell(*jobs, queues=queues).settle()) == {"j": 2, "k": 2}


def test_leaves_share_by_weight_and_what_one_leaves_goes_to_the_other():
    jobs = [job("j", stage(tasks=99), queue="a"), job("k", stage(tasks=1), queue="b")]
    story = cell(*jobs, queues=[queue("a", 3), queue("b")], nodes=[node(cpu=8_000)])
    grants = story.settle()

    assert served(grants) == {"j": 7, "k": 1}
    assert {grant.job: grant.why for grant in grants} == {"j": "required", "k": "required"}


def test_room_that_the_entitled_cannot_use_goes_to_others_as_packed():
    jobs = [job("big", stage(cpu=3_000, tasks=2), queue="a"), job("small", stage(tasks=9), queue="b")]
    story = cell(*jobs, queues=[queue("a", 9), queue("b")], nodes=[node("n1"), node("n2", cpu=2_000)])

    grants = story.settle()

    assert served(grants) == {"big": 1, "small": 3}
    assert sum(grant.count for grant in grants if grant.why == "packed") == 2


def test_a_job_that_asks_for_several_stages_takes_them_in_their_order():
    story = cell(job("j", stage("a", 2), stage("b", 2, cpu=2_000), stage("c", 9)), nodes=[node(cpu=7_000)])
    assert indexes(story.settle()) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]


# ---------------------------------------------------------------- fifo
def test_fifo_serves_the_first_job_whole_before_the_next():
    story = cell(job("j", stage(tasks=3)), job("k", stage(tasks=3)), preset="fifo")
    assert served(story.settle()) == {"j": 3, "k": 1}


def test_fifo_is_strict_at_the_head():
    story = cell(job("j", stage(cpu=3_000, tasks=2)), job("k", stage(tasks=1)), preset="fifo")
    assert served(story.settle()) == {"j": 1}
    assert waits(story) == {3_000: "no_room", 1_000: "behind_head"}

    story.finish(story.granted[0])
    assert served(story.settle()) == {"j": 1, "k": 0} | {"k": 1}
    assert waits(story) == {}


def test_fifo_looks_neither_at_queues_nor_at_priority():
    jobs = [job("j", stage(tasks=4), queue="a"), job("k", stage(tasks=4), queue="b", priority=9)]
    assert served(cell(*jobs, queues=[queue("a"), queue("b", 9)], preset="fifo").settle()) == {"j": 4}


def test_fifo_by_stage_serves_what_became_ready_first():
    story = cell(
        job("j", stage("late", 4, after=["first"]), stage("first"), stage("early", 4)),
        preset="fifo",
        fifo_order="stage",
    )
    first = story.settle()
    assert indexes(first) == [("early", 0), ("early", 1), ("early", 2), ("first", 0)]

    story.at(5).finish(*[grant for grant in first if grant.stage == "first"])
    story.at(6).take(job("k", stage("new", 4)))
    assert indexes(story.settle()) == [("early", 3)]

    story.finish(*[grant for grant in story.granted if grant.stage == "early"])
    assert indexes(story.settle()) == [("late", i) for i in range(4)]


def test_fifo_waits_behind_a_gang_that_does_not_fit():
    story = cell(job("j", stage(tasks=2)), gang("g", 3), job("k"), preset="fifo")
    assert served(story.settle()) == {"j": 2}
    story.finish(single(story.granted[0], 0))
    assert served(story.settle()) == {"g": 3}


def test_fifo_by_job_serves_the_older_job_first_whenever_its_stages_get_ready():
    story = cell(job("j", stage("a"), stage("b", 4, after=["a"])), job("k", stage(tasks=9)), preset="fifo")
    story.settle()
    story.at(5).finish(*[grant for grant in story.granted if grant.job == "j"])
    story.finish(*[single(grant, grant.first) for grant in story.granted if grant.job == "k"])
    assert served(story.settle()) == {"j": 2}


def test_another_preset_ranks_what_waits_anew():
    story = cell(job("j", stage(tasks=99)), job("k", stage(tasks=99)), preset="fifo")
    story.settle()
    story.take(config(preset="drf"))
    story.finish(story.granted[0])
    assert served(story.settle()) == {"j": 2, "k": 2}


# ---------------------------------------------------------------- where
def test_tasks_spread_to_the_node_with_most_room_of_what_they_ask():
    story = cell(job("j", stage(tasks=2)), nodes=[node("n1", cpu=4_000), node("n2", cpu=8_000)])
    assert where(story.settle()) == [("j", "n2")]


def test_labels_bind_and_preferences_lean():
    nodes = [node("n1", cpu=16_000), node("n2", labels={"zone": "a"}), node("n3", labels={"zone": "a", "disk": "ssd"})]
    story = cell(
        job("must", stage(tasks=9, labels={"zone": "a", "disk": "ssd"})),
        job("may", stage(prefer={"zone": "a"})),
        job("any", stage()),
        nodes=nodes,
    )
    grants = story.settle()

    assert served(grants) == {"must": 4, "may": 1, "any": 1}
    assert where(grants) == [("must", "n3"), ("may", "n2"), ("any", "n1")]


def test_a_preference_that_cannot_be_met_is_none():
    story = cell(job("j", stage(prefer={"zone": "mars"})))
    assert where(story.settle()) == [("j", "n1")]


def test_a_drained_node_takes_nothing_until_it_resumes():
    story = cell(job("j", stage(tasks=9)), nodes=[node("n1"), node("n2", cpu=2_000)])
    story.drain("n1")
    assert served(story.settle()) == {"j": 2}
    story.resume("n1")
    assert served(story.settle()) == {"j": 4}


def test_parts_of_gpus_lie_on_one_device_and_leave_whole_ones_whole():
    story = cell(job("parts", stage(gpu=400, tasks=4)), nodes=[node("g", cpu=16_000, gpus=(1_000, 1_000, 1_000))])
    grants = story.settle()
    shares = [(share.index, share.milli) for grant in grants for task in grant.devices for share in task]
    assert shares == [(0, 400), (0, 400), (1, 400), (1, 400)]

    story.take(job("whole", stage(gpu=2_000)), job("one", stage(gpu=1_000)))
    assert [[(s.index, s.milli) for s in g.devices[0]] for g in story.settle()] == [[(2, 1_000)]]
    assert story.granted[-1].job == "one"

    story.finish(single(grants[0], 0), single(grants[0], 1), story.granted[-1])
    assert [sorted(s.index for s in g.devices[0]) for g in story.settle()] == [[0, 2]]


def test_gpus_in_pieces_may_add_up_and_still_not_do():
    story = cell(
        job("a", stage(gpu=600)),
        job("b", stage(gpu=600)),
        job("c", stage(gpu=600)),
        nodes=[node("g", gpus=(1_000, 1_000))],
    )
    assert served(story.settle()) == {"a": 1, "b": 1}
    assert waits(story) == {1_000: "no_room"}


def test_whole_and_part_of_a_gpu_go_to_different_devices():
    story = cell(job("j", stage(gpu=1_300)), nodes=[node("g", gpus=(1_000, 1_000))])
    assert [(s.index, s.milli) for s in story.settle()[0].devices[0]] == [(0, 1_000), (1, 300)]


# ---------------------------------------------------------------- gangs
def gang(name, tasks, cpu=1_000, **given):
    return job(name, stage("gang", tasks, cpu=cpu, gang=True, **given))


def test_a_gang_starts_whole_or_not_at_all():
    story = cell(gang("g", 3, cpu=3_000), gang("h", 2, cpu=3_000), nodes=[node("n1"), node("n2"), node("n3")])
    story.drain("n3")

    grants = story.settle()

    assert served(grants) == {"h": 2}
    assert waits(story) == {3_000: "no_node"}
    story.resume("n3")
    assert story.settle() == []
    assert waits(story) == {3_000: "gang_no_room"}
    story.finish(*grants)
    assert served(story.settle()) == {"g": 3}


def test_a_gang_that_does_not_fit_leaves_the_room_to_others():
    story = cell(job("h", stage(tasks=2)), gang("g", 4), job("j", stage(tasks=9)))
    story.settle()
    assert "g" not in served(story.granted)
    assert served(story.granted) == {"h": 2, "j": 2}
    assert story.admission.nodes["n1"].free["cpu"] == 0


def test_gangs_of_one_kind_but_other_widths_are_looked_at_apart():
    story = cell(gang("wide", 5), gang("narrow", 2), nodes=[node("n1"), node("n2", cpu=1_000)])
    story.drain("n2")
    assert served(story.settle()) == {"narrow": 2}


def test_gangs_with_devices_take_them_for_all_or_for_none():
    nodes = [node("g1", gpus=(1_000, 1_000)), node("g2", gpus=(1_000, 1_000))]
    story = cell(job("one", stage(gpu=500)), nodes=nodes)
    story.settle()
    story.take(gang("g", 4, gpu=1_000), gang("h", 3, gpu=1_000))

    grants = story.settle()

    assert served(grants) == {"h": 3}
    assert sorted((grant.node, share.index) for grant in grants for task in grant.devices for share in task) == [
        ("g1", 1),
        ("g2", 0),
        ("g2", 1),
    ]


# ---------------------------------------------------------------- reasons
def test_a_reason_is_said_once_and_withdrawn_once():
    story = cell(job("j", stage(cpu=3_000, tasks=2)))
    story.open()
    assert said(story) == {3_000: "no_room"}
    story.close()

    story.take(job("k", stage(cpu=100)))
    story.open()
    assert said(story) == {}
    story.close()

    story.finish(story.granted[0])
    story.open()
    assert said(story) == {3_000: "none"}
    story.close()
    assert story.leftover.reasons == {}


def test_a_class_that_comes_back_to_a_full_cell_says_so_again():
    story = cell(job("full", stage(cpu=4_000)), job("j", stage(cpu=2_000)))
    story.settle()
    assert waits(story) == {2_000: "no_room"}
    story.cancel("j")
    story.settle()
    assert waits(story) == {}

    story.take(job("k", stage(cpu=2_000)))
    story.settle()
    assert waits(story) == {2_000: "no_room"}


def test_no_node_is_another_reason_than_no_room():
    story = cell(job("j", stage(cpu=3_000)), nodes=[node("n1", labels={"zone": "a"}), node("n2", cpu=1_000)])
    story.settle()
    story.take(job("k", stage(cpu=2_500, labels={"zone": "a"})))
    story.settle()
    assert waits(story) == {2_500: "no_room"}

    story.take(report("n1", labels={"zone": "b"}))
    story.settle()
    assert waits(story) == {2_500: "no_node"}
    story.lose("n1")
    story.settle()
    assert waits(story) == {2_500: "no_node", 3_000: "no_node"}


def test_a_reason_outlives_the_board():
    story = cell(job("j", stage(cpu=3_000, tasks=2)))
    story.settle()
    drop_caches(story.states.values())
    story.cancel("j")
    story.open()
    assert said(story) == {3_000: "none"}


# ---------------------------------------------------------------- strikes and abandoned rounds
def test_a_struck_grants_room_is_there_for_the_next_round():
    story = cell(job("j", stage(tasks=4)))
    story.open()
    story.cancel("j")
    story.take(job("k", stage(tasks=4)))
    assert [struck.reason for struck in story.close().struck] == ["job_over"]
    assert served(story.settle()) == {"k": 4}


def test_an_ended_jobs_part_of_a_round_is_forgotten_with_it():
    story = cell(job("j", stage(tasks=2)), job("k", stage(tasks=9)))
    story.open()
    story.cancel("j")
    story.take(job("l"))
    story.close()
    assert served(story.granted) == {"k": 2}
    assert served(story.settle()) == {"k": 1, "l": 1}


def test_an_answer_that_was_never_folded_is_forgotten():
    story = cell(job("j", stage(tasks=3)))
    story.open()
    first = story.answer("grants").grants
    story.abandon()
    story.open()
    assert story.answer("grants").grants == first


@pytest.mark.parametrize("topic", ["shares", "asks"])
def test_another_instances_answer_that_won_makes_the_board_begin_anew(topic):
    story = cell(job("j", stage(tasks=99)))
    story.open()
    story.answers[topic][0].id = "another"
    story.close()
    assert story.leftover.board is None
    story.finish(single(story.granted[0], 0))
    assert served(story.settle()) == {"j": 1}


def test_other_grants_than_its_own_may_win():
    story = cell(job("j", stage(tasks=2)), job("k", stage(tasks=2)))
    story.open()
    story.answers["grants"] = [replace(story.answers["grants"][0], body=Grants(story.answer("grants").grants[1:]))]
    assert served(story.close().grants) == {"k": 2}

    story.take(job("l"))
    assert served(story.settle()) == {"j": 1, "l": 1}


def test_the_same_round_is_answered_alike_however_often_it_is_asked():
    story = cell(job("j", stage(tasks=9)))
    story.open()
    upstream = {topic: story.answers[topic] for topic in ("shares", "asks")}

    (again,) = leftover.decide(story.leftover, OpenRound(story.opening, upstream))

    assert again == story.answer("grants")
    assert served(again.grants) == {"j": 4}


def test_a_queue_gets_the_whole_tasks_that_it_is_due_before_others_are_rounded_up():
    """By the least part of what is due alone, five queues that hold nothing would get one each."""
    few = [queue(f"g{i}") for i in range(3)]
    jobs = [job(name, stage(tasks=9), queue=path) for name, path in (("x", "x"), ("y", "y"))]
    jobs += [job(f"g{i}", stage(tasks=9), queue=f"g/g{i}") for i in range(3)]
    story = cell(*jobs, nodes=[node(cpu=5_000)], queues=[queue("x"), queue("y", 3), queue("g", 1, *few)])

    assert served(story.settle()) == {"x": 1, "y": 3, "g0": 1}


def test_queues_that_are_due_less_than_a_task_take_turns():
    jobs = [job(name, stage(tasks=9), queue=name) for name in "abc"]
    story = cell(*jobs, nodes=[node(cpu=1_000)], queues=[queue(name) for name in "abc"])
    for _ in range(7):
        story.finish(*story.settle())
        story.restore()  # Whose turn it is, is part of what a snapshot keeps.

    assert [grant.job for grant in story.granted] == list("abcabca")


# ---------------------------------------------------------------- what is held
def test_what_a_dead_job_still_holds_counts_against_nobodys_share():
    queues = [queue("a"), queue("b")]
    jobs = [job("dead", stage(tasks=3), queue="a"), job("live", queue="b")]
    story = cell(*jobs, queues=queues, nodes=[node(cpu=5_000)])
    story.settle()
    story.cancel("dead")
    story.take(job("j", stage(tasks=9), queue="a"), job("k", stage(tasks=9), queue="b"))
    story.settle()
    assert served(story.granted) == {"dead": 3, "live": 1, "j": 1}

    story.fail(*[grant for grant in story.granted if grant.job == "dead"], reason="killed")
    assert served(story.settle()) == {"k": 2, "j": 1}


def test_devices_of_a_node_that_changed_are_counted_from_what_is_held():
    story = cell(job("j", stage(gpu=700)), nodes=[node("g", gpus=(1_000,))])
    story.settle()
    story.take(report("g", gpu=2_000, devices=[Device(0, 1_000), Device(5, 1_000)]))
    story.take(job("k", stage(gpu=400)), job("l", stage(gpu=300)))

    placed = {grant.job: grant.devices[0][0].index for grant in story.settle()}

    assert placed == {"k": 5, "l": 0}
