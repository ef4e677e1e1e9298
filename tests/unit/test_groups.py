"""Which queues get a level of their own, and in what order the jobs below them are served."""

from dataclasses import replace
from typing import get_args

import pytest

from largesse.lifecycle.queue_policy import groups, uses_shadow_order
from schemas.policy import Policy
from schemas.presets import Preset
from schemas.sharing import LIST_POLICIES
from tests.builders import queue, tree


def named(policy, *given):
    return replace(queue(*given), policy=policy)


def test_each_leaf_has_a_level_of_its_own_and_serves_its_jobs_by_dominant_share():
    found = groups(tree(queue("a"), queue("b", 1, queue("c"), queue("d"))), "hdrf")

    assert found == {"a": ("a", "drf"), "b/c": ("b/c", "drf"), "b/d": ("b/d", "drf")}


@pytest.mark.parametrize("policy", LIST_POLICIES)
def test_jobs_of_a_subtree_are_taken_as_one_list(policy):
    shape = tree(queue("a"), named(policy, "b", 1, queue("c", 1, queue("x")), queue("d")))

    assert groups(shape, "largesse") == {"a": ("a", "drf"), "b/c/x": ("b", policy), "b/d": ("b", policy)}


@pytest.mark.parametrize("policy", LIST_POLICIES)
def test_a_leaf_may_order_its_own_jobs(policy):
    assert groups(tree(named(policy, "a"), queue("b")), "drf") == {"a": ("a", policy), "b": ("b", "drf")}


def test_within_a_list_other_policies_count_for_nothing():
    shape = tree(named("srtf", "a", 1, named("hdrf", "b", 1, queue("x")), named("fifo", "c")))

    assert set(groups(shape, "hdrf").values()) == {("a", "srtf")}


@pytest.mark.parametrize("policy", ["hdrf", "drf", "naive-hdrf", "collapsed"])
def test_policies_among_queues_leave_every_leaf_its_level(policy):
    shape = tree(named(policy, "a", 1, queue("b"), named("fair", "c")))

    assert groups(shape, "hdrf") == {"a/b": ("a/b", "drf"), "a/c": ("a/c", "fair")}


def test_drf_in_a_leaf_is_what_every_leaf_does():
    assert groups(tree(named("drf", "a")), "capacity") == {"a": ("a", "drf")}


def test_capacity_serves_first_come_first_inside_each_leaf_but_not_under_another_policy():
    shape = tree(queue("a"), named("hdrf", "b", 1, queue("c")))

    assert groups(shape, "capacity") == {"a": ("a", "fifo"), "b/c": ("b/c", "drf")}
    assert groups(tree(named("capacity", "b", 1, queue("c"))), "drf") == {"b/c": ("b/c", "fifo")}


def test_the_root_may_name_the_policy_of_the_whole_cell():
    shape = tree(queue("a"), named("hdrf", "b", 1, queue("c")))

    assert set(groups(replace(shape, policy="fair"), "hdrf").values()) == {("", "fair")}
    assert set(groups(shape, "fifo").values()) == {("", "fifo")}
    assert groups(replace(shape, policy="capacity"), "fifo")["a"] == ("a", "fifo")


def test_without_a_tree_there_are_no_groups():
    assert groups(None, "hdrf") == groups(tree(), "hdrf") == {}


def test_under_largesse_jobs_are_served_in_the_order_of_the_shadow_where_a_queue_names_no_order():
    shape = tree(queue("a"), named("drf", "b"), named("hdrf", "c"), named("srtf", "d"), named("capacity", "e"))

    orders = {path: group.order for path, group in groups(shape, "largesse", "fsp").items()}

    assert orders == {"a": "fsp", "b": "drf", "c": "fsp", "d": "srtf", "e": "fifo"}


@pytest.mark.parametrize("preset", get_args(Preset))
def test_the_shadow_is_kept_under_largesse_alone_and_can_be_switched_off(preset):
    assert uses_shadow_order(Policy(preset=preset)) == (preset == "largesse")
    assert not uses_shadow_order(Policy(preset=preset, altruism="off"))
