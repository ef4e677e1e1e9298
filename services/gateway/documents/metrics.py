"""Metrics of a cell for Prometheus: queues, jobs, nodes, capacity, rounds. A scrape costs what has changed.

The number of series is bounded: queues have their own down to QUEUE_DEPTH, at most QUEUES_MAX of them; deeper ones
count for the queue above. The root is `/`. Without a tree a queue is only a name, and all jobs count for the root.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from schemas import Queue, Vector
from schemas.quantities import MILLIONTHS, SHARE_UNITS, natural_amount
from schemas.queue_tree import below, upwards, with_default
from services.gateway.documents.classes import HORIZONS_S
from services.gateway.documents.queues import broken_guarantees, held_shares
from services.gateway.documents.reservation_metrics import of_reservations
from services.gateway.documents.tally import Counts, Tally, Waiting
from services.gateway.view.predictions import accuracy_of
from services.gateway.view.state import State

QUEUE_DEPTH = 3
"""Levels of queues below the root that have metrics of their own."""
QUEUES_MAX = 200
"""Queues that have metrics of their own: those nearest to the root, in the order of the config."""
RESOURCES_MAX = 32
"""Resources that have metrics, first by name."""

ROOT = "/"
JOB_STATES = ("waiting", "running", "succeeded", "failed", "cancelled", "rejected")
DEVICE_STATES = ("ready", "out")
NODE_STATES = ("ready", "draining", "unschedulable", "lost", "left")


class CellMetrics:
    """The metrics of one cell. Belongs to one event loop."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._shown: tuple[Queue | None, dict[str, bool]] = (None, {})

    async def exposition(self, state: State) -> bytes:
        """The present metrics in Prometheus' text format. Other tasks get turns meanwhile."""
        counts = await self.tally.look(state)
        if self._shown[0] is not state.queues:
            self._shown = state.queues, shown_queues(state.queues and with_default(state.queues))
        registry = CollectorRegistry()
        registry.register(_Fixed([*_of_jobs(state, counts, self._shown[1]), *_of_cell(state, counts)]))
        return generate_latest(registry)


class _Fixed(Collector):
    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._families


def shown_queues(tree: Queue | None) -> dict[str, bool]:
    """Paths of the queues below the root that have metrics of their own."""
    shown: dict[str, bool] = {}
    level = [] if tree is None else [(child.name, child) for child in tree.children]
    for _ in range(QUEUE_DEPTH):
        for path, _queue in level[: QUEUES_MAX - len(shown)]:
            shown[path] = True
        level = [(below(path, child.name), child) for path, queue in level for child in queue.children]
    return shown


def label_of(leaf: str, shown: dict[str, bool]) -> str:
    """The nearest queue at or above a leaf that has metrics of its own."""
    return next((path for path in upwards(leaf) if path in shown), ROOT)


def _of_jobs(state: State, counts: Counts, shown: dict[str, bool]) -> Iterator[GaugeMetricFamily]:
    waiting: dict[tuple[str, str], Waiting] = {}
    for (leaf, reason), found in counts.waiting.items():
        waiting.setdefault((label_of(leaf, shown), reason), Waiting()).take(found.tasks, found.since_ms)
    running: dict[str, int] = {}
    for leaf, tasks in counts.running.items():
        queue = label_of(leaf, shown)
        running[queue] = running.get(queue, 0) + tasks

    yield _gauge("largesse_jobs", "Jobs in the gateway's view by state", "state", _all(counts.jobs, JOB_STATES))
    yield _gauge("largesse_running_tasks", "Tasks that run or are about to", "queue", running)
    pending = GaugeMetricFamily("largesse_pending_tasks", "Tasks that wait, by reason", labels=("queue", "reason"))
    oldest = GaugeMetricFamily(
        "largesse_pending_oldest_seconds",
        "Since when the oldest job with tasks that wait for this reason has been submitted",
        labels=("queue", "reason"),
    )
    for (queue, reason), found in sorted(waiting.items()):
        pending.add_metric((queue, reason), found.tasks)
        if found.since_ms is not None:
            oldest.add_metric((queue, reason), max(0, state.time - found.since_ms) / 1_000)
    yield from (pending, oldest)
    taken: dict[str, int] = {}
    for leaf, tasks in state.taken_tasks.items():
        taken[label_of(leaf, shown)] = taken.get(label_of(leaf, shown), 0) + tasks
    text = "Attempts of tasks that were taken back for queues below their guarantee, by the queue that lost them"
    yield _gauge("largesse_preempted_tasks", text, "queue", taken)
    yield from _shares(state, shown)


def _shares(state: State, shown: dict[str, bool]) -> Iterator[GaugeMetricFamily]:
    """What fairness published last, which leaves changes of less than a thousandth out; and what is held now, counted
    as `get queues` does: fairness counts the part of the cell that is not promised alone."""
    shares = {path: state.shares[path] for path in shown if path in state.shares}
    for name, what in (
        ("guaranteed", "what the queue can count on of what is not promised"),
        ("fair", "what the policy comes to for all that is asked for, of what is not promised"),
    ):
        values = {path: getattr(share, name) / SHARE_UNITS for path, share in shares.items()}
        yield _gauge(f"largesse_queue_{name}_share", f"Dominant share: {what}", "queue", values)
    held = {path: share / SHARE_UNITS for path, share in held_shares(state, shown).items() if share or path in shares}
    text = "Dominant share of the cell: what its tasks hold now, promised to it or not"
    yield _gauge("largesse_queue_allocated_share", text, "queue", held)


def _of_cell(state: State, counts: Counts) -> Iterator[GaugeMetricFamily]:
    yield _gauge("largesse_nodes", "Nodes by state", "state", _all(counts.nodes, NODE_STATES))
    help_text = "GPUs of nodes that are not lost: those on which tasks may start, and those that are out"
    yield _gauge("largesse_devices", help_text, "state", _all(counts.devices, DEVICE_STATES))
    yield _gauge(
        "largesse_capacity", "What the nodes have, in cores, bytes, bit/s", "resource", _natural(counts.capacity)
    )
    used = {kind: counts.used.get(kind, 0) for kind in counts.capacity}
    yield _gauge("largesse_used", "What tasks hold of that", "resource", _natural(used))
    yield from of_reservations(state, sorted(counts.capacity)[:RESOURCES_MAX])
    yield from _of_classes(state, counts)
    yield from _of_starts(state)
    for name, help_text, value in (
        ("largesse_round", "The last round that was opened", state.round),
        ("largesse_round_open", "1 while a round is open", state.open),
        (
            "largesse_guarantees_broken",
            "Queues, of any depth, that hold less than they are guaranteed",
            len(broken_guarantees(state)),
        ),
        (
            "largesse_nodes_failing",
            "Nodes that are placed last, since attempts fail there one after another",
            len([1 for node in state.failures.values() if node.until_ms > state.time]),
        ),
        (
            "largesse_nodes_kept",
            "Nodes of which room is kept free for tasks that would never fit",
            len({**state.kept, **state.vacated}),
        ),
        ("largesse_log_time_seconds", "Unix time of the last record that the gateway has read", state.time / 1_000),
    ):
        yield GaugeMetricFamily(name, help_text, value=float(value))


def _of_classes(state: State, counts: Counts) -> Iterator[GaugeMetricFamily]:
    """Pools and forecasts have no sample where classes have no pools."""
    jobs = GaugeMetricFamily("largesse_class_jobs", "Live jobs by class", labels=("class", "state"))
    for name, of_class in counts.classes.items():
        jobs.add_metric((name, "running"), of_class.running)
        jobs.add_metric((name, "waiting"), of_class.waiting)
    yield jobs
    held = {name: _share(of_class.held, counts.capacity) for name, of_class in counts.classes.items()}
    yield _gauge(
        "largesse_class_held_share", "Dominant share of the cell that tasks of a class of jobs hold", "class", held
    )
    pools = state.pools[-1].pools_ppm if state.pools else []
    shares = {name: pool / MILLIONTHS for name, pool in zip(counts.classes, pools, strict=False)}
    yield _gauge("largesse_class_pool_share", "The pool of a class of jobs, as a part of the cell", "class", shares)
    scores = state.forecast.scores if state.forecast is not None and pools else []
    used: dict[str, int] = {}
    for score in scores:
        used[score.forecaster] = int(state.forecast is not None and score.forecaster == state.forecast.forecaster)
    yield _gauge("largesse_forecaster_in_use", "1 for the forecaster whose forecasts count", "forecaster", used)
    error = GaugeMetricFamily(
        "largesse_forecast_error_share",
        "Mean absolute error of forecasts so many seconds ahead, as a part of the cell",
        labels=("forecaster", "seconds"),
    )
    for score in scores:
        for seconds, ppm, samples in zip(HORIZONS_S, score.errors_ppm, score.samples, strict=True):
            if samples:  # Else no forecast has been compared with what came.
                error.add_metric((score.forecaster, str(seconds)), ppm / MILLIONTHS)
    yield error


def _of_starts(state: State) -> Iterator[GaugeMetricFamily]:
    """Without samples until a job has waited and started."""
    found = accuracy_of(state.predictions.scores)
    jobs = GaugeMetricFamily("largesse_start_predictions", "Predicted starts of jobs that are scored, the last ones")
    error = GaugeMetricFamily(
        "largesse_start_prediction_error_ratio",
        "Half of the likely starts that were told were off by this part of the wait at the most",
    )
    inside = GaugeMetricFamily(
        "largesse_start_prediction_inside_ratio", "Part of the jobs that started in the span that was told"
    )
    if found is not None:
        jobs.add_metric((), found.jobs)
        error.add_metric((), found.error_permille / 1_000)
        inside.add_metric((), found.inside / found.jobs)
    yield from (jobs, error, inside)


def _share(held: Vector, capacity: Vector) -> float:
    """The largest part of any kind; of a kind that no node has any more, nothing is a part."""
    return max((held.get(kind, 0) / amount for kind, amount in capacity.items() if amount > 0), default=0.0)


def _gauge(name: str, help_text: str, label: str, values: dict[str, int] | dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=(label,))
    for value, number in sorted(values.items()):
        family.add_metric((value,), number)
    return family


def _all(counts: dict[str, int], names: Iterable[str]) -> dict[str, int]:
    """With zeros for missing names: a series that disappears looks like a target that is down."""
    return dict.fromkeys(names, 0) | counts


def _natural(vector: Vector) -> dict[str, float]:
    return {kind: natural_amount(kind, vector[kind]) for kind in sorted(vector)[:RESOURCES_MAX]}
