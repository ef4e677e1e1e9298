"""Drawn cells of the independent judge of shares: queues that hold one resource and ask for another, with maxima and
without. A queue that waits is below its part by weight for no longer than the longest task that comes and goes lasts,
and a second.
"""

import json
import sys
from contextlib import suppress

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.schedule import ScheduleWriter

SEEDS = (6001, 6020, 6024, 6072, 6098, 6104, 6105, 6112, 6203, 6239, 6267, 6288, 6300, 7135)
"""Beside the first and the last of three hundred: those in which a preset has failed."""

STAYS_MS = 150_000
"""For so long a task stays that does not come and go: beyond all that is judged, and nothing is simulated after it."""


@pytest.fixture(scope="module")
def judge(shared):
    """The judge's module, and the one that reads what it reads."""
    folder = str(shared / "checks")
    if folder not in sys.path:
        sys.path.append(folder)
    return pytest.importorskip("share_check", reason=f"no share_check.py in {folder}")


class OverError(Exception):
    """All that is judged has happened."""


def stop(cell):
    if cell.time > STAYS_MS + 10_000:
        raise OverError


@pytest.mark.rotating(20)
@pytest.mark.parametrize("preset", ["hdrf", "drf", "dress", "rayon", "largesse"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_stays_below_its_part_for_longer_than_a_task_lasts(judge, monkeypatch, tmp_path, preset, seed):
    monkeypatch.setattr(judge, "LONG_MS", STAYS_MS)
    jobs, cluster = judge.drawn(str(seed))
    workload, capacity, schedule = (tmp_path / name for name in ("workload.jsonl", "cluster.json", "schedule.jsonl"))
    workload.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    capacity.write_text(json.dumps(cluster))
    with ScheduleWriter(str(schedule)) as written, suppress(OverError):
        read = [read_workload_line(job) for job in jobs]
        simulate(read, read_cluster(cluster), Options({"preset": preset}, written, before_round=stop))
    attempts = judge.S.read_schedule(schedule)[0]
    below_ms, queue, held, due = judge.longest_below(
        judge.spec.read_workload(workload), judge.spec.read_cluster(capacity), attempts
    )

    assert max(attempt["end_ms"] for attempt in attempts) > STAYS_MS
    assert below_ms <= judge.SHORT_MS[1] + judge.SLACK_MS, f"{queue} held {held} and was due {due}"
