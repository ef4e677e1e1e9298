"""The vocabulary: the newest version of every body, by its public name. Imports nothing of ours but itself."""

from schemas.cache import Cache
from schemas.envelope import Header, Record
from schemas.jobs import (
    AntiAffinity,
    InputRefused,
    InputRepeated,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobEnd,
    JobEnded,
    JobRejected,
    JobSpec,
    PlacementRule,
    Spread,
    Stage,
)
from schemas.nodes import (
    AttemptsKnown,
    Device,
    KnownAttempt,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
)
from schemas.plans import (
    AtomOrder,
    PlanAnswer,
    PlanProfile,
    PlanProposed,
    Plans,
    PlanStep,
    ProposalAnswer,
    ProposedLease,
    ProposedPlan,
)
from schemas.quantities import Vector
from schemas.queues import ConfigChanged, Policy, Queue
from schemas.reservations import ReservationDeleted, ReservationRequested, ReservationUpdated
from schemas.rounds import (
    Asks,
    Breach,
    ClassWait,
    DecisionHash,
    Entitlement,
    ForecastScore,
    Grant,
    Grants,
    HeldRoom,
    JobAsk,
    JobJudged,
    JobPlan,
    KindsLevel,
    LateStart,
    LedgerEntry,
    Level,
    LocalityWait,
    PoolBreach,
    Position,
    QueueShare,
    ReleaseCurve,
    Releases,
    Revocation,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SequencerAlive,
    SequencerClaimed,
    Shares,
    Shortfall,
    StageAsk,
    StageEstimate,
    Struck,
    TimeReached,
)
from schemas.tasks import DeviceShare, TaskEnd, TaskFailed, TaskFailure, TaskFinished, TaskRange, TaskStarted

__all__ = [name for name in dir() if name[0].isupper()]
