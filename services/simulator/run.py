"""A workload on a cluster in virtual time, to the end: all cores in sequence, then the measures and a digest."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from largesse.lifecycle.dag import graph_of, lean
from largesse.release import VERSION
from schemas import JobRejected, JobSpec, NodeRegistered, Queue, Vector
from schemas.edge.config import policy_of
from schemas.edge.read import Cluster, ConfigPatch, Malformed
from schemas.policy import KnobValue
from schemas.queue_tree import tree_conflict
from schemas.wording import plural
from services.simulator.class_history import ClassHistory
from services.simulator.class_watch import ClassWatch
from services.simulator.cluster import AUTHOR, SimCluster
from services.simulator.drive import Arrival, Drive
from services.simulator.engine import Cell, Listener
from services.simulator.metrics import Metrics
from services.simulator.outages import Outage, Outages
from services.simulator.reservations import Reservations
from services.simulator.result import Measured, OutagesResult, SimulationResult
from services.simulator.schedule import Schedule
from services.simulator.slow_nodes import slow_nodes
from services.simulator.usage_history import UsageHistory
from services.simulator.usage_watch import UsageWatch

EPOCH = "simulated"


class Stuck(RuntimeError):
    """Jobs wait and nothing is left that could let them start."""


@dataclass(slots=True)
class Options:
    """What a run may be given. `values`: policy knobs that override the cluster file's. `refused` is told of every job
    that the cell refuses. `classes` gets what happened to the classes of jobs, `usage` what was used of the cell.
    `outages`: of nodes.
    """

    values: dict[str, KnobValue]
    schedule: Schedule | None = None
    listener: Listener | None = None
    progress: Callable[[int, int], None] | None = None
    before_round: Callable[[Cell], None] | None = None
    refused: Callable[[JobRejected], None] | None = None
    classes: ClassHistory | None = None
    usage: UsageHistory | None = None
    outages: list[Outage] = field(default_factory=list)


def simulate(jobs: Iterable[tuple[int, Arrival]], cluster: Cluster, options: Options) -> SimulationResult:
    """simulate's JSON result (docs/simulation.md). `jobs` as (submit_ms, spec or request of a reservation), in any
    order. Raises Stuck, and Malformed where knobs contradict each other or the queues."""
    waiting = [(submit_ms, _lean(body)) for submit_ms, body in jobs]
    waiting.sort(key=lambda job: job[0])  # Stable: jobs of one instant stay in the file's order.
    check(cluster, options.values)
    values = {"name_kept_ms": 0, **cluster.values, **options.values}
    shards = int(str(values.get("altruism_shards", 1)))
    cell = Cell(shards=shards, listener=options.listener, before_round=options.before_round)
    agents = SimCluster(Metrics(total_capacity(cluster)), options.schedule, options.refused)
    reserves = any(not isinstance(body, JobSpec) for _, body in waiting)  # The drive forgets what has come.
    reservations = Reservations() if reserves else None
    cell.observers = [agents.observe]
    if reservations is not None:
        cell.observers.append(reservations.observe)
    watch = ClassWatch(cell, options.classes) if options.classes is not None else None
    if watch is not None:
        cell.observers.append(watch.observe)
    usage = options.usage or UsageHistory()
    use_watch = UsageWatch(cell, usage)
    cell.observers.append(use_watch.observe)
    cell.asks_observer = use_watch.observe_asks
    cell.grants_observer = agents.observe_held
    outages = Outages(options.outages, cluster.nodes) if options.outages else None
    agents.slow = slow_nodes(options.outages)
    started = time.perf_counter()
    set_up(cell, values, cluster.queues, cluster)
    with uncollected():
        refused = reservations.refused if reservations is not None else None
        Drive(cell, agents, waiting, options.progress, refused, outages).run()
    wall_s = time.perf_counter() - started
    agents.close_held(cell.time)
    if agents.jobs and outages is None:
        raise Stuck(
            f"nothing can start any more with {plural(len(agents.jobs), 'job')} left, the first is"
            f" {next(iter(agents.jobs))!r}"
        )
    if watch is not None:
        watch.close()
    use_watch.close()
    result = _result(cell, agents.metrics.result(), usage, wall_s)
    if outages is not None:
        result["outages"] = _outages_result(outages, agents)
    if cell.admission.policy.speculation_permille:
        result["copies"] = agents.copies.result()
    if reservations is not None:
        result["reservations"] = reservations.result()
    return result


def _result(cell: Cell, measured: Measured, usage: UsageHistory, wall_s: float) -> SimulationResult:
    """The sections that every run has, and the ledger where jobs were planned."""
    used = usage.result(measured["makespan_ms"])
    result: SimulationResult = {
        "preset": cell.admission.policy.preset,
        "version": VERSION,
        "jobs": measured["jobs"],
        "tasks": measured["tasks"],
        "rejected": measured["rejected"],
        "makespan_ms": measured["makespan_ms"],
        "jct_ms": measured["jct_ms"],
        "waiting_ms": measured["waiting_ms"],
        "jain": measured["jain"],
        "utilisation": measured["utilisation"],
        "placements": measured["placements"],
        "per_job": [usage.with_account(row) for row in measured["per_job"]],
        "rounds": cell.rounds,
        "records": cell.seq,
        "seed": cell.admission.policy.seed,
        "wall_s": round(wall_s, 6),
        "placements_per_s": round(measured["placements"] / wall_s, 1) if wall_s else 0.0,
        "digest": cell.digest,
        "utilisation_over_time": used["utilisation_over_time"],
    }
    if "leftover" in used:
        result["leftover"], result["ledger"] = used["leftover"], used["ledger"]
    return result


def check(cluster: Cluster, values: dict[str, KnobValue]) -> None:
    """Raises Malformed where knobs that override the cluster file's contradict each other, or the queues."""
    if conflict := tree_conflict(policy_of({**cluster.values, **values}, ""), cluster.queues):
        raise Malformed("queues", conflict[1])


def _outages_result(outages: Outages, agents: SimCluster) -> OutagesResult:
    return {"node_failures": outages.failed, "attempts_lost": agents.lost, "unfinished": sorted(agents.jobs)}


def _lean(body: Arrival) -> Arrival:
    """Jobs alike share what they have in common: a workload may have a million."""
    return lean(body, graph_of(body)) if isinstance(body, JobSpec) else body


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles: records and states have none, and the search would walk every live job again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def total_capacity(cluster: Cluster) -> Vector:
    """The sum over all nodes."""
    total: Vector = {}
    for node in cluster.nodes:
        for resource, amount in node.capacity.items():
            total[resource] = total.get(resource, 0) + amount
    return dict(sorted(total.items()))


def set_up(cell: Cell, values: dict[str, KnobValue], queues: Queue | None, cluster: Cluster) -> None:
    """The config and the nodes, at time 0."""
    cell.take(ConfigPatch(dict(values), queues, AUTHOR), AUTHOR)
    for node in cluster.nodes:
        cell.take(NodeRegistered(node.name, EPOCH, node.capacity, node.labels, node.devices, author=AUTHOR), AUTHOR)
