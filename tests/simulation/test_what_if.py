"""A recorded log decided again: the recorded policy decides as recorded, another as a run of its own, from any fork."""

from dataclasses import replace
from typing import get_args

import pytest

from largesse.log.export import ExportWriter
from schemas import JobAdmitted, JobEnded, RoundOpened, TaskFailed
from schemas.edge.base import Malformed
from schemas.edge.cluster import ClusterNode
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from services.replay.source import open_source
from services.replay.verify import verify
from services.replay.whatif import run as what_if
from services.replay.whatif.answer import document_of
from services.replay.whatif.run import NotThere, Question, ask
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.engine import Cell
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate
from tests.simulation.runs import cluster, job, stage

PRESETS = get_args(Preset)
ARRIVALS = 70
NOT_SHARED = tuple(preset for preset in PRESETS if preset != "slots")


def recorded(path, arrivals, nodes, values=None, outages=()):
    """A log and the result of the simulation that wrote it."""
    with ExportWriter(path) as writer:
        result = simulate(arrivals, nodes, Options(values or {}, listener=writer, outages=list(outages)))
    return open_source(path), result


def drawn(path, seed, preset, *, outages=False, jobs=ARRIVALS):
    """A drawn history: gangs, graphs, failures, reservations under presets that plan them, and nodes that fail."""
    nodes = drawn_cluster(seed)
    spans = [Outage(node.name, 20_000 + 1_000 * at, 55_000) for at, node in enumerate(nodes.nodes[:3])]
    spans += [Outage(nodes.nodes[-1].name, 30_000, 34_000)]  # Back before its lease has run out.
    values = {"preset": preset, "seed": seed, **KNOBS}
    arrivals = sorted(drawn_arrivals(seed, preset), key=lambda arrival: arrival[0])
    return recorded(path, arrivals[:jobs], nodes, values, spans if outages else ())


def jobs_of(world):
    return {(seq, row["job"]): (row["submit_ms"], row["end_ms"], row["outcome"]) for seq, row in world.jobs.items()}


def same_worlds(answer):
    assert jobs_of(answer.decided) == jobs_of(answer.recorded)
    assert answer.outcomes.guessed == 0


def watched(monkeypatch):
    """Every record of what is decided again, by seq."""
    records = {}

    class Watched(Cell):
        def put(self, *arguments, **named):
            record = super().put(*arguments, **named)
            records[record.seq] = record
            return record

    monkeypatch.setattr(what_if, "Cell", Watched)
    return records


def plainly(record):
    """A record but for what follows from how reports were put together: attempts one by one, and hashes."""
    body = record.body
    if hasattr(body, "items"):
        body = sorted(
            (item.job, item.stage, item.first + place, item.attempt, item.node, item.epoch, getattr(item, "reason", ""))
            for item in body.items
            for place in range(item.count)
        )
    elif isinstance(body, RoundOpened):
        body = body.rules, body.shards, body.pools_ppm, body.judged
    elif hasattr(body, "hashes"):
        body = replace(body, hashes=[])
    return record.seq, record.time, record.round, record.type, body


# ---------------------------------------------------------------- nothing is different
@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", PRESETS)
def test_under_the_recorded_policy_every_job_ends_as_recorded(tmp_path, preset):
    source, result = drawn(tmp_path / "log", 11, preset)
    answer = ask(source, Question())

    same_worlds(answer)
    assert answer.decided.measured["per_job"] == [
        {name: value for name, value in row.items() if name in answer.decided.measured["per_job"][0]}
        for row in result["per_job"]
    ]
    assert answer.decided.measured["jain"] == result["jain"]


@pytest.mark.rotating(8)
@pytest.mark.parametrize("preset", NOT_SHARED)
@pytest.mark.parametrize("seed", [3, 4])
def test_every_record_is_decided_again_also_where_nodes_failed(tmp_path, preset, seed, monkeypatch):
    source, _ = drawn(tmp_path / "log", seed, preset, outages=True)
    decided = watched(monkeypatch)
    same_worlds(ask(source, Question()))

    records = [step.accepted.record for step in source.steps()]
    assert [plainly(each) for each in decided.values()] == [plainly(each) for each in records[: len(decided)]]
    # A simulation goes on as long as anything is due, also where nothing can start any more.
    assert not [each for each in records[len(decided) :] if getattr(each.body, "grants", [])]


@pytest.mark.parametrize("seed", [5, 6])
def test_without_failures_even_the_bytes_are_the_same_and_from_any_fork_the_records(tmp_path, seed, monkeypatch):
    jobs = [
        (
            at * 700,
            read_workload_line(job(f"j{at}", stage(tasks=1 + at % 7, duration_ms=900 + at * seed * 37 % 5_000)))[1],
        )
        for at in range(60)
    ]
    source, result = recorded(tmp_path / "log", jobs, read_cluster(cluster(2, 5)), {"preset": "largesse"})

    assert ask(source, Question()).digest == result["digest"]
    records = [step.accepted.record for step in source.steps()]
    decided = watched(monkeypatch)
    for fork in range(1, len(records), len(records) // 6):
        decided.clear()
        after = ask(source, Question(fork=fork)).fork
        assert [plainly(each) for each in decided.values()] == [plainly(each) for each in records[after:]]


@pytest.mark.parametrize(("preset", "seed"), [("largesse", 8), ("rayon", 9), ("slots", 10)])
def test_from_any_fork_on_every_job_ends_as_recorded(tmp_path, preset, seed):
    source, result = drawn(tmp_path / "log", seed, preset, outages=preset != "slots")

    for fork in range(1, result["records"], result["records"] // 4):
        answer = ask(source, Question(fork=fork))
        assert abs(answer.fork - fork) < 50
        if preset != "slots":  # What shares a node slows what shares it: how far each has come is not in a log.
            same_worlds(answer)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("fork", [0, 60])
def test_the_log_of_the_other_world_is_decided_again_as_any(tmp_path, fork):
    source = drawn(tmp_path / "log", 5, "carbyne")[0]
    question = Question({"preset": "drf"}, fork=fork)
    with ExportWriter(tmp_path / "other") as writer:
        answer = ask(source, question, None, writer)
    other = open_source(tmp_path / "other")

    verdict = verify(other)
    assert verdict.is_same, verdict.text()
    shared = list(zip(source.steps(), other.steps(), strict=False))[: answer.fork]
    assert all(one.accepted.content == two.accepted.content for one, two in shared)
    assert answer.fork <= fork
    again = ask(other, Question())
    assert list(jobs_of(again.recorded).values()) == list(jobs_of(answer.decided).values())
    assert jobs_of(again.decided) == jobs_of(again.recorded)


def test_a_fork_may_be_given_as_a_time(tmp_path):
    source, _ = drawn(tmp_path / "log", 8, "drf")
    times = {step.accepted.record.seq: step.accepted.record.time for step in source.steps()}
    answer = ask(source, Question(fork_ms=40_000))

    assert times[answer.fork] <= 40_000 < times[answer.fork + 3]
    same_worlds(answer)


# ---------------------------------------------------------------- something is
@pytest.mark.parametrize("other", ["drf", "fifo", "dress"])
def test_another_policy_decides_as_in_a_run_of_its_own(tmp_path, other):
    source, _ = drawn(tmp_path / "carbyne", 12, "carbyne")
    _, alone = drawn(tmp_path / "other", 12, other)
    decided = ask(source, Question({"preset": other})).decided

    assert {row["job"]: row["end_ms"] for row in decided.jobs.values()} == {
        row["job"]: row["end_ms"] for row in alone["per_job"]
    }
    assert decided.measured["jct_ms"] == alone["jct_ms"]
    assert decided.measured["jain"] == alone["jain"]


def one_by_one(path, *jobs, nodes=1, **values):
    listed = [read_workload_line(line)[1] for line in jobs]
    return recorded(
        path, [(0, spec) for spec in listed], read_cluster(cluster(1, nodes)), {"preset": "fifo", **values}
    )[0]


def ends(world):
    return {row["job"]: row["end_ms"] for row in world.jobs.values()}


def test_the_jobs_of_a_user_and_a_job_may_be_left_out(tmp_path):
    jobs = [job(name, stage(duration_ms=1_000)) | {"user": user} for name, user in (("a", "x"), ("b", "y"), ("c", "z"))]
    source = one_by_one(tmp_path / "log", *jobs)
    without = Question(without_jobs=["a"], without_users=["y"])
    answer = ask(source, without)

    assert ends(answer.recorded) == {"a": 1_000, "b": 2_000, "c": 3_000}
    assert ends(answer.decided) == {"c": 1_000}
    document = document_of(answer, without)
    assert document["explained"] == []
    assert [(row["job"], row["recorded_ms"], row["decided_ms"]) for row in document["jobs"]] == [
        ("a", 1_000, None), ("b", 2_000, None), ("c", 3_000, 1_000)
    ]  # fmt: skip
    assert document["changed"] == {"jobs left out": [[], ["a"]], "users left out": [[], ["y"]]}
    both = document["both"]
    assert (both["jobs"], both["recorded_alone"], both["decided_alone"]) == (1, 2, 0)
    assert (both["recorded"]["jct_ms"]["mean"], both["decided"]["jct_ms"]["mean"]) == (3_000, 1_000)
    assert (both["recorded"]["waiting_ms"]["p50"], both["decided"]["waiting_ms"]["p50"]) == (2_000, 0)


def test_a_job_that_names_no_user_is_nobodys(tmp_path):
    jobs = [job("a", stage(duration_ms=1_000)) | {"user": "x"}, job("b", stage(duration_ms=1_000))]
    source = one_by_one(tmp_path / "log", *jobs)
    document = document_of(ask(source, Question()), Question())

    assert [(row["job"], row["user"]) for row in document["jobs"]] == [("a", "x"), ("b", "")]
    assert [(row["user"], row["jobs"]) for row in document["users"]] == [("", 1), ("x", 1)]
    assert ends(ask(source, Question(without_users=["simulator"])).decided) == {"a": 1_000}, "who sent it"


def test_nodes_may_be_added_and_removed_and_tasks_be_slower(tmp_path):
    source = one_by_one(tmp_path / "log", *(job(name, stage(duration_ms=1_000)) for name in "abcd"), nodes=2)
    more = [ClusterNode(name, {"cpu": 1_000, "memory": 1 << 20}) for name in ("x", "y")]

    assert sorted(ends(ask(source, Question()).decided).values()) == [1_000, 1_000, 2_000, 2_000]
    assert sorted(ends(ask(source, Question(added=more)).decided).values()) == [1_000] * 4
    assert sorted(ends(ask(source, Question(removed=["n-1"])).decided).values()) == [1_000, 2_000, 3_000, 4_000]
    assert sorted(ends(ask(source, Question(slower_permille=1_250)).decided).values()) == [1_250, 1_250, 2_500, 2_500]


def test_what_waits_for_a_node_that_is_gone_never_ends_and_is_named(tmp_path):
    source = one_by_one(tmp_path / "log", *(job(name, stage(duration_ms=1_000)) for name in "ab"))
    question = Question(removed=["n-0"], fork=5)
    answer = ask(source, question)

    assert set(ends(answer.decided).values()) == {None}
    assert (
        "jobs that never end, since what they wait for does not come: 2" in document_of(answer, question)["explained"]
    )


def test_a_command_fails_as_often_as_it_did(tmp_path):
    line = job("j", stage(duration_ms=5_000, timeout_ms=2_000, retries=2))
    source = one_by_one(tmp_path / "log", line)
    failed = [step.accepted.record for step in source.steps() if isinstance(step.accepted.record.body, TaskFailed)]
    answer = ask(source, Question({"preset": "drf"}))

    assert len(failed) == 3
    assert [(row["outcome"], row["end_ms"]) for row in answer.decided.jobs.values()] == [
        (row["outcome"], row["end_ms"]) for row in answer.recorded.jobs.values()
    ]
    assert next(iter(answer.decided.jobs.values()))["outcome"] == "failed"


def test_what_comes_behind_the_end_that_is_asked_for_does_not_come(tmp_path):
    source, _ = drawn(tmp_path / "log", 13, "drf")
    seqs = [step.accepted.record.seq for step in source.steps() if isinstance(step.accepted.record.body, JobAdmitted)]
    answer = ask(source, Question(until=seqs[4]))

    assert len(answer.decided.jobs) == len(answer.recorded.jobs) == 5


def test_what_is_not_in_the_log_is_named(tmp_path):
    source = one_by_one(tmp_path / "log", job("j", stage()))
    for question, fault in (
        (Question(without_jobs=["k"]), "job 'k' is not in this log"),
        (Question(without_users=["ann"]), "user 'ann' is not in this log"),
        (Question(removed=["m"]), "node 'm' is not in this log"),
        (Question(added=[ClusterNode("n-0", {"cpu": 1})]), "node 'n-0' is in this log already"),
    ):
        with pytest.raises(NotThere, match=fault):
            ask(source, question)


def test_what_was_over_before_the_fork_stands_in_neither_world(tmp_path):
    jobs = [job(name, stage(duration_ms=1_000)) | {"user": f"of {name}"} for name in "abc"]
    source = one_by_one(tmp_path / "log", *jobs)
    records = [step.accepted.record for step in source.steps()]
    fork = next(each.seq for each in records if isinstance(each.body, JobEnded))
    question = Question(fork=fork)
    document = document_of(answer := ask(source, question), question)

    assert [row["job"] for row in document["jobs"]] == ["b", "c"]
    assert document["explained"] == ["jobs that had ended before, and stand in neither world: 1"]
    for world in (document["recorded"], document["decided"]):
        assert (world["jobs"], world["makespan_ms"], world["utilisation"]["cpu"]) == (2, 2_000, 1)
        assert world["jct_ms"]["mean"] == 2_500
    assert answer.told.over == 1
    with pytest.raises(NotThere, match=f"job 'a' is not in this log behind record {fork}, or has ended before"):
        ask(source, Question(fork=fork, without_jobs=["a"]))
    with pytest.raises(
        NotThere, match=f"user 'of a' is not in this log with a job that had not ended by record {fork}"
    ):
        ask(source, Question(fork=fork, without_users=["of a"]))
    ask(source, Question(fork=fork, without_jobs=["b"], without_users=["of c"]))


def test_knobs_that_contradict_the_logs_are_refused(tmp_path):
    source = one_by_one(tmp_path / "log", job("j", stage()))
    with pytest.raises(Malformed, match="reserve_ratio_permille_min"):
        ask(source, Question({"reserve_ratio_permille_min": 900, "reserve_ratio_permille_max": 100}))
