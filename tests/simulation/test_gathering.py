"""Guarantees on machines: where large and small tasks share nodes, no queue that waits stays more than one of its tasks
below what it is guaranteed for longer than `headroom_after_ms` and one longest task. Histories run through the real
cores; the books are kept from the schedule alone.
"""

from fractions import Fraction

import pytest

from tests.simulation.runs import faults, job, simulated, stage

AFTER_MS = 10_000
TOLERANCE_MS = 1_000
SECONDS = 1_000


def spans_below(run, cores, sizes, weights, from_ms, to_ms):
    """By queue, the longest span within the time in which it waits and holds less than its guarantee by more than one
    of its tasks, in ms. All queues wait throughout that time; queue -> cores of a task, queue -> weight.
    """
    total, longest = sum(weights.values()), dict.fromkeys(sizes, 0)
    moves = []
    for line in run.lines:
        if "held" not in line:
            size = sizes[line["job"].split("-")[0]]
            moves += [
                (line["start_ms"], line["job"].split("-")[0], size),
                (line["end_ms"], line["job"].split("-")[0], -size),
            ]
    moves.sort(key=lambda move: move[0])
    held, since = dict.fromkeys(sizes, 0), dict.fromkeys(sizes)
    for i, (at_ms, name, amount) in enumerate(moves):
        if at_ms >= to_ms:
            break
        held[name] += amount
        if i + 1 < len(moves) and moves[i + 1][0] == at_ms:
            continue
        for queue, size in sizes.items():
            below = held[queue] + size < Fraction(weights[queue], total) * cores
            if not below or at_ms < from_ms:
                if since[queue] is not None:
                    longest[queue] = max(longest[queue], at_ms - since[queue])
                since[queue] = None
            elif since[queue] is None:
                since[queue] = at_ms
    for queue, begun in since.items():
        if begun is not None:
            longest[queue] = max(longest[queue], to_ms - begun)
    return longest


def crowded(
    folder, sizes, weights, lasts_ms, *, nodes, cores, idle="big", back_ms=60 * SECONDS, until_ms=180 * SECONDS, **knobs
):
    """A cell in which every queue has more work than it can have until `until_ms`; `idle` comes back to it, when it is
    full, at `back_ms`.
    """
    lines = []
    mean_ms = sum(lasts_ms) // len(lasts_ms)
    for queue, size in sizes.items():
        tasks = nodes * cores * until_ms // (size * mean_ms) + 10
        each = stage(durations_ms=[lasts_ms[i % len(lasts_ms)] for i in range(tasks)], demand={"cpu": str(size)})
        lines.append(job(f"{queue}-0", each, queue=queue, submit_ms=back_ms if queue == idle else 0))
    tree = {"name": "root", "children": [{"name": queue, "weight": weight} for queue, weight in weights.items()]}
    capacity = [{"name": "n", "count": nodes, "capacity": {"cpu": str(cores)}}]
    return simulated(folder, lines, {"nodes": capacity, "queues": tree}, headroom_after_ms=AFTER_MS, **knobs)


FIVE = {"big": 3, "a": 1, "b": 2, "c": 1, "d": 2}
PARTS = {"big": 84, "a": 29, "b": 29, "c": 29, "d": 29}
"""Of 200: the queue with large tasks is guaranteed 42 %."""
DRAWN_MS = [5_000 + 7_919 * i % 15_001 for i in range(101)]


def test_a_queue_with_large_tasks_that_was_idle_gets_its_share_back(tmp_path, shared):
    run = crowded(tmp_path, FIVE, PARTS, DRAWN_MS, nodes=10, cores=16)
    worst = spans_below(run, 160, FIVE, PARTS, 60 * SECONDS, 180 * SECONDS)
    assert max(worst.values()) <= AFTER_MS + max(DRAWN_MS)
    assert faults(shared, run, conserving=True) == []
    assert faults(shared, run, guarantee=True, tolerance_ms=AFTER_MS + TOLERANCE_MS) == []


@pytest.mark.whole
def test_without_headroom_fragments_starve_it(tmp_path):
    """The law above is none that nothing could break."""
    run = crowded(tmp_path, FIVE, PARTS, DRAWN_MS, nodes=10, cores=16, headroom="off")
    assert spans_below(run, 160, FIVE, PARTS, 60 * SECONDS, 180 * SECONDS)["big"] > 60 * SECONDS
