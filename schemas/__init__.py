"""The vocabulary: the newest version of every body, by its public name. Imports nothing of ours but itself."""

from schemas.access import Role, TokenMade, TokenRevoked
from schemas.asks import Asks, JobAsk, JobPlan, LateStart, LedgerEntry, StageAsk, StageEstimate
from schemas.cache import Cache
from schemas.checkpoints import Checkpoint, KeptState
from schemas.envelope import Header, Record
from schemas.grants import (
    Claim,
    ClassWait,
    Grant,
    Grants,
    HeldRoom,
    LocalityWait,
    PoolBreach,
    PromisedWait,
    Revocation,
    Shortfall,
)
from schemas.jobs import (
    AntiAffinity,
    Container,
    HeldBack,
    InputRefused,
    InputRepeated,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnd,
    JobEnded,
    JobRejected,
    JobRerun,
    JobSpec,
    JobTurns,
    Mount,
    PlacementRule,
    Revocable,
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
    AtomProgress,
    PlanAnswer,
    PlanProfile,
    PlanProposed,
    Plans,
    PlanStep,
    ProposalAnswer,
    ProposedLease,
    ProposedPlan,
)
from schemas.policy import Policy
from schemas.quantities import Vector
from schemas.queues import ConfigChanged, Queue
from schemas.releases import ForecastScore, ReleaseCurve, Releases
from schemas.reservations import (
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from schemas.rounds import (
    DecisionHash,
    GangPorts,
    JobJudged,
    Position,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SequencerAlive,
    SequencerClaimed,
    Struck,
    TimeReached,
)
from schemas.shares import Breach, Entitlement, KindsLevel, Level, QueueShare, Shares
from schemas.tasks import (
    DeviceShare,
    SpareAttempt,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)

__all__ = [name for name in dir() if name[0].isupper()]
