"""Nodes that fail and come back: what ran there is lost and runs again, under every preset, and a replay agrees."""

from typing import get_args

import pytest

from largesse.log.export import ExportWriter
from schemas import NodeLost, NodeRegistered
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.outages import OUTAGES_MAX, Outage, Outages, read_outages
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from services.simulator.workloads.files import Damaged
from tests.simulation.runs import cluster, faults, job, simulated, stage

LEASE_MS = 10_000  # The default of `node_lease_ms`.


def run(folder, *lines, count=2, cores=1, outages=(), **knobs):
    return simulated(folder, lines, cluster(cores, count), outages=outages, **knobs)


def attempts_of(run, name="j"):
    attempts = sorted(run.of(name), key=lambda line: (line["index"], line["attempt"]))
    return [(line["node"], line["start_ms"], line["end_ms"], line["outcome"]) for line in attempts]


# ---------------------------------------------------------------- one node
def test_what_a_failed_node_held_is_lost_when_its_lease_runs_out_and_runs_again_elsewhere(tmp_path):
    found = run(tmp_path, job("j", stage(duration_ms=30_000)), outages=[Outage("n-0", 5_000)], preset="fifo")

    assert attempts_of(found) == [("n-0", 0, 15_000, "lost"), ("n-1", 15_000, 45_000, "succeeded")]
    assert found.result["outages"] == {"node_failures": 1, "attempts_lost": 1, "unfinished": []}


def test_a_node_that_is_back_before_its_lease_runs_out_says_what_it_has_lost(tmp_path):
    outage = Outage("n", 5_000, 8_000)
    found = run(tmp_path, job("j", stage(duration_ms=20_000)), count=None, outages=[outage], preset="fifo")
    assert attempts_of(found) == [("n", 0, 8_000, "lost"), ("n", 8_000, 28_000, "succeeded")]


def test_what_is_started_on_a_silent_node_does_not_run_there(tmp_path):
    late = job("j", stage(duration_ms=1_000), submit_ms=6_000)
    found = run(tmp_path, late, count=None, outages=[Outage("n", 5_000, 60_000)], preset="fifo")
    assert attempts_of(found) == [("n", 6_000, 15_000, "lost"), ("n", 60_000, 61_000, "succeeded")]


def test_a_task_that_ends_at_the_moment_of_the_failure_has_succeeded(tmp_path):
    lines = job("j", stage("a", duration_ms=5_000), stage("b", duration_ms=1_000, after=["a"]))
    found = run(tmp_path, lines, outages=[Outage("n-0", 5_000, 5_001)], preset="fifo", round_gap_ms=3_000)
    assert [line["outcome"] for line in found.of("j", "a")] == ["succeeded"]


def test_a_lease_that_began_with_an_earlier_failure_does_not_count(tmp_path):
    outages = [Outage("n", 1_000, 2_000), Outage("n", 9_000, 30_000)]
    found = run(tmp_path, job("j", stage(duration_ms=10_000)), count=None, outages=outages, preset="fifo")
    assert attempts_of(found) == [
        ("n", 0, 2_000, "lost"),
        ("n", 2_000, 19_000, "lost"),
        ("n", 30_000, 40_000, "succeeded"),
    ]


def test_a_gang_loses_all_its_attempts_with_one_of_its_nodes(tmp_path):
    gang = job("j", stage(tasks=2, duration_ms=30_000, gang=True))
    found = run(tmp_path, gang, count=3, outages=[Outage("n-0", 5_000)], preset="fifo")

    assert sorted(attempts_of(found)) == sorted(
        [("n-0", 0, 15_000, "lost"), ("n-1", 0, 15_000, "killed")]
        + [(node, 15_000, 45_000, "succeeded") for node in ("n-1", "n-2")]
    )


def test_a_job_that_nothing_can_run_any_more_is_named_in_the_end(tmp_path):
    lines = [job("j", stage(duration_ms=30_000)), job("k", stage(duration_ms=1_000))]
    found = run(tmp_path, *lines, count=None, cores=4, outages=[Outage("n", 5_000)], preset="fifo")
    assert found.result["outages"]["unfinished"] == ["j"]
    assert (found.row("j")["outcome"], found.row("k")["outcome"]) == (None, "succeeded")
    assert found.row("j")["end_ms"] is None


def test_a_job_ends_though_part_of_it_is_on_a_silent_node(tmp_path):
    doomed = stage(durations_ms=[30_000, 30_000], timeout_ms=7_000)
    found = run(tmp_path, job("j", doomed), outages=[Outage("n-0", 5_000)], preset="fifo")
    assert found.row("j")["outcome"] == "failed"
    assert sorted(line["outcome"] for line in found.of("j")) == ["failed", "killed"]


def test_the_log_says_that_the_node_was_lost_and_registered_again():
    seen = []

    def observe(cell):
        if not seen:
            cell.observers.append(seen.append)

    lines = [read_workload_line(job("j", stage(duration_ms=30_000)))]
    options = Options({"preset": "fifo"}, before_round=observe, outages=[Outage("n-0", 5_000, 20_000)])
    simulate(lines, read_cluster(cluster(1, 2)), options)

    about = [record for record in seen if isinstance(record.body, NodeLost | NodeRegistered)]
    assert [(type(record.body), record.time) for record in about] == [(NodeLost, 15_000), (NodeRegistered, 20_000)]
    lost, back = (record.body for record in about)
    assert [(item.job, item.count) for item in lost.lost] == [("j", 1)]
    assert back.epoch != lost.epoch


# ---------------------------------------------------------------- whole runs
WAVES = [Outage(f"n-{i}", 20_000 + 7_000 * i, None if i == 0 else 45_000 + 9_000 * i) for i in range(4)]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", [preset for preset in get_args(Preset) if preset != "slots"])
def test_the_judge_finds_nothing_where_nodes_fail_and_come_back(shared, tmp_path, preset):
    lines = []
    for i in range(60):
        # No gangs: one that loses a task runs again as a whole, and the judge wants each task to succeed once.
        stages = [stage("a", 1 + i % 7, 2_000 + 531 * i % 9_000), stage("b", 1 + i % 3, 3_000, after=["a"])]
        lines.append(job(f"j{i}", *stages, submit_ms=900 * i))
    found = run(tmp_path, *lines, count=8, cores=2, outages=WAVES, preset=preset)

    assert faults(shared, found) == []
    assert found.result["outages"]["node_failures"] == 4
    assert found.result["outages"]["attempts_lost"] > 0
    assert all(row["outcome"] == "succeeded" for row in found.result["per_job"])


def test_places_that_are_shared_lose_what_runs_on_them(tmp_path):
    lines = [job(f"j{i}", stage(tasks=6, duration_ms=8_000), submit_ms=2_000 * i) for i in range(20)]
    found = run(tmp_path, *lines, count=8, cores=4, outages=WAVES, preset="slots")

    assert all(row["outcome"] == "succeeded" for row in found.result["per_job"])
    lost = {line["node"] for line in found.lines if line["outcome"] == "lost"}
    assert lost == {"n-0", "n-1", "n-2", "n-3"}


@pytest.mark.whole
def test_a_log_with_failing_nodes_replays_bit_for_bit(tmp_path):
    path = str(tmp_path / "log")
    knobs = {"preset": "largesse", "seed": 4, **KNOBS}
    drawn = drawn_cluster(4)
    spans = [Outage(node.name, 25_000, 60_000) for node in drawn.nodes[:3]]
    with ExportWriter(path) as writer:
        simulate(drawn_arrivals(4, "rayon"), drawn, Options(knobs, listener=writer, outages=spans))

    verdict = verify(open_source(tmp_path / "log"))

    assert (verdict.difference, verdict.rounds_compared > 0) == (None, True)


# ---------------------------------------------------------------- the file
CLUSTER = read_cluster(cluster(4, 20))


def read(tmp_path, text, seed=0):
    path = tmp_path / "outages.jsonl"
    path.write_text(text)
    return read_outages(str(path), CLUSTER, seed)


def test_a_line_names_one_node_and_when_it_is_down(tmp_path):
    text = '{"node": "n-3", "from_ms": 5, "to_ms": 9}\n{"node": "n-4", "from_ms": 7}\n'
    assert read(tmp_path, text) == [Outage("n-3", 5, 9), Outage("n-4", 7)]


def test_a_share_of_the_nodes_is_drawn_by_the_seed_and_is_at_least_one_node(tmp_path):
    tenth = '{"nodes_permille": 100, "from_ms": 5}'
    found = {tuple(outage.node for outage in read(tmp_path, tenth, seed)) for seed in range(8)}
    assert {len(set(nodes)) for nodes in found} == {2}
    assert len(found) > 1
    assert read(tmp_path, tenth, 3) == read(tmp_path, tenth, 3)
    assert len(read(tmp_path, '{"nodes_permille": 1, "from_ms": 5}')) == 1


def test_random_failures_have_their_means_and_end_in_time(tmp_path):
    text = '{"mean_up_ms": 9000, "mean_down_ms": 1000, "until_ms": 2000000}'
    found = read(tmp_path, text, 1)
    down_ms = sum(outage.to_ms - outage.from_ms for outage in found)
    assert max(outage.to_ms for outage in found) <= 2_000_000
    assert down_ms / (20 * 2_000_000) == pytest.approx(0.1, abs=0.01)
    assert len(found) == pytest.approx(20 * 200, rel=0.05)
    assert read(tmp_path, text, 2) != found


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"node": "x", "from_ms": 5}', '1: node: "x" is no node of the cluster file'),
        ('{"node": "n-1", "from_ms": 5, "to_ms": 5}', "1: to_ms: has to be after from_ms"),
        ('{"nodes_permille": 0, "from_ms": 5}', "1: nodes_permille"),
        ('{"nodes_permille": 1001, "from_ms": 5}', "1: nodes_permille"),
        ('{"mean_up_ms": 0, "mean_down_ms": 1, "until_ms": 1}', "1: mean_up_ms"),
        ('{"node": "n-1", "at_ms": 5}', "1: "),
        ("[]", "1: "),
    ],
)
def test_a_line_that_is_wrong_is_named_with_its_field(tmp_path, line, says):
    with pytest.raises(Damaged, match=r"outages\.jsonl:") as raised:
        read(tmp_path, line)
    assert says in str(raised.value)


def test_so_many_outages_are_read_and_not_one_more(tmp_path):
    line = '{"nodes_permille": 1000, "from_ms": 5}\n'
    assert len(read(tmp_path, line * (OUTAGES_MAX // 20))) == OUTAGES_MAX
    with pytest.raises(Damaged, match="more than 100,000 outages"):
        read(tmp_path, line * (OUTAGES_MAX // 20 + 1))


def test_spans_of_a_node_that_meet_are_one_outage():
    spans = [Outage("n", 5, 9), Outage("n", 7, 12), Outage("n", 12, 15), Outage("n", 20), Outage("n", 30, 40)]
    outages, found = Outages(spans, []), []
    while (at_ms := outages.next_ms()) is not None:
        if outages.take(at_ms, 1_000_000) is not None:
            found.append(at_ms)
    assert (found, outages.failed) == ([5, 15, 20, 1_000_020], 2)


def test_a_schedule_in_memory_tells_of_lost_attempts():
    schedule = ShortSchedule(10)
    lines = [read_workload_line(job("j", stage(duration_ms=30_000)))]
    simulate(lines, read_cluster(cluster(1, 2)), Options({"preset": "fifo"}, schedule, outages=[Outage("n-0", 5_000)]))
    assert [span.outcome for span in schedule.spans] == ["lost", "succeeded"]
