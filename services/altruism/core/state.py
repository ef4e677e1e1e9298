"""What altruism keeps of a cell: how far each live job has come, what of it could start, what waits out a back-off."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.state import Gate, Graph, Progress, Span, Tries
from schemas.tasks import Failure


@dataclass(slots=True)
class Later:
    """Tasks that failed and wait out their back-off."""

    at_ms: int
    stage: int
    first: int
    count: int
    attempt: int


@dataclass(slots=True)
class Gang:
    """A stage whose tasks share one attempt. `running`: attempts of it that have not ended; `broken_by`: what ended the
    first of a broken one."""

    running: int = 0
    broken_by: Failure | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Job:
    """A live job. `waits`: by stage position, what could start now."""

    graph: Graph
    progress: Progress
    tries: Tries | None = None
    waits: dict[int, list[Span]] = field(default_factory=dict)

    def __init__(self, graph: Graph, progress: Progress) -> None:
        self.graph = graph
        self.progress = progress
        self.tries = None
        self.waits = {}


@dataclass(slots=True)
class State:
    """One shard of a cell. `gate`: which jobs may run; the others wait for nothing yet. `changed`: jobs to be asked for
    anew; `answering`: those of the open round. `gangs`: by live job, those of its stages that were started, by
    position; `later`: by live job, what waits out a back-off. `of`: shards at the last opening; `full`: everything is
    to be written in the open round. `full_round`: the last round that wrote everything; `written`: jobs written, or let
    run, since then."""

    shard: int = 0
    of: int = 0
    full: bool = False
    gate: Gate = field(default_factory=Gate)
    jobs: dict[str, Job] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)
    answering: dict[str, bool] = field(default_factory=dict)
    gangs: dict[str, dict[int, Gang]] = field(default_factory=dict)
    later: dict[str, list[Later]] = field(default_factory=dict)
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000
    keyframe_rounds: int = 1_000
    full_round: int = 0
    written: int = 0
