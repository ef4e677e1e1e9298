"""What may be different in a what-if over the log of a running cell, as a request says it."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from schemas.edge.base import Input, Malformed, Text, Whole
from schemas.edge.cluster import NODES_MAX, ClusterNode, NodeEntry, read_cluster
from schemas.edge.config import Knobs, knobs_of
from schemas.edge.queues import QueueInput, tree_of
from schemas.edge.validated import validated
from schemas.policy import KnobValue
from schemas.queues import Queue

LISTED_MAX = 10_000
SLOWER_PERMILLE_MAX = 1_000_000

Listed = Annotated[list[Text], Field(max_length=LISTED_MAX)]


class WhatIfRequest(Input):
    """What is different from a record on. `set`: knobs, `queues`: the whole tree, as in the config. `slower_permille`:
    how long tasks run, of what they ran. What was decided up to record `from_seq`, or up to `from_ms` of log time,
    stays as it was; without either all is decided again. Behind `to_seq` or `to_ms` nothing counts that came from
    outside."""

    set: Knobs | None = None
    queues: QueueInput | None = None
    add_nodes: Annotated[list[NodeEntry], Field(max_length=NODES_MAX)] = []
    remove_nodes: Listed = []
    without_jobs: Listed = []
    without_users: Listed = []
    slower_permille: Annotated[int, Field(ge=1, le=SLOWER_PERMILLE_MAX)] = 1_000
    from_seq: Whole | None = None
    from_ms: Whole | None = None
    to_seq: Whole | None = None
    to_ms: Whole | None = None


@dataclass(slots=True)
class WhatIf:
    """The same, read. `added`: each node by itself."""

    values: dict[str, KnobValue]
    queues: Queue | None
    added: list[ClusterNode] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    without_jobs: list[str] = field(default_factory=list)
    without_users: list[str] = field(default_factory=list)
    slower_permille: int = 1_000
    from_seq: int | None = None
    from_ms: int | None = None
    to_seq: int | None = None
    to_ms: int | None = None


def read_what_if(document: object) -> WhatIf:
    """What a request asks. Raises Malformed."""
    said = validated(WhatIfRequest, document)
    for first, second in (("from_seq", "from_ms"), ("to_seq", "to_ms")):
        if getattr(said, first) is not None and getattr(said, second) is not None:
            raise Malformed(second, f"says the same as {first}: leave one of them out")
    for start, end in ((said.from_seq, said.to_seq), (said.from_ms, said.to_ms)):
        if start is not None and end is not None and start > end:
            raise Malformed("to_seq" if end is said.to_seq else "to_ms", "lies before what it begins with")
    added: list[ClusterNode] = []
    if said.add_nodes:
        try:
            added = read_cluster({"nodes": [entry.model_dump(exclude_unset=True) for entry in said.add_nodes]}).nodes
        except Malformed as fault:
            raise Malformed(fault.field.replace("nodes", "add_nodes", 1), fault.reason) from None
    queues = tree_of(said.queues, "queues") if said.queues else None
    listed = said.remove_nodes, said.without_jobs, said.without_users
    span = said.from_seq, said.from_ms, said.to_seq, said.to_ms
    return WhatIf(knobs_of(said.set or {}, "set"), queues, added, *listed, said.slower_permille, *span)
