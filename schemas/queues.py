"""The queue tree, and what the config topic makes of the log."""

from dataclasses import dataclass, field

from schemas.policy import Policy
from schemas.quantities import MILLIONTHS, Vector
from schemas.sharing import Sharing


@dataclass(slots=True)
class Queue:
    """A node of the queue tree. `weight` in millionths. A leaf has no children and holds jobs.

    `policy` holds for the queue and all below it. `guaranteed` and `max`: base units by resource that the queue may
    claim before weights count, and never goes beyond; a resource not named has no limit. `running_jobs_max`: so many
    jobs of the queue, and of those below it together, run at once; the others wait in order of admission.
    `submitters`: users who may submit here; empty: those of the queue above it, at the top everybody.
    `altruism_permille`: as the policy's, for jobs of the queue and of those below it; None: as the queue above it.
    `user_jobs_max`: so many jobs of one user that have not ended may be in the queue and those below it together.
    `user_running_max`: so many tasks of one user run at a time in the queue and those below it together; others wait.
    """

    name: str
    weight: int = MILLIONTHS
    children: list["Queue"] = field(default_factory=list)
    policy: Sharing = ""
    guaranteed: Vector = field(default_factory=dict)
    max: Vector = field(default_factory=dict)
    running_jobs_max: int | None = None
    submitters: list[str] = field(default_factory=list)
    altruism_permille: int | None = None
    user_jobs_max: int | None = None
    user_running_max: int | None = None


@dataclass(slots=True)
class ConfigChanged:
    """The whole policy and the whole tree in force from here on; None leaves one as it was."""

    policy: Policy | None = None
    queues: Queue | None = None
    author: str = "unknown"
