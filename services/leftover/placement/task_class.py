"""Classes of tasks and entries of nodes. Tasks are of one class if placement cannot tell them apart: same demand,
required and preferred labels, width of a gang and placement rules. What is tried, blocked and counted is a class, not a
task.
"""

from dataclasses import dataclass, field

from schemas.quantities import Vector
from services.leftover.placement.apart import Bounds
from services.leftover.placement.indexed_heap import IndexedHeap
from services.leftover.placement.node_choice import NodeChoice


@dataclass(slots=True, eq=False)
class NodeRoom:
    """One node. `capacity` and `free`: by resource position. `devices` and `sizes`: by device position, the milli-units
    that are free and that there are. `open`: tasks may start here; `kept`: only tasks of this class. `scarce`: bit set
    of the scarce kinds of resources that it has; `kind`: which labels of those asked for it has (fragments.py). `last`:
    it comes after all others. `links` and `numas`: by device position, see linked.py; empty: nothing is known of it.
    """

    name: str
    epoch: str
    capacity: list[int]
    free: list[int]
    labels: dict[str, str]
    devices: list[int]
    device_indexes: list[int]
    sizes: list[int]
    open: bool = True
    kept: "TaskClass | None" = None
    scarce: int = 0
    kind: int = 0
    last: bool = False
    links: list[int] = field(default_factory=list)
    numas: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Shape:
    """What one task asks for, whatever else of it differs: one object for all equal demands on a board. `pairs`: as
    (resource position, amount); `number`: among those of the board; `plain`: the class of single tasks that ask for
    nothing else.
    """

    demand: Vector
    pairs: list[tuple[int, int]]
    number: int
    plain: "TaskClass | None"

    def __init__(self, demand: Vector, pairs: list[tuple[int, int]], number: int) -> None:
        self.demand = demand
        self.pairs = pairs
        self.number = number
        self.plain = None


@dataclass(slots=True, eq=False)
class TaskClass:
    """Tasks that placement cannot tell apart. `index`: its number on the board; `key`: its name in records.

    What it asks for. `shape`: the board's object for its `demand`, with its `pairs`; `needs`: (resource position,
    amount, weight of a free unit in a node's rank), for the resources that some node has; `wants`: the same as
    (resource position, step of the amount). `gpu`: milli-units; `size`: what one task (all tasks of a gang) takes as a
    dominant share, in share units, rounded down. `bounds`: rules and preferences that bar nodes to it (apart.py).
    `is_plain`: nothing but room is asked of a node; `is_ranked_at_once`: and all nodes can be compared in arrays.
    `choice`: how nodes are compared, None: by alignment; `aligned`: the same class as it is compared by that.

    Where it fits. `among`: bit set of the nodes that have what it asks for beside room, `could_fit`: whether any empty
    node would hold one of its tasks; both None until first needed. `nodes`: its view of nodes by rank, if it has one;
    `view`: the number of that; `cursor`: up to where it has followed the changes of nodes, -1 before; `scans`: how
    often all nodes have been compared for it since. `blocked`: no node had room when it was last tried.

    What waits. `waiting`: how many tasks; `buckets`: where, as (leaf, bucket).
    """

    index: int
    key: str
    shape: Shape
    demand: Vector
    pairs: list[tuple[int, int]]
    labels: dict[str, str]
    prefer: dict[str, str]
    gang: int
    needs: list[tuple[int, int, int]]
    is_plain: bool
    gpu: int
    size: int
    wants: list[tuple[int, int]]
    among: int | None
    nodes: IndexedHeap[int] | None
    cursor: int
    scans: int
    waiting: int
    blocked: bool
    buckets: dict[tuple[str, int], bool]
    could_fit: bool | None
    is_ranked_at_once: bool
    bounds: Bounds | None
    choice: NodeChoice | None
    aligned: "TaskClass | None"
    view: int

    def __init__(
        self,
        index: int,
        key: str,
        shape: Shape,
        labels: dict[str, str],
        prefer: dict[str, str],
        gang: int,
        needs: list[tuple[int, int, int]],
        is_plain: bool,
        gpu: int = 0,
        size: int = 0,
        wants: list[tuple[int, int]] | None = None,
    ) -> None:
        """Nothing of the class waits, and nothing is known yet of where it fits."""
        self.index = index
        self.key = key
        self.shape = shape
        self.demand = shape.demand
        self.pairs = shape.pairs
        self.labels = labels
        self.prefer = prefer
        self.gang = gang
        self.needs = needs
        self.is_plain = is_plain
        self.gpu = gpu
        self.size = size
        self.wants = wants if wants is not None else []
        self.among = None
        self.nodes = None
        self.cursor = -1
        self.scans = 0
        self.waiting = 0
        self.blocked = False
        self.buckets = {}
        self.could_fit = None
        self.is_ranked_at_once = False
        self.bounds = None
        self.choice = None
        self.aligned = None
        self.view = index


def as_aligned(task: TaskClass) -> TaskClass:
    """The same class as nodes are compared for it by alignment, which the order of packing goes by."""
    if task.choice is None:
        return task
    aligned = task.aligned
    if aligned is None:
        aligned = TaskClass(task.index, task.key, task.shape, task.labels, task.prefer, task.gang, task.needs, False)
        aligned.is_plain, aligned.gpu, aligned.size, aligned.wants = task.is_plain, task.gpu, task.size, task.wants
        aligned.is_ranked_at_once = task.is_plain and task.is_ranked_at_once
        aligned.bounds, aligned.view = task.bounds, -1 - task.index
        task.aligned = aligned
    aligned.waiting = task.waiting
    return aligned
