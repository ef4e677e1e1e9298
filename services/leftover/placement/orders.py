"""The orders in which the jobs of a queue are served: one row each. `ServingOrder` (schemas/sharing.py) says what each
means to users; `rank_of` (job_keys.py) makes ranks of it.
"""

from dataclasses import dataclass
from typing import Final, Literal

from schemas.sharing import ServingOrder
from services.leftover.placement.keys import OPTIONAL_BIT, RANK_SHIFT, SHARE_BITS, WORK_BITS

RankedBy = Literal["admission", "share", "tasks", "value", "floor", "priority"]
"""What goes first among jobs of one priority: who was admitted first; the least dominant share; the fewest running
tasks; the least sort value; the least share of those below the floor of their leaf, then the least sort value; nobody.
"""

SortValue = Literal["", "work_left", "critical_path", "shadow_key"]
"""What a job's sort value is, if its order has one: the work that is left, in share units x ms; the critical path when
it was admitted, in ms; the key of its end in the shadow cluster."""

Packing = Literal["", "all", "fairest", "optional"]
"""Whose tasks go by how well they fit (packing.py): nobody's, those of all jobs, of the jobs furthest below their
share, or what is optional."""


@dataclass(slots=True, eq=False)
class JobOrder:
    """One order. `below_priority`: how many bits of a rank are below the priority; `is_strict`: nobody goes ahead of a
    head that does not fit; `gives`: jobs have optional tasks, which come after all that is required.
    """

    by: RankedBy
    below_priority: int
    value: SortValue = ""
    packs: Packing = ""
    is_strict: bool = False
    gives: bool = False

    @property
    def holds_back(self) -> bool:
        """Whether others of a leaf may be served while a bucket is held back by its order."""
        return self.is_strict or self.packs == "fairest"


JOB_ORDERS: Final[dict[ServingOrder, JobOrder]] = {
    "drf": JobOrder("share", SHARE_BITS),
    "fifo": JobOrder("admission", 0, is_strict=True),
    "fair": JobOrder("tasks", SHARE_BITS),
    "sjf": JobOrder("value", WORK_BITS, "critical_path"),
    "srtf": JobOrder("value", WORK_BITS, "work_left"),
    "tetris": JobOrder("priority", 0, packs="all"),
    "tetris-fair": JobOrder("share", SHARE_BITS, packs="fairest"),
    "priority": JobOrder("priority", OPTIONAL_BIT - RANK_SHIFT),  # Its rank is nothing but the priority.
    "giving": JobOrder("value", WORK_BITS, "work_left", packs="optional", gives=True),
    "fsp": JobOrder("floor", WORK_BITS, "shadow_key"),
}
