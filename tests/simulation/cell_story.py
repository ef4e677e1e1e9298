"""One story of a small cell, played on any bus: what can happen to jobs, nodes and config happens in it."""

from largesse.bus.port import Bus
from largesse.settings import Settings
from schemas.policy import KnobValue
from tests.stepped_cell import Input, Recording, SteppedCell, play, recorded

NODES = {"n0": "4", "n1": "4", "n2": "2"}
OVER_MS = 40_000
JOBS = 12
SHARDS_HOSTED = 4


def stage(name, *durations_ms, **more):
    return {"stage": name, "durations_ms": durations_ms, "demand": {"cpu": "1", "memory": "512Mi"}, **more}


def job(at):
    """A graph with a gang in its middle, and attempts that fail; every fifth has no retry to lose."""
    gang = "gang" if at % 3 else "shaky gang"
    stages = [
        stage("split", *[300 + 130 * (at % 7)] * (1 + at % 3)),
        stage("shaky", *[700] * (2 + at % 5), after=["split"], retries=0 if at % 5 == 4 else 9),
        stage(gang, *(300, 400, 600)[: 2 + at % 2], after=["split"], gang=True, retries=9),
        stage("join", 200, after=["shaky", gang]),
    ]
    return {"job": f"j{at}", "queue": ("a", "b/x", "b/y")[at % 3], "priority": at % 2, "stages": stages}


def story(shards: int, later: tuple[tuple[int, int], ...] = (), **knobs: KnobValue) -> list[Input]:
    """Jobs, a node that goes silent and comes back, one that is drained, cancellations, limits, other shards."""
    tree = {"name": "root", "children": [{"name": "a"}, {"name": "b", "children": [{"name": "x"}, {"name": "y"}]}]}
    limited = {"name": "b", "guaranteed": {"cpu": "3"}, "children": [{"name": "x", "max": {"cpu": "3"}}, {"name": "y"}]}
    heavier = {**tree, "children": [{"name": "a", "weight": 3, "running_jobs_max": 2}, limited]}
    settings = {"altruism_shards": shards, "retry_backoff_ms": 200, "round_gap_ms": 100, **knobs}
    inputs: list[Input] = [(0, "config", {"set": settings, "queues": tree})]
    inputs += [(100 + 450 * at, "jobs", job(at)) for at in range(JOBS)]
    inputs += [
        (900, "jobs", b"{no json"),
        (1_000, "away", "n2"),
        (2_000, "jobs", job(0)),
        (2_100, "jobs", {**job(0), "priority": 7}),
        (2_600, "jobs", {"cancel": "j3"}),
        (2_700, "jobs", {"cancel": "j5"}),
        (3_000, "nodes", {"drain": {"node": "n1", "draining": True}}),
        (5_000, "nodes", {"drain": {"node": "n1", "draining": False}}),
        (6_000, "config", {"queues": heavier}),
        (16_000, "back", "n2"),
    ]
    inputs += [(at_ms, "config", {"set": {"altruism_shards": count}}) for at_ms, count in later]
    return inputs


async def record_story(
    bus: Bus, shards: int, hosted: int = 0, later: tuple[tuple[int, int], ...] = (), **knobs: KnobValue
) -> Recording:
    """What a bus holds once the story has been played on it."""
    cell = SteppedCell(bus, Settings(snapshot_rounds=10), hosted or shards, NODES)
    await play(cell, story(shards, later, **knobs), OVER_MS)
    return await recorded(bus, hosted or shards)
