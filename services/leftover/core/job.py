"""A live job as leftover keeps it."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.queue_policy import Group
from largesse.lifecycle.run_times import NOTHING_SEEN, Seen
from largesse.lifecycle.state import Graph, JobLife, Progress
from schemas import StageAsk

NO_ASKS: list[StageAsk] = []
"""Of jobs that ask for nothing: shared, since such jobs are many. Nobody changes it."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Job(JobLife):
    """A live job: its queue, its place in the order of admission, its graph. `began`: seq of the record since which it
    may run; from then on it asks for all tasks of the stages without parents. `fresh_ms`: when that was, as long as
    that is what it asks for; -1: `asks` says what it asks for, in its order (asks.py). `progress` is not kept of a job
    of one task. `seen`: how long tasks ran that have succeeded, where somebody may ask for it. `job_class`: by index,
    as admission or a later opening said. `user`: whose it is; "": nobody's that is named.
    """

    queue: str
    admitted: int
    priority: int
    job_class: int = 0
    began: int = 0
    seen: dict[str, Seen] = field(default_factory=dict)
    asks: list[StageAsk] = field(default_factory=list)
    fresh_ms: int = -1
    user: str = ""

    def __init__(
        self,
        queue: str,
        admitted: int,
        priority: int,
        graph: Graph,
        progress: Progress,
        job_class: int = 0,
        user: str = "",
    ) -> None:
        self.queue = queue
        self.admitted = admitted
        self.priority = priority
        self.graph = graph
        self.progress = progress
        self.tries = None
        self.job_class = job_class
        self.began = 0
        self.seen = NOTHING_SEEN
        self.asks = NO_ASKS
        self.fresh_ms = -1
        self.user = user


def leaf_path(groups: dict[str, Group], job: Job) -> str:
    """The queue whose jobs are one list with this one."""
    group = groups.get(job.queue)
    return group.path if group is not None else ""
