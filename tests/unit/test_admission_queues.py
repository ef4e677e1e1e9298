"""Admission and the queue tree: who may submit where, what no queue's maximum lets run, and trees that change."""

from dataclasses import replace

import pytest

from largesse.lifecycle import queue_rules
from schemas import ConfigChanged, InputRefused, JobAdmitted, JobRejected, Queue
from tests.builders import config, job, node, queue, stage, tree
from tests.cells import AUTHOR, one_node_cell


def by(user, where="a"):
    return replace(job(f"of {user}", queue=where), user=user)


# ---------------------------------------------------------------- who may submit
@pytest.mark.parametrize(
    ("user", "where", "detail"),
    [
        pytest.param("ann", "org/ads/prod", None, id="the nearest queue above that names some names her"),
        pytest.param(
            "bob",
            "org/ads/prod",
            'user "bob" may not submit to queue "org/ads/prod"; those who may are ann, cat (so says queue "org/ads")',
            id="what a queue further up names does not help",
        ),
        pytest.param("bob", "org/ml", None, id="a queue that names nobody takes those of the one above it"),
        pytest.param(
            "eve",
            "org/ml",
            'user "eve" may not submit to queue "org/ml"; those who may are bob (so says queue "org")',
            id="and no others",
        ),
        pytest.param(
            "ann",
            "org/own",
            'user "ann" may not submit to queue "org/own"; those who may are dan',
            id="its own come first",
        ),
        pytest.param("anybody", "free", None, id="at the top everybody may"),
        pytest.param("", "free", None, id="nobody in particular may, too"),
        pytest.param("anybody", "default", None, id="and to the default queue"),
        pytest.param(
            "",
            "org/own",
            'the job names no user (set "user"), and not everybody may submit to queue "org/own"; '
            "those who may are dan",
            id="whoever says no name",
        ),
    ],
)
def test_who_may_submit_where(user, where, detail):
    ads = queue("ads", 1, "prod", submitters=["ann", "cat"])
    story = one_node_cell(
        config(tree(queue("org", 1, ads, "ml", queue("own", submitters=["dan"]), submitters=["bob"]), "free"))
    )

    answer = story.take(by(user, where))

    if detail is None:
        assert isinstance(answer, JobAdmitted)
    else:
        assert isinstance(answer, JobRejected)
        assert (answer.reason, answer.field, answer.detail) == ("not_allowed", "user", detail)


def test_the_whole_cell_may_be_for_some():
    story = one_node_cell(config(queue("root", 1, "a", submitters=["ann"])))

    assert isinstance(story.take(by("ann", "default")), JobAdmitted)
    rejected = story.take(by("eve", "a"))
    assert rejected.detail.endswith("those who may are ann (so says the root of the tree)")


def test_a_tree_that_is_only_its_root_says_who_may_submit_anywhere():
    story = one_node_cell(config(queue("root", submitters=["ann"])))

    assert isinstance(story.take(by("ann", "any/where")), JobAdmitted)
    assert story.take(by("eve", "any/where")).reason == "not_allowed"


def test_a_rejection_names_some_of_many_users():
    most = queue_rules.NAMES_SHOWN_MAX
    users = [f"u{i}" for i in range(most + 2)]

    def refusal(submitters):
        return one_node_cell(config(tree(queue("a", submitters=submitters)))).take(by("eve")).detail

    assert refusal(users[:most]).endswith(f" u{most - 1}")
    assert refusal(users).endswith(f" u{most - 1} and 2 more")


def test_who_may_submit_changes_with_the_tree_and_admitted_jobs_stay():
    story = one_node_cell(config(tree("a")))
    assert isinstance(story.take(by("eve")), JobAdmitted)

    assert isinstance(story.take(config(tree(queue("a", submitters=["ann"])))), ConfigChanged)

    assert story.take(by("bob")).reason == "not_allowed"
    assert "of eve" in story.restore().admission.jobs
    assert story.take(by("bob")).reason == "not_allowed"
    story.take(config(tree("a")))
    assert isinstance(story.take(by("bob")), JobAdmitted)


# ---------------------------------------------------------------- what may never run
GANG = {"tasks": 3, "gang": True}


@pytest.mark.parametrize(
    ("asked", "where", "detail"),
    [
        pytest.param({"cpu": 2_000}, "ads/prod", None, id="as much as the queue may hold"),
        pytest.param(
            {"cpu": 2_001},
            "ads/prod",
            'one task asks for cpu 2001m; queue "ads/prod" has a max of 2',
            id="a base unit more",
        ),
        pytest.param(
            {"cpu": 3_000}, "ads/test", 'one task asks for cpu 3; queue "ads" has a max of 2500m', id="a queue above"
        ),
        pytest.param(
            {"memory": 2_049},
            "ads/test",
            "one task asks for memory 2049Mi; the root of the tree has a max of 2Gi",
            id="the whole tree",
        ),
        pytest.param({"tasks": 9}, "ads/prod", None, id="tasks may run one after the other"),
        pytest.param(
            GANG, "ads/prod", 'a gang of 3 tasks asks for cpu 3; queue "ads/prod" has a max of 2', id="a gang may not"
        ),
        pytest.param({**GANG, "tasks": 2}, "ads/prod", None, id="a gang that fits exactly"),
        pytest.param(
            {"gpu": 1}, "ads/prod", 'one task asks for gpu 1m; queue "ads/prod" has a max of 0', id="a maximum of 0"
        ),
        pytest.param({"cpu": 4_000, "memory": 1}, "ml", None, id="a resource that no limit names"),
    ],
)
def test_a_task_or_gang_beyond_a_maximum_is_refused(asked, where, detail):
    prod = queue("prod", max={"cpu": 2_000, "gpu": 0})
    top = queue("root", 1, queue("ads", 1, prod, "test", max={"cpu": 2_500}), "ml", max={"memory": 2_048})
    story = one_node_cell(config(top), node("n2", gpu=1_000))

    stages = [stage("s", 1, cpu=1, memory=1), stage("t", **{"memory": 1, **asked})]
    answer = story.take(job("j", *stages, queue=where))

    if detail is None:
        assert isinstance(answer, JobAdmitted)
    else:
        assert isinstance(answer, JobRejected)
        assert (answer.reason, answer.detail) == ("exceeds_queue_max", detail)
        assert answer.field == f"stages[1].demand.{answer.detail.split(' for ')[1].split()[0]}"


def test_a_maximum_below_what_runs_is_taken_and_admitted_jobs_stay():
    story = one_node_cell(config(tree("a")), job("j", stage(tasks=4), queue="a"))
    assert sum(grant.count for grant in story.settle()) == 4

    assert isinstance(story.take(config(tree(queue("a", max={"cpu": 500})))), ConfigChanged)

    assert list(story.admission.jobs) == ["j"]
    assert story.take(job("k", queue="a")).reason == "exceeds_queue_max"


# ---------------------------------------------------------------- trees that change
BEFORE = tree(queue("org", 1, "x", "y"), "b")


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        pytest.param(tree(queue("org", 1, "x", "y"), "b", "new"), None, id="a queue more"),
        pytest.param(tree("b", queue("org", 9, "y", "x")), None, id="other weights and another order"),
        pytest.param(tree(queue("org", 1, "x", "y")), None, id="a leaf without jobs less"),
        pytest.param(
            queue("root"),
            'queue "org/x" would be gone, and has 2 live jobs; let them end or cancel them, and the same in 1 '
            "other queue",
            id="only the root",
        ),
        pytest.param(
            tree(queue("org", 1, "y"), "b"),
            'queue "org/x" would be gone, and has 2 live jobs; let them end or cancel them',
            id="a leaf with jobs less",
        ),
        pytest.param(
            tree("x", "y", "b"),
            'queue "org/x" would be gone, and has 2 live jobs; let them end or cancel them, and the same in 1 '
            "other queue",
            id="leaves with jobs elsewhere",
        ),
        pytest.param(
            tree(queue("org", 1, queue("x", 1, "deeper"), "y"), "b"),
            'queue "org/x" would have queues below it, and has 2 live jobs; let them end or cancel them',
            id="a leaf with jobs that would be an inner queue",
        ),
        pytest.param(
            tree(queue("org", 1, "x"), "b"),
            'queue "org/y" would be gone, and has 1 live job; let them end or cancel them',
            id="one job",
        ),
    ],
)
def test_a_tree_may_not_strand_live_jobs(after, reason):
    story = one_node_cell(config(BEFORE))
    story.take(job("j1", queue="org/x"), job("j2", queue="org/y"), job("j3", queue="org/x"))

    answer = story.take(config(after))

    if reason is None:
        assert isinstance(answer, ConfigChanged)
    else:
        assert isinstance(answer, InputRefused)
        assert (answer.topic, answer.field, answer.reason, answer.author) == ("config", "queues", reason, AUTHOR)


@pytest.mark.parametrize("first", [None, queue("root")], ids=["no tree", "only its root"])
def test_jobs_that_no_leaf_was_named_for_do_not_keep_the_root_from_its_limits(first):
    story = one_node_cell(*([config(first)] if first is not None else []), job("j", queue="any/where"))

    assert isinstance(story.take(config(queue("root", submitters=["ann"]))), ConfigChanged)
    assert "j" in story.admission.jobs
    assert isinstance(story.take(config(tree("b"))), InputRefused)


def test_only_the_root_is_left_once_no_leaf_has_jobs():
    story = one_node_cell(config(tree(queue("a", submitters=["ann"]))), by("ann"))
    assert isinstance(story.take(config(queue("root"))), InputRefused)
    assert story.take(by("eve")).reason == "not_allowed"

    story.settle()
    story.finish(*story.granted)
    story.settle()

    assert isinstance(story.take(config(queue("root"))), ConfigChanged)
    assert isinstance(story.take(by("eve")), JobAdmitted)


def test_a_queue_is_taken_away_once_its_jobs_are_over():
    story = one_node_cell(config(BEFORE), job("j", queue="b"))
    story.settle()
    assert isinstance(story.take(config(tree("org"))), InputRefused)

    story.finish(*story.granted)
    story.settle()

    assert isinstance(story.take(config(tree("org"))), ConfigChanged)
    assert story.take(job("k", queue="b")).reason == "unknown_queue"
    assert isinstance(story.take(job("k", queue="org")), JobAdmitted)


def test_the_default_queue_is_added_and_the_top_keeps_its_limits():
    top = queue("root", 1, "a", running_jobs_max=3, max={"cpu": 3_000}, submitters=["ann"], policy="fifo")

    changed = one_node_cell().take(config(top))

    assert changed.queues == replace(top, children=[Queue("a"), Queue("default")])
