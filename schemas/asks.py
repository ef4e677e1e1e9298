"""What altruism answers an opening with: what the jobs of a shard ask for, and the plans that this follows from."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import Vector

AskKind = Literal["required", "optional"]
EstimateSource = Literal["spec", "history", "finished", "default"]
"""Where the expected run time of a task comes from: its spec, earlier runs of the job, tasks of the stage that have
succeeded, or nothing."""


@dataclass(slots=True)
class StageAsk:
    """Tasks `first` .. `first + count - 1` of a stage could start as attempt `attempt`; runnable since `since_ms`."""

    stage: str
    first: int
    count: int
    attempt: int
    since_ms: int
    kind: AskKind = "required"


@dataclass(slots=True)
class LateStart:
    """`count` tasks of a stage that waited when the job was planned start at `at_ms` (log time), or before; as many
    more every `every_ms` after that, `waves` times in all."""

    stage: str
    at_ms: int
    count: int
    waves: int = 1
    every_ms: int = 0


@dataclass(slots=True)
class StageEstimate:
    """What a task of a stage was expected to run for when its job was planned."""

    stage: str
    run_ms: int
    source: EstimateSource


@dataclass(slots=True)
class JobPlan:
    """How a job with the dominant share `share` (10^-9 of the cell) ends by `deadline_ms`: with each task started by
    its latest start. `turned`: they come from packing the graph with its edges turned,
    else from moving the forward packing. `gives`: tasks that may start later are optional. `estimates`: what was
    expected of stages that are not over, where it does not come from the spec.
    """

    deadline_ms: int
    share: int
    late: list[LateStart]
    turned: bool
    gives: bool
    estimates: list[StageEstimate] = field(default_factory=list)


@dataclass(slots=True)
class JobAsk:
    """All that a job asks for, in the order it wants it. Replaces what it asked before; later grants come off by
    themselves. `plan`: what the asks follow from, where that is new.
    """

    job: str
    asks: list[StageAsk]
    plan: JobPlan | None = None


@dataclass(slots=True)
class LedgerEntry:
    """What a job has given away and received since it was first planned, up to the opening, or up to its end where it
    is `over`: by kind, in base units x seconds. `lost_ms`: how much later it ends than by its own plan alone; of a live
    job what is expected. Figures begin anew where the number of shards changes. Once its reservation is accepted, a job
    has no account: the one that it had is over. `waited`: what it was entitled to and did not hold while tasks of it
    that had to start waited for room; not in `donated`.
    """

    job: str
    queue: str
    donated: Vector
    received: Vector
    lost_ms: int
    over: bool = False
    waited: Vector = field(default_factory=dict)


@dataclass
class Asks:
    """Asks of the jobs of one shard that ask for something else than before. A job that may run asks, until it is named
    here, for all tasks of its stages without parents as attempt 1, since its admission (or since a running limit let it
    run; one that gave way before asks for nothing until then). `full`: jobs of the shard that are not named here ask
    for nothing, but for those newer than the opening. `ledger`: accounts of the jobs that are planned anew, and of
    those that are over. `planned`: where more jobs are to be planned again than one round may plan, those that had
    their turn, whether or not a new plan came of it; the others are planned in the next rounds, and by their present
    plans until then. Empty: all had their turn.
    """

    shard: int
    of: int
    jobs: list[JobAsk]
    full: bool = False
    wake_ms: int | None = None
    ledger: list[LedgerEntry] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
