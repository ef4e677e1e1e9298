"""Makes a checkpoint: folds a log up to a closing twice, and keeps the states only where both folds agree.

The first fold begins with the log, or with the checkpoint before. The second one goes on from what the services
themselves wrote to the topic `snapshots`: where one of them comes by, the first has to have its very state, and at the
closing both have to. A difference names the service and the record behind which it was found.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256

from largesse.archive.state_file import StateFile
from largesse.beginning import NODES, PAST
from largesse.bus.port import Message
from largesse.ids import content_hash
from largesse.lifecycle import node_work
from largesse.log.answers import Shelf
from largesse.log.codec import Undecodable
from largesse.log.decisions import DecisionGap
from largesse.log.fencing import Accepted, LogOrder, advance
from largesse.log.snapshots import Snapshot, SnapshotRefused, dump, load
from largesse.log.wanted import Wanted
from largesse.release import VERSION
from largesse.rounds import Hosted, read_by
from schemas import Record, RoundAbandoned, RoundClosed, RoundOpened
from schemas.policy import SHARDS_MAX
from schemas.topics import DECISIONS, INPUTS, LOG, SHARDED
from services.altruism import core as altruism
from services.replay import past
from services.replay.refold import Refold
from services.replay.viewing import viewing


class FoldsDiffer(Exception):
    """Two folds of one log came to different states: names the service and where. Nothing was kept."""


class NothingToKeep(Exception):
    """Why there is no checkpoint to make yet."""


@dataclass(frozen=True, slots=True)
class Station:
    """One record of the log, or a claim, and where the log stands behind it. `landmark`: the hash of its message.
    `shelves`: what decision topics hold of rounds that are not over. Both move on with the next one.
    """

    accepted: Accepted
    order: LogOrder
    landmark: str
    shelves: dict[tuple[str, int], Shelf]

    def positions(self) -> dict[str, int]:
        """Where a reader of decisions that begins here has to start."""
        return {f"{topic}/{number}": shelf.needed for (topic, number), shelf in sorted(self.shelves.items())}

    def winners(self) -> list[tuple[Wanted, Record]]:
        """What a closing names. Raises DecisionGap."""
        closing, found = self.accepted.record, []
        for named in closing.body.hashes:
            id_ = f"{named.topic}/{named.shard}-{named.of}/{closing.cause}"
            held = next((shelf.found[id_] for shelf in self.shelves.values() if id_ in shelf.found), None)
            if held is None or content_hash(held.content) != named.hash:
                raise DecisionGap(f"{closing.id} names {named.topic} of shard {named.shard}, which are not recorded")
            found.append((Wanted(named.topic, named.shard, named.of), held.record))
        return found


def stations(messages: Iterable[Message], partition: int, start: StateFile | None) -> Iterator[Station]:
    """The records behind a place of the log that messages come to, decisions before their closing. Those before it are
    passed over.
    """
    order = LogOrder() if start is None else deepcopy(start.order)
    shelves: dict[tuple[str, int], Shelf] = {}
    opened = forgotten = 0
    for message in messages:
        if message.topic == LOG and message.partition == partition:
            if message.offset < order.offset:
                continue
            accepted = advance(order, message.offset, message.value)
            if accepted is None:
                continue
            if isinstance(accepted.record.body, RoundOpened):
                opened = accepted.record.seq
            yield Station(accepted, order, sha256(message.value).hexdigest(), shelves)
            if isinstance(accepted.record.body, RoundClosed | RoundAbandoned):
                forgotten = opened
                for shelf in shelves.values():
                    shelf.forget(forgotten)
        elif message.topic in DECISIONS and _cell_of(message) == partition:
            shelf = shelves.setdefault((message.topic, message.partition), Shelf(0))
            with suppress(Undecodable):  # It answers nothing, to nobody.
                shelf.take(message, forgotten)


def _cell_of(message: Message) -> int:
    return message.partition // SHARDS_MAX if message.topic in SHARDED else message.partition


@dataclass(slots=True)
class _Kept:
    """A state that is folded; `hosted` says by which core."""

    service: str
    shard: int
    layout: int
    kind: type
    hosted: Hosted

    def fold(self, record: Record) -> None:
        """A record, or a claim."""
        if (told := _TOLD_ALL.get(self.service)) is not None:
            told(self.hosted.state, record)
        elif (fold := self.hosted.core.FOLDS.get(type(record.body))) is not None:
            fold(self.hosted.state, record)

    def again(self, data: bytes, shard: int | None = None) -> "_Kept":
        """The same with a state that was written. Raises SnapshotRefused."""
        shard = self.shard if shard is None else shard
        hosted = Hosted(self.hosted.core, load(self.kind, data), shard)
        return _Kept(self.service, shard, self.layout, self.kind, hosted)


def _all() -> list[_Kept]:
    """Every core, nothing folded yet; altruism twice: its shard 0, and then the spare one."""
    hosts = [*Refold(2).all(), viewing(None)]
    kept = [_Kept(each.core.NAME, each.shard, each.core.LAYOUT, type(each.state), each) for each in hosts]
    nodes = Hosted(_NoCore, node_work.start_for_all())  # type: ignore[arg-type]
    said = Hosted(_NoCore, past.start())  # type: ignore[arg-type]
    others = (_Kept(NODES, 0, node_work.LAYOUT, node_work.State, nodes), _Kept(PAST, 0, past.LAYOUT, past.State, said))
    return [*kept, *others]


class _NoCore:
    """Answers no rounds, and reads no decisions."""

    TOPIC, READS = "", ()


_TOLD_ALL: dict[str, Callable[..., None]] = {NODES: node_work.fold, PAST: past.fold}
"""States that no service writes snapshots of: each is told of every record."""


class Fold:
    """All states of a cell, each once."""

    def __init__(self, kept: list[_Kept]) -> None:
        self.kept = kept

    @classmethod
    def begun(cls, start: StateFile | None) -> "Fold":
        """Where a log begins. Raises SnapshotRefused; NothingToKeep where a state is missing, or of another layout."""
        fold = cls(_all())
        if start is None:
            return fold
        if start.states.get((PAST, 0), (0, b""))[0] != past.LAYOUT:
            fold.kept = [each for each in fold.kept if each.service != PAST]  # What was said before is gone.
        fold.grow(start.shards)
        for at, each in enumerate(fold.kept):
            layout, data = start.states.get((each.service, each.shard), (0, b""))
            if layout != each.layout:
                raise NothingToKeep(
                    f"the last checkpoint, behind seq {start.order.seq}, has layout {layout} of {each.service}, and "
                    f"this version reads {each.layout}: take the log's beginning from the archive"
                )
            fold.kept[at] = each.again(data)
        return fold

    @property
    def shards(self) -> int:
        """States of altruism that are of one shard each; one more is that of any other."""
        return sum(each.service == altruism.NAME for each in self.kept) - 1

    def grow(self, shards: int) -> None:
        """Makes states of their own for further shards, of what they have in common."""
        while self.shards < shards:
            spare = max((each for each in self.kept if each.service == altruism.NAME), key=lambda each: each.shard)
            new = spare.again(dump(spare.hosted.state), spare.shard + 1)
            new.hosted.state.shard = new.shard
            self.kept.insert(self.kept.index(spare) + 1, new)

    def take(self, station: Station) -> None:
        """The next record. Raises DecisionGap."""
        if isinstance(station.accepted.record.body, RoundOpened):
            self.grow(station.accepted.record.body.shards)
        learn(self.kept, station)

    def find(self, service: str, shard: int) -> _Kept | None:
        """The state of one core; None where it has none of its own."""
        return next((each for each in self.kept if (each.service, each.shard) == (service, shard)), None)

    def states(self) -> dict[tuple[str, int], tuple[int, bytes]]:
        """All of them, as they are written."""
        return {(each.service, each.shard): (each.layout, dump(each.hosted.state)) for each in self.kept}


def learn(kept: Iterable[_Kept], station: Station) -> None:
    """Has each state fold the next record, and before a closing the winners that it reads. Raises DecisionGap."""
    record = station.accepted.record
    winners = station.winners() if isinstance(record.body, RoundClosed) else []
    for each in kept:
        for winner in read_by(each.hosted, winners):
            each.fold(winner)
        each.fold(record)


@dataclass(slots=True)
class Agreed:
    """States that two folds came to. `begun`: by service and shard, behind which record the second fold began."""

    file: StateFile
    begun: dict[tuple[str, int], int] = field(default_factory=dict)


def agree(
    messages: Iterable[Message], partition: int, snapshots: Iterable[Snapshot], start: StateFile | None = None
) -> Agreed:
    """Folds up to the last snapshot that any service has written. `messages`: of the log and its decision topics, from
    behind `start` on at the latest. Raises FoldsDiffer, NothingToKeep, DecisionGap, and what reading the messages does.
    """
    first, second = Fold.begun(start), _Second()
    due = _due(first, snapshots, 0 if start is None else start.order.seq)
    rules = None if start is None else start.rules
    for station in stations(messages, partition, start):
        record = station.accepted.record
        if isinstance(record.body, RoundOpened):
            rules = record.body.rules
        learn(second.kept.values(), station)
        first.take(station)
        for snapshot in due.pop(record.seq, ()) if record.seq else ():
            second.begin(first, snapshot, station.order)
        if not due:
            second.compare(first, station.order)
            positions = ({} if start is None else start.decisions) | station.positions()
            place = (record.cell, deepcopy(station.order), station.landmark, dict(sorted(positions.items())))
            return Agreed(StateFile(*place, rules, first.shards, VERSION, first.states()), second.begun)
    raise FoldsDiffer(f"the log ends before seq {max(due)}, behind which {due[max(due)][0].service} wrote a snapshot")


def _due(first: Fold, snapshots: Iterable[Snapshot], after: int) -> dict[int, list[Snapshot]]:
    """By seq, what services wrote behind it. Raises NothingToKeep."""
    due: dict[int, list[Snapshot]] = {}
    layouts = {each.service: each.layout for each in first.kept if each.service not in _TOLD_ALL}
    for snapshot in snapshots:
        if layouts.get(snapshot.service) == snapshot.layout and snapshot.order.seq > after:
            due.setdefault(snapshot.order.seq, []).append(snapshot)
    if not due:
        behind = f" behind seq {after}" if after else ""
        when = "each does after 1,000 rounds, or LARGESSE_SNAPSHOT_ROUNDS"
        raise NothingToKeep(f"no service has written a snapshot{behind} yet: {when}")
    return due


class _Second:
    """The second fold: it goes on from what the services wrote. Until one of them has, it goes on from what the first
    fold writes there, read back.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], _Kept] = {}
        self.begun: dict[tuple[str, int], int] = {}

    def begin(self, first: Fold, snapshot: Snapshot, order: LogOrder) -> None:
        """A service wrote this snapshot where the first fold stands. Raises FoldsDiffer."""
        name = _name(snapshot.service, snapshot.shard)
        if snapshot.order.prefix != order.prefix:
            raise FoldsDiffer(f"the snapshot of {name} behind seq {order.seq} is of a log with another prefix")
        mine = first.find(snapshot.service, snapshot.shard)
        if mine is None:
            return  # A shard that no round of this log had: its state is the spare one's.
        if dump(mine.hosted.state) != snapshot.state:
            raise FoldsDiffer(f"{name} wrote another state behind seq {order.seq} than the log folds to")
        if not self.kept:
            for each in first.kept:
                self._take_up(each, dump(each.hosted.state), order.seq)
        self._take_up(mine, snapshot.state, order.seq)

    def _take_up(self, mine: _Kept, data: bytes, seq: int) -> None:
        key = mine.service, mine.shard
        try:
            self.kept[key], self.begun[key] = mine.again(data), seq
        except SnapshotRefused as refused:
            raise FoldsDiffer(f"the state of {_name(*key)} behind seq {seq}: {refused}") from None

    def compare(self, first: Fold, order: LogOrder) -> None:
        """Both stand at the closing. Raises FoldsDiffer."""
        for mine in first.kept:
            key = mine.service, mine.shard
            other = self.kept.get(key)
            if other is not None and dump(other.hosted.state) != dump(mine.hosted.state):
                name, begun = _name(*key), self.begun[key]
                raise FoldsDiffer(f"{name}: two folds differ behind seq {order.seq}; one began behind {begun}")


def _name(service: str, shard: int) -> str:
    return f"{service}, shard {shard}" if shard else service


def told(file: StateFile, digest: str) -> dict[str, dict[str, object]]:
    """What to send to the topic `config`, so that the log notes the checkpoint. `digest`: of the file's bytes."""
    positions = []
    for place, offset in sorted(file.order.positions.items()):
        topic, _, partition = place.rpartition("/")
        if topic in INPUTS:
            positions.append({"topic": topic, "partition": int(partition), "offset": offset})
    states = [
        {"service": service, "shard": shard, "layout": layout, "sha256": hash_}
        for service, shard, layout, hash_ in file.sums()
    ]
    at = {"closing": file.order.seq, "prefix": file.order.prefix}
    return {"checkpoint": {**at, "positions": positions, "states": states, "file": digest}}
