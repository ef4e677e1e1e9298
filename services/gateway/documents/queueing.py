"""Reasons for waiting that have to do with a job's queue and those above it (a limit of running jobs, a maximum), or
with draining nodes. Made for one request: sums over the whole cell are computed once, and only where there are limits.
"""

from bisect import bisect_left
from fractions import Fraction
from typing import NamedTuple

from largesse.lifecycle.empty_nodes import stage_problem, when_mended
from largesse.lifecycle.queue_policy import ignored_of_max
from largesse.lifecycle.running_limit import queue_at_limit
from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import Policy, Stage, Vector
from schemas.placement_rules import class_key
from schemas.quantities import quantity_text, tasks_on_devices
from schemas.queue_tree import upwards
from schemas.wording import plural
from services.gateway.documents.counting import added, used_by
from services.gateway.documents.promised_waits import PromisedRoom
from services.gateway.documents.reserved_waits import ReservedWaits
from services.gateway.documents.user_limits import UserLimits
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import NodeRow, State

NODES_SHOWN_MAX = 3
"""Draining nodes that a reason names at most."""


class Limit(NamedTuple):
    """A `max` of one resource, what is asked of it at once, and what is held."""

    queue: str
    resource: str
    most: int
    asked: int
    held: int

    def amount(self, amount: int) -> str:
        return quantity_text(self.resource, amount)

    def text(self) -> str:
        return f"{named(self.queue)} has a max of {self.resource} {self.amount(self.most)}"


class Queueing:
    """Answers about one state of the view, which must not change while this is in use."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.reserved = ReservedWaits(state)
        self.promised = PromisedRoom(state)
        self.users = UserLimits(state)
        self._parked: dict[str, list[tuple[int, int]]] = {}
        self._held: dict[str, Vector] | None = None
        self._draining: dict[str, NodeRow] | None = None
        self._drained: dict[str, str | None] = {}
        self._never: dict[str, str | None] = {}

    def held_back(self, job: LiveJob) -> str:
        """Which queue's `running_jobs_max` holds a job back and how many jobs are ahead of it, in words."""
        running = self._state.running_limits
        full = queue_at_limit(running, job.spec.queue)
        if full is None or job.spec.job not in running.leaf:
            return "is being cancelled"
        most = running.limits[full]
        ahead = self.ahead_of(job, full)
        place = f"{ahead} {'is' if ahead == 1 else 'are'} ahead of it" if ahead else "it is next"
        return f"{named(full)} allows {plural(most, 'job')} at a time; {place}"

    def ahead_of(self, job: LiveJob, full: str) -> int:
        """How many jobs that a queue's `running_jobs_max` holds back come before this one."""
        return bisect_left(self._parked_below(full), (-job.spec.priority, job.admitted))

    def at_max(self, queue: str, stage: Stage) -> str | None:
        """Which queue's `max` leaves no room for one task of a stage (of a gang: for all), in words; None: none."""
        for limit in self.limits(queue, stage):
            if limit.held + limit.asked <= limit.most:
                continue
            if limit.asked > limit.most:
                return f"{limit.text()}, and {limit.amount(limit.asked)} is asked for at once: it can never run"
            text = f"{limit.text()} and holds {limit.amount(limit.held)}"
            if limit.held >= limit.most:
                return text
            return f"{text}; {'the gang' if stage.gang else 'a task'} asks for {limit.amount(limit.asked)}"
        return None

    def was_at_max(self, queue: str, stage: Stage) -> str | None:
        """Which queue's `max` most likely left no room in the last round, where it leaves some now, in words; None: the
        queue and those above it have none that could.
        """
        limits = self.limits(queue, stage)
        if not limits:
            return None
        tight = min(limits, key=lambda limit: Fraction(limit.most - limit.held - limit.asked, limit.asked))
        return f"{tight.text()} and holds {tight.amount(tight.held)}; the next round considers it"

    def limits(self, queue: str, stage: Stage) -> list[Limit]:
        """Every `max` of a queue and those above it that a task of a stage (all of a gang) counts against."""
        if not self._state.ceilings:
            return []
        policy = self._state.policy
        tasks, demand = stage.tasks if stage.gang else 1, counted_demand(policy, stage.demand)
        found = []
        for path in upwards(queue):
            ceiling = self._state.ceilings.get(path, {})
            ignored = ignored_of_max(policy.preset, ceiling)
            for resource, most in ceiling.items():
                if resource not in ignored and (asked := demand.get(resource, 0) * tasks):
                    found.append(Limit(path, resource, most, asked, self._holds(path).get(resource, 0)))
        return found

    def never(self, stage: Stage) -> str | None:
        """Why no node that the cell knows of, be it down or draining, could ever run a task of a stage, or all together
        its gang, in the words of a refusal; None: some could.
        """
        kind = f"{_class_of(stage)} {stage.anti_affinity} {stage.spread}"
        if kind not in self._never:
            problem = stage_problem(self._state.nodes, stage)
            if problem is not None:
                problem = stage_problem(when_mended(self._state.nodes), stage)
            self._never[kind] = None if problem is None else f"{problem[2]}: it can never run"
        return self._never[kind]

    def drained(self, stage: Stage) -> str | None:
        """Which nodes could take a task of a stage, or what a gang lacks of room, did they not drain or were their
        agents in no trouble, in words; None: it does not wait for them. What else runs there now counts for nothing.
        """
        if self._draining is None:
            self._draining = {name: node for name, node in self._state.nodes.items() if _is_closed(node)}
        kind = _class_of(stage)
        if kind not in self._drained:
            self._drained[kind] = self._drained_text(stage) if self._draining else None
        return self._drained[kind]

    def _drained_text(self, stage: Stage) -> str | None:
        assert self._draining is not None
        policy = self._state.policy
        rooms = {name: _tasks_on(policy, node, stage) for name, node in self._draining.items()}
        able = sorted(name for name, room in rooms.items() if room)
        names = ", ".join(able[:NODES_SHOWN_MAX])
        if len(able) > NODES_SHOWN_MAX:
            names += f" and {len(able) - NODES_SHOWN_MAX} more"
        if not able:
            return None
        drain = _why_closed([self._draining[name] for name in able])
        if not stage.gang:
            return f"{names} could run it, but {drain}"
        others = [node for node in self._state.nodes.values() if not node.lost and not _is_closed(node)]
        room = sum(_tasks_on(policy, node, stage) for node in others)
        if not room < stage.tasks <= room + sum(rooms.values()):
            return None
        return f"all tasks of the gang ({stage.tasks}) fit only with {names}, which {drain}"

    def _parked_below(self, full: str) -> list[tuple[int, int]]:
        """The jobs that one queue's `running_jobs_max` holds back, from all leaves below it, first to go first."""
        found = self._parked.get(full)
        if found is None:
            parked = self._state.running_limits.parked
            leaves = [leaf for leaf in parked if not full or leaf == full or leaf.startswith(full + "/")]
            found = [(-job.priority, job.admitted) for leaf in leaves for job in parked[leaf]]
            found.sort()
            self._parked[full] = found
        return found

    def _holds(self, queue: str) -> Vector:
        """What all leaves below a queue with a `max` hold together."""
        if self._held is None:
            self._held = {path: {} for path in self._state.ceilings}
            for leaf, used in used_by(self._state).items():
                for path in upwards(leaf):
                    if path in self._held:
                        added(self._held[path], used)
        return self._held[queue]


def _class_of(stage: Stage) -> str:
    return class_key(stage.demand, stage.labels, stage.prefer, stage.tasks if stage.gang else 0)


def _is_closed(node: NodeRow) -> bool:
    """Whether a node is alive and takes no new tasks."""
    return bool(node.draining or node.unschedulable) and not node.lost


def _why_closed(nodes: list[NodeRow]) -> str:
    """Why these nodes take no new tasks, as the predicate of a sentence."""
    reasons = [node.unschedulable for node in nodes if not node.draining]
    if not reasons:
        return "drain" if len(nodes) > 1 else "drains"
    return f"{'take' if len(nodes) > 1 else 'takes'} no new tasks now: {reasons[0]}"


def _tasks_on(policy: Policy, node: NodeRow, stage: Stage) -> int:
    """How many tasks of a stage would fit on the node if it were empty."""
    if any(node.labels.get(key) != value for key, value in stage.labels.items()):
        return 0
    demand = {kind: amount for kind, amount in stage.demand.items() if amount}
    if slots := slots_of(policy):
        room = slots if all(node.capacity.get(kind) for kind in demand) else 0
    else:
        room = min([stage.tasks, *[node.capacity.get(kind, 0) // amount for kind, amount in demand.items()]])
    return tasks_on_devices(demand.get("gpu", 0), [device.milli for device in node.devices], room)


def named(queue: str) -> str:
    """A queue as sentences name it."""
    return f"queue {queue}" if queue else "the cell"
