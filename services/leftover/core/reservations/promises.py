"""How promises to reservations are kept in a round (docs/reservations.md).

Reserved tasks start first. For those that have a lease now, or within `revoke_grace_ms`, and find no room, room is
chosen node by node, revocable attempts are taken back for it, and nobody else may use it meanwhile. Whatever else
starts on room that is promised before it is expected to end starts as revocable.
"""

from dataclasses import dataclass, field
from typing import Final

from largesse.lifecycle.promises import active, next_edge_ms
from largesse.lifecycle.run_times import known_ms
from largesse.lifecycle.task_keys import parts_of
from schemas import HeldRoom, PlanProfile, Revocation, Vector
from services.leftover.core.board import rules_said, stage_of
from services.leftover.core.reservations.reserved import Claim, ReservedJobs
from services.leftover.core.reservations.revocable import call_revocable, device_shares
from services.leftover.core.reservations.runs import lent_of
from services.leftover.core.round import Round
from services.leftover.core.state import Allocation, State
from services.leftover.placement.backfill.timeline import fits_now
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.placements import Placement
from services.leftover.placement.promised import Clearing, Space, Victim, by_position, empty
from services.leftover.placement.task_class import TaskClass

AGAIN_MS: Final = 1_000
"""After so long, or the grace if that is longer, the room that was chosen for a lease is looked at again."""


@dataclass(slots=True, eq=False)
class Kept:
    """What a round keeps for promises. `shut`: rooms that nobody else may use in it."""

    reserved: ReservedJobs
    shut: list[tuple[int, TaskClass]] = field(default_factory=list)


def keep_promises(round_: Round) -> Kept:
    """Starts what is inside promises, and clears room for what has found none."""
    state, table, now_ms = round_.state, round_.table, round_.now_ms
    kept = Kept(ReservedJobs(state, round_.board, round_.asked, now_ms))
    lifted = table.lift_holds()  # A promise comes before what is gathered for others.
    kept.reserved.start()
    table.restore_holds(lifted)
    grace_ms = state.policy.revoke_grace_ms
    claims = kept.reserved.claims(now_ms + grace_ms)
    if claims:
        clearing = _clearing(state, table, kept, now_ms, now_ms + grace_ms)
        taken_for: list[str] = []  # By attempt that is taken back.
        for claim in [claim for claim in claims if not claim.rest]:
            _clear(state, clearing, claim, now_ms + grace_ms)
            taken_for += [claim.reservation] * (len(clearing.taken) - len(taken_for))
        kept.shut = clearing.rooms
        round_.revoked += _revocations(state, table, clearing.taken, taken_for)
        for number, task in kept.shut:
            table.shut(number, task.pairs)
        for claim in [claim for claim in claims if claim.rest]:
            kept.shut += _keep_free(state, table, claim)
    return kept


def finish_promises(round_: Round, kept: Kept) -> None:
    """Once others have what they can use: gives the rest to reserved jobs, and decides for everything that starts
    whether it is revocable.
    """
    state, table, now_ms = round_.state, round_.table, round_.now_ms
    beyond = kept.reserved.start_beyond()
    for number, task in kept.shut:
        table.give(number, task.pairs, [])
    inside = [placement for placement in kept.reserved.placed if placement.reserved]
    starting = [*inside, *round_.placements, *beyond]
    round_.placements = call_revocable(state, round_.board, kept.reserved, starting, now_ms)
    round_.held += _vacated(state, table, kept)
    round_.wakes_ms.append(_wake_ms(state, kept, now_ms))


def _wake_ms(state: State, kept: Kept, now_ms: int) -> int | None:
    """The next time at which promises may change the answer although no new fact has come."""
    grace_ms = state.policy.revoke_grace_ms
    edge_ms = next_edge_ms(state.promises, now_ms, grace_ms)
    if not kept.shut:
        return edge_ms
    return least(edge_ms, now_ms + max(AGAIN_MS, grace_ms))  # What is expected to end by then may not.


def least(one_ms: int | None, other_ms: int | None) -> int | None:
    """The earlier of two moments, either of which may be missing."""
    if one_ms is None or other_ms is None:
        return one_ms if other_ms is None else other_ms
    return min(one_ms, other_ms)


def _vacated(state: State, table: NodeTable, kept: Kept) -> list[HeldRoom]:
    """Nodes whose room held for promises has changed, sorted by name."""
    after: dict[str, HeldRoom] = {}
    for number, task in kept.shut:
        name = table.node(number).name
        held = after.get(name)
        if held is None:
            held = after[name] = HeldRoom(name, "promise", {}, task.demand, task.labels, task.prefer, task.gang, 0)
            held.rules = rules_said(task)
        held.tasks += 1
        for kind, amount in task.demand.items():
            held.demand[kind] = held.demand.get(kind, 0) + amount
    gone = {name: HeldRoom(name, "promise", {}) for name in state.vacated if name not in after}
    changed = {name: one for name, one in after.items() if state.vacated.get(name) != one}
    return [one for _, one in sorted({**gone, **changed}.items())]


def _keep_free(state: State, table: NodeTable, claim: Claim) -> list[tuple[int, TaskClass]]:
    """Keeps room that is free now for tasks of a claim, first where it was kept before. Room that is only expected to
    come free would leave this to others, who would have to give it back with the next task that ends.
    """
    found: list[tuple[int, TaskClass]] = []
    nodes = sorted(range(len(table)), key=lambda number: table.node(number).name not in state.vacated)
    for number in nodes:
        while len(found) < claim.count and fits_now(table, claim.task, table.node(number)):
            table.shut(number, claim.task.pairs)
            found.append((number, claim.task))
    return found


# ---------------------------------------------------------------- taking back
def _clear(state: State, clearing: Clearing, claim: Claim, until_ms: int) -> None:
    """Finds room for a claim. Nothing is waited for that is expected to end when the leases that hold by `until_ms` are
    over.
    """
    steps = state.promises.profiles[claim.reservation].steps
    over_ms = max([step.to_ms for step in steps if step.from_ms <= until_ms], default=0)
    if claim.width == 1:
        clearing.find(claim.task, claim.count, whole=False, before_ms=over_ms)
        return
    for _ in range(claim.count // claim.width):
        if not clearing.find(claim.task, claim.width, whole=True, before_ms=over_ms):
            return


def _clearing(state: State, table: NodeTable, kept: Kept, now_ms: int, until_ms: int) -> Clearing:
    """The nodes as they are expected to be at a time, and whom could be taken back there."""
    started: dict[int, list[Placement]] = {}
    for placement in kept.reserved.placed:
        started.setdefault(placement.node, []).append(placement)

    def space_of(number: int) -> Space:
        node = table.node(number)
        space = empty(node)
        for key, held in state.held.get(node.name, {}).items():
            lent = lent_of(state, node.name, key)
            if (lent is None or not lent.taken) and not _is_over_by(state, held, now_ms, until_ms):
                space.add(table.pairs(held.demand), by_position(node, device_shares(held)), -1)
        for placement in started.get(number, []):
            for i in range(placement.count):
                devices = placement.devices[i] if placement.devices else []
                space.add(placement.task.pairs, by_position(node, devices), -1)
        return space

    victims: dict[int, list[Victim]] = {}
    covered = _covered(state, kept.reserved, now_ms) if state.lent else {}
    for name, on_node in state.lent.items():
        for key, lent in on_node.items():
            held = state.held[name][key]
            spared = lent.taken or key in covered or _is_over_by(state, held, now_ms, until_ms)
            number = table.find(name)
            if not spared and number is not None and held.job in state.jobs:
                victims.setdefault(number, []).append(_victim(state, table, number, key, held, now_ms))

    def waits_of(number: int) -> list[Victim]:
        name = table.node(number).name
        found: list[Victim] = []
        for key, held in state.held.get(name, {}).items():
            if lent_of(state, name, key) is None and held.job not in state.reserving:
                if not _is_over_by(state, held, now_ms, until_ms):
                    found += _wait(state, table, number, key, held, now_ms, until_ms)
        return found

    first = {number: True for name in state.vacated if (number := table.find(name)) is not None}
    return Clearing(table, space_of, victims, first, waits_of)


def _wait(
    state: State, table: NodeTable, number: int, key: str, held: Allocation, now_ms: int, until_ms: int
) -> list[Victim]:
    """An attempt that is not revocable and of no reservation, if something is known of its run time. The delay: 1 while
    it has not taken twice as long as expected, or ends within a grace after `until_ms`, then one more for twice as
    much.
    """
    job = state.jobs[held.job]
    lasts_ms = known_ms(stage_of(job, held.stage), job.seen)
    if lasts_ms is None:
        return []
    ends_ms = held.start_ms + lasts_ms
    if ends_ms <= now_ms:  # It may end at any time.
        delay = ((now_ms - held.start_ms) // lasts_ms).bit_length()
    else:
        delay = 1 + ((ends_ms - until_ms) // max(1, until_ms - now_ms)).bit_length()
    node = table.node(number)
    devices = by_position(node, device_shares(held))
    return [Victim(number, f"{node.name}/{key}", table.pairs(held.demand), devices, 0, "", delay, ends_ms)]


def _victim(state: State, table: NodeTable, number: int, key: str, held: Allocation, now_ms: int) -> Victim:
    node, lost = table.node(number), table.share_of(held.demand) * (now_ms - held.start_ms)
    gang = ""
    job = state.jobs[held.job]
    if stage_of(job, held.stage).gang:
        gang = f"{held.job}/{held.stage}"
    devices = by_position(node, device_shares(held))
    return Victim(number, f"{node.name}/{key}", table.pairs(held.demand), devices, lost, gang)


def _is_over_by(state: State, held: Allocation, now_ms: int, until_ms: int) -> bool:
    """Whether the task is expected to end by then. A task that has overrun its estimate, or whose run time is unknown,
    is not expected to end at any particular time.
    """
    job = state.jobs.get(held.job)
    if job is None:
        return True  # It is being killed.
    lasts_ms = known_ms(stage_of(job, held.stage), job.seen)
    return lasts_ms is not None and now_ms < held.start_ms + lasts_ms <= until_ms


def _covered(state: State, reserved: ReservedJobs, at_ms: int) -> dict[str, bool]:
    """Running tasks, keyed as in `held`, that are inside the promises of a time: the tasks that started first."""
    found: dict[str, bool] = {}
    for reservation, names in reserved.jobs.items():
        left = _usage(state.promises.profiles[reservation], at_ms)
        runs = [
            (state.held[node][f"{name}/{run}"].start_ms, state.jobs[name].admitted, run, f"{name}/{run}", node)
            for name in names
            for run, node in state.reserving[name].runs.items()
        ]
        for *_, key, node in sorted(runs):
            demand = state.held[node][key].demand
            if all(left.get(kind, 0) >= amount for kind, amount in demand.items()):
                found[key] = True
                for kind, amount in demand.items():
                    left[kind] = left.get(kind, 0) - amount
    return found


def _usage(profile: PlanProfile, at_ms: int) -> Vector:
    usage: Vector = {}
    for step in active(profile.steps, at_ms):
        for kind, amount in step.usage.items():
            usage[kind] = usage.get(kind, 0) + amount
    return usage


def _revocations(state: State, table: NodeTable, taken: list[Victim], taken_for: list[str]) -> list[Revocation]:
    """Attempts to be taken back, neighbours of a stage on a node as one, in the order of nodes and names. `taken_for`:
    for which reservation each is.
    """
    items: list[tuple[int, str, str, int, int, str]] = []
    for victim, reservation in zip(taken, taken_for, strict=True):
        name = table.node(victim.node).name
        key = victim.key[len(name) + 1 :]
        job, stage, index = parts_of(key)
        items.append((victim.node, job, stage, state.lent[name][key].attempt, index, reservation))
    found: list[Revocation] = []
    for number, job, stage, attempt, index, reservation in sorted(items):
        node = table.node(number)
        last = found[-1] if found else None
        if (
            last is not None
            and (last.node, last.job, last.stage, last.attempt) == (node.name, job, stage, attempt)
            and (last.first + last.count, last.reservation) == (index, reservation)
        ):
            last.count += 1
        else:
            found.append(Revocation(job, stage, index, 1, attempt, node.name, node.epoch, reservation))
    return found
