"""What a config would change if it were applied: whether the log would refuse it, and the shares of the queues.

Nothing is sent. Shares are computed by the fairness service's code in a separate process, from the present capacity and
demand.
"""

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from largesse.lifecycle.promises import active
from largesse.lifecycle.queue_policy import with_shares
from largesse.lifecycle.running_limit import limit
from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import Policy, Queue, Vector
from schemas.edge.queues import claims_of, tree_document
from schemas.edge.read import ConfigPatch
from schemas.knobs import knob_conflict, with_knobs
from schemas.presets import PRESETS
from schemas.quantities import RESOURCES, SHARE_UNITS, SLOTS, quantity_text
from schemas.queue_tree import stranded, tree_conflict, upwards, user_limits, walk, with_default
from schemas.wording import nearest, plural
from services.gateway.documents import Document
from services.gateway.documents.counting import added, capacity_of
from services.gateway.documents.queueing import named
from services.gateway.documents.queues import holdings, ignored_limits, settings_document
from services.gateway.http.dry_runs.processes import process_of
from services.gateway.http.dry_runs.starved_queues import left_nothing
from services.gateway.http.problems import Problem
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import ReservationRow, State

EFFECT_WAIT_S = 60.0
"""Time limit of a dry run's process. An interpreter that starts on a busy machine may need tens of seconds."""

MOVED_MIN = 100_000
"""A share that changes by less than this, in 10^-9 of the cell (0.01 percent), counts as unchanged."""


EFFECT = (sys.executable, "-m", "services.fairness", "effect")
_SHARES = ("guaranteed", "fair", "allocated", "lent", "borrowed")


@dataclass(frozen=True, slots=True)
class Config:
    """A policy and a tree (None: there is none), the tasks of every leaf under them, and by queue what it holds of the
    cell, and of that what no promise covers."""

    policy: Policy
    tree: Queue | None
    tasks: dict[str, list[Document]]
    held: dict[str, tuple[int, int]]


async def dry_run(state: State, patch: ConfigPatch) -> Document:
    """What a patch would change. Raises Problem if the log would refuse it, or shares cannot be computed."""
    if patch.abandon_round is not None:
        raise Problem(422, "malformed", "abandon_round: has no dry run", "abandon_round")
    if patch.skip is not None:
        raise Problem(422, "malformed", "skip_input: has no dry run", "skip_input")
    if patch.checkpoint is not None:
        raise Problem(422, "malformed", "checkpoint: has no dry run", "checkpoint")
    if patch.initial and state.configured:
        return {"dry_run": True, "changed": False, "set": {}, "queues": [], "notes": []}
    policy = with_knobs(state.policy, patch.values)
    if conflict := knob_conflict(policy, patch.values):
        raise Problem(409, "refused:input", conflict[1], f"set.{conflict[0]}", reason=conflict[1])
    tree = state.queues if patch.queues is None else with_default(patch.queues)
    if tree is not None and (
        why := stranded(tree, Counter(job.spec.queue for job in state.jobs.values()), state.queues)
    ):
        raise Problem(409, "refused:input", why, "queues", reason=why)
    if (policy.preset, tree) != (state.policy.preset, state.queues) and (conflict := tree_conflict(policy, tree)):
        field = "queues" if tree != state.queues else "set.preset"
        raise Problem(409, "refused:input", conflict[1], field, reason=conflict[1])
    knobs = {
        name: {"before": getattr(state.policy, name), "after": value}
        for name, value in patch.values.items()
        if getattr(state.policy, name) != value
    }
    answer: Document = {"dry_run": True, "changed": bool(knobs) or tree != state.queues, "set": knobs}
    if not answer["changed"]:
        return answer | {"queues": [], "notes": []}
    now, then = config_of(state, state.policy, state.queues), config_of(state, policy, tree)
    remarks = notes(state, policy, tree)  # Before the wait: the view goes on meanwhile.
    shares = await asked(question_of(state, now, then))
    return answer | {"queues": compared(now, then, shares), "notes": remarks}


def config_of(state: State, policy: Policy, tree: Queue | None) -> Config:
    """A config, and what tasks there are, and hold, under it."""
    held = holdings(state, policy, [path for path, _ in walk(tree)] if tree is not None else [])
    return Config(policy, tree, tasks_of(state, tree, policy), held)


def tasks_of(state: State, tree: Queue | None, policy: Policy | None = None) -> dict[str, list[Document]]:
    """By leaf, the tasks that ask for the same: how many run, could start, or hold something for a job that is over,
    had the cell this tree: its limits may let more jobs run than now. Of a stage with a `running_max` no more count
    than may run at a time; where that is limited by user, tasks are told apart by it. Jobs with accepted reservations
    are outside the tree, where promises count under the policy.
    """
    outside = _accepted(state) if (policy or state.policy).reservations == "on" else {}
    limits = state.running_limits
    released: dict[str, bool] = {}
    if limits.parked and tree is not state.queues:
        # `limit` puts new lists in the place of those that it shortens; all else of the view it only reads.
        released = dict.fromkeys(limit(replace(limits, parked=dict(limits.parked)), tree), True)
    found: dict[tuple[str, str, str], Document] = {}
    by_user = bool(user_limits(tree))
    holding = 0
    for name, job in state.jobs.items():
        if job.spec.reservation in outside:
            holding += sum(held_of(job, at) for at in range(len(job.spec.stages)))
        elif name in limits.leaf and (job.began or name in released):
            for at, left in enumerate(job.progress.left):
                if left and not job.progress.parents[at]:
                    user = job.spec.user if by_user else ""
                    alike, running = _alike(found, job.spec.queue, job.graph.stages[at].demand, user), held_of(job, at)
                    alike["running"] += running
                    if job.hold is None:
                        alike["waiting"] += max(0, min(left, job.spec.stages[at].width) - running)
                    holding += running
    if holding < len(state.holds):
        for key, hold in state.holds.items():
            if key.partition("/")[0] not in limits.leaf:
                _alike(found, hold.queue, hold.demand, hold.user if by_user else "")["over"] += 1
    by_leaf: dict[str, list[Document]] = {}
    for (leaf, _, _), alike in found.items():
        by_leaf.setdefault(leaf, []).append(alike)
    return by_leaf


def held_of(job: LiveJob, at: int) -> int:
    """How many tasks of a stage hold room on nodes."""
    return job.running[at] + job.starting[at]


def _alike(found: dict[tuple[str, str, str], Document], leaf: str, demand: Vector, user: str) -> Document:
    fresh: Document = {"demand": demand, "running": 0, "waiting": 0, "over": 0}
    return found.setdefault((leaf, f"{sorted(demand.items())}", user), fresh | ({"user": user} if user else {}))


def question_of(state: State, now: Config, then: Config) -> Document:
    """The input of services/fairness/offline/dry_run.py."""
    capacity: Vector = {}
    nodes = [node for node in state.nodes.values() if not node.lost and node.capacity]
    for node in nodes:
        added(capacity, node.capacity)
    sides = {
        when: {
            "set": asdict(config.policy),
            "queues": None if config.tree is None else tree_document(config.tree),
            "tasks": config.tasks,
        }
        for when, config in (("before", now), ("after", then))
    }
    promised: Vector = {}
    units = 0
    for row in _accepted(state).values():
        for step in active(row.steps, state.time):
            added(promised, step.usage)
            units += step.units
    return {"capacity": capacity, "nodes": len(nodes), "promised": promised, "promised_units": units, **sides}


def _accepted(state: State) -> dict[str | None, ReservationRow]:
    return {name: row for name, row in state.reservations.items() if row.state == "accepted" and row.steps}


async def asked(question: Document, command: tuple[str, ...] = (), what: str = "the shares") -> Document:
    """The output of a program that runs as a separate process: `EFFECT` where none is named. `what`: it computes.
    Raises Problem."""
    data = json.dumps(question).encode()
    async with process_of(command or EFFECT) as process:
        try:
            async with asyncio.timeout(EFFECT_WAIT_S):
                with suppress(BrokenPipeError, ConnectionResetError):
                    process.input.write(data)
                    await process.input.drain()
                process.input.close()
                out = await process.output.read()
                why = await process.why_ended()
        except TimeoutError:
            raise Problem(503, "effect", f"{what} were not computed within {EFFECT_WAIT_S:g} s") from None
    if process.process.returncode:
        raise Problem(500, "effect", f"{what} could not be computed: {why}")
    answer: Document = json.loads(out)
    return answer


def compared(now: Config, then: Config, shares: Document) -> list[Document]:
    """Queues whose settings or shares would change, in the order of the new tree, then those to be removed."""
    before, after = _shares_of(now, shares["before"]), _shares_of(then, shares["after"])
    was = dict(walk(now.tree)) if now.tree is not None else {}
    would = dict(walk(then.tree)) if then.tree is not None else {}
    found = []
    for path in [*would, *(path for path in was if path not in would)]:
        if path not in was or path not in would:
            change = "gone" if path in was else "new"
        elif replace(was[path], children=[]) != replace(would[path], children=[]):
            change = "set"
        elif _has_moved(before[path], after[path]):
            change = "moved"
        else:
            continue
        sides = {"before": _side(was.get(path), before.get(path)), "after": _side(would.get(path), after.get(path))}
        found.append({"queue": path, "change": change, **sides})
    return found


def notes(state: State, policy: Policy, tree: Queue | None) -> list[str]:
    """Warnings about what the cell would accept and is probably not meant."""
    capacity = capacity_of(state, policy)
    if not capacity:
        return ["no node has registered yet: there is nothing to share"]
    if tree is None:
        return []
    remarks = _without_effect(policy, tree, capacity)
    for resource, amount in claims_of(tree, "").items():
        if amount > capacity.get(resource, amount):
            texts = quantity_text(resource, amount), quantity_text(resource, capacity[resource])
            remarks.append(f"{resource}: {texts[0]} would be guaranteed, and the cell has {texts[1]}")
    served = with_shares(tree, policy.preset) if PRESETS[policy.preset].has_queues else {}
    for path, resource in left_nothing(tree, capacity):
        if path not in served:
            continue  # No guarantee counts there.
        text = f"other queues are guaranteed all {resource} that it could have"
        remarks.append(f"{named(path)}: {text}; while they ask for that, it gets none")
    for path, count in _beyond(state, policy, tree).items():
        ask = f"{plural(count, 'job')} {'asks' if count == 1 else 'ask'}"
        remarks.append(f"{named(path)}: {ask} for more at once than its max, and would never continue")
    for path, count in _too_wide(state, tree).items():
        have = f"{plural(count, 'job')} {'has a gang' if count == 1 else 'have gangs'}"
        remarks.append(f"{named(path)}: {have} of more tasks than its user_running_max, and would never continue")
    return remarks


def _without_effect(policy: Policy, tree: Queue, capacity: Vector) -> list[str]:
    """Limits of resources that are not there, and limits that do not count under the policy."""
    remarks = []
    ignored = ignored_limits(tree, policy.preset)
    for path, queue in walk(tree):
        for name, vector in (("guaranteed", queue.guaranteed), ("max", queue.max)):
            for resource in vector:
                if resource not in capacity:
                    why = f"only {SLOTS} count under this preset" if slots_of(policy) else _absent(resource, capacity)
                elif resource not in ignored[path][name]:
                    continue
                elif name == "max":
                    why = "no max holds under this preset; it only refuses jobs that ask for more"
                elif not PRESETS[policy.preset].has_queues:
                    why = "no guarantee counts under this preset"
                else:
                    why = "no guarantee counts below a queue whose jobs are served as one list"
                remarks.append(f"{named(path)}: {name} {resource}: {why}")
    return remarks


def _absent(resource: str, capacity: Vector) -> str:
    close = nearest(resource, capacity) if resource not in RESOURCES else None
    return "no node has that" + (f'; did you mean "{close}"?' if close else "")


def _beyond(state: State, policy: Policy, tree: Queue) -> Counter[str]:
    """By queue, live jobs with a task or gang to come that is larger than the queue's `max`."""
    counts = PRESETS[policy.preset].has_queues
    ceilings = {path: queue.max for path, queue in walk(tree) if queue.max and counts}
    found: Counter[str] = Counter()
    for job in state.jobs.values() if ceilings else ():
        for path in upwards(job.spec.queue):
            if path in ceilings and _is_beyond(job, policy, ceilings[path]):
                found[path] += 1
                break
    return found


def _too_wide(state: State, tree: Queue) -> Counter[str]:
    """By queue, live jobs with a gang to come of more tasks than one user may run there."""
    limits = user_limits(tree)
    found: Counter[str] = Counter()
    for job in state.jobs.values() if limits else ():
        gangs = zip(job.spec.stages, job.progress.left, strict=True)
        width = max([stage.tasks for stage, left in gangs if stage.gang and left], default=0)
        for path in upwards(job.spec.queue):
            if width > limits.get(path, width):
                found[path] += 1
                break
    return found


def _is_beyond(job: LiveJob, policy: Policy, ceiling: Vector) -> bool:
    for stage, left in zip(job.graph.stages, job.progress.left, strict=True):
        at_once = stage.tasks if stage.gang else 1
        asked = counted_demand(policy, stage.demand)
        if left and any(amount * at_once > ceiling.get(kind, amount * at_once) for kind, amount in asked.items()):
            return True
    return False


def _shares_of(config: Config, published: Document) -> dict[str, dict[str, int | None]]:
    """The shares of every queue, of the same bases as in `queue_document`; 0 for those that fairness leaves out, since
    they have less than a permille."""
    if config.tree is None:
        return {}
    levelled = with_shares(config.tree, config.policy.preset)
    found: dict[str, dict[str, int | None]] = {}
    for path, _ in walk(config.tree):
        said, (allocated, own) = published.get(path, {}), config.held[path]
        found[path] = dict.fromkeys(_SHARES)
        if path in levelled:
            found[path] = {name: said.get(name, 0) for name in _SHARES}
            found[path] |= {"allocated": allocated, "borrowed": max(0, own - said.get("guaranteed", 0))}
    return found


def _has_moved(old: dict[str, int | None], new: dict[str, int | None]) -> bool:
    return any(abs((old[name] or 0) - (new[name] or 0)) >= MOVED_MIN for name in ("guaranteed", "fair"))


def _side(queue: Queue | None, shares: dict[str, int | None] | None) -> Document | None:
    if queue is None or shares is None:
        return None
    fractions = {name: None if share is None else share / SHARE_UNITS for name, share in shares.items()}
    return {**settings_document(queue), **fractions}
