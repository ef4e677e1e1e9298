"""A cell with all its cores and the gateway's view of it, for tests of what the view shows."""

from largesse.log.codec import decode
from schemas import (
    JobSpec,
    NodeRegistered,
    Stage,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskStarted,
)
from schemas.edge.read import ConfigPatch
from schemas.tasks import TaskEnd, TaskRange
from services.gateway import view
from services.gateway.documents.jobs import (
    job_document,
)
from services.simulator.engine import Cell

CPU = {"cpu": 1000}


class Watched:
    """A cell with all its cores, and the gateway's view of it."""

    def __init__(self, nodes=1, cpu=4, queues=None, **knobs):
        self.view = view.start()
        self.cell = Cell(listener=self._hear)
        self.take(ConfigPatch(knobs, queues))
        for i in range(nodes):
            self.take(NodeRegistered(f"n{i}", "e1", {"cpu": cpu * 1000}))
        self.settle()

    def own_levels(self):
        """What queues are due of their own, whether or not it finds room: a dry run does not ask where tasks fit."""
        fairness = self.cell.fairness
        levels = fairness.levels
        return {queue: levels.entitled(queue) - levels.units[queue].lent for queue in self.view.levels}

    def _hear(self, topic, header, content):
        record = decode(content)
        if type(record.body) in view.FOLDS and topic not in ("releases", "plans"):
            view.fold(self.view, record)

    def take(self, body):
        self.cell.take(body, "ann")
        return self

    def settle(self, after_ms=0):
        self.cell.advance(self.cell.time + after_ms)
        while self.cell.settle() is not None:
            pass
        return self

    def submit(self, name, *stages, queue="default", user="", reservation=None):
        return self.take(JobSpec(name, queue, list(stages), user=user, reservation=reservation)).settle()

    def job(self, name):
        return job_document(self.view, name)

    def tasks(self, name, stage=0):
        counts = self.job(name)["stages"][stage]["tasks"]
        return {kind: count for kind, count in counts.items() if count and kind != "total"}

    def why(self, name, stage=0):
        return [(why["reason"], why["tasks"]) for why in self.job(name)["stages"][stage]["why"]]

    def start(self, job, stage, count=1, attempt=1, node="n0", first=0, epoch="e1"):
        return self.take(TaskStarted([TaskRange(job, stage, first, count, attempt, node, epoch)]))

    def finish(self, job, stage, count=1, attempt=1, node="n0", first=0, epoch="e1"):
        return self.take(TaskFinished([TaskEnd(job, stage, first, count, attempt, node, epoch, [5])])).settle()

    def fail(self, job, stage, index=0, attempt=1, reason="exit_code", node="n0", detail="", exit_code=1):
        item = TaskFailure(job, stage, index, 1, attempt, node, "e1", reason, exit_code, detail)
        return self.take(TaskFailed([item])).settle()


def stage(name="s", tasks=1, cpu=1, **more):
    return Stage(name, tasks, {"cpu": cpu * 1000}, **more)
