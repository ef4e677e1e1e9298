"""What a dry run says of a job, over drawn cells: submitted at that very record, the log says the same of it, byte for
byte, and the next round starts the same tasks on the same nodes.
"""

import asyncio
from dataclasses import dataclass

import orjson
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.log.codec import decode, encode
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import InputRefused, InputRepeated, JobAdmitted, JobRejected, RoundClosed, RoundOpened
from schemas.presets import PRESETS
from schemas.topics import TOPICS
from services.replay.live.trial import Asked, trial
from tests.simulation.cell_story import JOBS, NODES, job, story
from tests.stepped_cell import SteppedCell, tell
from tests.strategies import for_all

AUTHOR = "client"
ROUNDS_MAX = 50
EXAMPLES = 50
"""Each tells a story of a whole cell, of part of a second."""


def stage(name, tasks, cpu, **more):
    return {"stage": name, "tasks": tasks, "demand": {"cpu": cpu}, "duration_ms": 400, **more}


SUBMISSIONS = {
    "small": {"job": "new", "queue": "a", "stages": [stage("s", 2, "500m")]},
    "wide": {"job": "new", "queue": "b/x", "stages": [stage("s", 30, "1"), stage("t", 2, "1", after=["s"])]},
    "gang": {"job": "new", "queue": "b/y", "stages": [stage("s", 4, "1", gang=True)]},
    "without a name": {"queue": "a", "stages": [stage("s", 1, "1")]},
    "first of its queue": {"job": "new", "priority": 3, "queue": "default", "stages": [stage("s", 3, "1")]},
    "too large a task": {"job": "new", "queue": "a", "stages": [stage("s", 1, "64")]},
    "too large a gang": {"job": "new", "queue": "a", "stages": [stage("s", 40, "1", gang=True)]},
    "no such queue": {"job": "new", "queue": "c", "stages": [stage("s", 1, "1")]},
    "no such reservation": {"job": "new", "queue": "a", "reservation": "r", "stages": [stage("s", 1, "1")]},
    "no such resource": {
        "job": "new",
        "queue": "a",
        "stages": [{"stage": "s", "tasks": 1, "demand": {"fpga": "1"}, "duration_ms": 9}],
    },
    "a name that is taken": {**job(0), "priority": 9},
    "known word for word": job(0),
    "run again": {**job(0), "rerun": True},
}


@dataclass
class Told:
    """What the dry run said, and what became of the job: the record of the log, the grants of the next round, and
    whether nothing else came between."""

    said: dict
    record: object
    grants: dict
    undisturbed: bool


async def tried(bus, cell, document, shards):
    asked = Asked(orjson.dumps(document), AUTHOR, cell.now_ms, shards)
    return await trial(bus, Settings(), asked)


async def submitted(bus, cell, document, reader):
    """The record of the log that says so, the next closing of a round that began after it, and how many records came
    between the two that are no part of rounds."""
    await publish_input(bus.writer(), "jobs", document, AUTHOR)
    found, opened, between = None, 0, 0
    for _ in range(ROUNDS_MAX):
        await cell.settle()
        for accepted in await reader.read(100_000):
            record, source = accepted.record, accepted.header.topic
            if found is None and source == "jobs":
                found = record
                if not isinstance(record.body, JobAdmitted):
                    return found, None, 0
            elif found is not None and isinstance(record.body, RoundOpened):
                opened = opened or record.seq
            elif opened and isinstance(record.body, RoundClosed):
                return found, record.body, between
            elif found is not None and not opened:
                between += bool(source)
        cell.now_ms = max(cell.now_ms + 1, cell.next_ms())
    raise AssertionError("no round followed")


def grants_of(closing, job):
    found = {}
    for grant in closing.grants:
        if grant.job == job:
            found[grant.stage, grant.node] = found.get((grant.stage, grant.node), 0) + grant.count
    return found


async def until_quiet(bus, cell):
    """What agents say at the end of one turn is heard in the next."""
    before = None
    while before != (before := [await bus.bounds(topic.name, 0) for topic in TOPICS]):
        await cell.settle()


def name_in(message):
    return None if isinstance(message, bytes) else message.get("job") or message.get("cancel")


async def told(preset, shards, jobs, at_ms, gap_ms, kind, mid_round):
    bus = MemoryBus()
    cell = SteppedCell(bus, Settings(snapshot_rounds=10), shards, NODES)
    fewer = [f"j{number}" for number in range(jobs, JOBS)]
    inputs = story(shards, preset=preset, round_gap_ms=gap_ms)
    await tell(cell, [each for each in inputs if not (each[1] == "jobs" and name_in(each[2]) in fewer)], at_ms)
    await until_quiet(bus, cell)
    if mid_round:
        # A job whose round has been opened, and is answered by nobody yet.
        await publish_input(bus.writer(), "jobs", {"job": "before", "stages": [stage("s", 1, "1")]}, AUTHOR)
        cell.now_ms += gap_ms
        while await cell.sequencer.step():
            pass
    reader = LogReader(bus)
    await reader.read(1_000_000)
    document = SUBMISSIONS[kind]
    said = await tried(bus, cell, document, shards)
    again = await tried(bus, cell, document, shards)
    assert said == again, "a dry run leaves no trace"
    end = (await bus.bounds("jobs", 0))[1]
    assert said["offset"] == end
    record, closing, between = await submitted(bus, cell, document, reader)
    job_id = decode(said["verdict"].encode()).body
    grants = {} if closing is None else grants_of(closing, job_id.spec.job)
    return Told(said, record, grants, between == 0)


@hypothesis_settings(deadline=None, max_examples=EXAMPLES)
@for_all(
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from([1, 2]),
    st.integers(1, JOBS),
    st.integers(200, 7_000),
    st.sampled_from([0, 0, 100]),
    st.sampled_from(sorted(SUBMISSIONS)),
    st.booleans(),
)
def test_the_log_says_of_a_job_what_a_dry_run_said(preset, shards, jobs, at_ms, gap_ms, kind, mid_round):
    found = asyncio.run(told(preset, shards, jobs, at_ms, gap_ms, kind, mid_round))

    assert encode(found.record) == found.said["verdict"].encode()
    assert (found.said["then"] is not None) == isinstance(found.record.body, JobAdmitted)
    if found.said["then"] is not None and found.undisturbed:
        places = {(each["stage"], each["node"]): each["tasks"] for each in found.said["then"]["places"]}
        assert places == found.grants


def test_every_kind_of_answer_is_drawn_and_jobs_are_placed():
    kinds, placed = {}, 0
    for kind in SUBMISSIONS:
        found = asyncio.run(told("largesse", 1, 1, 5_500, 0, kind, mid_round=False))
        kinds[type(found.record.body)] = True
        placed += bool(found.grants) and found.undisturbed
    assert {JobAdmitted, JobRejected, InputRefused, InputRepeated} <= set(kinds)
    assert placed >= 3
