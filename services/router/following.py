"""One cell as the router sees it: its log, folded as its sequencer folds it.

So a job is judged here as the cell would judge it, by the same code, and what became of a job is read off what that
code knows. The fold begins at the newest snapshot of the cell's sequencer.
"""

from dataclasses import replace

from largesse.bus.port import Bus
from largesse.known_cells import Cell
from largesse.lifecycle.empty_nodes import room_on, stage_problem
from largesse.log.fencing import LogOrder
from largesse.log.reader import LogReader
from largesse.log.snapshots import SnapshotKeeper
from largesse.settings import Settings
from schemas import InputRepeated, JobRejected, JobSpec, Record, Stage, Vector
from schemas.routes import Bid, CellProblem
from services.admission import core
from services.admission.core.changes import why_begun
from services.admission.core.judge import judge
from services.admission.core.state import NodeState, State
from services.router.backlog import Backlog, jobs_in
from services.router.core.watch import Seen

NAMES_KEPT_LEAST_MS = 3_600_000
"""A cell that forgets names of jobs sooner gets none: a message that comes twice could run one twice."""
FITS_KEPT = 10_000
"""Kinds of stages for which it is remembered where they fit."""

Fit = tuple[bool, Vector]
"""Whether nodes that are up can run a stage, and what those have together that could run a task of it."""


class CellView:
    """`is_read`: whether the log has been read up to what it had at the beginning."""

    def __init__(self, bus: Bus, settings: Settings, cell: Cell) -> None:
        self.cell = cell
        self.state: State = core.start()
        self.backlog = Backlog()
        self.is_read = False
        self._bus = bus
        self._settings = replace(settings, cell=cell.name, partition=cell.partition)
        self._reader: LogReader | None = None
        self._up: dict[str, NodeState] | None = None
        self._fits: dict[str, Fit] = {}

    @property
    def order(self) -> LogOrder:
        """Where the log has been read to."""
        return self._reader.order if self._reader is not None else LogOrder()

    @property
    def position(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`."""
        return self._reader.position if self._reader is not None else {}

    async def read(self) -> list[str] | None:
        """Folds what has come. The jobs that it is about; None: nothing has come. Raises PositionGap, BusError,
        Undecodable, and what a fold raises."""
        reader = self._reader or await self._restored()
        before = reader.offset
        named: dict[str, bool] = {}
        for accepted in await reader.read():
            self.fold(accepted.record)
            named.update(dict.fromkeys(jobs_in(accepted.record.body), True))
        if reader.offset == before:
            self.is_read = True
            return None
        for name in named:
            self.backlog.note(self.state, name)
        return list(named)

    def fold(self, record: Record) -> None:
        """Folds one record; `note` follows for the jobs that it names."""
        learn = core.FOLDS.get(type(record.body))
        if learn is not None:
            learn(self.state, record)
        if record.type.startswith("Node"):
            self._up, self._fits = None, {}

    def seen(self, name: str) -> Seen:
        """What the log says of a job."""
        time, job, ended = self.order.time, self.state.jobs.get(name), self.state.ended.get(name)
        if job is not None:
            begun = job.over or bool(why_begun(self.state, name, job))
            admitted = 0 if job.over else job.seq
            return Seen(time, admitted, begun, job.over, None, self.state.moved.get(name, ""))
        if ended is not None:
            return Seen(time, outcome=ended.outcome, moved_to=ended.moved_to)
        return Seen(time)

    def bid(self, spec: JobSpec, author: str) -> Bid:
        """What the cell offers a job. Of one that it has, everything but what has to do with its name."""
        order = self.order
        bid = Bid(self.cell.name, order.seq, order.time)
        if not self.is_read:
            return bid
        judged = judge(self.state, spec, author, order.time)
        if isinstance(judged, InputRepeated):
            ended = self.state.ended.get(spec.job)
            bid.is_there = ended is None or not ended.moved_to
            if ended is not None and ended.moved_to:
                detail = f"the job has moved from here to cell {ended.moved_to}"
                bid.problem = CellProblem(bid.cell, "name_taken", "job", detail)
        elif isinstance(judged, JobRejected):
            bid.problem = CellProblem(bid.cell, judged.reason, judged.field, judged.detail)
        elif self.state.policy.name_kept_ms < NAMES_KEPT_LEAST_MS:
            detail = f"the cell keeps names of jobs that have ended for less than {NAMES_KEPT_LEAST_MS} ms"
            bid.problem = CellProblem(bid.cell, "names_not_kept", "name_kept_ms", detail)
        self._measure(bid, spec)
        return bid

    def _measure(self, bid: Bid, spec: JobSpec) -> None:
        bid.is_able = True
        for stage in spec.stages:
            fits, room = self._fit(stage)
            bid.is_able = bid.is_able and fits
            for kind in stage.demand:
                amount = room.get(kind, 0)
                bid.capacity[kind] = min(amount, bid.capacity.get(kind, amount))
        bid.capacity = dict(sorted(bid.capacity.items()))
        of_queue = self.backlog.by_queue.get(spec.queue, {})
        if self.state.queues is None:
            of_queue = self.backlog.total
        bid.ahead = {kind: self.backlog.total.get(kind, 0) for kind in bid.capacity}
        bid.queue_ahead = {kind: of_queue.get(kind, 0) for kind in bid.capacity}
        bid.queue_permille = self.backlog.permille_of(self.state.queues, spec.queue)

    def _fit(self, stage: Stage) -> Fit:
        if self._up is None:
            self._up = {name: node for name, node in self.state.nodes.items() if _is_up(node)}
        rules = stage.gang, stage.tasks if stage.gang else 0, stage.anti_affinity, stage.spread
        key = repr((sorted(stage.demand.items()), sorted(stage.labels.items()), *rules))
        found = self._fits.get(key)
        if found is None:
            fits = stage_problem(self._up, stage) is None
            room: Vector = {}
            for node in self._up.values():
                for kind, amount in node.capacity.items() if room_on(node, stage) else ():
                    room[kind] = room.get(kind, 0) + amount
            if len(self._fits) >= FITS_KEPT:
                self._fits = {}
            found = self._fits[key] = fits, room
        return found

    async def _restored(self) -> LogReader:
        keeper = SnapshotKeeper(self._bus, self._settings, core.NAME, 0, core.LAYOUT, f"router@{self.cell.name}")
        found = await keeper.restore(State)
        order = LogOrder()
        if found is not None:
            self.state, order = found[0], found[1].order
            for name in self.state.jobs:
                self.backlog.note(self.state, name)
        self._reader = LogReader(self._bus, self.cell.partition, order)
        return self._reader


def _is_up(node: NodeState) -> bool:
    return not (node.lost or node.draining or node.unschedulable)
