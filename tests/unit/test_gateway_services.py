"""Which instances of services serve a cell and which stand by, as a bus with groups tells it."""

import asyncio

from largesse.bus.groups import Group, Member
from largesse.bus.kafka.rights import group_of
from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError
from services.gateway.documents.models.cell import Services
from services.gateway.instances import GROUPED, KEPT_S, LOST_S, Instances
from tests.gateway_cell import run_in_memory, until_ready

CELL = "west"


class Told:
    """A bus that tells of these groups: by service, the shards of each instance."""

    def __init__(self, **instances):
        self.instances = {service: [(0,)] for service in GROUPED} | instances
        self.asked, self.is_settled, self.refused = 0, True, ""

    async def told(self, groups):
        self.asked += 1
        if self.refused:
            raise BusError(self.refused)
        each = {group_of(service, CELL): found for service, found in self.instances.items()}
        return {
            name: Group(
                tuple(Member(f"m{number}", f"10.0.0.{number}", shards) for number, shards in enumerate(each[name])),
                self.is_settled,
            )
            for name in groups
        }


class Clock:
    now_s = 1_000.0

    def __call__(self):
        return self.now_s


def instances_of(bus, shards=1):
    clock = Clock()
    return Instances(bus, CELL, lambda: shards, clock, clock), clock


def ask(instances):
    document = asyncio.run(instances.document())
    Services.model_validate(document)
    return document, {row["service"]: row for row in document["services"]}


def test_who_has_a_shard_serves_and_the_others_stand_by():
    document, rows = ask(instances_of(Told(fairness=[(), (0,)]))[0])

    assert (document["cell"], document["alone"], document["settled"], document["refused"]) == (CELL, False, True, "")
    assert list(rows) == list(GROUPED)
    assert rows["fairness"]["instances"] == [
        {"name": "m0", "host": "10.0.0.0", "serves": False, "shards": []},
        {"name": "m1", "host": "10.0.0.1", "serves": True, "shards": [0]},
    ]
    assert [each["serves"] for each in rows["planner"]["instances"]] == [True]


def test_a_shard_that_is_not_in_use_serves_nobody():
    dealt = [(0, 2), (1, 3)]

    assert [each["shards"] for each in ask(instances_of(Told(altruism=dealt))[0])[1]["altruism"]["instances"]] == [
        [0],
        [],
    ]
    assert [
        each["shards"] for each in ask(instances_of(Told(altruism=dealt), shards=3)[0])[1]["altruism"]["instances"]
    ] == [[0, 2], [1]]


def test_the_bus_is_asked_once_for_all_who_ask_within_a_while():
    bus = Told()
    instances, clock = instances_of(bus)

    async def several():
        return await asyncio.gather(*(instances.document() for _ in range(5)))

    assert len({id(document) for document in asyncio.run(several())}) == 1
    clock.now_s += KEPT_S - 1
    ask(instances)
    assert bus.asked == 1
    clock.now_s += 1
    ask(instances)
    assert bus.asked == 2


def test_a_standby_that_is_gone_is_told_until_it_is_back_or_for_a_day():
    bus = Told(fairness=[(0,), ()])
    instances, clock = instances_of(bus)

    def lost():
        clock.now_s += KEPT_S
        row = ask(instances)[1]["fairness"]
        return row["lost"], row["lost_since_ms"]

    assert lost() == (0, None)
    bus.instances["fairness"] = [(0,)]
    since_ms = int((clock.now_s + KEPT_S) * 1_000)
    assert lost() == (1, since_ms)
    bus.instances["fairness"] = []
    assert lost() == (2, since_ms)
    bus.instances["fairness"] = [(0,), ()]
    assert lost() == (0, None)
    bus.instances["fairness"] = [(0,)]
    assert lost()[0] == 1
    clock.now_s += LOST_S
    assert lost() == (0, None)


def test_shards_that_are_being_dealt_out_are_told_as_that():
    bus = Told(fairness=[(), ()])
    bus.is_settled = False

    assert ask(instances_of(bus)[0])[0]["settled"] is False


def test_why_the_bus_does_not_tell_stands_in_the_answer():
    bus = Told()
    bus.refused = "gateway may not see the groups of services"
    document, rows = ask(instances_of(bus)[0])

    assert (document["refused"], rows) == (bus.refused, {})


def test_of_a_cell_in_one_process_there_is_nothing_to_tell():
    document, rows = ask(instances_of(MemoryBus())[0])
    assert (document["alone"], rows) == (True, {})

    async def story(cell):
        await until_ready(cell)
        return (await cell.get("/v1/services")).json()

    assert run_in_memory(story)["alone"] is True
