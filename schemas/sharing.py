"""Ways to share out: among queues, and among the jobs of one queue."""

from typing import Literal

SharingName = Literal[
    "hdrf",
    "drf",
    "naive-hdrf",
    "collapsed",
    "capacity",
    "fifo",
    "fair",
    "sjf",
    "srtf",
    "tetris",
    "tetris-fair",
    "priority",
]
"""How a subtree is shared out among its jobs (H-DRF, section 3.5: recursive scheduling), as people name it."""

Sharing = Literal["", SharingName]
"""The same; empty: as the queue above it, at the top as the preset says."""

ServingOrder = Literal["drf", "fifo", "fair", "sjf", "srtf", "tetris", "tetris-fair", "priority", "giving", "fsp"]
"""How the jobs of one queue, or of a subtree that is one list, are served. What goes first, after the highest priority
(under all but `fifo`):

- `drf`: the job with the least dominant share;
- `fifo`: the job admitted first; nobody overtakes it;
- `fair`: the job with the fewest running tasks;
- `sjf`: the job whose critical path was the shortest when it was admitted;
- `srtf`: the job with the least remaining work;
- `tetris`: the task that fits best;
- `tetris-fair`: the task that fits best, among the jobs furthest below their share;
- `priority`: nothing else;
- `giving`: required tasks before optional ones, among either the job with the least remaining work;
- `fsp`: the job with the least product of its remaining work and the square of the time until it ends in a virtual
  cluster under H-DRF.
"""

LIST_POLICIES: tuple[Sharing, ...] = ("fifo", "fair", "sjf", "srtf", "tetris", "tetris-fair", "priority")
"""Policies that take the jobs of a whole subtree as one list."""

PLANNED_SHARINGS: tuple[Sharing, ...] = ("", "hdrf", "drf", "collapsed")
"""Policies of a queue that count where jobs are planned. The others are refused there: they say which job of a queue
goes first, which follows from the plans of all jobs of the cell, or go by what queues hold."""
