"""Bugs planted on purpose, each as a patch for as long as it is wanted: a simulation that finds none proves nothing.

Each breaks one promise that the code keeps in one place. `PLANTED` names them; `tests/simulation/test_faults.py` says
after how many seeds each is found. `MASKED` are those that no seed can find, since another place keeps the promise.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from largesse import shell as shells
from largesse.bus.port import BusError
from largesse.log import candidate, fencing, reader, writer
from largesse.log.codec import decode
from largesse.log.fencing import Accepted, LogOrder, advance, note
from largesse.log.inputs import InputReader
from largesse.log.reader import follow
from largesse.log.snapshots import dump
from schemas import Header, RoundOpened
from services.admission import clock, sequencer
from services.admission.core import task_reports
from services.admission.node_leases import Leases
from services.agent import attempts, lease_file, log_follower, outbox, reporter
from services.agent import folders as agent_folders
from services.agent import shell as agent
from services.agent.documents import read_json
from services.agent.lease_file import RUN, boot_ms
from tests.faults import broker

Planted = Callable[[], AbstractContextManager[None]]


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def no_fsync() -> AbstractContextManager[None]:
    """What is said to be durable is not: the power takes it."""
    return _replaced(broker.Broker, "forgets_to_sync", True)


def seq_unchecked() -> AbstractContextManager[None]:
    """A record of the latest claim counts whatever its seq."""

    def whole(order: LogOrder, header: Header, content: bytes, offset: int) -> Accepted | None:
        record = decode(content)
        note(order, record, header, content)
        return Accepted(record, header, content, offset)

    return _replaced(fencing, "_whole", whole)


def token_unchecked() -> AbstractContextManager[None]:
    """A record with the next seq counts, whoever has written it."""

    def any_token(order: LogOrder, offset: int, message: bytes) -> Accepted | None:
        token = order.token
        if b'"token":"' in message[:80] and token:
            order.token = message.split(b'"token":"', 1)[1].split(b'"', 1)[0].decode()
        accepted = advance(order, offset, message)
        if accepted is None:
            order.token = token
        return accepted

    return _both(*(_replaced(module, "advance", any_token) for module in (writer, reader)))


def claim_not_read_back() -> AbstractContextManager[None]:
    """A sequencer leads as soon as it has sent its claim."""
    real = candidate.Candidate._claim

    async def claim(self: Any, order: LogOrder, now_ms: int, log_ms: int) -> None:
        await real(self, order, now_ms, log_ms)
        order.token = self.token

    return _replaced(candidate.Candidate, "_claim", claim)


def newer_claim_ignored() -> AbstractContextManager[None]:
    """A leader goes on over another one's claim."""

    def deaf(order: LogOrder, offset: int, message: bytes) -> Accepted | None:
        token = order.token
        accepted = advance(order, offset, message)
        if accepted is not None and not accepted.record.seq:
            order.token = token
            return None
        return accepted

    return _replaced(writer, "advance", deaf)


def running_state_kept() -> AbstractContextManager[None]:
    """A sequencer that gives up keeps what it had folded, of which the log may have nothing."""
    real = sequencer.Sequencer._give_up

    async def give_up(self: Any, why: str) -> None:
        state, log = self.state, self._reader
        await real(self, why)
        self.state, self._reader = state, log

    return _replaced(sequencer.Sequencer, "_give_up", give_up)


def snapshot_before_closing() -> AbstractContextManager[None]:
    """A service's snapshot is of the state before the closing that it is named after."""
    real = shells.Shell._answer
    kept: dict[int, Any] = {}

    async def answer(self: Any, opening: Any) -> None:
        kept[id(self.state)] = dump(self.state)
        await real(self, opening)

    return _both(
        _replaced(shells.Shell, "_answer", answer),
        _replaced(shells, "dump", lambda state: kept.get(id(state)) or dump(state)),
    )


def lease_from_arrival() -> AbstractContextManager[None]:
    """An agent counts its lease from when the bus has answered, not from when it spoke."""
    real = reporter.Reporter._send

    async def send(self: Any, topic: str, documents: Any, epoch: str) -> bool:
        taken = await real(self, topic, documents, epoch)
        if taken:
            self._sure = (epoch, boot_ms())
        return taken

    return _replaced(reporter.Reporter, "_send", send)


def lease_cut_short() -> AbstractContextManager[None]:
    """The sequencer gives a silent node's tasks away after half of its lease."""
    real = Leases.silent
    return _replaced(Leases, "silent", lambda self, now_ms, lease_ms: real(self, now_ms, lease_ms // 2))


def shims_heed_no_lease() -> AbstractContextManager[None]:
    """Tasks run on however long their agent is silent."""
    return _replaced(lease_file.Hold, "look", lambda self: RUN)


def outbox_forgets() -> AbstractContextManager[None]:
    """What an agent had to say when the bus failed is not said again."""
    real = reporter.Reporter._send

    async def send(self: Any, topic: str, documents: Any, epoch: str) -> bool:
        taken = await real(self, topic, documents, epoch)
        if not taken:
            self.outbox = outbox.Outbox()
        return taken

    return _replaced(reporter.Reporter, "_send", send)


def dropped_run_on() -> AbstractContextManager[None]:
    """What the log does not adopt at a registration is forgotten, but not ended."""

    def drop(self: Any, local: Any) -> None:
        local.quiet = True
        self._forget(local)

    return _replaced(agent._Agent, "_drop", drop)


def starts_after_a_pause() -> AbstractContextManager[None]:
    """An agent that was away for long starts what it finds in the log, over or not, on a lease that it believes in."""
    return _both(
        _replaced(log_follower.LogFollower, "fell_behind", lambda self: False),
        _replaced(reporter.Reporter, "sure_ms", lambda self, epoch: boot_ms()),
    )


def inputs_skipped() -> AbstractContextManager[None]:
    """A new leader goes on behind what lies in the inputs, not behind what the log has taken."""
    real = InputReader.__init__

    def begin(self: Any, bus: Any, partition: int, taken: Any) -> None:
        ends = {f"{topic}/0": bus.broker.end((topic, 0)) - 1 for topic in ("jobs", "tasks", "nodes")}
        real(self, bus, partition, {**taken, **{place: end for place, end in ends.items() if end >= 0}})

    return _replaced(InputReader, "__init__", begin)


def epoch_unchecked() -> AbstractContextManager[None]:
    """Reports of an agent that is over count for its successor."""
    real = task_reports._of_single

    def of_single(state: Any, item: Any, node: Any, epoch: Any, starting: Any, seen: Any) -> Any:
        return real(state, item, node, "", starting, seen)

    return _replaced(task_reports, "_of_single", of_single)


def adopted_as_lost() -> AbstractContextManager[None]:
    """An agent that comes back takes attempts that run for lost, and leaves them running."""
    real = attempts.Attempts.scan

    def scan(self: Any) -> None:
        real(self)
        for key, local in list(self.by_key.items()):
            if local.phase == "running":
                del self.by_key[key]

    return _replaced(attempts.Attempts, "scan", scan)


def append_error_ignored() -> AbstractContextManager[None]:
    """A sequencer takes an append that failed for one that came about."""
    real = writer.LogWriter.flush

    async def flush(self: Any, wait_ms: int) -> Any:
        sender = self._writer
        send = sender.send

        async def sent(batch: Any, *, durable: bool = True) -> list[int]:
            try:
                return list(await send(batch, durable=durable))
            except BusError:
                self._writer = self._bus.writer()
                return [self.reader.offset + len(batch)]

        with _replaced_of(sender, sent):
            return await real(self, wait_ms)

    return _replaced(writer.LogWriter, "flush", flush)


@contextmanager
def _replaced_of(sender: Any, send: Any) -> Iterator[None]:
    sender.send = send
    try:
        yield
    finally:
        del sender.send


def no_read_back() -> AbstractContextManager[None]:
    """What was sent counts as written without having been read back."""

    async def flush(self: Any, wait_ms: int) -> list[Accepted]:
        batch, self._batch = self._batch, []
        if not batch:
            return []
        offsets = await self._writer.send(batch, durable=True)
        accepted = []
        for sent, offset in zip(self._sent, offsets, strict=False):
            sent.accepted.offset = offset
            accepted.append(sent.accepted)
            follow(self.reader.order, sent.accepted)
        self._sent.clear()
        self.reader.offset = self.reader.order.offset
        return accepted

    return _replaced(writer.LogWriter, "flush", flush)


def opening_unanswered() -> AbstractContextManager[None]:
    """A service that is started in the middle of a round does not answer it."""
    real = shells.Shell._answer

    async def answer(self: Any, opening: Any) -> None:
        if self._writer is None and isinstance(opening.body, RoundOpened) and opening.round > 1:
            self._writer = self._bus.writer()
            return
        await real(self, opening)

    return _replaced(shells.Shell, "_answer", answer)


def inputs_taken_again() -> AbstractContextManager[None]:
    """A new leader begins with the last input that the log has taken, not behind it."""
    real = InputReader.__init__

    def begin(self: Any, bus: Any, partition: int, taken: Any) -> None:
        real(self, bus, partition, {place: at - (at >= 0) for place, at in taken.items()})

    return _replaced(InputReader, "__init__", begin)


def stop_unheeded() -> AbstractContextManager[None]:
    """An agent lets run what the log wants ended."""
    return _replaced(attempts.Attempts, "stop", lambda self, local, reason, grace_ms: [])


def log_time_of_the_wall() -> AbstractContextManager[None]:
    """Log time is the wall clock's, which jumps."""
    real = clock.LogClock.tick

    def tick(self: Any) -> None:
        real(self)
        self.log_ms = self.wall_ms

    return _replaced(clock.LogClock, "tick", tick)


def loss_unheard() -> AbstractContextManager[None]:
    """An agent whose node the log calls lost does not register it again."""

    async def knows(self: Any) -> bool:
        return False

    return _replaced(log_follower.LogFollower, "knows_of_the_loss", knows)


def epoch_kept() -> AbstractContextManager[None]:
    """An agent goes by the epoch of the one before it."""
    real = agent_folders.take_identity

    def take(data: Any) -> Any:
        known = read_json(data / agent_folders.IDENTITY) or {}
        issued = known.get("issued")
        return agent_folders.Identity(known["identity"], tuple(issued)) if issued else real(data)

    return _replaced(agent, "take_identity", take)


def ends_said_once() -> AbstractContextManager[None]:
    """What the bus has taken is not said again, whether or not the log has it."""
    real = outbox.Outbox.sent

    def sent(self: Any, said: Any, now_ms: int) -> None:
        said = list(said)
        real(self, said, now_ms)
        for part in said:
            self.unreported.pop(part.key, None)

    return _replaced(outbox.Outbox, "sent", sent)


@contextmanager
def _both(*patches: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


PLANTED: dict[str, Planted] = {
    found.__name__: found
    for found in (
        no_fsync, seq_unchecked, token_unchecked, newer_claim_ignored, running_state_kept, snapshot_before_closing,
        lease_cut_short, shims_heed_no_lease, outbox_forgets, dropped_run_on, starts_after_a_pause, inputs_skipped,
        adopted_as_lost, no_read_back, opening_unanswered, inputs_taken_again, stop_unheeded, log_time_of_the_wall,
        loss_unheard, epoch_kept, ends_said_once, lease_from_arrival, epoch_unchecked,
    )
}  # fmt: skip

NOT_FOUND: dict[str, str] = {
    "lease_from_arrival": "not in 60 seeds; the model of leases finds it (tests/models)",
    "epoch_unchecked": "not in 60 seeds; an attempt is of one node, so what an earlier agent says of it is true",
}
"""Of those that are planted, with what is known of them."""

MASKED: dict[str, tuple[Planted, str]] = {
    "claim_not_read_back": (claim_not_read_back, "a record behind another claim is void, and is missed when read back"),
    "append_error_ignored": (append_error_ignored, "what did not arrive is missed when it is read back"),
}
"""By name, with what masks it: `no_read_back`, which takes that away, is found."""
