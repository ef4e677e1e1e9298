"""What runs in a simulated cluster: attempts that end together, and the live job that they belong to."""

from dataclasses import dataclass, replace

from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of, lean, progress_of
from largesse.lifecycle.job_life import fail, give_up, is_gang_given_up
from largesse.lifecycle.state import Graph, JobLife, Progress
from schemas import Grant, JobAdmitted, Stage, Vector
from schemas.jobs import Counted
from schemas.tasks import Failure, TaskFailure


@dataclass(slots=True)
class Run:
    """Attempts of one grant that end together. `failure`: why they will not succeed, None if they will. `run_ms`: what
    they take on a node that has all they ask for. `revoked`: on a shared node, they have been taken back.
    """

    grant: Grant
    first: int
    count: int
    start_ms: int
    run_ms: int
    number: int
    failure: Failure | None = None
    revoked: bool = False

    def __init__(self, grant: Grant, first: int, count: int, start_ms: int, run_ms: int, number: int) -> None:
        self.grant = grant
        self.first = first
        self.count = count
        self.start_ms = start_ms
        self.run_ms = run_ms
        self.number = number
        self.failure = None
        self.revoked = False


class SimJob(JobLife):
    """A live job: its truth (`stages` with all that was submitted, in the order of the graph) and how far it has come.
    `running`: by number, its attempts that have not ended; None: there is none. `copied`: tasks that were granted
    a copy, as (stage, index).
    """

    stages: list[Stage]
    running: dict[int, Run] | None
    copied: dict[tuple[str, int], bool] | None

    def __init__(self, stages: list[Stage], graph: Graph, progress: Progress) -> None:
        self.graph = graph
        self.progress = progress
        self.tries = None
        self.stages = stages
        self.running = None
        self.copied = None

    def runs(self) -> list[Run]:
        """Its attempts that have not ended, in the order in which they started."""
        return [] if self.running is None else list(self.running.values())


def note_failed(job: SimJob, at: int, item: TaskFailure) -> tuple[int, list[int]]:
    """These attempts have failed: how many tasks could run again, and which stages may run from now on."""
    if is_gang_given_up(job, at):
        return 0, []
    stage, before = job.graph.stages[at], job.progress.left[at]
    ready: list[int] = []
    for index in range(item.first, item.first + item.count):
        if fail(job, at, index, item.attempt, item.reason, item.exit_code) == "given_up":
            ready += give_up(job, at)
            if stage.gang:
                return 0, ready
    most = stage.width
    return item.count + min(job.progress.left[at], most) - min(before, most), ready


def more_after(job: SimJob, at: int, count: int) -> int:
    """How many tasks more of a stage could run in the places of those, so many, that have just succeeded."""
    stage, left = job.graph.stages[at], job.progress.left[at]
    if stage.running_max is None or stage.gang:
        return 0
    most = stage.width
    return count + min(left, most) - min(left + count, most)


def live_job(body: JobAdmitted) -> SimJob:
    """A job that has just been admitted."""
    graph = graph_of(counted_spec(body))
    return SimJob(_truth_of(lean(body.spec, graph_of(body.spec)).stages, body.counted), graph, progress_of(graph))


def _truth_of(stages: list[Stage], counted: list[Counted]) -> list[Stage]:
    """The stages as their tasks run: where those count for less than they ask for, that is what they have for sure,
    and what they ask for is what they use, unless their truth is another."""
    if not counted:
        return stages
    by_name = {each.stage: each.demand for each in counted}
    return [
        replace(
            stage,
            demand={**stage.demand, **by_name[stage.stage]},
            true_demand={**{kind: stage.demand[kind] for kind in by_name[stage.stage]}, **stage.true_demand},
        )
        if stage.stage in by_name
        else stage
        for stage in stages
    ]


def peak_of(stage: Stage) -> Vector:
    """What an agent would measure of a task of which the truth is this: the CPU that it used of what it had."""
    has = stage.demand.get("cpu", 0)
    used = min(has, stage.true_demand.get("cpu", has))
    return {"cpu": used} if used else {}


_AS_ESTIMATED = (1, 1)


def stretch_of(stage: Stage) -> tuple[int, int]:
    """A task estimated smaller than it is runs longer by the largest ratio of true to estimated demand; (1, 1) for an
    honest one."""
    worst = _AS_ESTIMATED
    if not stage.true_demand:
        return worst
    for resource, true in stage.true_demand.items():
        estimated = stage.demand.get(resource, 0)
        if estimated and true * worst[1] > worst[0] * estimated:
            worst = (true, estimated)
    return worst
