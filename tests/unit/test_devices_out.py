"""What the cell makes of devices that are out: nothing starts there, and whoever looks is told."""

import asyncio
import json

import pytest

from largesse.bus.memory import MemoryBus
from largesse.lifecycle import node_work
from largesse.log.codec import decode, encode, record_of
from schemas import Device, DeviceShare, JobAdmitted, JobRejected, NodeRegistered, NodeReported, Policy
from services.agent.device_watch import DevicesWatch
from services.agent.devices.health import Fault, Health
from services.agent.local import Local
from services.agent.outbox import Name, Result
from services.agent.reporter import Reporter
from services.agent.settings import NodeSettings
from services.cli.getting import node_row
from services.gateway.documents.metrics import CellMetrics
from services.gateway.documents.nodes import node_document
from services.gateway.why.nodes import node_why
from tests.builders import job, node, report, stage
from tests.cells import SlowCell
from tests.gateway_watch import Watched

HOT = "too hot"


def gpus(*out):
    """Four devices, of which some are out."""
    return [Device(at, out=HOT if at in out else "") for at in range(4)]


# ---------------------------------------------------------------- records
@pytest.mark.parametrize("kind", [NodeRegistered, NodeReported])
def test_a_device_of_which_nothing_new_is_said_is_written_as_ever(kind):
    devices = [Device(0, 1_000, "T4"), Device(1, numa=0), Device(2, out='said "memory_mib":0,"numa":null')]
    body = kind("g", "e1", {"gpu": 2_000}, devices=devices)
    record = record_of(body, cell="c", seq=1, round_number=0, time=0, id_="1", cause="")

    content = encode(record)

    assert b'{"index":0,"milli":1000,"model":"T4"},{"index":1,"milli":1000,"model":"","memory_mib":0' in content
    assert decode(content).body == body


# ---------------------------------------------------------------- cores
def test_a_device_that_goes_out_or_for_another_reason_is_a_record_and_the_same_again_is_none():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)))
    listed = [Device(0), Device(1, out=HOT)]

    assert isinstance(story.take(report("g", devices=listed, gpu=1_000)), NodeReported)
    assert story.take(report("g", devices=listed, gpu=1_000)) is None
    assert isinstance(story.take(report("g", devices=[Device(0), Device(1, out="lost")], gpu=1_000)), NodeReported)
    assert isinstance(story.take(report("g", devices=[Device(0), Device(1)], gpu=2_000)), NodeReported)


def test_nothing_starts_on_a_device_that_is_out_until_it_is_well():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)))
    story.take(report("g", devices=[Device(0, out=HOT), Device(1)], gpu=1_000))
    story.take(job("j", stage(gpu=1_000)), job("k", stage(gpu=1_000)))

    first = story.settle()
    assert [[share.index for share in grant.devices[0]] for grant in first] == [[1]]
    assert story.settle() == []

    story.take(report("g", devices=[Device(0), Device(1)], gpu=2_000))
    assert [[share.index for share in grant.devices[0]] for grant in story.settle()] == [[0]]


def test_what_runs_on_a_device_that_drains_ends_there_and_gives_nothing_back_until_it_is_well():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), job("j", stage(gpu=1_000)))
    (grant,) = story.settle()
    assert grant.devices[0][0].index == 0

    story.take(report("g", devices=[Device(0, out=HOT), Device(1)], gpu=1_000), job("k", stage(gpu=2_000)))
    story.finish(grant)
    assert story.settle() == []

    story.take(report("g", devices=[Device(0), Device(1)], gpu=2_000))
    assert [[share.index for share in grant.devices[0]] for grant in story.settle()] == [[0, 1]]


def test_a_job_that_needs_a_device_that_is_out_waits_for_it_and_one_that_no_device_serves_is_refused():
    story = SlowCell()
    story.take(node("g", gpus=(1_000,)))
    story.take(report("g", devices=[Device(0, out=HOT)]))

    assert isinstance(story.take(job("j", stage(gpu=1_000))), JobAdmitted)
    assert isinstance(story.take(job("k", stage(gpu=2_000))), JobRejected)
    assert story.settle() == []
    story.take(report("g", devices=[Device(0)], gpu=1_000))
    assert [grant.job for grant in story.settle()] == ["j"]


# ---------------------------------------------------------------- who looks
@pytest.fixture
def cell():
    cell = Watched()
    return cell.take(NodeRegistered("g", "e1", {"cpu": 4_000, "gpu": 2_000}, devices=gpus(1, 3))).settle()


def test_the_node_and_its_why_name_them(cell):
    document = node_document(cell.view, "g")
    assert [device["out"] for device in document["devices"]["gpu"]] == ["", HOT, "", HOT]

    reasons = {each["reason"]: each for each in node_why(cell.view, "g")["reasons"]}
    assert reasons["devices_out"]["text"] == "2 of 4 devices of g are out (1: too hot; 3: too hot)"
    assert reasons["devices_out"]["numbers"] == {"devices": {"1": HOT, "3": HOT}}
    assert "GPU 1 is out: too hot; GPU 3 is out: too hot" in node_row(document)[-1]


def test_metrics_count_them(cell):
    def counted():
        lines = asyncio.run(metrics.exposition(cell.view)).decode().splitlines()
        return [line for line in lines if line.startswith("largesse_devices{")]

    metrics = CellMetrics()
    assert counted() == ['largesse_devices{state="out"} 2.0', 'largesse_devices{state="ready"} 2.0']
    cell.take(NodeReported("g", "e1", {"cpu": 4_000, "gpu": 4_000}, devices=gpus())).settle()
    assert counted() == ['largesse_devices{state="out"} 0.0', 'largesse_devices{state="ready"} 4.0']
    assert not [each for each in node_why(cell.view, "g")["reasons"] if each["reason"] == "devices_out"]


# ---------------------------------------------------------------- the agent
def test_an_agent_says_at_once_what_is_out_and_offers_the_rest(tmp_path):
    bus = MemoryBus()
    settings = NodeSettings("n", tmp_path, capacity={"cpu": 1_000, "gpu": 4_000}, devices=gpus())
    speaker = Reporter(bus, settings)
    work = node_work.NodeWork("n", "e.1", {"e.1": node_work.Registration("registered")})

    async def story():
        await speaker.speak(work, Policy().node_lease_ms, [])
        speaker.out = {1: HOT}
        await speaker.speak(work, Policy().node_lease_ms, [])
        await speaker.speak(work, Policy().node_lease_ms, [])
        return [json.loads(message.value)["report"] for message in await bus.fetch("nodes", 0, 0)]

    (said,) = asyncio.run(story())
    assert said["capacity"] == {"cpu": "1", "gpu": "3"}
    assert [device["out"] for device in said["devices"]["gpu"]] == ["", HOT, "", ""]


def held(work, local, *indexes):
    shares = [DeviceShare(index, 1_000) for index in indexes]
    work.held[local.key] = node_work.HeldAttempt("j", "s", local.name.index, 1, 5, "e.1", shares)


def test_what_runs_on_a_broken_device_is_ended_once_the_log_has_it_as_out(tmp_path):
    work = node_work.NodeWork("n", "e.1", offer=node_work.Offer("e.1", {}, {}, gpus()))
    known = {f"j/s/{at}/1": Local(f"j/s/{at}/1", Name("j", "s", at, 1), 5, tmp_path) for at in range(3)}
    for at, local in enumerate(known.values()):
        held(work, local, at, 3)
    watch = DevicesWatch(Health(gpus()))
    watch.faults = {1: Fault("Xid 79", ends=True), 2: Fault(HOT, ends=False)}

    assert list(watch.to_end(work, known)) == []
    work.offer = None
    assert list(watch.to_end(work, known)) == []
    watch.known = {1: True}
    assert [local.key for local, _ in watch.to_end(work, known)] == ["j/s/1/1"], "over MQTT, a look later"
    work.offer = node_work.Offer("e.1", {}, {}, gpus(1, 2))
    ((local, detail),) = watch.to_end(work, known)
    assert (local.key, detail) == ("j/s/1/1", "its device 1 is broken: Xid 79")

    local.stopping, local.phase, local.result = "lost", "ended", Result("lost", detail="stopped: lost")
    watch.explain(local)
    assert local.result.detail == detail
    assert list(watch.to_end(work, known)) == []
