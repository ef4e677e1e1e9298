"""Classes of tasks that placement cannot tell apart, and what is known of one node."""

from dataclasses import dataclass, field

from schemas.quantities import Vector
from services.leftover.placement.apart import Bounds
from services.leftover.placement.indexed_heap import IndexedHeap


@dataclass(slots=True, eq=False)
class NodeRoom:
    """One node. `free` by resource position; by device position, `devices` milli-units free, `sizes` in all. `kept`:
    tasks of this class alone may start here."""

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


@dataclass(slots=True, eq=False)
class TaskClass:
    """Tasks that placement cannot tell apart; `key` names them. `pairs`: (resource position, amount); `needs`:
    (resource position, amount, what a unit of free room adds to the rank), of the resources that some node has;
    `wants`: (resource position, step of the amount) of the same. `is_plain`: room is all that a node needs to have for
    it; where its ranks are small enough as well, it `is_ranked_at_once`. `among`: bit set of the nodes that have what
    else it asks for, None until somebody looks. `nodes`: the view, if there is one. `cursor`: how far the list of
    changed nodes had got at the last look, -1 before the first.

    `size`: what has to be free for one of its tasks (its gang) in all, in share units, rounded down.
    `blocked`: no node had room at the last look. `buckets`: where its tasks wait, as (leaf, bucket).
    `could_fit`: whether an empty node would hold one of its tasks, None until somebody asks. `bounds`: what else bars
    nodes to it (apart.py).
    """

    index: int
    key: str
    demand: Vector
    labels: dict[str, str]
    prefer: dict[str, str]
    gang: int
    pairs: list[tuple[int, int]]
    needs: list[tuple[int, int, int]]
    is_plain: bool
    gpu: int = 0
    size: int = 0
    wants: list[tuple[int, int]] = field(default_factory=list)
    among: int | None = None
    nodes: IndexedHeap[int] | None = None
    cursor: int = -1
    waiting: int = 0
    blocked: bool = False
    buckets: dict[tuple[str, int], bool] = field(default_factory=dict)
    could_fit: bool | None = None
    is_ranked_at_once: bool = False
    bounds: Bounds | None = None
