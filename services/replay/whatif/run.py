"""One what-if: reads the recording, decides it again from a fork on, and measures both alike."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from largesse.archive.state_file import StateFile
from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobEnded,
    JobRejected,
    NodeLost,
    NodeRegistered,
    Plans,
    Queue,
    Record,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    TaskStarted,
)
from schemas.edge.base import Malformed
from schemas.edge.cluster import ClusterNode
from schemas.knobs import knob_conflict, with_knobs
from schemas.policy import KnobValue
from schemas.queue_tree import tree_conflict
from services.replay.refold import Refold
from services.replay.source import NotItsLog, Source, write_step
from services.replay.taken_up import newest_before, taken_up
from services.replay.verify import recorded_winners
from services.replay.whatif.drive import WhatIfDrive
from services.replay.whatif.facts import NodeFails, Told, facts_after, user_of
from services.replay.whatif.outcomes import Outcomes
from services.replay.whatif.recorded import RecordedRuns
from services.simulator.cluster import SimCluster
from services.simulator.engine import Cell, Listener
from services.simulator.metrics import Metrics
from services.simulator.reservations import Reservations
from services.simulator.result import JobRow, Measured
from services.simulator.run import uncollected

AUTHOR = "what-if"
_NO_RECORD = Record("", 0, "", 0, 0, 0, "", "", None)


@dataclass(slots=True)
class Question:
    """What is different in the other world. `values`: knobs, `queues`: the tree, from the fork on; None: as recorded.
    `slower_permille`: how long tasks run, of what they ran. `fork`: the last record that both worlds share, given by
    its seq or, in ms of log time, by `fork_ms`; 0: none, all that the log has is decided again. `until`,
    `until_ms`: the recording ends with this record, or at this log time.
    """

    values: dict[str, KnobValue] = field(default_factory=dict)
    queues: Queue | None = None
    added: list[ClusterNode] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    without_jobs: list[str] = field(default_factory=list)
    without_users: list[str] = field(default_factory=list)
    slower_permille: int = 1_000
    fork: int = 0
    fork_ms: int | None = None
    until: int | None = None
    until_ms: int | None = None

    def is_behind(self, record: Record) -> bool:
        """Whether the recording has ended before this record."""
        late = self.until_ms is not None and record.time > self.until_ms
        return late or (self.until is not None and record.seq > self.until)


@dataclass(slots=True)
class World:
    """How it went in one of the two: `measured`, and by seq of its submission what became of a job."""

    measured: Measured
    jobs: dict[int, JobRow]
    deadlines: tuple[int, int]
    """How many reservations met theirs, of how many that had one and jobs."""


@dataclass(slots=True)
class Answer:
    """Both worlds. `fork`: the last record that they share. `told`: of the recording. `end_ms`: when nothing was left
    to happen. `users`: by seq of a submission, where somebody is named; `left_out`: those that the question leaves out.
    `begun`: the record behind which reading began, since states of it were at hand; 0: with the first one.
    """

    told: Told
    fork: int
    recorded: World
    decided: World
    outcomes: Outcomes
    digest: str
    end_ms: int
    users: dict[int, str]
    left_out: dict[int, bool]
    begun: int = 0


def ask_from(
    source: Source,
    archive: str,
    question: Question,
    told: Callable[[int, int], None] | None = None,
    listener: Listener | None = None,
) -> Answer:
    """The same as `ask`, from the states of the newest checkpoint before the fork, where the store `archive` has one of
    this log; from its first record where not. Raises as `ask`.
    """
    file = None
    if archive and listener is None and source.start is None and source.behind is not None:
        file = _checkpoint(archive, question)
    if file is not None:
        with suppress(NotItsLog):
            return ask(taken_up(source, file), question, told)
    return ask(source, question, told, listener)


def _checkpoint(archive: str, question: Question) -> StateFile | None:
    """The newest one before the fork and the end of the recording."""
    seqs = [question.fork if question.fork_ms is None else None, question.until]
    times = [question.fork_ms, question.until_ms]
    least_seq = min((each for each in seqs if each is not None), default=None)
    return newest_before(archive, least_seq, min((each for each in times if each is not None), default=None))


def ask(
    source: Source,
    question: Question,
    told: Callable[[int, int], None] | None = None,
    listener: Listener | None = None,
) -> Answer:
    """Answers a question about a recording. `told` hears how many records of how many are decided; `listener` gets the
    whole log of the other world, what is shared included, as an ExportWriter writes it.

    Raises Malformed where knobs contradict each other or the queues, NotThere, StartRefused, and what reading the
    source raises.
    """
    outcomes, heard = Outcomes(question.slower_permille), Told()
    fork = _read(source, question, outcomes, heard)
    _check(question, heard)
    run = _Run(source, question, outcomes, heard, fork, listener)
    with uncollected():
        return run.answer(told)


class NotThere(Exception):
    """The question names a job, user or node that the recording has not behind the fork, or adds one that it has: says
    which. `kind`: what is named, empty for what is added.
    """

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind


def _read(source: Source, question: Question, outcomes: Outcomes, heard: Told) -> int:
    """Reads the whole recording once; returns the seq of the last record that both worlds share."""
    start, in_round, named = source.start, False, _Named()
    fork, before = (start.seq, start.before) if start is not None else (0, [])
    for record in before:
        outcomes.learn(record)
        heard.learn(record)
        named.learn(record)
    if start is not None:
        heard.take_up(start)
        _forks(outcomes, heard, named)
    for record in records_of(source, question):
        body = record.body
        outcomes.learn(record)
        heard.learn(record)
        named.learn(record)
        if isinstance(body, RoundOpened):
            in_round = True
        elif isinstance(body, RoundClosed | RoundAbandoned):
            in_round = False
        shared = record.time <= question.fork_ms if question.fork_ms is not None else record.seq <= question.fork
        if not in_round and (shared or (fork == record.seq - 1 and isinstance(body, Releases | Plans))):
            fork = max(fork, record.seq)  # Forecasts that follow a closing were made with its round.
            _forks(outcomes, heard, named)
    outcomes.ends(heard.time)
    heard.fails.sort(key=lambda fail: fail.time)
    named.check(question, heard, fork)
    return fork


def _forks(outcomes: Outcomes, heard: Told, named: "_Named") -> None:
    """Both worlds share what was read so far, so nothing that is over counts in either."""
    outcomes.forks()
    heard.forks()
    named.forks()


class _Named:
    """Who submitted which jobs: those that live at the fork, and those that come behind it."""

    def __init__(self) -> None:
        self._submitted: dict[int, tuple[str, str]] = {}
        self._live: dict[str, int] = {}
        self._over: list[int] = []

    def learn(self, record: Record) -> None:
        """One record, in order."""
        body = record.body
        if isinstance(body, JobAdmitted | JobRejected):
            self._submitted[record.seq] = body.spec.job, user_of(body)
            if isinstance(body, JobAdmitted):
                self._live[body.spec.job] = record.seq
            else:
                self._over.append(record.seq)
        elif isinstance(body, JobEnded):
            self._over += [self._live.pop(end.job) for end in body.jobs]

    def forks(self) -> None:
        """What is over by now is over in both worlds."""
        for seq in self._over:
            del self._submitted[seq]
        self._over.clear()

    def check(self, question: Question, heard: Told, fork: int) -> None:
        """Raises NotThere."""
        jobs = {job: True for job, _ in self._submitted.values()}
        users = {user: True for _, user in self._submitted.values()}
        behind = f" behind record {fork:,}, or has ended before" if fork else ""
        named = (
            ("job", question.without_jobs, jobs, behind),
            (
                "user",
                question.without_users,
                users,
                f" with a job that had not ended by record {fork:,}" if fork else "",
            ),
            ("node", question.removed, dict.fromkeys(heard.nodes, True), ""),
        )
        for kind, names, there, where in named:
            for name in names:
                if name not in there:
                    raise NotThere(f"{kind} {name!r} is not in this log{where}", kind)
        for node in question.added:
            if node.name in heard.nodes:
                raise NotThere(f"node {node.name!r} is in this log already: give the node that is added another name")


def _check(question: Question, heard: Told) -> None:
    """Raises Malformed."""
    policy = with_knobs(heard.policy, question.values)
    if conflict := knob_conflict(policy, question.values):
        raise Malformed(*conflict)
    queues = question.queues if question.queues is not None else heard.queues
    if found := tree_conflict(policy, queues):
        raise Malformed("queues", found[1])


def records_of(source: Source, question: Question) -> Iterator[Record]:
    """The records of a log, as far as the question goes."""
    for step in source.steps():
        if question.is_behind(step.accepted.record):
            return
        yield step.accepted.record


class _Run:
    """Of one question."""

    def __init__(
        self,
        source: Source,
        question: Question,
        outcomes: Outcomes,
        heard: Told,
        fork: int,
        listener: Listener | None = None,
    ) -> None:
        self._source, self._question, self._outcomes, self._heard, self._fork = source, question, outcomes, heard, fork
        self._listener = listener
        self._removed = dict.fromkeys(question.removed, True)
        self._jobs = dict.fromkeys(question.without_jobs, True)
        self._users = dict.fromkeys(question.without_users, True)
        self._users_of: dict[int, str] = {}
        self._left_out: dict[int, bool] = {}
        self._recorded = RecordedRuns(Metrics(heard.capacity))
        self._reserved = Reservations()
        # What both worlds share is followed twice: the measures of one go on from there with other nodes.
        self._before = RecordedRuns(Metrics(self._capacity()))
        self._before_reserved = Reservations()

    def _capacity(self) -> dict[str, int]:
        total = Told(nodes={name: had for name, had in self._heard.nodes.items() if name not in self._removed})
        total.nodes |= {node.name: node.capacity for node in self._question.added}
        return total.capacity

    def answer(self, told: Callable[[int, int], None] | None) -> Answer:
        question, heard = self._question, self._heard
        shards = max(heard.shards, int(str(question.values.get("altruism_shards", 1))))
        cell, agents, follow = self._begin(shards)
        drive = WhatIfDrive(
            cell,
            agents,
            facts_after(self._fork, follow, heard.fails),
            self._outcomes,
            self._changed,
            None if told is None else lambda seq: told(seq, heard.last),
        )
        drive.admitted += self._before.seqs
        self._differ(cell, drive)
        drive.begin()
        drive.run()
        measured = agents.metrics.result()
        return Answer(
            heard,
            self._fork,
            _world(self._recorded.result(), self._recorded.seqs, self._reserved),
            _world(measured, drive.admitted, self._before_reserved),
            self._outcomes,
            cell.digest,
            cell.time,
            self._users_of,
            self._left_out,
            0 if self._source.start is None else self._source.start.seq,
        )

    def _begin(self, shards: int) -> tuple[Cell, SimCluster, Iterator[Record]]:
        """A cell that stands where the recording forks, its agents, and the records behind."""
        cell = Cell(shards=shards, listener=self._listener)
        agents = SimCluster(self._before.metrics)
        agents.ends = self._outcomes
        steps = iter(self._source.steps())
        start = self._source.start
        if self._fork:
            cores = Refold(shards, start=start)
            for record in start.before if start is not None else ():
                self._share(record)
            last = start.last() if start is not None else _NO_RECORD
            while last.seq < self._fork:
                step = next(steps)
                last = step.accepted.record
                if isinstance(last.body, RoundClosed):
                    cores.feed(recorded_winners(step, last))
                cores.fold(step.accepted)
                if self._listener is not None:
                    write_step(self._listener, step)
                self._share(last)
            cell.take_up(cores.all(), last, cores.prefix)
            self._fork_here(last.time)
            self._go_on(cell, agents)
        cell.observers = [agents.observe, self._outcomes.observe, self._before_reserved.observe]
        return cell, agents, self._following(step.accepted.record for step in steps)

    def _fork_here(self, time: int) -> None:
        """What is over by now counts in neither world."""
        for runs in (self._recorded, self._before):
            runs.begin(time)
        for reserved in (self._reserved, self._before_reserved):
            reserved.begin()

    def _go_on(self, cell: Cell, agents: SimCluster) -> None:
        nodes = {name: node.capacity for name, node in cell.admission.nodes.items() if not node.lost}
        agents.go_on(cell.admission.policy, nodes, self._before.jobs)
        for fail in self._heard.fails:
            if fail.time <= cell.time and fail.noticed > self._fork:
                agents.fail(fail.node, cell.time)  # It is silent already.
        for run, indexes in self._before.in_order():
            agents.take_up(run.grant, indexes, run.start_ms, cell.time)
        if unsaid := [tasks for tasks in self._before.unsaid() if not agents.is_down(tasks.node)]:
            agents.reports.append(TaskStarted(unsaid))
        agents.share_nodes(cell.time)

    def _share(self, record: Record) -> None:
        """A record of both worlds."""
        self._note(record)
        self._before.observe(record)
        self._before_reserved.observe(record)
        if isinstance(record.body, JobAdmitted):
            self._outcomes.admitted(record.body.spec.job, record.seq)
        self._outcomes.observe(record)

    def _note(self, record: Record) -> None:
        """A record of the recording."""
        self._recorded.observe(record)
        self._reserved.observe(record)
        if isinstance(record.body, JobAdmitted | JobRejected):
            spec = record.body.spec
            self._users_of[record.seq] = spec.user
            if spec.job in self._jobs or user_of(record.body) in self._users:
                self._left_out[record.seq] = True

    def _following(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            if self._question.is_behind(record):
                return
            self._note(record)
            yield record

    def _differ(self, cell: Cell, drive: WhatIfDrive) -> None:
        """What is different from the fork on."""
        question = self._question
        if not self._fork and self._heard.first_ms is not None:
            cell.advance(self._heard.first_ms)
        if question.values or question.queues is not None:
            policy = with_knobs(cell.admission.policy, question.values) if question.values else None
            cell.put(ConfigChanged(policy, question.queues, AUTHOR))
        for name in self._removed:
            drive.lose_node(name, left=True)
        for node in question.added:
            body = NodeRegistered(node.name, AUTHOR, node.capacity, node.labels, node.devices, author=AUTHOR)
            cell.take(body, AUTHOR)

    def _changed(self, body: object) -> object | None:
        question = self._question
        match body:
            case JobAdmitted() | JobRejected():
                return None if body.spec.job in self._jobs or user_of(body) in self._users else body
            case ConfigChanged(policy=policy, queues=queues):
                if policy is not None and question.values:
                    policy = with_knobs(policy, question.values)
                if queues is not None and question.queues is not None:
                    queues = question.queues
                return replace(body, policy=policy, queues=queues)
            case NodeFails() | NodeLost() | NodeRegistered():
                return None if body.node in self._removed else body
        node = getattr(body, "node", None)
        return None if node is not None and node in self._removed else body


def _world(measured: Measured, seqs: list[int], reserved: Reservations) -> World:
    met = [row["met"] for row in reserved.result() if row["met"] is not None]
    return World(measured, dict(zip(seqs, measured["per_job"], strict=True)), (sum(met), len(met)))
