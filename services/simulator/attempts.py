"""What runs in a simulated cluster: attempts that end together, and the live job that they belong to."""

from dataclasses import dataclass

from largesse.lifecycle.state import Graph, Progress
from schemas import Grant, Stage
from schemas.tasks import Failure


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


@dataclass(slots=True)
class SimJob:
    """A live job: its truth (`stages` with all that was submitted, in the order of the graph) and how far it has come.
    `running`: by number, its attempts that have not ended; None: there is none. `copied`: tasks of which a copy was
    granted, as (stage, index).
    """

    stages: list[Stage]
    graph: Graph
    progress: Progress
    running: dict[int, Run] | None = None
    copied: dict[tuple[str, int], bool] | None = None

    def __init__(self, stages: list[Stage], graph: Graph, progress: Progress) -> None:
        self.stages = stages
        self.graph = graph
        self.progress = progress
        self.running = None
        self.copied = None

    def runs(self) -> list[Run]:
        """Its attempts that have not ended, in the order in which they started."""
        return [] if self.running is None else list(self.running.values())


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
