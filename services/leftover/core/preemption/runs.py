"""What leftover keeps of capacity that is taken back for guarantees, as rounds close and attempts end."""

from schemas import Grant, HeldRoom, Revocation, RoundClosed, Vector
from schemas.placement_rules import class_key, rules_of
from schemas.quantities import SHARE_UNITS
from services.leftover.core.board import divisible_of, leaf_at, stage_of
from services.leftover.core.job import Job
from services.leftover.core.preemption.ending import is_ending
from services.leftover.core.state import Allocation, ClaimedRoom, State


def recount(state: State) -> None:
    """Another policy or tree is in force."""
    if state.policy.preemption == "off":
        state.leaf_held, state.owed, state.claimed, state.ripe = {}, {}, {}, {}
        state.losers, state.spared, state.taken = {}, {}, []
        return
    state.leaf_held = {}
    for on_node in state.held.values():
        for held in on_node.values():
            _hold(state, leaf_at(state, held.queue), held.demand, 1)


def _hold(state: State, leaf: str, demand: Vector, count: int) -> None:
    """A leaf holds so much more (less, where negative)."""
    vector = state.leaf_held.setdefault(leaf, {})
    for kind, amount in demand.items():
        vector[kind] = vector.get(kind, 0) + amount * count


def note_release(state: State, key: str, held: Allocation, leaf: str) -> None:
    """An attempt holds no room any more."""
    _hold(state, leaf, held.demand, -1)
    state.spared.pop(key, None)


def note_start(state: State, grant: Grant, job: Job, leaf: str, demand: Vector) -> None:
    """Tasks of a leaf start: those that room was taken back for are not taken back for who has lost it."""
    _hold(state, leaf, demand, grant.count)
    claimed = state.claimed.get(grant.node)
    if claimed is None or claimed.leaf != leaf or not _is_of(grant, job, claimed.room):
        return
    losers = sorted(state.losers.get(leaf, ()))
    for index in range(grant.first, grant.first + grant.count):
        state.spared[f"{grant.job}/{grant.stage}/{index}"] = losers
    claimed.tasks -= grant.count
    if claimed.tasks <= 0:
        del state.claimed[grant.node]


def _is_of(grant: Grant, job: Job, room: HeldRoom) -> bool:
    """Whether tasks are of the class that room is held for, whatever their first attempts have met."""
    stage = stage_of(job, grant.stage)
    gang = stage.tasks if stage.gang else 0
    return _key(room) == class_key(
        stage.demand, stage.labels, stage.prefer, gang, rules_of(grant.job, job.queue, stage)
    )


def _key(room: HeldRoom) -> str:
    """The class that room is for, as that of the first attempts of its tasks."""
    rules = [rule for rule in room.rules if not rule.nodes]
    return class_key(room.task, room.labels, room.prefer, room.gang, rules)


def note_opening(state: State) -> None:
    """A round begins: what is not used of room in it for which nothing ends any more is given up."""
    ends: dict[tuple[str, str], bool] = {}  # By leaf and class.
    for node, claimed in state.claimed.items():
        group = claimed.leaf, _key(claimed.room)
        on_node = state.held.get(node, {})
        ending = any(is_ending(state, node, key, held) for key, held in on_node.items())
        ends[group] = ending or ends.get(group, False)
    state.ripe = {node: True for node, claimed in state.claimed.items() if not ends[claimed.leaf, _key(claimed.room)]}


def close_claims(state: State, closed: RoundClosed, time: int) -> None:
    """A round is closed: what it has taken back counts from now on, and who is below its guarantee."""
    for node in state.ripe:
        state.claimed.pop(node, None)
    state.ripe = {}
    since_ms = time - state.policy.preempt_window_ms
    if state.taken and state.taken[0][0] <= since_ms:
        state.taken = [each for each in state.taken if each[0] > since_ms]
    for item in closed.revoked:
        _count(state, item, time)
    if state.losers:
        waiting = {claimed.leaf: True for claimed in state.claimed.values()}
        state.losers = {leaf: losers for leaf, losers in state.losers.items() if leaf in waiting}
    if state.short or state.owed:
        total = divisible_of(state)
        state.owed = {name: state.owed.get(name, time) for name in state.short if _is_below(state, name, total)}


def _is_below(state: State, leaf: str, total: Vector) -> bool:
    """Whether a leaf holds less than it is guaranteed."""
    level, held = state.levels.get(leaf), state.leaf_held.get(leaf, {})
    if level is None or not level.guaranteed:
        return False
    return all(
        amount * SHARE_UNITS < level.guaranteed * total[kind] for kind, amount in held.items() if total.get(kind, 0)
    )


def _count(state: State, item: Revocation, time: int) -> None:
    claim = item.claim
    if claim is None:
        return
    state.taken.append([time, claim.share])
    for room in claim.rooms:
        before = state.claimed.get(room.node)
        if before is not None and before.leaf == claim.queue and _key(before.room) == _key(room):
            before.tasks += room.tasks
        else:
            state.claimed[room.node] = ClaimedRoom(claim.queue, room, room.tasks)
    held = state.held.get(item.node, {}).get(f"{item.job}/{item.stage}/{item.first}")
    if held is not None:
        loser = leaf_at(state, held.queue)
        state.takings.setdefault(claim.queue, {})[loser] = True
        state.losers.setdefault(claim.queue, {})[loser] = True
