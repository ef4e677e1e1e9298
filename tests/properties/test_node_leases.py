"""Leases of nodes, whatever becomes of their signs of life: no node is lost that spoke within its lease, and one that
is silent is lost a lease later.

The sequencer is the real one, on a clock of its own. The reference is one line: when each node spoke last.
"""

import asyncio

import orjson
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from schemas import Asks, Grants, NodeLost, NodeRegistered, Policy, RoundClosed, RoundOpened, Shares
from schemas.edge.beats import NodeBeat, SequencerBeat, document_of
from schemas.topics import BEATS
from tests.bus_stories import Scribe
from tests.desk import Desk

LEASE_MS = Policy().node_lease_ms
STEP_MS = 500
NODES = ("n0", "n1", "n2")

nodes = st.sampled_from(NODES)


class NodeLeases(RuleBasedStateMachine):
    """Agents that speak by either topic, and a sequencer that is away, replaced, or told nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.bus = MemoryBus()
        self.desk = Desk(self.bus)
        self.epochs: dict[str, int] = dict.fromkeys(NODES, 0)
        self.spoke_ms: dict[str, int] = {}
        self.seen = 0

    def run(self, story):
        return self.loop.run_until_complete(story)

    @initialize()
    def begin(self):
        self.run(self.desk.turn())
        for node in NODES:
            self.register(node)

    # ---------------------------------------------------------------- agents
    @rule(node=nodes)
    def register(self, node):
        """As an agent does that reads it was lost, or one that is started again."""
        self.epochs[node] += 1
        self.say(node, "nodes", {"register": self.offer(node)})
        self.turn(0)

    @rule(node=nodes, times=st.integers(1, 2))
    def beat(self, node, times):
        for _ in range(times):
            self.say(node, BEATS, document_of(NodeBeat(node, self.epoch(node))))

    @rule(node=nodes)
    def report(self, node):
        self.say(node, "nodes", {"report": self.offer(node)})

    def epoch(self, node):
        return f"e{self.epochs[node]}"

    def offer(self, node):
        return {"node": node, "epoch": self.epoch(node), "capacity": {"cpu": "4"}}

    def say(self, node, topic, document):
        self.run(self.send(topic, orjson.dumps(document)))
        self.spoke_ms[node] = self.desk.now_ms

    async def send(self, topic, *values):
        await self.bus.writer().send([Outgoing(topic, 0, value, "", {"author": "agent"}) for value in values])

    # ---------------------------------------------------------------- what counts for nothing
    @rule(node=nodes)
    def beat_of_an_older_epoch(self, node):
        self.run(self.send(BEATS, orjson.dumps(document_of(NodeBeat(node, f"e{self.epochs[node] - 1}")))))

    @rule(value=st.sampled_from([b"", b"{no json", b'{"node":{}}', b'{"node":{"node":"n0","epoch":7}}', b"[" * 99]))
    def nonsense(self, value):
        self.run(self.send(BEATS, value, orjson.dumps(document_of(SequencerBeat("another", 0, 0)))))

    # ---------------------------------------------------------------- the sequencer and its bus
    @rule(by_ms=st.sampled_from([0, STEP_MS, STEP_MS, 1_000]))
    def turn(self, by_ms):
        self.run(self.desk.turn(by_ms))
        self.run(self.answer())
        self.judge()

    @rule(steps=st.integers(5, 25), every=st.integers(1, 25), speak=st.sets(nodes), is_beat=st.booleans())
    def time_passes(self, steps, every, speak, is_beat):
        for step in range(steps):
            if step % every == every - 1:
                for node in sorted(speak):
                    self.beat(node, 1) if is_beat else self.report(node)
            self.turn(STEP_MS)

    @rule(by_ms=st.sampled_from([3_000, LEASE_MS - 1, LEASE_MS, 3 * LEASE_MS]), speak=st.sets(nodes))
    def is_away(self, by_ms, speak):
        """It is paused while agents speak."""
        self.desk.now_ms += by_ms // 2
        for node in sorted(speak):
            self.beat(node, 1)
        self.turn(by_ms - by_ms // 2)

    @rule()
    def is_replaced(self):
        self.desk.start()
        self.turn(0)

    @rule(silent=st.integers(0, 19), speak=st.sets(nodes, min_size=1))
    def the_bus_forgets_signs_of_life_that_nobody_has_read(self, silent, speak):
        self.time_passes(silent, 1, set(), is_beat=True)
        for node in sorted(speak):
            self.beat(node, 1)
        self.bus.retire(BEATS, 0, self.run(self.bus.bounds(BEATS, 0))[1])
        self.time_passes(silent, 1, set(), is_beat=True)

    @rule()
    def a_broker_comes_back_without_them(self):
        self.bus.lose_tail(BEATS, 0, 0)
        self.turn(0)

    async def answer(self):
        """Services close the open round, so that the sequencer has nothing else to do."""
        records = [each.record for each in await self.desk.records()]
        opened = [each for each in records if isinstance(each.body, RoundOpened)]
        closed = [each.round for each in records if isinstance(each.body, RoundClosed)]
        if opened and opened[-1].round not in closed:
            for topic, body in (("shares", Shares([])), ("asks", Asks(0, 1, [])), ("grants", Grants([]))):
                await Scribe(self.bus).say(opened[-1], topic, body)
            await self.desk.turn()

    def judge(self):
        records = self.run(self.desk.records())
        for each in records[self.seen :]:
            if isinstance(each.record.body, NodeLost):
                node = each.record.body.node
                silent_ms = self.desk.now_ms - self.spoke_ms[node]
                assert silent_ms >= LEASE_MS, f"{node} spoke {silent_ms} ms ago, and is lost"
        self.seen = len(records)

    def lost(self):
        found: dict[str, bool] = {}
        for each in self.run(self.desk.records()):
            if isinstance(each.record.body, NodeLost | NodeRegistered):
                found[each.record.body.node] = isinstance(each.record.body, NodeLost)
        return found

    def teardown(self):
        """Nobody speaks any more, and nothing goes wrong: a lease later every node is lost."""
        try:
            for _ in range(LEASE_MS // STEP_MS + 2):
                self.turn(STEP_MS)
            assert self.lost() == dict.fromkeys(self.spoke_ms, True)
        finally:
            self.loop.close()


NodeLeases.TestCase.settings = hypothesis_settings(stateful_step_count=15)
TestNodeLeases = NodeLeases.TestCase
