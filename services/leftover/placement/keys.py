"""How buckets are numbered and what jobs are served by: which bits of these integers mean what.

A *bucket* holds the jobs of a leaf queue that wait for tasks of one class. Its number is the number of the class with,
above it, the *segment*: jobs of one leaf differ in segment if other maxima of queues or another class of job apply to
them, so that one of them may have to wait while the other is served.

Jobs are served by a *key*, the least first. From the top: whether the tasks are optional, the rank by the order of the
leaf (`rank_of` in job_keys.py), when the job was admitted, and the position of the span among those of its job.
"""

from typing import Final

SEGMENT_BITS: Final = 32
"""In the number of a bucket: above these bits is its segment, below them its class of tasks."""
CLASS_MASK: Final = (1 << SEGMENT_BITS) - 1

JOB_CLASS_BITS: Final = 8
"""The lowest bits of a segment: the class of its jobs."""
_JOB_CLASS_MASK: Final = (1 << JOB_CLASS_BITS) - 1

ADMITTED_BITS: Final = 44
POSITION_BITS: Final = 24
"""The lowest bits of a key: the position of the span, and above it the job's number in the order of admission."""
ADMITTED_MASK: Final = (1 << ADMITTED_BITS) - 1

RANK_SHIFT: Final = ADMITTED_BITS + POSITION_BITS
"""Above these bits of a key is the rank of the job."""

OPTIONAL_BIT: Final = 240
"""In a key: far above any rank, so that all that is required comes before all that is not."""

STAGE_RANK_SHIFT: Final = RANK_SHIFT + 60
"""The same where stages are served by the time since which they wait, which stands above the admission."""

WORK_BITS: Final = 100
"""The lowest bits of a rank by work, below the priority."""

SHARE_BITS: Final = 40
SHARE_MOST: Final = (1 << SHARE_BITS) - 1
"""The lowest bits of a rank by dominant share, and the largest share that it tells from others."""

PRIORITY_BITS: Final = SHARE_BITS + RANK_SHIFT
"""Above these bits of a key by dominant share is the priority of the job."""


def job_class_of(bucket_id: int) -> int:
    """The class of the jobs in a bucket."""
    return bucket_id >> SEGMENT_BITS & _JOB_CLASS_MASK
