"""Several sequencers on one log: whatever claims, crashes and appends that fail or come late do, the log has one order.

Each sequencer is the real one on a bus whose calls Hypothesis lets through one by one. In the end every input is in the
log once and in order, every refusal has its dead letter, and the log, decided again, is the same.
"""

import asyncio

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.log import dead_letters, fencing
from largesse.log.decisions import messages_of
from largesse.log.fencing import read_piece
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import JobAdmitted, RoundClosed, RoundOpened, SequencerClaimed
from schemas.topics import BEATS, DEADLETTER, LOG, TOPICS
from services.admission.sequencer import Sequencer
from services.replay.refold import Refold
from services.replay.source import Source, steps_of
from services.replay.verify import verify
from tests.gated_bus import Actor, GatedBus

JOB = {"stages": [{"stage": "s", "tasks": 2, "demand": {"cpu": "1"}, "duration_ms": 1}]}
NODE = {"register": {"node": "n", "epoch": "e", "capacity": {"cpu": "4"}}}
HEARTBEAT = {"report": {"node": "n", "epoch": "e", "capacity": {"cpu": "4"}}}
ALL_TOPICS = sorted((topic.name for topic in TOPICS), key=lambda name: name == LOG)  # The log last: see steps_of.


class Instance(Actor):
    """One sequencer process; a new one takes its place after a crash."""

    def __init__(self, machine: "Sequencers", number: int) -> None:
        super().__init__(GatedBus(machine.bus))
        self.machine, self.number = machine, number
        self.start()

    def start(self) -> None:
        machine = self.machine
        self.sequencer = Sequencer(
            self.bus,
            machine.settings,
            clock=lambda: machine.now_ms + machine.ahead_ms[self.number],
            steady=lambda: machine.now_ms,
            draw_token=machine.draw_token,
            alone=False,
            name=f"admission-{self.number}",
        )

    async def nudge_step(self) -> bool:
        return await self.nudge(self.sequencer.step() if self.task is None else None)

    async def crash(self) -> None:
        await self.kill()
        self.start()


class Sequencers(RuleBasedStateMachine):
    """The world around the sequencers: clients, faults, a clock, and services that answer open rounds."""

    record_bytes_max = fencing.RECORD_BYTES_MAX

    def __init__(self) -> None:
        super().__init__()
        self.limit_before, fencing.RECORD_BYTES_MAX = fencing.RECORD_BYTES_MAX, self.record_bytes_max
        self.loop = asyncio.new_event_loop()
        self.bus = MemoryBus()
        self.settings = Settings(bus="memory:", snapshot_rounds=2)
        self.now_ms = 0
        self.ahead_ms = [0, 0, 0]
        self.tokens = 0
        self.sent: dict[str, int] = {"jobs": 0, "nodes": 0, "config": 0}
        self.instances = [Instance(self, number) for number in range(3)]

    @initialize()
    def lead(self):
        """One of them leads from the start: the rest of the story is about how it loses the log."""
        self.let_one_run(0, 4)
        self.wait(3_100)
        self.let_one_run(0, 30)
        assert self.instances[0].sequencer.is_leading

    def draw_token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"

    def run(self, story):
        return self.loop.run_until_complete(story)

    @rule(whats=st.lists(st.sampled_from(["job", "named", "malformed", "node", "heartbeat", "config"]), min_size=1))
    def publish(self, whats):
        for what in whats:
            topic, document = {
                "job": ("jobs", JOB),
                "named": ("jobs", {**JOB, "job": "same"}),
                "malformed": ("jobs", b"{no json"),
                "node": ("nodes", NODE),
                "heartbeat": ("nodes", HEARTBEAT),
                "config": ("config", {"set": {"seed": self.sent["config"]}}),
            }[what]
            self.run(publish_input(self.bus.writer(), topic, document, "client"))
            self.sent[topic] += 1

    @rule(which=st.integers(0, 2), times=st.integers(1, 30))
    def let_one_run(self, which, times):
        for _ in range(times):
            self.run(self.instances[which].nudge_step())

    @rule(turns=st.lists(st.integers(0, 2), min_size=10, max_size=60))
    def let_them_run(self, turns):
        for which in turns:
            self.run(self.instances[which].nudge_step())

    @rule(turns=st.lists(st.integers(0, 2), min_size=20, max_size=60))
    def let_them_run_after_a_silence(self, turns):
        self.now_ms += 3_100
        self.let_them_run(turns)

    @rule(which=st.integers(0, 2))
    def crash(self, which):
        self.run(self.instances[which].crash())

    @rule(by_ms=st.sampled_from([1, 900, 3_100]))
    def wait(self, by_ms):
        self.now_ms += by_ms

    @rule(which=st.integers(0, 2), by_ms=st.sampled_from([3_600_000, 86_400_000, 365 * 86_400_000]), back=st.booleans())
    def let_a_wall_clock_jump(self, which, by_ms, back):
        self.ahead_ms[which] += -by_ms if back else by_ms

    @rule(
        kind=st.sampled_from(["lost", "late", "unknown", "torn"]),
        skip=st.integers(0, 2),
        topic=st.sampled_from([LOG, LOG, BEATS]),
    )
    def spoil_an_append(self, kind, skip, topic):
        self.bus.inject(kind, topic=topic, skip=skip)

    @rule(back=st.integers(1, 3))
    def repeat_a_sign_of_life(self, back):
        """It came late, or twice, and its sender may long be gone."""
        said = self.run(self._all(BEATS))
        if len(said) >= back:
            self.run(self.bus.writer().send([Outgoing(BEATS, 0, said[-back].value)]))

    @rule()
    def lose_signs_of_life(self):
        self.bus.lose_tail(BEATS, 0, 0)

    @rule(after=st.integers(1, 3))
    def delay_an_append(self, after):
        self.bus.inject("late", topic=LOG, after=after)

    @rule()
    def let_late_ones_arrive(self):
        self.bus.deliver_late()

    @rule()
    def answer_the_open_round(self):
        self.run(self._answer())

    async def _answer(self) -> None:
        """What real cores answer to the round that is open in the log, if one is."""
        cores, opening = Refold(1), None
        for step in steps_of(await self._messages()):
            record = step.accepted.record
            if isinstance(record.body, RoundClosed) and opening is not None:
                cores.feed([(each.wanted, each.record) for each in opening.closing])
            cores.fold(step.accepted)
            if isinstance(record.body, RoundOpened):
                opening = cores.decide(record)
            elif record.type in ("RoundClosed", "RoundAbandoned"):
                opening = None
        if opening is not None:
            for each in [*opening.closing, *opening.forecasts]:
                messages = messages_of(each.record, each.content, each.wanted, 0, "services")
                await self.bus.writer().send(messages)

    async def _messages(self):
        return [message for topic in ALL_TOPICS for message in await self._all(topic)]

    async def _all(self, topic):
        first, end = await self.bus.bounds(topic, 0)
        return await self.bus.fetch(topic, 0, first, most=end - first)

    async def _records(self):
        """Records that count. Reading them checks that seq is dense, time does not go back, and all of it decodes."""
        reader, found = LogReader(self.bus), []
        while more := await reader.read(most=10_000):
            found += more
        return [each for each in found if not isinstance(each.record.body, SequencerClaimed)]

    @invariant()
    def no_input_is_taken_twice_or_out_of_order(self):
        taken: dict[str, int] = {}
        for accepted in self.run(self._records()):
            header = accepted.header
            if header.topic in self.sent:
                assert header.offset > taken.get(header.topic, -1), f"{header.topic} {header.offset} is taken again"
                taken[header.topic] = header.offset

    @invariant()
    def every_letter_is_about_a_refusal_in_the_log(self):
        seqs = [each.record.seq for each in self.run(self._records()) if dead_letters.refusal_of(each)]
        assert all(seq in seqs for seq in self.run(self._letters()))

    async def _letters(self):
        """Seqs of the refusals whose letters are whole."""
        found = []
        for message in await self._all(DEADLETTER):
            piece = read_piece(message.value)
            if piece is None:
                found.append(dead_letters.read_letter(message.value)["seq"])
            elif piece.header.part == piece.header.of - 1:
                found.append(piece.seq)
        return found

    def teardown(self):
        try:
            self.run(self._settle())
            self._judge_the_end()
        finally:
            for instance in self.instances:
                self.run(instance.kill())
            self.loop.close()
            fencing.RECORD_BYTES_MAX = self.limit_before

    async def _settle(self) -> None:
        """The faults end, what is late arrives, and the first instance is given time; all others have crashed."""
        self.bus.deliver_late()
        self.bus._faults.clear()
        for other in self.instances[1:]:
            await other.crash()
        survivor = self.instances[0]
        quiet = 0
        while quiet < 4:
            end = await self.bus.bounds(LOG, 0)
            for _ in range(40):
                await survivor.nudge_step()
            await self._answer()
            self.now_ms += 900
            quiet = quiet + 1 if survivor.sequencer.is_leading and not await self._grew(end) else 0

    async def _grew(self, before) -> bool:
        """Whether the log has more than heartbeats of its sequencer."""
        messages = await self.bus.fetch(LOG, 0, before[1])
        return any(b'"type":"SequencerAlive"' not in message.value for message in messages)

    def _judge_the_end(self):
        records = self.run(self._records())
        taken = [each.header.offset for each in records if each.header.topic == "jobs"]
        assert taken == list(range(self.sent["jobs"])), "every submission has one record, in order"
        names = [each.record.body.spec.job for each in records if isinstance(each.record.body, JobAdmitted)]
        assert len(names) == len(dict.fromkeys(names)), "no job is admitted twice"
        refused = [each.record.seq for each in records if dead_letters.refusal_of(each)]
        assert sorted(dict.fromkeys(self.run(self._letters()))) == refused, "every refusal has a letter"
        messages = self.run(self._messages())
        verdict = verify(Source("the log", lambda hear: steps_of(messages, hear=hear), lambda: 1))
        assert verdict.difference is None, verdict.text()


class SequencersOfLargeRecords(Sequencers):
    """The same with a limit so low that most records travel in parts."""

    record_bytes_max = 300


Sequencers.TestCase.settings = hypothesis_settings(stateful_step_count=40)
SequencersOfLargeRecords.TestCase.settings = Sequencers.TestCase.settings
TestSequencers = Sequencers.TestCase
TestSequencersOfLargeRecords = SequencersOfLargeRecords.TestCase
