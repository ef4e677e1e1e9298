"""Metrics of a cell say what the documents say, cost what has changed, and are as many as the limits allow."""

import asyncio
from dataclasses import replace
from importlib import import_module
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from largesse.lifecycle.job_classes import class_names
from largesse.log.snapshots import dump, load
from schemas import Asks, Device, NodeRegistered
from schemas.edge.read import ConfigPatch, read_cluster
from services.gateway import view
from services.gateway.documents import metrics
from services.gateway.documents.counting import added
from services.gateway.documents.jobs import job_document
from services.gateway.documents.metrics import (
    JOB_STATES,
    NODE_STATES,
    QUEUE_DEPTH,
    QUEUES_MAX,
    RESOURCES_MAX,
    CellMetrics,
)
from services.gateway.documents.nodes import node_documents
from services.gateway.documents.tally import OfClass, Tally
from services.gateway.view import state as view_state
from tests.builders import job, stage
from tests.cells import SlowCell
from tests.gateway_cell import JOB, run_in_memory
from tests.properties.histories import Play, seeded_histories
from tests.strategies import for_all

FOLDING = import_module("services.gateway.view.fold")  # The module: the package has a function of that name.

TREES = ("wide", "deep", "uneven", "limited", "capped", "none")
CPU = {"cpu": 1_000}


class Viewed(SlowCell):
    """A cell with the gateway's view of it."""

    def __init__(self, shards=1):
        self.view = view.start()
        super().__init__(shards)

    def _fold(self, record):
        super()._fold(record)
        if type(record.body) in view.FOLDS:
            view.fold(self.view, record)

    def close(self):
        for topic in view.READS:
            for record in self.answers[topic]:
                view.fold(self.view, record)
        return super().close()


def looked(tally, state):
    return asyncio.run(tally.look(state))


def plain_counts(state):
    """What the documents of all jobs come to: tasks that wait by queue and reason, since when, and tasks that run."""
    waiting, since, running = {}, {}, {}
    for name, live in state.jobs.items():
        document = job_document(state, name)
        queue = document["queue"]
        for each in document["stages"]:
            working = each["tasks"]["running"] + each["tasks"]["starting"]
            if working:
                running[queue] = running.get(queue, 0) + working
            for why in each["why"]:
                key = queue, why["reason"]
                waiting[key] = waiting.get(key, 0) + why["tasks"]
                since[key] = min(since.get(key, live.submitted_ms), live.submitted_ms)
    return waiting, since, running


def plain_of_class(of_class):
    return of_class.running, of_class.waiting, {kind: amount for kind, amount in of_class.held.items() if amount}


def classes_counted(state):
    """By name of the class: live jobs of which a task has started, the others, and what their tasks hold."""
    names = class_names(state.policy)
    found = {name: OfClass() for name in names}
    for live in state.jobs.values():
        if live.job_class >= 0:
            of_class = found[names[min(live.job_class, len(names) - 1)]]
            of_class.running += live.started_ms is not None
            of_class.waiting += live.started_ms is None
            for stage, tasks in zip(
                live.graph.stages, map(sum, zip(live.running, live.starting, strict=True)), strict=True
            ):
                added(of_class.held, {kind: amount * tasks for kind, amount in stage.demand.items()})
    return {name: plain_of_class(each) for name, each in found.items()}


def assert_as_documents_say(tally, state):
    found = looked(tally, state)
    waiting, since, running = plain_counts(state)
    assert {key: each.tasks for key, each in found.waiting.items()} == waiting
    assert {key: each.since_ms for key, each in found.waiting.items()} == since
    assert found.running == running
    assert {name: plain_of_class(each) for name, each in found.classes.items()} == classes_counted(state)
    states = [job_document(state, name, whole=False)["state"] for name in [*state.jobs, *state.ended]]
    assert found.jobs == {each: states.count(each) for each in set(states)}
    nodes = [each["state"] for each in node_documents(state)]
    assert found.nodes == {each: nodes.count(each) for each in set(nodes)}
    for mine, theirs in ((found.capacity, "capacity"), (found.used, "used")):
        total = {}
        for node in state.nodes.values():
            for kind, amount in ({} if node.lost else getattr(node, theirs)).items():
                total[kind] = total.get(kind, 0) + amount
        assert mine == {kind: amount for kind, amount in total.items() if amount}


@pytest.mark.slow
@for_all(seeded_histories())
def test_counts_that_are_kept_are_those_that_a_count_of_everything_finds(history):
    """Over jobs, failures, losses, drains, cancellations, knobs and other trees; also where the view is restored."""
    cell, tally, chance = Viewed(shards=4), Tally(), Random(history.seed)
    play = Play(cell, TREES[history.seed % len(TREES)])
    for step in history.steps:
        play.step(*step)
        if chance.random() < 0.25:
            assert_as_documents_say(tally, cell.view)
        if chance.random() < 0.03:
            cell.view = load(view_state.State, dump(cell.view))
    play.wind_up()
    assert_as_documents_say(tally, cell.view)


def crowd(jobs, **more):
    """A cell of one core, and jobs of one task each."""
    cell = Viewed()
    cell.take(NodeRegistered("n0", "e1", CPU))
    for number in range(jobs):
        cell.take(job(f"j{number}", stage("s", 1, demand=CPU), **more))
    cell.settle()
    return cell


def test_a_look_costs_what_has_changed_since_the_last_one():
    cell, tally = crowd(300), Tally()
    looked(tally, cell.view)
    whole = tally.looked_at
    looked(tally, cell.view)
    idle = tally.looked_at - whole
    cell.cancel("j7")
    cell.settle()
    looked(tally, cell.view)

    assert whole == 301
    assert idle == 0
    assert tally.looked_at - whole <= 2


def test_with_more_changes_than_are_noted_everything_is_counted_anew(monkeypatch):
    monkeypatch.setattr(view_state, "TOUCHED_MAX", 3)
    cell, tally = crowd(2), Tally()
    looked(tally, cell.view)
    for number in range(5):
        cell.take(job(f"late{number}", stage("s", 1, demand=CPU)))
    cell.settle()

    assert cell.view.touched is None
    assert_as_documents_say(tally, cell.view)


def test_jobs_and_nodes_that_the_view_forgets_are_counted_no_more(monkeypatch):
    monkeypatch.setattr(FOLDING, "ENDED_JOBS_MAX", 2)
    cell, tally = crowd(5), Tally()
    cell.take(ConfigPatch({"node_kept_ms": 1_000}, None), NodeRegistered("n1", "e1", CPU))
    looked(tally, cell.view)
    for number in range(4):
        cell.cancel(f"j{number}")
        cell.settle()
        looked(tally, cell.view)
    cell.lose("n1")
    cell.settle()
    looked(tally, cell.view)
    cell.at(cell.time + 2_000).settle()
    found = looked(tally, cell.view)

    assert (found.jobs["cancelled"], found.nodes) == (2, {"ready": 1})
    assert_as_documents_say(tally, cell.view)


def test_a_job_whose_gate_opens_is_looked_at_again():
    cell, tally = Viewed(), Tally()
    planted(cell, {"name": "root", "children": [{"name": "q", "running_jobs_max": 1}]})
    for name in ("first", "second"):
        cell.take(job(name, stage("s", 1, demand=CPU), queue="q"))
    assert set(looked(tally, cell.view).waiting) == {("q", "next_round"), ("q", "running_limit")}
    cell.cancel("first")

    assert_as_documents_say(tally, cell.view)


def test_what_is_asked_for_in_full_counts_for_jobs_that_are_not_named_too():
    cell, tally = crowd(3), Tally()
    looked(tally, cell.view)
    view.fold(cell.view, replace(cell.records[-1], body=Asks(0, 1, [], full=True)))

    assert_as_documents_say(tally, cell.view)


def test_where_nobody_asks_for_metrics_nothing_is_noted():
    assert crowd(3).view.touched is None


def test_a_look_that_is_broken_off_forgets_no_change():
    cell, tally = crowd(3), Tally()

    async def broken():
        looking = asyncio.ensure_future(tally.look(cell.view))
        await asyncio.sleep(0)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        return looking.cancelled()

    cut = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.gateway.documents.tally.LOOKED_AT_ONCE", cut)
        assert asyncio.run(broken())
    assert_as_documents_say(tally, cell.view)


# ---------------------------------------------------------------- as Prometheus reads them
def samples(state, metrics=None):
    """(name, labels) -> value."""
    text = asyncio.run((metrics or CellMetrics()).exposition(state)).decode()
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def planted(cell, queues):
    return cell.take(read_cluster_tree(queues))


def read_cluster_tree(queues):
    read = read_cluster({"nodes": [{"name": "n", "capacity": {"cpu": 1}}], "queues": queues})
    return ConfigPatch({}, read.queues)


def named(found, name, label):
    return {dict(labels)[label]: value for (each, labels), value in found.items() if each == name}


def deep(levels):
    tree = {"name": f"q{levels}"}
    for level in range(levels - 1, 0, -1):
        tree = {"name": f"q{level}", "children": [tree]}
    return {"name": "root", "children": [tree]}


def path(levels):
    return "/".join(f"q{level}" for level in range(1, levels + 1))


@pytest.mark.parametrize("levels", [QUEUE_DEPTH, QUEUE_DEPTH + 1])
def test_what_lies_deeper_than_the_depth_counts_for_the_queue_above(levels):
    cell = Viewed()
    cell.take(NodeRegistered("n0", "e1", CPU))
    planted(cell, deep(levels))
    for number in range(3):
        cell.take(job(f"j{number}", stage("s", 1, demand=CPU), queue=path(levels)))
    cell.settle()
    found = samples(cell.view)

    assert named(found, "largesse_running_tasks", "queue") == {path(QUEUE_DEPTH): 1}
    assert named(found, "largesse_pending_tasks", "queue") == {path(QUEUE_DEPTH): 2}
    assert all(queue.count("/") < QUEUE_DEPTH for queue in named(found, "largesse_queue_fair_share", "queue"))


@pytest.mark.parametrize("queues", [QUEUES_MAX, QUEUES_MAX + 5])
def test_no_more_queues_than_the_limit_have_metrics_and_all_jobs_count(queues):
    tree = {"name": "root", "children": [{"name": f"q{number}"} for number in range(queues)]}
    cell = Viewed()
    cell.take(NodeRegistered("n0", "e1", CPU))
    planted(cell, tree)
    for number in range(queues):
        cell.take(job(f"j{number}", stage("s", 1, demand=CPU), queue=f"q{number}"))
    cell.settle()
    found = samples(cell.view)
    pending, running = (named(found, f"largesse_{name}_tasks", "queue") for name in ("pending", "running"))

    assert sum(pending.values()) + sum(running.values()) == queues
    assert len(set(pending) | set(running) | set(named(found, "largesse_queue_fair_share", "queue"))) <= QUEUES_MAX + 1
    assert pending.get("/", 0) == queues - QUEUES_MAX


def test_where_queues_are_only_names_they_are_no_labels():
    found = samples(crowd(3, queue="somebody/else").view)

    assert named(found, "largesse_pending_tasks", "queue") == {"/": 2}


def test_no_more_resources_than_the_limit_have_metrics():
    cell = Viewed()
    for number in range(RESOURCES_MAX):
        cell.take(NodeRegistered(f"n{number}", "e1", {"cpu": 1_000, f"kind{number:02}": 1}))
    found = samples(cell.view)

    assert len(named(found, "largesse_capacity", "resource")) == RESOURCES_MAX
    assert set(named(found, "largesse_used", "resource")) == set(named(found, "largesse_capacity", "resource"))


def test_amounts_are_in_natural_units():
    cell = Viewed()
    gpus = [Device(0, 1_000), Device(1, 1_000)]
    cell.take(NodeRegistered("n0", "e1", {"cpu": 1_500, "gpu": 2_000, "memory": 3, "network": 10}, devices=gpus))
    found = samples(cell.view)

    assert named(found, "largesse_capacity", "resource") == {"cpu": 1.5, "gpu": 2, "memory": 3 << 20, "network": 1e7}


def test_shares_ages_and_states_are_told():
    cell = Viewed()
    cell.take(NodeRegistered("n0", "e1", {"cpu": 4_000}))
    planted(cell, {"name": "root", "children": [{"name": "a", "weight": 3}, {"name": "b"}]})
    cell.at(10_000)
    for number, queue in enumerate(("a", "a", "a", "a", "b", "b")):
        cell.take(job(f"j{number}", stage("s", 1, demand=CPU), queue=queue))
        cell.at(cell.time + 1_000)
    cell.settle()
    found = samples(cell.view)

    assert named(found, "largesse_queue_guaranteed_share", "queue") == {"a": 0.75, "b": 0.25}
    assert named(found, "largesse_queue_fair_share", "queue") == {"a": 0.75, "b": 0.25}
    assert named(found, "largesse_queue_allocated_share", "queue") == {"a": 0.75, "b": 0.25}
    assert set(named(found, "largesse_jobs", "state")) == set(JOB_STATES)
    assert set(named(found, "largesse_nodes", "state")) == set(NODE_STATES)
    ages = {dict(labels)["queue"]: value for (name, labels), value in found.items() if "oldest" in name}
    assert ages == {
        queue: (cell.view.time - min(each.submitted_ms for each in waiting)) / 1_000
        for queue in ("a", "b")
        if (
            waiting := [each for each in cell.view.jobs.values() if each.spec.queue == queue and not sum(each.starting)]
        )
    }
    assert found["largesse_round_open", ()] == 0
    assert found["largesse_round", ()] == cell.view.round > 0


def test_classes_have_their_jobs_what_they_hold_their_pools_and_forecasts():
    cell = Viewed()
    knobs = {"classes": "on", "theta_permille": 300, "reserve_ratio_permille_min": 200, "seed": 1}
    cell.take(ConfigPatch(knobs, None), NodeRegistered("n0", "e1", {"cpu": 10_000}))
    for name, tasks in (("wide", 8), ("little", 1), ("wider", 9)):
        cell.take(job(name, stage("s", tasks, demand=CPU, duration_ms=5_000)))
        cell.settle()
    cell.start(*[grant for grant in cell.granted if grant.job == "wide"])
    for _ in range(3):
        cell.at(cell.time + 20_000)
        cell.take(ConfigPatch({"seed": cell.time}, None))
        cell.settle()
    found = samples(cell.view)

    jobs = {
        (dict(labels)["class"], dict(labels)["state"]): n for (name, labels), n in found.items() if "class_jobs" in name
    }
    assert jobs == {
        ("small", "running"): 0, ("small", "waiting"): 1, ("large", "running"): 1, ("large", "waiting"): 1,
    }  # fmt: skip
    assert named(found, "largesse_class_held_share", "class") == {"small": 0.1, "large": 0.9}
    assert named(found, "largesse_class_pool_share", "class") == {"small": 0.2, "large": 0.8}
    used = cell.view.forecast.forecaster
    assert named(found, "largesse_forecaster_in_use", "forecaster") == {"ramp": 0, "durations": 0} | {used: 1}
    assert len([name for name, _ in found if name == "largesse_forecast_error_share"]) == 8

    cell.take(ConfigPatch({"classes": "off"}, None))
    cell.settle()
    off = {name for name, _ in samples(cell.view)}
    assert {"largesse_class_jobs", "largesse_class_held_share"} <= off
    assert not off & {"largesse_class_pool_share", "largesse_forecaster_in_use", "largesse_forecast_error_share"}


def test_the_gateway_serves_them_beside_those_of_its_process():
    async def story(cell):
        await cell.post(JOB)
        return await cell.get("/metrics")

    answer = run_in_memory(story)
    families = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"largesse_jobs", "largesse_capacity", "largesse_round_seconds", "largesse_build_info"} - families == set()
    assert len(families) == sum(line.startswith("# TYPE") for line in answer.text.splitlines())
    assert metrics.ROOT == "/"
