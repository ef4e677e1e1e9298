"""What has to hold in a cell at any time, worked out plainly from what its cores keep, never with their own code."""

from largesse.lifecycle.job_classes import has_pools
from largesse.lifecycle.running_limit import is_parked
from schemas import PlacementRule
from schemas.nodes import devices_of
from schemas.placement_rules import rules_of
from schemas.quantities import on_devices, tasks_on_devices
from schemas.queue_tree import upwards, walk
from services.admission.core.granted import attempt_of, is_held, marks
from services.altruism.core.waits import does_wait, first_of, waiting
from services.fairness.hdrf.static import fill
from services.fairness.tree import TreeNode
from services.leftover.core.asks import asks_of
from tests.cells import holds_of
from tests.properties.user_laws import limits_users, places_left


# ---------------------------------------------------------------- room
def check_room(cell):
    """Holds and free room add up to what each node has; leftover holds the same attempts in the same places."""
    state = cell.admission
    for name, each in state.nodes.items():
        here = list(each.holds.values())
        for kind in {**each.capacity, **each.free}:
            used = sum(hold.demand.get(kind, 0) for hold in here)
            assert each.free.get(kind, 0) == each.capacity.get(kind, 0) - used, f"{name}: {kind}"
        for device in each.devices:
            taken = sum((hold.devices or {}).get(str(device.index), 0) for hold in here)
            assert each.devices_free[str(device.index)] == device.milli - taken, f"{name}: device {device.index}"
        assert not each.lost or not here, f"{name} is lost and holds {len(here)} attempts"
    total = {}
    for each in state.nodes.values():
        for kind, amount in each.capacity.items():
            total[kind] = total.get(kind, 0) + (0 if each.lost else amount)
    assert {k: n for k, n in total.items() if n} == {k: n for k, n in state.capacity.items() if n}
    assert {k: n for k, n in total.items() if n} == {k: n for k, n in cell.fairness.capacity.divided.items() if n}
    held = {key: (hold.node, hold.demand, hold.devices or {}) for key, hold in holds_of(state).items()}
    assert held == {
        key: (node, each.demand, {str(share.index): share.milli for share in each.devices})
        for node, held_here in cell.leftover.held.items()
        for key, each in held_here.items()
    }


def check_grants_fit(cell):
    """What leftover answered to the round just opened fits what is free, part by part and device by device."""
    free = {name: dict(each.free) for name, each in cell.admission.nodes.items()}
    devices = {name: dict(each.devices_free) for name, each in cell.admission.nodes.items()}
    for grant in cell.answer("grants").grants:
        of = _stage(cell, grant.job, grant.stage)
        at = cell.admission.nodes[grant.node]
        assert not at.lost, f"{grant.node} is lost"
        assert not at.draining, f"{grant.node} is draining"
        assert all(at.labels.get(key) == value for key, value in of.labels.items()), f"{grant} ignores {of.labels}"
        for kind, amount in of.demand.items():
            free[grant.node][kind] -= amount * grant.count
            assert free[grant.node][kind] >= 0, f"{grant} takes more {kind} than {grant.node} has"
        gpu = of.demand.get("gpu", 0)
        assert len(grant.devices) == (grant.count if gpu else 0)
        for shares in grant.devices:
            parts = sorted(share.milli for share in shares)
            assert sum(parts) == gpu
            assert sum(part < 1_000 for part in parts) <= 1, f"{grant}: one fraction lies on one device"
            for share in shares:
                devices[grant.node][str(share.index)] -= share.milli
                assert devices[grant.node][str(share.index)] >= 0, f"{grant} takes more of a device than it has"


# ---------------------------------------------------------------- tasks
def running_in(cell, job, stage):
    """How many attempts of a stage hold room."""
    return sum(key.startswith(f"{job}/{stage}/") for key in holds_of(cell.admission))


def could_start_of(cell, name):
    """By stage position, the tasks of a live job that wait and may start beside those that run."""
    found = {}
    for at, spans in waiting(cell.altruism.jobs[name]).items():
        of = cell.altruism.jobs[name].graph.stages[at]
        most = of.tasks
        if of.running_max is not None:
            most = of.running_max - running_in(cell, name, of.stage)
        if spans := first_of(spans, most):
            found[at] = spans
    return found


def check_running_max(cell):
    """No stage ever has more attempts at work than may run at a time."""
    for name, job in cell.admission.jobs.items():
        for of in job.graph.stages:
            if of.running_max is not None:
                running = running_in(cell, name, of.stage)
                assert running <= of.running_max, f"{running} tasks of {name}/{of.stage} run, not {of.running_max}"


def check_tasks(cell):
    """Every task of a live job is in one place: not yet runnable, waiting, backing off, running, or done."""
    holds = holds_of(cell.admission)
    for name, job in cell.altruism.jobs.items():
        known = cell.admission.jobs[name]
        if known.over:
            continue
        assert known.progress == job.progress
        assert cell.fairness.jobs[name].progress == job.progress
        if job.graph.tasks != [1]:  # Of a job of one task leftover keeps none.
            assert cell.leftover.jobs[name].progress == job.progress
        if is_parked(cell.altruism.running_limits, name):
            if name not in cell.altruism.held_back:
                assert not does_wait(job), f"{name} is held back by a running limit"
                continue
            assert not known.held, f"{name} gave way and holds something"
        elif name in cell.altruism.on_hold and name not in cell.altruism.held_back:
            assert not does_wait(job), f"{name} was held before it could begin"
            continue
        for at, of in enumerate(job.graph.stages):
            waits = [i for span in waiting(job).get(at, []) for i in range(span.first, span.first + span.count)]
            resting = [item for item in cell.altruism.backing_off.get(name, []) if item.stage == at]
            later = [i for item in resting for i in range(item.first, item.first + item.count)]
            held = [i for i in range(of.tasks) if f"{name}/{of.stage}/{i}" in holds]
            runs = marks(known.granted[at], 0, of.tasks)
            last = [attempt_of(mark) for low, high, mark in runs for _ in range(low, high)]
            assert [i for low, high, mark in runs if is_held(mark) for i in range(low, high)] == held
            if job.progress.parents[at]:
                assert waits + later + held == [], f"{name}/{of.stage} waits for its parents"
                continue
            assert len({*waits, *later}) == len(waits) + len(later)
            assert not {*waits, *later} & {*held}
            done = of.tasks - job.progress.left[at]
            if of.gang:
                running = cell.altruism.gangs.get(name, {}).get(at, 0)
                assert running == len(held)
                broken = held and last[held[0]] <= (known.tries.broken.get(str(at), 0) if known.tries else 0)
                if broken:
                    assert not waits + later, f"{name}/{of.stage} is asked again while some of it runs"
                    continue
            assert len(waits) + len(later) + len(held) + done == of.tasks, f"{name}/{of.stage}: a task is lost"
            runs = cell.admission.runs.get(name)
            before = 0 if runs is None else runs.attempts
            for span in waiting(job).get(at, []):
                assert {each or before for each in last[span.first : span.first + span.count]} == {span.attempt - 1}, (
                    f"{name}/{of.stage}/{span.first} waits for {span.attempt}"
                )


def check_asks(cell):
    """After a round that nothing disturbed leftover knows exactly what waits."""
    for name, job in cell.altruism.jobs.items():
        waits = {
            (job.graph.stages[at].stage, index, span.attempt, span.since_ms)
            for at, spans in could_start_of(cell, name).items()
            for span in spans
            for index in range(span.first, span.first + span.count)
            if name not in cell.altruism.held_back
        }
        asks = [
            (ask.stage, index, ask.attempt, ask.since_ms)
            for ask in asks_of(cell.leftover.jobs[name])
            for index in range(ask.first, ask.first + ask.count)
        ]
        assert len(asks) == len(set(asks)), f"{name} asks twice for the same"
        assert set(asks) == waits, f"{name} waits for {waits}, leftover thinks for {asks}"


class Attempts:
    """Each attempt of a task is granted once, and they are counted without a gap."""

    def __init__(self):
        self.last = {}

    def check(self, cell, closing):
        whole = {}
        for grant in closing.grants:
            whole[grant.job, grant.stage] = whole.get((grant.job, grant.stage), 0) + grant.count
            for i in range(grant.first, grant.first + grant.count):
                task = grant.job, cell.admission.jobs[grant.job].seq, grant.stage, i
                runs = cell.admission.runs.get(grant.job)
                before = self.last.get(task, 0 if runs is None else runs.attempts)
                assert grant.attempt == before + 1, f"{task} is granted as attempt {grant.attempt}"
                self.last[task] = grant.attempt
        for (job, stage), count in whole.items():
            of = _stage(cell, job, stage)
            assert not of.gang or count == of.tasks, f"{job}/{stage}: a part of a gang starts"


# ---------------------------------------------------------------- shares
def fair_levels(preset, queues, capacity, demand):
    """What every leaf is entitled to, filled from nothing. `demand`: by leaf and set of kinds, all that its jobs run or
    could start."""
    if queues is None or not queues.children or preset == "fifo":
        return {}
    kinds = sorted(kind for kind, amount in capacity.items() if amount)  # What is not there never counts.
    leaves = []

    def grow(queue, path):
        if not queue.children:
            if not any(map(any, (each.values() for each in demand.get(path, {}).values()))):
                return None
            vectors = [[each.get(kind, 0) for kind in kinds] for each in demand[path].values()]
            leaves.append(TreeNode(path, queue.weight, demand=vectors[0]))
            if len(vectors) > 1:
                leaves[-1].children = [TreeNode(f"{path}//{at}", demand=vector) for at, vector in enumerate(vectors)]
            return leaves[-1]
        below = [grow(child, f"{path}/{child.name}" if path else child.name) for child in queue.children]
        children = [each for each in below if each is not None]
        return TreeNode(path or "/", queue.weight, children) if children else None

    top = grow(queues, "")
    if top is None:
        return {}
    if preset == "drf":
        top = TreeNode("/", children=leaves)
    found = fill(top, [capacity[kind] for kind in kinds])
    reached = found.leaves | found.nodes
    return {leaf.name: reached[leaf.name].share_units for leaf in leaves}


def demand_of(state):
    """By leaf and set of kinds, all that live jobs run or could start, from admission's own books. Those that users
    hold start nothing."""
    demand = {}
    for job in state.jobs.values():
        leaf = demand.setdefault(job.spec.queue, {})
        for at, of in enumerate(job.graph.stages):
            if not job.progress.parents[at]:
                each = leaf.setdefault(tuple(sorted(kind for kind, amount in of.demand.items() if amount)), {})
                runs = sum(high - low for low, high, mark in marks(job.granted[at], 0, of.tasks) if is_held(mark))
                asked = min(job.progress.left[at], of.running_max or of.tasks)
                tasks = runs if job.spec.job in state.on_hold else asked
                for kind, amount in of.demand.items():
                    each[kind] = each.get(kind, 0) + amount * tasks
    return {leaf: {key: each for key, each in sets.items() if any(each.values())} for leaf, sets in demand.items()}


def check_levels(cell, before):
    """The levels in force before the round, with what the round says of them, are those of a filling from nothing."""
    said = cell.answer("shares")
    levels = {queue: target for queue, target in before.items() if queue not in said.gone}
    levels |= {level.queue: level.target for level in said.levels}
    state = cell.admission
    if is_limited(state.queues) or limits_users(state.queues):
        return  # Other tests check what limits and policies make of levels.
    dues = {queue: due for queue, due in cell.fairness.levels.dues().items() if queue not in said.gone}
    dues = {queue: due for queue, due in dues.items() if all(level.queue != queue for level in said.levels)}
    dues |= {level.queue: level.due for level in said.levels if level.due is not None}
    demand = demand_of(state)
    all_due = fair_levels(state.policy.preset, state.queues, state.capacity, demand)
    assert any(due == all_due[leaf] for leaf, due in dues.items()) or not dues
    demand |= {leaf: {"": cell.fairness.caps.by_unit[leaf].amounts} for leaf in dues}
    placed = fair_levels(state.policy.preset, state.queues, state.capacity, demand)
    assert levels == dict.fromkeys(dues, 0) | placed
    assert all(due > levels[leaf] for leaf, due in dues.items())


def check_could_start(cell):
    """What fairness takes for tasks that could start is what altruism asks for: none that waits out a back-off."""
    asked = {}
    for name in cell.altruism.jobs:
        if name in cell.altruism.held_back:
            continue
        tasks = sum(span.count for spans in could_start_of(cell, name).values() for span in spans)
        if tasks:
            leaf = cell.fairness.jobs[name].queue
            asked[leaf] = asked.get(leaf, 0) + tasks
    found = {leaf: demand.could_start() for leaf, demand in cell.fairness.demands.leaves.items() if demand.waits}
    starting = {leaf: tasks for leaf, (tasks, _) in found.items() if tasks}
    assert starting == asked or (limits_users(cell.admission.queues) and {*starting} <= {*asked})
    for tasks, amounts in found.values():
        assert all(amount >= 0 for amount in amounts.values())
        assert tasks or not any(amounts.values())


def is_limited(queues):
    """Whether some queue has a policy, a guarantee or a maximum of its own."""
    return queues is not None and any(each.policy or each.guaranteed or each.max for _, each in walk(queues))


def check_maxima(cell, grown):
    """No queue is taken beyond its maximum: `grown` tells which jobs got tasks in the round."""
    if cell.admission.queues is None or cell.admission.policy.preset == "fifo":
        return
    used = {}
    for held in (each for held_here in cell.leftover.held.values() for each in held_here.values()):
        for path in upwards(held.queue):
            for kind, amount in held.demand.items():
                used[path, kind] = used.get((path, kind), 0) + amount
    took = {path for name in grown for path in upwards(cell.leftover.jobs[name].queue)}
    for path, each in walk(cell.admission.queues):
        for kind, most in each.max.items():
            assert path not in took or used.get((path, kind), 0) <= most, f"{path} holds more {kind} than {most}"


# ---------------------------------------------------------------- work conservation
def check_conserved(cell):
    """Nothing that waits fits on what is free (any preset but fifo), and what was said of who waits is so."""
    if is_limited(cell.admission.queues):
        return
    reasons, delayed = {}, set()
    said = {(*_class_of(w, w.gang, w.rules), w.near): w.reason for w in cell.leftover.reasons.values()}
    for name, job in cell.altruism.jobs.items():
        for at, spans in could_start_of(cell, name).items() if name not in cell.altruism.on_hold else ():
            of = job.graph.stages[at]
            gang, own = of.tasks if of.gang else 0, rules_of(name, cell.leftover.jobs[name].queue, of)
            if places_left(cell, name) < max(1, gang):
                continue  # It waits for other tasks of its user to end.
            assert not spans or sum(span.count for span in spans)
            for failed in failed_before(cell, name, at, of, spans):
                rules = [*own, PlacementRule("", nodes=failed)] if failed else own
                key = _class_of(of, gang, rules)
                kept = [name for name, held in cell.leftover.kept.items() if _kept_for(held) != key]
                rooms = {name: _room(each, of) for name, each in cell.admission.nodes.items() if name not in kept}
                mine = rooms
                if failed and not gang and could_run(cell, of, own, 1, without=failed):
                    mine = {name: room for name, room in rooms.items() if name not in failed}
                able = _within(cell, of, own, mine)
                if waits_for_better(cell.admission.policy, of):
                    first = _within(cell, of, own, mine, first=True)
                    _check_delayed(cell, of, able, first, {near: said.get((*key, near)) for near in (True, False)})
                    delayed.update({(*key, True), (*key, False)})
                    continue
                assert sum(able.values()) < max(1, gang), f"{of} waits though there is room: {able}"
                reason = "no_node"
                if could_run(cell, of, own, max(1, gang)):
                    barred = rules and sum(rooms.values()) >= max(1, gang)
                    reason = "gang_no_room" if gang else "no_room"
                    if barred and (own or mine is not rooms):
                        reason = "spread"
                reasons[(*key, False)] = reason
    # Those that wait for better nodes no longer are of one class with those that never did.
    said = {key: reason for key, reason in said.items() if key in reasons or key not in delayed}
    for key, reason in said.items():
        if reason == "pool":  # No room inside the pool of its class; and as conserving, none beyond it.
            assert has_pools(cell.admission.policy)
            assert reasons[key] in {"no_room", "gang_no_room"}
            reasons[key] = "pool"
    assert said == reasons


def waits_for_better(policy, of):
    """Whether tasks of a stage wait for nodes that they prefer."""
    wait_ms = policy.locality_wait_ms if of.locality_wait_ms is None else of.locality_wait_ms
    return bool(of.prefer and wait_ms)


def _check_delayed(cell, of, able, now, said):
    """Tasks of a stage that waits for better nodes leave room only where that is said. Another stage with the same
    class may have been looked at before, so it may be that nothing is `said` any more."""
    if sum(able.values()) < (of.tasks if of.gang else 1):
        assert {*said.values()} <= {None, "no_room", "gang_no_room", "no_node", "pool", "spread"}
        return
    assert said[False] is None, f"{of} waits though there is room: {able}"
    assert said[True] in (None, "locality")
    if said[True] == "locality":
        assert {name for name, room in now.items() if room} <= {*cell.leftover.awaited}


def running_of(cell, rule):
    """By name of a node, how many tasks of a rule's group run there, those of this round's grants with them."""
    counts = {}
    for name, here in cell.leftover.held.items():
        for each in here.values():
            job = cell.leftover.jobs.get(each.job)
            if job is not None:
                of = job.graph.stages[job.graph.position[each.stage]]
                if rule.group in [other.group for other in rules_of(each.job, each.queue, of)]:
                    counts[name] = counts.get(name, 0) + 1
            elif rule.group == f"{each.job}/{each.stage}":
                counts[name] = counts.get(name, 0) + 1
    return counts


def values_of(cell, of, label):
    """Values of a label on nodes that could run a task of a stage."""
    found = {}
    for at in cell.admission.nodes.values():
        if label in at.labels and _held_empty(at, of):
            found[at.labels[label]] = True
    return list(found)


def _within(cell, of, rules, rooms, *, first=False):
    """How many tasks of a stage required rules leave of `rooms`, one after the other; `first`: to which nodes the first
    of them may go.
    """
    rooms, left = dict(rooms), {}
    nodes = cell.admission.nodes
    required = [rule for rule in rules if rule.required]
    for rule in required:
        if not rule.label:
            taken = running_of(cell, rule)
            rooms = {name: 0 if taken.get(name) else min(1, room) for name, room in rooms.items()}
    for rule in required:
        if rule.label:
            counts = dict.fromkeys(values_of(cell, of, rule.label), 0)
            for name, count in running_of(cell, rule).items():
                value = nodes[name].labels.get(rule.label)
                if value in counts:
                    counts[value] += count
            while True:
                free = [
                    name
                    for name, room in rooms.items()
                    if room
                    and counts.get(nodes[name].labels.get(rule.label), 1 << 30)
                    < min(counts.values(), default=0) + rule.max_skew
                ]
                if first:
                    return dict.fromkeys(free, 1)
                if not free:
                    return left
                rooms[free[0]] -= 1
                left[free[0]] = left.get(free[0], 0) + 1
                counts[nodes[free[0]].labels[rule.label]] += 1
    return rooms


def check_rules(cell):
    """Required rules hold for what leftover answered to the round just opened."""
    granted = {}
    for grant in cell.answer("grants").grants:
        granted.setdefault((grant.job, grant.stage), []).append(grant)
    for (name, stage), grants in granted.items():
        of = _stage(cell, name, stage)
        for rule in rules_of(name, cell.leftover.jobs[name].queue, of):
            counts = running_of(cell, rule)
            for others in granted.values():
                for other in others:
                    there = _stage(cell, other.job, other.stage)
                    if rule.group in [r.group for r in rules_of(other.job, cell.leftover.jobs[other.job].queue, there)]:
                        counts[other.node] = counts.get(other.node, 0) + other.count
            if rule.required and not rule.label:
                assert all(counts[grant.node] == 1 for grant in grants), f"{grants} share nodes: {counts}"
            elif rule.required:
                by_value = dict.fromkeys(values_of(cell, of, rule.label), 0)
                for node, count in counts.items():
                    value = cell.admission.nodes[node].labels.get(rule.label)
                    if value in by_value:
                        by_value[value] += count
                for grant in grants:
                    there = by_value[cell.admission.nodes[grant.node].labels[rule.label]]
                    assert there <= min(by_value.values()) + rule.max_skew, f"{grant}: {by_value}"


def failed_before(cell, name, at, of, spans):
    """Sets of nodes on which tasks of a stage that wait have failed: [] for those that have on none."""
    tasks = cell.leftover.failed_on.get(name, {})
    keys = {f"{at}/{0 if of.gang else index}" for span in spans for index in range(span.first, span.first + span.count)}
    return [list(nodes) for nodes in sorted({tuple(sorted(tasks.get(key, []))) for key in keys})]


def could_run(cell, of, rules, tasks, without=()):
    """Whether the nodes could run so many tasks at once under the rules if nothing else ran; whatever a spread says of
    how many on which.
    """
    labels = [rule.label for rule in rules if rule.required and rule.label]
    apart = any(rule.required and not rule.label for rule in rules)
    there = {name: at for name, at in cell.admission.nodes.items() if name not in without}
    nodes = [at for at in there.values() if all(label in at.labels for label in labels)]
    held = [_held_empty(at, of) for at in nodes]
    return sum(min(1, count) if apart else count for count in held) >= tasks


def _kept_for(held):
    return _class_of(held, held.gang, held.rules, demand=held.task)


def _class_of(of, gang, rules, demand=None):
    maps = (str(sorted(each.items())) for each in (of.demand if demand is None else demand, of.labels, of.prefer))
    return (*maps, gang, str(rules))


def _room(at, of):
    """How many tasks of a stage the node could take now."""
    if at.lost or at.draining or any(at.labels.get(key) != value for key, value in of.labels.items()):
        return 0
    room = min(max(0, at.free.get(kind, 0)) // amount for kind, amount in of.demand.items())
    if not of.demand.get("gpu"):
        return room
    free, count = [at.devices_free[str(device.index)] for device in at.devices], 0
    while count < room and (taken := on_devices(of.demand["gpu"], free)) is not None:
        for position, milli in taken:
            free[position] -= milli
        count += 1
    return count


def _held_empty(at, of):
    """How many tasks of a stage a node that takes tasks would hold if nothing else ran there."""
    if at.lost or at.draining or any(at.labels.get(key) != value for key, value in of.labels.items()):
        return 0
    count = min(at.capacity.get(kind, 0) // amount for kind, amount in of.demand.items())
    devices = [device.milli for device in devices_of(at.capacity, at.devices)]
    return tasks_on_devices(of.demand.get("gpu", 0), devices, count)


def _stage(cell, job, stage):
    graph = cell.admission.jobs[job].graph
    return graph.stages[graph.position[stage]]
