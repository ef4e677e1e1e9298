"""Presets, and what holds under each: one table, which every service asks.

No service asks for a preset by its name: what differs between presets is a field of `PresetFacts`. A preset that
combines what others have is one row (docs/lifecycle.md says what one with an order of its own needs).
"""

from dataclasses import dataclass
from typing import Final, Literal

from schemas.sharing import Sharing

Preset = Literal[
    "fifo",
    "sjf",
    "srtf",
    "tetris",
    "tetris-fair",
    "drf",
    "hdrf",
    "naive-hdrf",
    "collapsed",
    "capacity",
    "dress",
    "rayon",
    "slots",
    "carbyne",
    "carbyne-dag",
    "largesse",
]
"""How a whole cell is shared out, and by which services (docs/queues.md)."""


@dataclass(frozen=True, slots=True)
class PresetFacts:
    """What holds in a cell under a preset, where no knob or queue says otherwise.

    `help`: how capacity is shared, in a few words. `sharing`: among the queues of a tree whose root names no policy,
    or an order in which all jobs of the cell are one list.
    """

    help: str
    sharing: Sharing
    has_queues: bool = True
    """Whether queues have shares, guarantees and maxima. Otherwise the cell is one list whose head nobody overtakes."""
    plans_jobs: bool = False
    """Whether jobs are planned and give away what they do not need now, across all queues (CARBYNE)."""
    keeps_job_order: bool = True
    """Whether plans follow the knob `job_order`; otherwise they go around tasks that are long or hard to pack."""
    has_shadow: bool = False
    """Whether jobs of a queue are served by their work and the time until they end in a virtual cluster under H-DRF."""
    has_pools: bool = False
    """Whether classes of jobs have pools of capacity (DRESS)."""
    counts_slots: bool = False
    """Whether a node has so many places, and a task takes one, whatever they have and ask for."""
    has_levels_for_claims: bool = True
    """Whether the level of a leaf counts what is guaranteed to the queues above it, too."""
    may_starve: bool = False
    """Whether a queue may get nothing for as long as others have work: a baseline to compare with."""

    @property
    def has_reservations(self) -> bool:
        """Whether capacity can be promised: not where nodes hold more than they have, and tasks run as slowly as that
        makes them.
        """
        return not self.counts_slots


PRESETS: Final[dict[Preset, PresetFacts]] = {
    "fifo": PresetFacts("all jobs as one list, by submission", "fifo", has_queues=False, may_starve=True),
    "sjf": PresetFacts("all jobs as one list, the shortest critical path first", "sjf", may_starve=True),
    "srtf": PresetFacts("all jobs as one list, the least remaining work first", "srtf", may_starve=True),
    "tetris": PresetFacts("all jobs as one list, the task next that fits best", "tetris", may_starve=True),
    "tetris-fair": PresetFacts("as `tetris`, among the jobs with the smallest shares", "tetris-fair", may_starve=True),
    "drf": PresetFacts("dominant resource fairness among all leaves", "drf", has_levels_for_claims=False),
    "hdrf": PresetFacts("queues by hierarchical dominant resource fairness", "hdrf"),
    "naive-hdrf": PresetFacts("hierarchical DRF by holdings, which starves queues", "naive-hdrf", may_starve=True),
    "collapsed": PresetFacts("hierarchical DRF by flat weights, which breaks guarantees of groups", "collapsed"),
    "capacity": PresetFacts("guaranteed parts, first in first out within a queue", "capacity"),
    "dress": PresetFacts("as `capacity`, with pools for classes of jobs", "capacity", has_pools=True),
    "rayon": PresetFacts("as `hdrf`, beside what is promised to reservations", "hdrf"),
    "slots": PresetFacts("so many tasks on each node, whatever they request", "hdrf", counts_slots=True),
    "carbyne": PresetFacts("jobs give away what they do not need now", "hdrf", plans_jobs=True),
    "carbyne-dag": PresetFacts(
        "as `carbyne`, planned around tasks that are long or hard to pack",
        "hdrf",
        plans_jobs=True,
        keeps_job_order=False,
    ),
    "largesse": PresetFacts(
        "queues as under `hdrf`, their jobs by the work and time left, with pools as under `dress`",
        "hdrf",
        has_shadow=True,
        has_pools=True,
    ),
}
"""What holds under each preset."""
