"""A dry run of a config: nothing changes, the errors are those of the real thing, the shares those of fairness."""

import asyncio
import json
import sys
from copy import deepcopy
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from schemas import JobCancelled, QueueShare
from schemas.edge.queues import claims_of, tree_document
from schemas.edge.read import ConfigPatch, Malformed, read_input
from schemas.presets import PRESETS, Preset
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import with_default
from services.fairness.offline.dry_run import effect
from services.gateway.http.dry_runs import config as dry
from services.gateway.http.dry_runs.config import config_of, dry_run, tasks_of
from services.gateway.http.dry_runs.starved_queues import left_nothing
from services.gateway.http.problems import Problem
from tests.builders import queue, tree
from tests.gateway_cell import run_in_memory
from tests.gateway_watch import Watched, stage
from tests.properties.fairness_books import Books, walked
from tests.properties.test_fairness_queues import shapes
from tests.strategies import for_all


@pytest.fixture
def process(monkeypatch):
    """The effect of a config is computed in a process of its own, as in a gateway, however slowly that one starts."""
    monkeypatch.setattr(dry, "EFFECT_WAIT_S", 60)


@pytest.fixture(autouse=True)
def this_process(request, monkeypatch):
    """Without `process`: it is computed by the same function here, from and to JSON. Starting an interpreter for each
    question took more time than all the rest.
    """
    if "process" not in request.fixturenames:

        async def asked(question):
            return json.loads(json.dumps(effect(json.loads(json.dumps(question)))))

        monkeypatch.setattr(dry, "asked", asked)


def tried(cell, shape=None, **knobs):
    """What a dry run says of another tree, or of other knobs."""
    document = {"set": knobs or None, "queues": tree_document(shape) if shape is not None else None}
    return asyncio.run(dry_run(cell.view, read_input("config", document, "ops")))


def refusal(cell, document):
    with pytest.raises(Problem) as refused:
        asyncio.run(dry_run(cell.view, read_input("config", document, "ops")))
    return refused.value.document


def by_queue(answer):
    return {each["queue"]: each for each in answer["queues"]}


def fair(answer, side="after"):
    """What leaves would have, in billionths."""
    return {
        each["queue"]: round(each[side]["fair"] * SHARE_UNITS) for each in answer["queues"] if each[side] is not None
    }


def crowded(shape, **knobs):
    """A cell in which every leaf asks for more than there is."""
    cell = Watched(cpu=8, queues=shape, **knobs)
    for leaf in ("ads/prod", "ads/test", "ml"):
        cell.submit(leaf.replace("/", "-"), stage(tasks=20), queue=leaf)
    return cell


BEFORE = tree(queue("ads", 3, "prod", "test"), queue("ml"))


def test_an_initial_config_would_change_a_cell_that_has_none_and_no_other():
    document = {"set": {"round_gap_ms": 7}, "queues": tree_document(BEFORE), "initial": True}
    fresh, configured = (
        asyncio.run(dry_run(cell.view, read_input("config", document, "ops"))) for cell in (Watched(), crowded(BEFORE))
    )

    assert (fresh["changed"], fresh["set"]) == (True, {"round_gap_ms": {"before": 0, "after": 7}})
    assert (configured["changed"], configured["set"], configured["queues"]) == (False, {}, [])


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(tree(queue("ads", 1, "prod", "test"), queue("ml")), id="other weights"),
        pytest.param(tree(queue("ads", 3, queue("prod", weight=7), "test", "new"), queue("ml")), id="a queue more"),
        pytest.param(tree(queue("ads", 3, "prod", "test"), queue("ml"), queue("idle", weight=90)), id="an idle one"),
    ],
)
def test_what_is_foretold_is_what_fairness_then_says(after):
    cell = crowded(BEFORE)
    levels = dict(cell.view.levels)

    answer = tried(cell, after)

    assert cell.view.levels == levels
    before, after_ = fair(answer, "before"), fair(answer)
    assert {leaf: level for leaf, level in before.items() if leaf in levels} == {
        leaf: levels[leaf] for leaf in before if leaf in levels
    }
    cell.take(read_input("config", {"queues": tree_document(after)}, "ops")).settle()
    moved = {leaf for leaf, level in cell.view.levels.items() if level != levels.get(leaf)}
    assert moved <= set(after_)
    assert {leaf: after_[leaf] for leaf in moved} == {leaf: cell.view.levels[leaf] for leaf in moved}


@pytest.mark.slow
def test_a_knob_that_shares_out_otherwise_is_foretold_too(process):
    cell = crowded(BEFORE)

    answer = tried(cell, preset="drf")

    assert (answer["changed"], answer["set"]) == (True, {"preset": {"before": "largesse", "after": "drf"}})
    assert fair(answer)["ml"] == SHARE_UNITS // 3
    assert {each["change"] for each in answer["queues"]} == {"moved"}


def test_queues_come_and_go_and_say_what_they_were_and_would_be():
    cell = Watched(queues=tree("old", queue("ads", weight=2.5)))

    found = by_queue(tried(cell, tree(queue("ads", max={"cpu": 1_000}), queue("new", policy="fifo"))))

    assert {path: each["change"] for path, each in found.items()} == {"ads": "set", "new": "new", "old": "gone"}
    assert list(found) == ["ads", "new", "old"]
    assert (found["old"]["after"], found["new"]["before"]) == (None, None)
    assert (found["ads"]["before"]["weight"], found["ads"]["after"]["weight"]) == (2.5, 1)
    assert found["ads"]["after"]["limits"]["max"] == {"cpu": "1"}
    assert found["new"]["after"]["policy"] == "fifo"
    assert found["new"]["after"]["fair"] == 0


def test_a_queue_that_stays_as_it_is_is_not_told():
    cell = crowded(BEFORE)

    found = by_queue(tried(cell, tree(queue("ads", 3, queue("prod", weight=3), "test"), queue("ml"))))

    assert set(found) == {"ads/prod", "ads/test"}
    assert found["ads/test"]["change"] == "moved"


def test_what_is_in_force_already_changes_nothing():
    cell = crowded(BEFORE)

    assert tried(cell, BEFORE) == {"dry_run": True, "changed": False, "set": {}, "queues": [], "notes": []}
    assert tried(cell, preset="largesse")["changed"] is False


def test_a_cell_without_a_tree_or_without_nodes_has_an_answer_too():
    assert {each["change"] for each in tried(Watched(), tree("a"))["queues"]} == {"new"}
    assert tried(Watched(nodes=0), tree("a"))["notes"] == ["no node has registered yet: there is nothing to share"]
    assert tried(Watched(nodes=0), preset="drf")["changed"] is True


# ---------------------------------------------------------------- what jobs could use
def test_tasks_count_that_run_or_could_start_and_those_of_jobs_that_are_over():
    cell = Watched(cpu=4, queues=tree("a", "b")).submit("j", stage("s", 3), stage("t", 5, after=["s"]), queue="a")
    cell.submit("k", stage("s", 2, cpu=2), queue="b").start("j", "s").finish("j", "s")
    cell.submit("l", stage("s", 4), stage("u", 1, cpu=2), queue="a").take(JobCancelled("k"))

    assert tasks_of(cell.view, cell.view.queues) == {
        "a": [counts(1_000, running=2, waiting=4), counts(2_000, waiting=1)],
        "b": [counts(2_000, over=1)],
    }


def counts(cpu, running=0, waiting=0, over=0):
    return {"demand": {"cpu": cpu}, "running": running, "waiting": waiting, "over": over}


def test_of_tasks_that_run_in_a_queue_that_is_gone_nothing_is_lost():
    cell = Watched(cpu=4, queues=tree("a", "b")).submit("j", stage(tasks=2), queue="a").take(JobCancelled("j"))
    cell.settle().take(ConfigPatch({}, tree("b"))).settle()

    assert tasks_of(cell.view, cell.view.queues) == {"a": [counts(1_000, over=2)]}
    assert by_queue(tried(cell, tree("b", "c")))["c"]["after"]["fair"] == 0


LEAVES = ("a", "b/x", "b/y")
limits = st.none() | st.integers(1, 3)
step = st.tuples(st.sampled_from(LEAVES), st.integers(1, 5), st.integers(1, 3), st.integers(0, 3), limits)
steps = st.lists(step, min_size=1, max_size=8)


SHAPES = (
    tree(queue("a", weight=2), queue("b", 1, "x", queue("y", weight=3))),
    tree(queue("a", running_jobs_max=1), queue("b", 1, queue("x", weight=4), "y", running_jobs_max=3)),
    tree(
        queue("a", max={"cpu": 2_000, "slots": 3}, user_running_max=2),
        queue("b", 1, queue("x", max={"cpu": 1_500}), queue("y", user_running_max=1), user_running_max=3),
    ),
    tree(
        "a",
        queue("b", 1, queue("x", guaranteed={"cpu": 3_000, "slots": 2}), "y", guaranteed={"cpu": 4_000, "slots": 4}),
    ),
    tree("a", queue("b", 2, "x", "y", policy="naive-hdrf")),
    tree(queue("b", 1, "x", "y", policy="srtf"), queue("a", policy="fifo")),
)
GOES_BY_WHAT_IS_HELD = 4
ANY_PRESET = 4
"""So many of the shapes every preset takes: those after them have policies that do not count where jobs are planned."""
STEP = SHARE_UNITS // 1_000


def said(share):
    return [share.guaranteed, share.lent, share.allocated, share.borrowed]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", get_args(Preset))
@for_all(steps, st.tuples(*[st.sampled_from(range(6))] * 2), st.sampled_from(["hdrf", "slots", "capacity"]), st.data())
def test_whatever_the_preset_what_is_foretold_is_what_the_next_round_says(preset, jobs, shapes, before, data):
    cell = Watched(nodes=2, cpu=4, queues=SHAPES[shapes[0]], preset=before, slots_per_node=3)
    for number, (leaf, tasks, cpu, ended, running_max) in enumerate(jobs):
        first = stage("s", tasks, cpu, running_max=running_max)
        cell.submit(f"j{number}", first, stage("t", 2, after=["s"]), queue=leaf, user=("ann", "bob")[number % 2])
        for key, hold in list(cell.view.holds.items())[:ended]:
            name, which, index = key.split("/")
            cell.start(name, which, first=int(index), attempt=hold.attempt, node=hold.node)
            cell.finish(name, which, first=int(index), attempt=hold.attempt, node=hold.node)
    for name in data.draw(st.lists(st.sampled_from(sorted(cell.view.jobs) or ["none"]), max_size=2, unique=True)):
        if name in cell.view.jobs:
            cell.take(JobCancelled(name)).settle()
    view = cell.settle(2_000).view
    shape = with_default(SHAPES[shapes[1] % ANY_PRESET if PRESETS[preset].plans_jobs else shapes[1]])
    now, then = config_of(view, view.policy, view.queues), config_of(view, replace(view.policy, preset=preset), shape)

    answer = effect(json.loads(json.dumps(dry.question_of(view, now, then))))
    forecast = answer["after"]
    if shapes[0] != GOES_BY_WHAT_IS_HELD:  # At rest: as tasks start, users with limits ask for less.
        assert {leaf: answer["before"][leaf]["fair"] for leaf in view.levels} == cell.own_levels()

    holds = dict(view.holds)
    cell.take(ConfigPatch({"preset": preset, "seed": 1}, shape)).cell.settle()
    check_forecast(cell, forecast)
    if view.holds == holds:  # A cell in rest stays so.
        check_forecast(cell.settle(2_000), forecast)


def check_forecast(cell, forecast):
    """Compares levels to the last digit, and what queues have to the permille that is published."""
    levels = cell.own_levels()
    assert {queue: forecast[queue]["fair"] for queue in levels} == levels
    nothing = QueueShare("", 0, 0, 0, 0, 0, "")
    for path in {**forecast, **cell.view.shares}:
        predicted, real = replace(nothing, **forecast.get(path, {})), cell.view.shares.get(path, nothing)
        assert all(abs(a - b) < STEP + 4 for a, b in zip(said(predicted), said(real), strict=True)), (predicted, real)


def test_jobs_that_a_new_limit_would_let_through_are_asked_for_and_nobody_moves():
    cell = Watched(cpu=8, queues=tree(queue("a", running_jobs_max=1), "b"))
    for name in "xyz":
        cell.submit(name, stage(tasks=2), queue="a")
    cell.submit("w", stage(tasks=9), queue="b")
    gate = deepcopy(cell.view.running_limits)

    now = tasks_of(cell.view, cell.view.queues)
    then = tasks_of(cell.view, tree(queue("a", running_jobs_max=2), "b"))

    assert (now["a"], then["a"]) == ([counts(1_000, 2)], [counts(1_000, 2, 2)])
    assert tasks_of(cell.view, tree("a", "b"))["a"] == [counts(1_000, 2, 4)]
    assert cell.view.running_limits == gate


# ---------------------------------------------------------------- notes
def test_what_could_not_be_meant_is_noted():
    cell = Watched(cpu=4, queues=tree("a", "b")).submit("j", stage(cpu=3), queue="a").submit("k", stage(), queue="b")
    cell.submit("gang", stage(tasks=3, gang=True), queue="a")
    shape = tree(queue("a", max={"cpu": 2_000}, guaranteed={"memroy": 1}), queue("b", guaranteed={"cpu": 4_500}))

    assert tried(cell, shape)["notes"] == [
        "queue a: guaranteed memroy: no node has that",
        "cpu: 4500m would be guaranteed, and the cell has 4",
        *[f"queue {path}{NONE_OF_CPU}" for path in ("a", "default")],
        "queue a: 2 jobs ask for more at once than its max, and would never continue",
    ]
    assert tried(cell, tree(queue("a", max={"cpu": 3_000}, guaranteed={"cpu": 1_000}), "b"))["notes"] == []


LIMITED = tree(
    queue("a", 1, queue("x", guaranteed={"cpu": 1_000}), policy="fifo", max={"cpu": 2_000}),
    queue("b"),
    queue("default"),
)


@pytest.mark.parametrize(
    ("preset", "notes"),
    [
        pytest.param(
            "fifo",
            [
                "queue a: max cpu: no max holds under this preset; it only refuses jobs that ask for more",
                "queue a/x: guaranteed cpu: no guarantee counts under this preset",
            ],
            id="a preset under which no limit counts",
        ),
        pytest.param(
            "hdrf",
            ["queue a/x: guaranteed cpu: no guarantee counts below a queue whose jobs are served as one list"],
            id="a list",
        ),
        pytest.param(
            "srtf",
            ["queue a/x: guaranteed cpu: no guarantee counts below a queue whose jobs are served as one list"],
            id="a preset that makes a list",
        ),
        pytest.param(
            "slots",
            [f"queue {where}: only slots count under this preset" for where in ("a: max cpu", "a/x: guaranteed cpu")],
            id="a preset that counts slots",
        ),
    ],
)
def test_limits_that_would_not_count_are_noted(preset, notes):
    assert tried(Watched(queues=LIMITED), preset=preset)["notes"] == notes


def test_a_guarantee_that_takes_everything_takes_nothing_where_none_counts():
    shape = tree(queue("a", guaranteed={"cpu": 4_000}), queue("b"), queue("default"))
    notes = tried(Watched(cpu=4, queues=shape), preset="fifo")["notes"]

    assert notes == ["queue a: guaranteed cpu: no guarantee counts under this preset"]


def test_a_job_that_is_larger_than_a_max_goes_on_where_none_holds():
    cell = Watched(cpu=4, queues=tree("a")).submit("j", stage(tasks=9), queue="a")
    shape = tree(queue("a", max={"cpu": 500}))

    ends = [
        any("would never continue" in note for note in tried(cell, shape, preset=preset)["notes"])
        for preset in ("fifo", "hdrf")
    ]

    assert ends == [False, True]


def test_a_misspelt_resource_of_a_limit_is_told_with_the_nearest_name():
    cell = Watched(cpu=4)

    assert (
        'queue a: max cpus: no node has that; did you mean "cpu"?'
        in tried(cell, tree(queue("a", max={"cpus": 1})))["notes"]
    )
    assert "queue a: max gpu: no node has that" in tried(cell, tree(queue("a", max={"gpu": 1_000})))["notes"]


NONE_OF_CPU = ": other queues are guaranteed all cpu that it could have; while they ask for that, it gets none"
X = queue("x", guaranteed={"cpu": 2_000})


@pytest.mark.parametrize(
    ("children", "found"),
    [
        pytest.param([queue("a", guaranteed={"cpu": 4_000}), "b"], ["b", "default"], id="all of the cell"),
        pytest.param([queue("a", guaranteed={"cpu": 3_999}), "b"], [], id="all but a little"),
        pytest.param([queue("a", guaranteed={"cpu": 5_000}), "b"], ["b", "default"], id="more than there is"),
        pytest.param(
            [queue("a", guaranteed={"cpu": 4_000}), queue("b", max={"cpu": 0})], ["default"], id="it may have none"
        ),
        pytest.param([queue("a", 1, X, "y", guaranteed={"cpu": 2_000}), "b"], ["a/y"], id="all of a queue"),
        pytest.param([queue("a", 9, X, "y"), "b"], [], id="whose weight gives it more"),
        pytest.param([queue("a", 1, X, "y"), queue("b", weight=8)], ["a/y"], id="whose weight gives it less"),
        pytest.param([queue("a", guaranteed={"gpu": 4_000}), "b"], [], id="of what the cell has not got"),
    ],
)
def test_a_queue_for_which_promises_to_others_leave_nothing_is_noted(children, found):
    named = [note.removesuffix(NONE_OF_CPU) for note in tried(Watched(cpu=4), tree(*children))["notes"]]

    assert [name for name in named if name.startswith("queue") and ":" not in name] == [
        f"queue {path}" for path in found
    ]


@for_all(shapes(limits=({}, {}, {"cpu": 9_000}, {"cpu": 20_000}, {"cpu": 40_000}), maxima=({},), policies=("",)))
def test_those_who_would_be_left_nothing_are_those_who_get_nothing_when_all_ask(shape):
    try:
        claims_of(shape, "")
    except Malformed:
        assume(False)  # The edge takes no such tree.
    books = Books(shape)
    books.set_capacity({"cpu": 40_000})
    for at in range(len([path for path, each in walked(shape) if not each.children])):
        books.job(at, {"cpu": 1_000}, 100)
    books.look()

    empty = {path for path, _ in left_nothing(shape, books.capacity)}
    below_empty = {at for at in books.state.demands.leaves if any(f"{at}/".startswith(f"{path}/") for path in empty)}
    assert below_empty == {leaf for leaf, level in books.state.levels.units.items() if level.target < 10}


# ---------------------------------------------------------------- over HTTP
SHAPE = {"name": "root", "children": [{"name": "ads"}, {"name": "ml"}]}
JOB = {"job": "j", "queue": "ads", "stages": [{"stage": "s", "tasks": 2, "command": ["true"], "demand": {"cpu": "3"}}]}


@pytest.mark.slow
def test_a_dry_run_changes_nothing(process):
    other = {
        "name": "root",
        "children": [{"name": "ads", "weight": 2, "max": {"cpu": 4, "disk": "4k"}}, {"name": "ml"}],
    }

    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": SHAPE})
        await cell.post(JOB)
        before = (await cell.get("/v1/config")).json()
        answer = await cell.http.put("/v1/config?dry_run=true", json={"queues": other, "set": {"seed": 7}})
        return answer, before, (await cell.get("/v1/config")).json()

    answer, before, after = run_in_memory(story)
    document = answer.json()
    assert (answer.status_code, document["dry_run"], document["changed"]) == (200, True, True)
    assert before == after
    assert document["set"] == {"seed": {"before": 0, "after": 7}}
    assert [(each["queue"], each["change"]) for each in document["queues"]] == [("ads", "set")]
    (warning,) = document["warnings"]
    assert warning.startswith('queues.children[0].max.disk: "4k" is less than 1 MiB')


@pytest.mark.slow
def test_what_is_put_in_force_is_noted_as_it_was_foretold():
    promises = {"name": "root", "children": [{"name": "ads", "guaranteed": {"cpu": "99"}}, {"name": "ml"}]}

    async def story(cell):
        await cell.post(JOB | {"queue": "default"})
        dry_answer = await cell.http.put("/v1/config?dry_run=true", json={"queues": promises})
        first, again = [await cell.http.put("/v1/config", json={"queues": promises}) for _ in range(2)]
        return [answer.json()["notes"] for answer in (dry_answer, first, again)]

    forecast, real, again = run_in_memory(story)
    assert forecast == real
    assert [note.partition(":")[0] for note in real] == ["cpu", "queue ml", "queue default"]
    assert again == []


@pytest.mark.parametrize(
    ("document", "status"),
    [
        pytest.param({"queues": {"name": "root", "children": [{"name": "ml"}]}}, 409, id="jobs would be stranded"),
        pytest.param({"queues": {"name": "root"}}, 409, id="and no less where only the root is left"),
        pytest.param({"queues": {"name": "root", "children": [{"name": "a", "wieght": 1}]}}, 422, id="a slip"),
        pytest.param({"set": {"preset": "best"}}, 422, id="no preset"),
        pytest.param({"set": {"reserve_ratio_permille_min": 600}}, 409, id="knobs that contradict each other"),
        pytest.param(
            {
                "set": {"preset": "carbyne"},
                "queues": {"name": "root", "children": [{"name": "ads", "policy": "fifo"}, {"name": "ml"}]},
            },
            409,
            id="a queue's policy that does not count under the preset",
        ),
        pytest.param({}, 422, id="nothing"),
        pytest.param([], 422, id="no object"),
    ],
)
def test_what_would_be_refused_is_refused_in_the_same_words(document, status):
    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": SHAPE})
        await cell.post(JOB)
        dry_answer = await cell.http.put("/v1/config?dry_run=true", json=document)
        return dry_answer, await cell.http.put("/v1/config", json=document)

    dry_run, real = run_in_memory(story)
    assert dry_run.status_code == status
    assert dry_run.json() == real.json()


def test_a_round_is_not_given_up_to_see_what_happens():
    assert refusal(Watched(), {"abandon_round": 1})["field"] == "abandon_round"


@pytest.mark.parametrize(
    ("code", "status", "detail"),
    [
        pytest.param("import time; time.sleep(60)", 503, "the shares were not computed within 0.2 s", id="too slow"),
        pytest.param("import sys; sys.exit('no\\nway')", 500, "the shares could not be computed: way", id="an error"),
        pytest.param("import sys; sys.exit(9)", 500, "the shares could not be computed: exit code 9", id="no word"),
    ],
)
def test_a_process_that_fails_or_takes_too_long_is_told(process, monkeypatch, code, status, detail):
    monkeypatch.setattr(dry, "EFFECT_WAIT_S", 0.2 if status == 503 else 60)
    monkeypatch.setattr(dry, "EFFECT", (sys.executable, "-c", code))

    problem = refusal(Watched(queues=tree("a")), {"queues": {"name": "root"}})

    assert (problem["status"], problem["type"], problem["detail"]) == (status, "urn:largesse:effect", detail)
