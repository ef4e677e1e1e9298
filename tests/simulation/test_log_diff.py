"""Where two logs part: the first record, the first decision, the first round that started other tasks, and the jobs."""

import gzip
from dataclasses import replace

import pytest

from largesse.log.export import ExportWriter
from schemas.edge.read import read_cluster, read_workload_line
from services.cli.log_diff import text_of
from services.replay.log_diff import diff
from services.replay.source import open_source
from services.simulator.run import Options, simulate
from tests.simulation.runs import cluster, job, stage
from tests.unit.cli_here import largesse

NODES = read_cluster(cluster(2, 2))


def log(path, *jobs, preset="fifo", **values):
    listed = [(line.pop("at", 0), line) for line in map(dict, jobs)]
    with ExportWriter(path) as writer:
        arrivals = [(at, read_workload_line(line)[1]) for at, line in listed]
        simulate(arrivals, NODES, Options({"preset": preset, **values}, listener=writer))
    return open_source(path)


def work(name, ms=1_000, tasks=2, **more):
    return job(name, stage(tasks=tasks, duration_ms=ms)) | more


@pytest.fixture
def logs(tmp_path):
    numbers = iter(range(100))
    return lambda *jobs, **values: log(tmp_path / f"{next(numbers)}.log", *jobs, **values)


def test_a_log_is_the_same_as_itself_however_it_was_written(logs):
    jobs = [work("a"), work("b", at=300)]
    found = diff(logs(*jobs), logs(*jobs))

    assert (found.difference, found.round, found.jobs) == (None, None, [])
    assert found.records[0] == found.records[1] > 5
    assert found.document()["same"] is True
    assert text_of(found) == f"the logs are the same: {found.records[0]} records\n"


def test_the_first_record_that_differs_is_named_with_its_field(logs):
    found = diff(logs(work("a"), work("b", at=500)), logs(work("a"), work("b", at=500, ms=3_000)))

    assert found.difference.topic == "cluster.log"
    assert found.difference.path == "$.body.spec.stages[0].estimate_ms"
    assert (found.difference.recorded, found.difference.decided) == ("1000", "3000")
    assert found.round is None
    assert [(row["job"], row["a_ms"], row["b_ms"]) for row in found.jobs] == [("b", 1_000, 3_000)]


def test_of_two_policies_the_first_round_that_starts_other_tasks_is_named(logs):
    jobs = [work("long", ms=9_000, tasks=4), work("next", ms=5_000, tasks=4, at=10), work("short", tasks=1, at=20)]
    found = diff(logs(*jobs), logs(*jobs, preset="sjf"))

    assert (found.difference.seq, found.difference.path) == (1, "$.body.policy.preset")
    assert found.round.times == (9_000, 9_000)
    assert {row["job"] for row in found.jobs} == {"next", "short"}
    text = text_of(found)
    assert "2 of 3 jobs went another way" in text
    assert "short" in text


def test_a_decision_that_differs_where_the_facts_do_not_is_named_by_its_topic(logs, tmp_path):
    source = logs(work("a", tasks=3), work("b", tasks=3))

    def tampered(hear):
        for step in source.steps(hear):
            decisions = {
                name: content.replace(b'"node":"n-0"', b'"node":"n-1"') if name.startswith("grants") else content
                for name, content in step.decisions.items()
            }
            accepted = step.accepted
            if decisions != step.decisions:
                body = replace(accepted.record.body, wake_ms=77)
                accepted = replace(accepted, record=replace(accepted.record, body=body), content=b"another")
            yield replace(step, accepted=accepted, decisions=decisions)

    found = diff(source, replace(source, read=tampered))

    assert found.difference.topic == "grants"
    assert found.difference.what.startswith("what grants say in round 1")
    assert (found.difference.recorded, found.difference.decided) == ("n-0", "n-1")
    assert found.jobs == []


def test_a_log_that_goes_on_is_named(logs):
    found = diff(logs(work("a")), logs(work("a"), work("b", at=60_000)))

    assert found.difference.what.startswith("only the second log goes on")
    assert found.round.seqs[0] is None
    assert [(row["job"], row["a_ms"], row["b_outcome"]) for row in found.jobs] == [("b", None, "succeeded")]


def test_the_command_says_whether_they_differ_by_its_code(tmp_path, logs):
    one, other = logs(work("a")), logs(work("a"), preset="drf")
    said = largesse("diff", one.name, other.name, "--json")

    assert (said.code, said.json["same"], said.json["seq"]) == (1, False, 1)
    assert largesse("diff", one.name, one.name, "--json").json["same"] is True
    narrow = largesse("diff", one.name, other.name, columns=60)
    assert max(map(len, narrow.out.splitlines())) <= 60
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"no log"))
    assert (largesse("diff", one.name, damaged).code, largesse("diff", one.name, tmp_path / "none").code) == (2, 2)
