"""How many tasks a message, a job, a user and a cell may have, each at its edge; and what it costs to say many."""

import asyncio
import gc
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message
from largesse.log.inputs import READ_BYTES_MAX, InputReader, parse
from largesse.log.reader import publish_input
from largesse.log.snapshots import dump, load
from schemas import InputRefused, JobAdmitted, JobRejected, TaskEnd, TaskFinished, TaskRange, TaskStarted
from schemas.edge.base import BATCH_MAX, TASKS_MAX
from schemas.edge.jobs import STAGES_MAX
from schemas.edge.nodes import DEVICES_MAX
from schemas.edge.read import Malformed, read_input
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.edge.task_checks import MESSAGE_TASKS_MAX
from schemas.policy import JOB_TASKS_MAX
from schemas.quantities import on_devices, tasks_on_devices
from services.admission import core as admission
from services.admission.core.state import LIVE_JOBS_MAX, SKIPS_MAX
from services.altruism import core as altruism
from services.fairness import core as fairness
from services.gateway import view
from services.leftover import core as leftover
from tests.builders import Fact, config, job, known, node, single, stage
from tests.cells import SlowCell, one_node_cell
from tests.harness import given
from tests.strategies import for_all

CORES = [admission, fairness, altruism, leftover, view]
CORE_NAMES = [core.NAME for core in CORES]


# ---------------------------------------------------------------- a message
def item(count, first=0, **more):
    return {"job": "j", "stage": "s", "first": first, "count": count, "attempt": 1, "node": "n", "epoch": "e", **more}


def batch(form, *counts):
    more = {"finished": {"run_ms": [1]}, "failed": {"reason": "killed"}}.get(form, {})
    return "tasks", {form: {"items": [item(count, **more) for count in counts]}}


def registration(*counts):
    attempts = [
        {"job": "j", "stage": "s", "first": 0, "count": count, "attempt": 1, "state": "running"} for count in counts
    ]
    return "nodes", {"register": {"node": "n", "epoch": "e", "capacity": {"cpu": "1"}, "attempts": attempts}}


def named_before(*counts):
    attempts = registration(*counts)[1]["register"]["attempts"]
    return "nodes", {"known": {"node": "n", "epoch": "e", "part": 0, "attempts": attempts}}


HALF = MESSAGE_TASKS_MAX // 2
MESSAGES = [
    pytest.param(lambda *counts: batch("started", *counts), "started.items", id="started"),
    pytest.param(lambda *counts: batch("finished", *counts), "finished.items", id="finished"),
    pytest.param(lambda *counts: batch("failed", *counts), "failed.items", id="failed"),
    pytest.param(registration, "register.attempts", id="a registration"),
    pytest.param(named_before, "known.attempts", id="what is named before a registration"),
]


@pytest.mark.parametrize(("message", "field"), MESSAGES)
def test_a_message_speaks_of_so_many_tasks_and_of_no_more(message, field):
    read_input(*message(HALF, HALF), "ann")

    with pytest.raises(Malformed) as refused:
        read_input(*message(HALF, HALF, 1), "ann")

    assert refused.value.field == field
    assert f"{2 * HALF + 1} tasks" in refused.value.reason
    assert f"at most {MESSAGE_TASKS_MAX}; send several" in refused.value.reason


@pytest.mark.parametrize("form", ["register", "report"])
def test_a_node_has_so_many_gpus_and_no_more_also_where_it_does_not_list_them(form):
    """Each is a device of its own in every core: a node of 80 bytes could take all memory, at every start."""
    read_input("nodes", {form: {"node": "n", "epoch": "e", "capacity": {"gpu": str(DEVICES_MAX)}}}, "ann")

    with pytest.raises(Malformed) as refused:
        read_input("nodes", {form: {"node": "n", "epoch": "e", "capacity": {"gpu": str(DEVICES_MAX + 1)}}}, "ann")

    assert refused.value.field == f"{form}.capacity.gpu"
    assert refused.value.reason == f"comes to {DEVICES_MAX + 1} devices: a node has at most {DEVICES_MAX}"


# ---------------------------------------------------------------- a job, a user, a cell
def submitted(name, tasks, user=""):
    return replace(job(name, stage(tasks=tasks)), user=user)


def test_a_job_has_as_many_tasks_as_the_policy_allows_and_not_one_more():
    story = one_node_cell(config(job_tasks_max=10))

    assert isinstance(story.take(submitted("j10", 10)), JobAdmitted)
    body = story.take(submitted("j11", 11))

    assert isinstance(body, JobRejected)
    assert (body.reason, body.field) == ("too_many_tasks", "stages")
    assert body.detail == "the job has 11 tasks, and one job may have 10 (knob job_tasks_max): split it"


def test_tasks_of_all_stages_count():
    story = one_node_cell(config(job_tasks_max=10))
    assert story.take(job("j", stage("a", 6), stage("b", 5))).reason == "too_many_tasks"
    assert isinstance(story.take(job("j", stage("a", 6), stage("b", 4))), JobAdmitted)


def test_a_users_live_jobs_have_as_many_tasks_as_the_policy_allows_and_not_one_more():
    story = one_node_cell(config(user_tasks_max=10), submitted("a1", 6, "ann"))

    assert isinstance(story.take(submitted("b1", 10, "bob")), JobAdmitted)
    assert isinstance(story.take(submitted("a2", 4, "ann")), JobAdmitted)
    body = story.take(submitted("a3", 1, "ann"))

    assert (body.reason, body.field) == ("too_many_tasks", "user")
    assert body.detail == (
        'live jobs of user "ann" have 10 tasks, this one has 1, and a user\'s jobs may have 10 together '
        "(knob user_tasks_max): wait for some to end"
    )


def test_jobs_that_name_no_user_count_as_one_users():
    story = one_node_cell(config(user_tasks_max=10), submitted("j1", 10))
    body = story.take(submitted("j2", 1))
    assert (body.reason, body.field) == ("too_many_tasks", "user")
    assert "live jobs that name no user have 10 tasks" in body.detail
    assert isinstance(story.take(submitted("a1", 10, "ann")), JobAdmitted)


def test_all_live_jobs_have_as_many_tasks_as_the_policy_allows_and_not_one_more():
    story = one_node_cell(config(live_tasks_max=10), submitted("a1", 6, "ann"))

    assert isinstance(story.take(submitted("b1", 4, "bob")), JobAdmitted)
    body = story.take(submitted("c1", 1, "eve"))

    assert (body.reason, body.field) == ("too_many_tasks", "job")
    assert body.detail == (
        "all live jobs have 10 tasks, this one has 1, and the cell takes 10 together (knob live_tasks_max): "
        "wait for some to end"
    )


def test_tasks_count_until_their_job_is_over_however_it_ends():
    story = one_node_cell(config(live_tasks_max=2), submitted("j1", 1), submitted("j2", 1))
    assert story.take(submitted("j3", 2)).reason == "too_many_tasks"

    story.settle()
    story.finish(next(grant for grant in story.granted if grant.job == "j1"))
    story.cancel("j2")

    assert isinstance(story.take(submitted("j3", 2)), JobAdmitted)
    story.cancel("j3")
    assert (story.admission.live_tasks, story.admission.user_tasks) == (0, {})


def test_what_is_refused_or_repeated_counts_for_nothing():
    story = one_node_cell(config(live_tasks_max=2), submitted("j1", 2))
    story.take(submitted("j1", 2), submitted("j2", 1))
    assert story.admission.live_tasks == 2


def test_the_knob_of_a_job_goes_up_to_what_any_job_may_have():
    read_input("config", {"set": {"job_tasks_max": JOB_TASKS_MAX}}, "ann")
    with pytest.raises(Malformed, match=f"has to be from 1 to {JOB_TASKS_MAX}"):
        read_input("config", {"set": {"job_tasks_max": JOB_TASKS_MAX + 1}}, "ann")


# ---------------------------------------------------------------- what it costs
WIDE = {
    "stages": [
        {"stage": f"s{k}", "tasks": 200_000, "demand": {"cpu": "1"}, "duration_ms": 1, "after": [f"s{k - 1}"] * (k > 0)}
        for k in range(5)
    ]
}
"""A million tasks in some 400 bytes."""


def wide_specs(count):
    for number in range(count):
        yield read_input("jobs", {"job": f"wide-{number}", "user": f"u{number}", **WIDE}, "ann")


@pytest.mark.parametrize("core", CORES, ids=CORE_NAMES)
def test_a_spec_of_a_million_tasks_costs_what_its_bytes_are_and_not_its_tasks(core):
    story = given(core)
    specs = list(wide_specs(9))
    story.then(Fact(JobAdmitted(specs[0], 0)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    story.then(*(Fact(JobAdmitted(spec, 0)) for spec in specs[1:]))
    kept, most = (bytes_ - before for bytes_ in tracemalloc.get_traced_memory())
    tracemalloc.stop()

    assert kept < 8 * 32_768, f"{core.NAME} keeps {kept // 8} bytes for a spec"
    assert most < 2 * 8 * 32_768, f"{core.NAME} takes {most} bytes meanwhile"
    assert len(dump(story.state)) < 9 * 16_384
    load(type(story.state), dump(story.state))


FAULTY = [
    pytest.param("tasks", b'{"started":{"items":[%b]}}' % b",".join([b"{}"] * 10_000), id="fields missing"),
    pytest.param("tasks", b'{"started":{"items":[%b]}}' % b",".join([b'{"a":1,"b":1}'] * 10_000), id="unknown fields"),
    pytest.param("jobs", b"{%b}" % b",".join(b'"%x":1' % i for i in range(20_000)), id="unknown fields of a job"),
    pytest.param("jobs", b'{"stages":[{"durations_ms":[%b]}]}' % b",".join([b'""'] * 50_000), id="wrong types"),
]


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("topic", "value"), FAULTY)
def test_what_is_refused_is_kept_by_its_bytes_and_not_by_its_faults(topic, value):
    """A batch of inputs is read before it is judged: what each leaves behind counts some hundred times."""
    read = [parse(Message(topic, 0, 0, value, {}))]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    read += [parse(Message(topic, 0, offset, value, {})) for offset in range(1, 4)]
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert all(each.fault is not None for each in read)
    assert kept < 3 * 8_192


def test_a_batch_of_inputs_is_limited_by_its_bytes_and_never_stands_still():
    """Many large messages are read a few at a time, each once and in order."""
    bus, sizes = MemoryBus(), [INPUT_BYTES_MAX - 100, READ_BYTES_MAX // 4, 1, 2, READ_BYTES_MAX // 2, 3]

    async def run():
        for size in sizes:
            await publish_input(bus.writer(), "jobs", b"x" * size, "ann")
        reader, found = InputReader(bus, 0, {}), []
        while batch := await reader.read(256, lambda topic, offset: False):
            found.append([len(each.value) for each in batch])
        return found, reader.moved({})

    found, positions = asyncio.run(run())

    assert [size for batch in found for size in batch] == sizes
    assert [sum(batch) <= READ_BYTES_MAX for batch in found] == [True] * len(found)
    assert len(found) == 2
    assert [(each.topic, each.offset) for each in positions] == [("jobs", 5)]


class Counting(dict):
    """A dict that counts how often it is asked."""

    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)


def wide_cell():
    """A stage of 200,000 tasks of which four hold room on n1."""
    story = one_node_cell(job("j", stage(tasks=200_000)))
    story.settle()
    assert sum(grant.count for grant in story.granted) == 4
    holds = story.admission.nodes["n1"].holds = Counting(story.admission.nodes["n1"].holds)
    return story, story.granted[0], holds


def test_a_report_costs_what_is_held_of_its_tasks_and_not_how_many_it_names():
    story, grant, holds = wide_cell()
    all_of_them = TaskEnd("j", "map", 0, 200_000, 1, "n1", grant.epoch, [7])

    body = story.take(TaskFinished([all_of_them]))

    assert [(item.first, item.count) for item in body.items] == [(0, 4)]
    assert [(item.first, item.count) for item in body.refused] == [(4, 199_996)]
    assert holds.asked <= 4


def test_a_refusal_of_many_tasks_names_them_as_a_range():
    story, grant, holds = wide_cell()
    body = story.take(TaskStarted([TaskRange("j", "map", 4, 100_000, 1, "n1", grant.epoch)]))
    assert isinstance(body, InputRefused)
    assert body.reason.startswith("j/map/4 to 100003 attempt 1 was never granted to n1")
    assert holds.asked == 0


def test_a_registration_costs_what_is_held_of_its_tasks_and_not_how_many_it_names():
    story, grant, holds = wide_cell()
    reported = replace(known(single(grant, 0)), count=200_000)

    body = story.take(node("n1", epoch="e2", attempts=[reported]))

    assert [(part.first, part.count) for part in body.attempts] == [(0, 4)]
    assert holds.asked <= 8


def test_what_ended_of_a_stage_costs_one_run_however_many_tasks_it_was():
    story = one_node_cell(job("j", stage(tasks=40)))
    for _ in range(5):
        story.settle()
        for grant in story.granted[-1:]:
            story.finish(grant)
    assert len(story.admission.jobs["j"].granted[0]) <= 6


# ---------------------------------------------------------------- holds by node
def test_a_registration_looks_at_what_its_own_node_holds():
    """Not at every attempt in the cell: 5,000 nodes that come back would look at all of them 5,000 times."""

    class Untouched(dict):
        def __iter__(self):
            raise AssertionError("looked at what another node holds")

        items = values = keys = get = __getitem__ = __iter__

    story = SlowCell()
    story.take(node("n1"), node("n2"), job("j", stage(tasks=8)))
    story.settle()
    mine = [grant for grant in story.granted if grant.node == "n1"]
    story.admission.nodes["n2"].holds = Untouched(story.admission.nodes["n2"].holds)

    body = story.take(node("n1", epoch="e2", attempts=[known(single(mine[0], 0))]))

    assert [r.first for r in body.lost] == [1, 2, 3]
    assert list(story.admission.nodes["n1"].holds) == ["j/map/0"]


@for_all(
    st.integers(1, 3_500),
    st.lists(st.sampled_from([0, 1, 250, 999, 1_000]), max_size=6),
    st.integers(0, 12),
)
def test_devices_hold_as_many_tasks_as_find_room_one_by_one(milli, devices, most):
    free, found = devices.copy(), 0
    while found < most and (taken := on_devices(milli, free)) is not None:
        found += 1
        for position, share in taken:
            free[position] -= share
    assert tasks_on_devices(milli, devices, most) == found


def test_a_tiny_share_of_many_devices_is_counted_without_going_through_the_tasks():
    assert tasks_on_devices(1, [1_000] * DEVICES_MAX, 1 << 53) == 1_000 * DEVICES_MAX


def test_the_page_of_settings_tells_these_limits():
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    table = text[text.index("| input | at most |") :].partition("\n\n")[0]
    limits = {int(number.replace(",", "")) for number in re.findall(r"[0-9][0-9,]*[0-9]", table)}
    assert limits == {
        INPUT_BYTES_MAX,
        STAGES_MAX,
        TASKS_MAX,
        JOB_TASKS_MAX,
        LIVE_JOBS_MAX,
        BATCH_MAX,
        MESSAGE_TASKS_MAX,
        DEVICES_MAX,
        SKIPS_MAX,
    }
