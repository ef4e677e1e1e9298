"""What the gateway says of queues: limits, shares, jobs before the gate, and why a job of a queue waits."""

import json
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import strategies as st

from largesse.log.snapshots import dump, load
from schemas import (
    Breach,
    ConfigChanged,
    JobCancelled,
    JobSpec,
    NodeReported,
    Policy,
    Queue,
    QueueShare,
    Shares,
    TaskFinished,
)
from schemas.edge.read import ConfigPatch, read_input
from schemas.edge.strict_json import loads
from schemas.envelope import Record
from schemas.grants import WaitReason
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import with_default
from schemas.tasks import TaskEnd
from services.admission import core as admission
from services.admission.core.judge import judge
from services.fairness.core.accounts import accounts_of
from services.gateway import view
from services.gateway.documents.cell import config_document
from services.gateway.documents.job_lists import job_documents
from services.gateway.documents.jobs import WHY, job_document
from services.gateway.documents.queues import queue_document
from services.gateway.http.problems import dumped
from services.gateway.view.state import State
from tests.builders import queue, tree
from tests.gateway_watch import Watched, stage
from tests.queue_trees import queue_trees
from tests.strategies import for_all


def by_path(document):
    return {document["queue"]: document} | {
        path: found for child in document["children"] for path, found in by_path(child).items()
    }


def queues(cell):
    return by_path(queue_document(cell.view))


def why(cell, name):
    """What one-stage jobs wait for: reason and text."""
    ((reason,),) = [each["why"] for each in cell.job(name)["stages"]]
    return reason["reason"], reason["text"]


def folded(state, *bodies):
    """Folds bodies as if the log or a decision topic had brought them."""
    for body in bodies:
        view.fold(state, Record(type(body).__name__, 1, "default", state.seq + 1, 1, 0, "", "", body))
    return state


# ---------------------------------------------------------------- limits and shares
def test_every_queue_says_what_the_config_says_of_it():
    ads = queue("ads", 1, queue("prod", policy="srtf"), guaranteed={"cpu": 1_000}, max={"cpu": 3_000, "gpu": 0})
    cell = Watched(queues=tree(ads, queue("ml", running_jobs_max=2, submitters=["ann"])))

    found = queues(cell)

    assert found["ads"]["limits"] == {
        "guaranteed": {"cpu": "1"},
        "max": {"cpu": "3", "gpu": "0"},
        "running_jobs_max": None,
        "user_jobs_max": None,
        "user_running_max": None,
        "submitters": [],
    }
    assert found["ml"]["limits"] == {
        "guaranteed": {},
        "max": {},
        "running_jobs_max": 2,
        "user_jobs_max": None,
        "user_running_max": None,
        "submitters": ["ann"],
    }
    assert [found[path]["policy"] for path in ("", "ads", "ads/prod")] == [None, None, "srtf"]


@pytest.mark.parametrize(
    ("preset", "top", "ads", "prod", "in_force"),
    [
        pytest.param("largesse", "", "", "", ["hdrf", "hdrf", "hdrf"], id="the preset's"),
        pytest.param("capacity", "", "", "drf", ["capacity", "capacity", "drf"], id="its own"),
        pytest.param("hdrf", "drf", "", "fair", ["drf", "drf", "fair"], id="the root's before the preset's"),
        pytest.param("fifo", "hdrf", "", "", ["hdrf", "hdrf", "hdrf"], id="also where the preset makes a list"),
        pytest.param("hdrf", "", "fifo", "srtf", ["hdrf", "fifo", "fifo"], id="below a list no other counts"),
    ],
)
def test_the_policy_in_force_comes_from_above(preset, top, ads, prod, in_force):
    shape = tree(queue("ads", 1, queue("prod", policy=prod), policy=ads), policy=top)
    state = folded(view.start(), ConfigChanged(Policy(preset=preset), shape))

    found = by_path(queue_document(state))

    assert [found[path]["policy_in_force"] for path in ("", "ads", "ads/prod")] == in_force


def test_what_is_held_is_told_as_it_is_now_and_what_is_due_as_fairness_said_it():
    cell = Watched(cpu=4, queues=tree(queue("ads", 1, "prod", "test"), "ml"))
    cell.submit("p", stage(tasks=2), queue="ads/prod").submit("t", stage(), queue="ads/test")
    cell.view.shares["ads"] = QueueShare("ads", 600_000_000, 700_000_000, 0, 100_000_000, 0, "memory")

    ads = queues(cell)["ads"]

    assert [ads[name] for name in ("guaranteed", "fair", "lent")] == [0.6, 0.7, 0.1]
    assert (ads["allocated"], ads["held"], ads["resource"]) == (0.75, 0.75, "cpu")
    assert ads["borrowed"] == 0.15
    assert ads["used"] == {"cpu": "3"}


def test_a_queue_of_which_fairness_said_nothing_has_less_than_it_would_tell_of():
    state = folded(view.start(), ConfigChanged(None, with_default(tree("a"))))

    found = by_path(queue_document(state))["a"]

    assert [found[name] for name in ("guaranteed", "fair", "lent", "borrowed", "allocated")] == [0] * 5
    assert (found["resource"], found["jobs"]) == (None, {"waiting": 0, "running": 0, "parked": 0})


def test_the_root_says_what_it_holds_and_has_no_share_of_its_own():
    cell = Watched(cpu=4, queues=tree("a")).submit("j", stage(tasks=4), queue="a")
    folded(cell.view, Shares([], queues=[QueueShare("", 1, 2, 3, 4, 5, "cpu")]))

    root = queues(cell)[""]

    assert (root["allocated"], root["resource"], root["used"]) == (1.0, "cpu", {"cpu": "4"})
    assert [root[name] for name in ("guaranteed", "fair", "lent", "borrowed", "target")] == [None] * 5


def test_inside_a_list_no_queue_has_a_share_of_its_own():
    state = folded(view.start(), ConfigChanged(None, with_default(tree(queue("a", 1, "b", "c", policy="fifo"), "d"))))

    found = by_path(queue_document(state))

    assert {path for path, each in found.items() if each["guaranteed"] is None} == {"", "a/b", "a/c"}
    assert [found["a/b"][name] for name in ("fair", "lent", "borrowed", "allocated")] == [None, None, None, 0]


def test_the_last_word_of_fairness_counts_and_ends_with_its_queue():
    share = QueueShare("a", 1, 1, 1, 0, 0, "cpu")
    state = folded(view.start(), ConfigChanged(None, tree("a", "b")), Shares([], queues=[share]))
    folded(state, Shares([], queues=[replace(share, fair=500_000_000)]), Shares([]))
    assert by_path(queue_document(state))["a"]["fair"] == 0.5

    folded(state, ConfigChanged(None, tree("b")), ConfigChanged(None, tree("a", "b")))

    assert by_path(queue_document(state))["a"]["fair"] == 0


def test_a_broken_guarantee_is_marked_until_it_holds_again_or_its_queue_is_gone():
    broken = Breach("a", 500_000_000, 100_000_000, 77, "b")
    state = folded(view.start(), ConfigChanged(None, tree("a", "b")), Shares([], breaches=[broken]))
    document = {"since_ms": 77, "guaranteed": 0.5, "allocated": 0.1, "winner": "b", "placeable": True}
    assert by_path(queue_document(state))["a"]["breach"] == document
    assert by_path(queue_document(state))["b"]["breach"] is None

    folded(state, Shares([], breaches=[replace(broken, over=True)]))
    assert by_path(queue_document(state))["a"]["breach"] is None

    folded(state, Shares([], breaches=[broken]), ConfigChanged(None, tree("b")), ConfigChanged(None, tree("a")))
    assert by_path(queue_document(state))["a"]["breach"] is None


def test_a_share_may_be_above_one_after_a_loss():
    cell = Watched(nodes=2, cpu=2, queues=tree("a")).submit("j", stage(tasks=4), queue="a")
    assert queues(cell)["a"]["allocated"] == 1.0

    for name in ("n0", "n1"):
        cell.take(NodeReported(name, "e1", {"cpu": 500}))

    assert queues(cell)["a"]["allocated"] == 4.0


def test_the_top_also_holds_what_is_still_held_for_a_queue_that_is_gone():
    cell = Watched(cpu=4, queues=tree("a", "b")).submit("j", stage(tasks=2), queue="a").start("j", "s", count=2)
    cell.take(JobCancelled("j")).settle().take(ConfigPatch({}, tree("b")))

    found = queues(cell)

    assert set(found) == {"", "b", "default"}
    assert (found[""]["allocated"], found[""]["used"]) == (0.5, {"cpu": "2"})


def test_what_nobody_holds_any_more_of_queues_that_are_gone_is_forgotten():
    cell = Watched(queues=tree("a", "b")).submit("j", stage(), queue="a").start("j", "s").finish("j", "s")
    assert "a" in cell.view.used

    cell.take(ConfigPatch({}, tree("b")))

    assert "a" not in cell.view.used


# ---------------------------------------------------------------- places
PLACES = {"preset": "slots", "slots_per_node": 5}


def test_under_slots_what_a_queue_has_is_counted_in_places_as_its_guarantee_is():
    cell = Watched(nodes=2, cpu=4, queues=tree("a", "b"), **PLACES)
    cell.submit("wide", stage(tasks=3, cpu=4), queue="a").submit("thin", stage(tasks=50), queue="b")

    found = queues(cell)

    shares = ("guaranteed", "fair", "allocated", "borrowed", "lent")
    assert [found["a"][name] for name in shares] == [0.5, 0.3, 0.3, 0, 0.2]
    assert (found["b"]["allocated"], round(found["b"]["borrowed"], 9)) == (0.7, 0.2)
    assert (found["b"]["resource"], found["b"]["used"]) == ("slots", {"cpu": "7", "slots": "7"})
    assert (found[""]["allocated"], found[""]["used"]) == (1.0, {"cpu": "19", "slots": "10"})


@pytest.mark.parametrize("preset", ["slots", "hdrf"])
@for_all(
    st.lists(
        st.tuples(st.sampled_from(["a", "b/x", "b/y"]), st.integers(1, 6), st.integers(1, 4), st.integers(0, 4)),
        max_size=6,
    )
)
def test_what_a_queue_has_is_what_fairness_counts(preset, jobs):
    cell = Watched(nodes=2, cpu=6, queues=tree("a", queue("b", 1, "x", "y")), preset=preset)
    cell.take(NodeReported("n1", "e1", {})).settle()
    for number, (leaf, tasks, cpu, ended) in enumerate(jobs):
        cell.submit(f"j{number}", stage("s", tasks, cpu), queue=leaf)
        for key, hold in list(cell.view.holds.items())[:ended]:
            name, which, index = key.split("/")
            cell.start(name, which, first=int(index), node=hold.node)
            cell.finish(name, which, first=int(index), node=hold.node)

        accounts = accounts_of(cell.cell.fairness)
        counted = {path: accounts.to_publish(account).allocated for path, account in accounts.queues.items()}
        assert {path: round(each["allocated"] * SHARE_UNITS) for path, each in queues(cell).items()} == counted


def test_a_change_of_preset_counts_what_is_held_anew():
    cell = Watched(nodes=2, cpu=4, queues=tree("a", "b"), preset="hdrf").submit("j", stage(tasks=2), queue="a")
    assert queues(cell)["a"]["allocated"] == 0.25

    cell.take(ConfigPatch(PLACES, None))
    assert queues(cell)["a"]["allocated"] == 0.2
    assert queue_document(load(State, dump(cell.view))) == queue_document(cell.view)

    cell.take(ConfigPatch({"preset": "drf"}, None))
    assert (queues(cell)["a"]["allocated"], queues(cell)["a"]["used"]) == (0.25, {"cpu": "2"})


def test_under_slots_a_maximum_in_places_alone_keeps_a_task_waiting():
    cell = Watched(nodes=1, cpu=4, queues=tree(queue("a", max={"cpu": 1_000}), queue("b", max={"slots": 2})), **PLACES)
    cell.submit("over", stage(tasks=2), queue="a").submit("j", stage(tasks=3), queue="b")
    assert cell.tasks("over") == {"starting": 2}
    assert why(cell, "j") == ("queue_max", "queue b has a max of slots 2 and holds 2")

    cell.submit("gang", stage(tasks=3, gang=True), queue="b")
    explanation = "queue b has a max of slots 2, and 3 is asked for at once: it can never run"
    assert why(cell, "gang") == ("queue_max", explanation)


# ---------------------------------------------------------------- before the gate
def test_jobs_before_the_gate_are_counted_and_say_which_queue_is_full():
    cell = Watched(cpu=8, queues=tree(queue("ads", 1, "prod", "test", running_jobs_max=2), "ml"))
    for name, where in (("a", "ads/prod"), ("b", "ads/test"), ("c", "ads/prod"), ("d", "ads/test"), ("e", "ml")):
        cell.submit(name, stage(), queue=where)
    cell.start("a", "s").start("b", "s")

    assert queues(cell)["ads"]["jobs"] == {"waiting": 2, "running": 2, "parked": 2}
    assert queues(cell)["ads/test"]["jobs"] == {"waiting": 1, "running": 1, "parked": 1}
    assert queues(cell)[""]["jobs"]["parked"] == 2
    assert why(cell, "c") == ("running_limit", "queue ads allows 2 jobs at a time; it is next")
    assert why(cell, "d") == ("running_limit", "queue ads allows 2 jobs at a time; 1 is ahead of it")
    assert cell.job("d")["why"] == "queue ads allows 2 jobs at a time; 1 is ahead of it"

    cell.finish("a", "s")

    assert why(cell, "d") == ("running_limit", "queue ads allows 2 jobs at a time; it is next")
    assert queues(cell)["ads"]["jobs"]["parked"] == 1


def test_who_is_before_whom_goes_by_priority_then_admission_over_all_leaves_of_the_queue():
    cell = Watched(queues=tree("x", "y", queue("z", running_jobs_max=1), running_jobs_max=1))
    cell.submit("runs", stage(), queue="x")
    for name, where, priority in (("a", "x", 0), ("b", "y", 5), ("c", "x", 5), ("d", "z", 0)):
        cell.take(JobSpec(name, where, [stage()], priority)).settle()

    places = {name: why(cell, name)[1].partition("; ")[2] for name in "abcd"}

    assert places == {"b": "it is next", "c": "1 is ahead of it", "a": "2 are ahead of it", "d": "3 are ahead of it"}
    assert why(cell, "d")[1].startswith("the cell allows 1 job at a time")
    listed = {each["job"]: each["why"] for each in job_documents(cell.view, limit=10)}
    assert {name: listed[name].partition("; ")[2] for name in "abcd"} == places


def test_a_stage_that_waits_for_another_says_so_also_before_the_gate():
    cell = Watched(queues=tree(queue("a", running_jobs_max=1))).submit("runs", stage(), queue="a")
    cell.submit("j", stage("m"), stage("r", after=["m"]), queue="a")

    assert [each["why"][0]["reason"] for each in cell.job("j")["stages"]] == ["running_limit", "after"]


def test_a_job_that_is_cancelled_before_the_gate_waits_for_nobody():
    cell = Watched(queues=tree(queue("a", running_jobs_max=1))).submit("runs", stage(), queue="a")
    cell.submit("j", stage(), queue="a").submit("k", stage(), queue="a").take(JobCancelled("j"))

    assert why(cell, "j") == ("running_limit", "is being cancelled")
    assert why(cell, "k")[1].endswith("it is next")
    assert cell.settle().job("j")["state"] == "cancelled"


def test_a_raised_limit_lets_jobs_through_and_a_restored_view_says_the_same():
    cell = Watched(cpu=8, queues=tree(queue("a", running_jobs_max=1)))
    for name in "abc":
        cell.submit(name, stage(), queue="a")
    assert queues(cell)["a"]["jobs"]["parked"] == 2

    cell.take(ConfigPatch({}, tree(queue("a", running_jobs_max=2)))).settle()

    assert queues(cell)["a"]["jobs"]["parked"] == 1
    assert cell.tasks("b") == {"starting": 1}
    assert job_document(load(State, dump(cell.view)), "c") == cell.job("c")


# ---------------------------------------------------------------- a maximum
def test_a_task_that_its_queues_maximum_leaves_no_room_for_says_so():
    ads = queue("ads", 1, "prod", "test")
    cell = Watched(cpu=2, queues=tree(ads)).submit("a", stage(tasks=2), queue="ads/prod")
    cell.submit("b", stage(), queue="ads/test")
    assert why(cell, "b")[0] == "no_room"

    cell.take(ConfigPatch({}, tree(replace(ads, max={"cpu": 2_999}))))
    assert why(cell, "b") == ("queue_max", "queue ads has a max of cpu 2999m and holds 2; a task asks for 1")

    cell.take(ConfigPatch({}, tree(replace(ads, max={"cpu": 2_000}))))
    assert why(cell, "b") == ("queue_max", "queue ads has a max of cpu 2 and holds 2")

    cell.take(ConfigPatch({}, tree(replace(ads, max={"cpu": 3_000, "gpu": 0}))))
    assert why(cell, "b")[0] == "no_room"


def test_what_a_gang_asks_for_is_said_of_all_of_it():
    cell = Watched(cpu=8, queues=tree(queue("a", max={"cpu": 4_000}))).submit("j", stage(), queue="a")
    cell.submit("gang", stage(tasks=4, gang=True), queue="a")

    assert why(cell, "gang") == ("queue_max", "queue a has a max of cpu 4 and holds 1; the gang asks for 4")


def test_a_task_that_waits_for_a_maximum_names_its_queue_also_where_there_is_room_again():
    cell = Watched(cpu=8, queues=tree(queue("ads", 1, "prod", max={"cpu": 2_000}), "ml"))
    cell.submit("a", stage(tasks=2), queue="ads/prod").submit("b", stage(), queue="ads/prod").start("a", "s", count=2)
    assert why(cell, "b") == ("queue_max", "queue ads has a max of cpu 2 and holds 2")

    cell.take(TaskFinished([TaskEnd("a", "s", 0, 1, 1, "n0", "e1", [5])]))  # No round has followed yet.

    assert why(cell, "b") == ("queue_max", "queue ads has a max of cpu 2 and holds 1; the next round considers it")


def test_no_maximum_is_why_a_task_waits_under_fifo():
    cell = Watched(cpu=4, queues=tree(queue("a", max={"cpu": 1_000})), preset="fifo")
    cell.submit("many", stage(tasks=6), queue="a")

    assert cell.tasks("many") == {"starting": 4, "waiting": 2}
    assert why(cell, "many") == ("no_room", "no node has room for it now; 1 node could run it and is full")


@pytest.mark.parametrize(
    ("preset", "ignored"),
    [
        pytest.param("largesse", {"ads": ([], []), "ads/prod": (["cpu"], [])}, id="below a list"),
        pytest.param("srtf", {"ads": (["cpu"], []), "ads/prod": (["cpu"], [])}, id="one list"),
        pytest.param("fifo", {"ads": (["cpu"], ["cpu"]), "ads/prod": (["cpu"], ["gpu"])}, id="no limit"),
        pytest.param("slots", {"ads": (["cpu"], ["cpu"]), "ads/prod": (["cpu"], ["gpu"])}, id="other than slots"),
    ],
)
def test_limits_that_do_not_count_are_told(preset, ignored):
    prod = queue("prod", guaranteed={"cpu": 1_000}, max={"gpu": 1_000})
    ads = queue("ads", 1, prod, policy="fifo", guaranteed={"cpu": 1_000}, max={"cpu": 2_000})
    document = queue_document(folded(view.start(), ConfigChanged(Policy(preset=preset), tree(ads))))
    found = {path: each["ignored"] for path, each in by_path(document).items()}

    assert document["preset"] == preset
    assert {path: (found[path]["guaranteed"], found[path]["max"]) for path in ignored} == ignored


def test_guarantees_count_under_a_preset_that_plans_jobs():
    shape = tree(queue("a", guaranteed={"cpu": 1_000}, max={"cpu": 2_000}))
    state = folded(view.start(), ConfigChanged(Policy(preset="carbyne"), shape))

    assert by_path(queue_document(state))["a"]["ignored"] == {"guaranteed": [], "max": []}


def test_a_task_that_a_new_maximum_rules_out_says_that_it_can_never_run():
    cell = Watched(cpu=2, queues=tree("a")).submit("fills", stage(cpu=2), queue="a")
    cell.submit("gang", stage(tasks=2, gang=True), queue="a")

    cell.take(ConfigPatch({}, tree(queue("a", max={"cpu": 1_500}))))

    explanation = "queue a has a max of cpu 1500m, and 2 is asked for at once: it can never run"
    assert why(cell, "gang") == ("queue_max", explanation)


def test_every_reason_to_wait_has_its_words():
    assert set(get_args(WaitReason)) - {"none"} <= set(WHY)


# ---------------------------------------------------------------- the config
@for_all(queue_trees())
def test_what_the_config_prints_may_be_put_back_and_changes_nothing(shape):
    change = ConfigChanged(Policy(preset="hdrf", theta_permille=7), with_default(shape))
    state, judging = folded(view.start(), change), admission.start()
    admission.fold(judging, Record("ConfigChanged", 1, "default", 1, 0, 0, "", "", change))

    printed = dumped(config_document(state))
    patch = read_input("config", loads(printed), "ops")

    assert json.loads(printed)["queues"]["name"] == "root"
    assert isinstance(patch, ConfigPatch)
    assert patch.queues == with_default(shape)
    assert judge(judging, patch, "ops", 0) is None


def test_a_cell_without_a_tree_prints_what_may_be_put_back():
    patch = read_input("config", loads(dumped(config_document(view.start()))), "ops")

    assert isinstance(patch, ConfigPatch)
    assert patch.queues is None


def test_the_tree_of_a_cell_without_one_is_its_default_queue():
    assert [each["queue"] for each in queue_document(view.start())["children"]] == ["default"]
    only = folded(view.start(), ConfigChanged(None, Queue("root")))
    assert queue_document(only)["children"] == []


def test_without_a_tree_jobs_are_counted_under_the_name_they_gave_and_at_the_root():
    cell = (
        Watched(cpu=4)
        .submit("a", stage(), queue="ads/prod")
        .submit("b", stage(), queue="ads/prod")
        .submit("c", stage())
    )
    cell.submit("wide", stage(cpu=3), queue="ads").start("a", "s")

    found = queues(cell)

    assert list(found) == ["", "default", "ads", "ads/prod"]
    assert found["ads/prod"]["jobs"] == {"waiting": 1, "running": 1, "parked": 0}
    assert found["ads/prod"]["used"] == {"cpu": "2"}
    assert found["ads"]["jobs"] == {"waiting": 1, "running": 0, "parked": 0}
    assert found[""]["jobs"] == {"waiting": 3, "running": 1, "parked": 0}
    assert [found["ads/prod"][name] for name in ("guaranteed", "fair", "lent", "borrowed")] == [None] * 4


def test_a_name_that_no_job_uses_any_more_is_no_row_where_there_is_no_tree():
    cell = Watched(queues=Queue("root")).submit("j", stage(), queue="x/y").start("j", "s")
    assert list(queues(cell)) == ["", "x/y"]

    cell.finish("j", "s")

    assert list(queues(cell)) == [""]
