"""Two logs side by side: the first record that differs, the first round that started other tasks, and what followed."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest

from largesse.log.codec import decode
from schemas import Record, RoundClosed, RoundOpened
from services.replay.differences import Difference, first_difference, shown
from services.replay.source import Source, Step
from services.replay.whatif.recorded import RecordedRuns
from services.simulator.metrics import Metrics
from services.simulator.result import JobRow

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class RoundDiffers:
    """The first round that did not start the same at the same time; None: that log has no such round."""

    round: int
    seqs: tuple[int | None, int | None]
    times: tuple[int | None, int | None]


@dataclass(slots=True)
class LogDiff:
    """How two logs differ. `records`: how many each has; `jobs`: those that did not go the same way in both."""

    difference: Difference | None = None
    round: RoundDiffers | None = None
    records: tuple[int, int] = (0, 0)
    jobs: list[Row] = field(default_factory=list)
    jobs_in_all: int = 0

    def document(self) -> Row:
        """As `largesse diff --json` prints it."""
        found, other = self.difference, self.round
        return {
            "same": found is None,
            "records": list(self.records),
            "seq": found and found.seq,
            "round": found and found.round,
            "topic": found and found.topic,
            "what": found and found.what,
            "path": found and found.path,
            "a": found and found.recorded,
            "b": found and found.decided,
            "grants": other and {"round": other.round, "seq": list(other.seqs), "time": list(other.times)},
            "jobs": self.jobs,
        }


def diff(first: Source, second: Source, tell: Callable[[], None] | None = None) -> LogDiff:
    """Reads both logs at the same pace; `tell` is called for each pair of records. Of a bundle and another log the
    records that both have are compared. Raises what reading them raises.
    """
    begins = max(_before(first), _before(second))  # A bundle does not have what lies before it.
    sides = _Side(first, begins), _Side(second, begins)
    found = LogDiff()
    for a, b in zip_longest(sides[0].steps(), sides[1].steps()):
        if (a is None and first.start is not None) or (b is None and second.start is not None):
            break  # A bundle does not have what lies behind it either.
        if tell is not None:
            tell()
        for side, step in zip(sides, (a, b), strict=True):
            if step is not None:
                side.take(step)
        if found.difference is None:
            found.difference = _differs(a, b)
        if found.round is None:
            found.round = _rounds_differ(sides[0].closings, sides[1].closings)
    if found.round is None:
        found.round = _rounds_differ(sides[0].closings, sides[1].closings, over=True)
    found.records = sides[0].records, sides[1].records
    rows, others = sides[0].rows(), sides[1].rows()
    names = dict.fromkeys([*rows, *others])
    found.jobs_in_all = len(names)
    found.jobs = [row for key in names if (row := _job(key, rows.get(key), others.get(key))) is not None]
    return found


def _before(source: Source) -> int:
    """The seq of the last record that a log does not have."""
    return source.start.seq if source.start is not None else 0


class _Side:
    """One of the logs, behind the record `begins`. `closings`: rounds that were not compared yet."""

    def __init__(self, source: Source, begins: int) -> None:
        self.records = 0
        self.closings: list[Record] = []
        self._source, self._begins = source, begins
        self._runs = RecordedRuns(Metrics({}))  # Of which only the jobs are looked at, no parts of a capacity.
        self._live: dict[int, bool] = {}

    def steps(self) -> Iterator[Step]:
        """What is compared, each to be taken."""
        start = self._source.start
        for record in start.before if start is not None else ():
            self._runs.observe(record)
        self._live = dict.fromkeys(self._runs.living(), True)
        for step in self._source.steps():
            record = step.accepted.record
            if record.seq > self._begins:
                yield step
                continue
            self._runs.observe(record)
            if record.seq == self._begins:
                self._live = dict.fromkeys(self._runs.living(), True)

    def take(self, step: Step) -> None:
        """This record is compared."""
        record = step.accepted.record
        self._runs.observe(record)
        self.records += 1
        if isinstance(record.body, RoundClosed):
            self.closings.append(record)

    def rows(self) -> dict[tuple[str, int], JobRow]:
        """By name and how often it had been given, what became of a job that lived behind `begins`."""
        rows = zip(self._runs.seqs, self._runs.result()["per_job"], strict=True)
        times: dict[str, int] = {}
        found = {}
        for seq, row in rows:
            if seq > self._begins or seq in self._live:
                name = row["job"]
                times[name] = times.get(name, 0) + 1
                found[name, times[name]] = row
        return found


def _job(key: tuple[str, int], a: JobRow | None, b: JobRow | None) -> Row | None:
    """None where it went the same way in both."""
    row = a or b
    assert row is not None
    took = tuple(None if r is None or r["end_ms"] is None else r["end_ms"] - r["submit_ms"] for r in (a, b))
    outcomes = tuple(r and r["outcome"] for r in (a, b))
    if took[0] == took[1] and outcomes[0] == outcomes[1] and a is not None and b is not None:
        return None
    said: Row = {"job": key[0], "queue": row["queue"], "a_ms": took[0], "b_ms": took[1]}
    return {**said, "a_outcome": outcomes[0], "b_outcome": outcomes[1]}


# ---------------------------------------------------------------- where they part
def _differs(a: Step | None, b: Step | None) -> Difference | None:
    """Of two records at one place in the logs."""
    if a is None or b is None:
        longer = a or b
        assert longer is not None
        record, which = longer.accepted.record, "first" if b is None else "second"
        return Difference(record.seq, record.round, "cluster.log", f"only the {which} log goes on: {record.type}")
    if a.accepted.content == b.accepted.content:
        return None
    one, other = a.accepted.record, b.accepted.record
    if isinstance(one.body, RoundClosed) and isinstance(other.body, RoundClosed):
        if (found := _decisions_differ(a, b)) is not None:
            return found
    found_at = first_difference(_plain(one), _plain(other))
    if found_at is None:
        return None  # Only what names earlier records does, or who wrote it.
    path, left, right = found_at
    what = f"{one.type} {one.seq}" if one.type == other.type else f"{one.type} in one, {other.type} in the other"
    return Difference(one.seq, one.round, "cluster.log", what, path, shown(left), shown(right))


def _plain(record: Record) -> object:
    """A record without what follows from all the records before it."""
    body = record.body
    if isinstance(body, RoundOpened):
        body = replace(body, prefix="")
    elif isinstance(body, RoundClosed):
        body = replace(body, hashes=[])
    return {"type": record.type, "time": record.time, "round": record.round, "body": asdict(body)}


def _decisions_differ(a: Step, b: Step) -> Difference | None:
    """The first decision of two rounds that does, in the order in which they are made."""
    one, other = a.accepted.record, b.accepted.record
    others = {(named.topic, named.shard, named.of): named for named in other.body.hashes}
    for named in one.body.hashes:
        match = others.get((named.topic, named.shard, named.of))
        contents = a.decision(one.cause, named), match and b.decision(other.cause, match)
        if not contents[0] or not contents[1]:
            continue
        found = first_difference(asdict(decode(contents[0]).body), asdict(decode(contents[1]).body), "$.body")
        if found is not None:
            path, left, right = found
            what = f"what {named.topic} say in round {one.round}"
            return Difference(one.seq, one.round, named.topic, what, path, shown(left), shown(right))
    return None


def _rounds_differ(a: list[Record], b: list[Record], *, over: bool = False) -> RoundDiffers | None:
    """Compares rounds that started something, one by one, as far as both logs have been read."""
    while True:
        for closings in (a, b):
            while closings and not closings[0].body.grants:
                closings.pop(0)
        if not (a and b):
            break
        one, other = a.pop(0), b.pop(0)
        if (one.time, one.body.grants) != (other.time, other.body.grants):
            return RoundDiffers(one.round, (one.seq, other.seq), (one.time, other.time))
    if over and (left := a or b):
        seqs = (left[0].seq, None) if a else (None, left[0].seq)
        times = (left[0].time, None) if a else (None, left[0].time)
        return RoundDiffers(left[0].round, seqs, times)
    return None
