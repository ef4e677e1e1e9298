"""A fairness core and, beside it, plain books of what it was given: from them everything is worked out anew, in
fractions.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from largesse.core import OpenRound
from largesse.log.snapshots import dump, load
from schemas import (
    Grant,
    JobAdmitted,
    JobCancelled,
    JobEnded,
    NodeReported,
    Record,
    RoundClosed,
    RoundOpened,
    TaskEnd,
    TaskFinished,
)
from schemas.jobs import JobEnd
from schemas.policy import Policy
from schemas.presets import PRESETS
from schemas.quantities import SHARE_UNITS
from schemas.queues import ConfigChanged
from schemas.sharing import LIST_POLICIES
from services.fairness import core as fairness
from tests.builders import job, stage
from tests.cells import drop_caches

STEP = SHARE_UNITS // 1_000
"""A permille."""
ROUNDING = 4
"""Billionths that the core's integers may be off."""


@dataclass
class Live:
    """A job of one stage in the plain books."""

    name: str
    leaf: str
    demand: dict[str, int]
    left: int
    over: bool = False
    held: dict[int, int] = field(default_factory=dict)  # Task index -> since when.
    next: int = 0

    @property
    def asked(self):
        return 0 if self.over else self.left

    @property
    def waits(self):
        return 0 if self.over else self.left - len(self.held)


class Books:
    """One cell: jobs of one stage come, tasks are granted and end, capacity and the tree change."""

    def __init__(self, tree, preset="hdrf", *, forgetful=False, **knobs):
        self.state, self.seq, self.round, self.time = fairness.start(), 0, 0, 0
        self.preset, self.forgetful = preset, forgetful
        knobs.setdefault("demand_tolerance_permille", 0)  # What is said is compared with what there is.
        self.capacity, self.jobs, self.published, self.below = {}, [], [], {}
        self.known = {}
        self.broken, self.knobs = {}, {}
        self.set_tree(tree, **knobs)

    # ------------------------------------------------------------ facts
    def put(self, body):
        self.seq += 1
        record = self.record(body)
        fairness.fold(self.state, record)
        return record

    def record(self, body):
        return Record(type(body).__name__, 1, "default", self.seq, self.round, self.time, str(self.seq), "", body)

    def set_tree(self, tree, **knobs):
        self.tree, self.knobs = tree, self.knobs | knobs
        self.put(ConfigChanged(Policy(preset=self.preset, **self.knobs), tree))
        paths = dict(walked(tree))
        self.known = {name: values for name, values in self.known.items() if name in paths}
        for kept in (self.below, self.broken):
            for name in [name for name in kept if name not in paths]:
                del kept[name]

    def set_capacity(self, capacity):
        self.capacity = capacity
        self.put(NodeReported("n", "e", capacity))

    def job(self, at, demand, tasks):
        leaves = [path for path, queue in walked(self.tree) if not queue.children]
        live = Live(f"j{self.seq}", leaves[at % len(leaves)], demand, tasks)
        self.put(JobAdmitted(job(live.name, stage(tasks=tasks, demand=demand), queue=live.leaf), 0))
        self.jobs.append(live)

    def end(self, which, count):
        """Tasks that hold something have succeeded."""
        holding = [live for live in self.jobs if live.held]
        if holding:
            live = holding[which % len(holding)]
            for index in list(live.held)[:count]:
                self.put(TaskFinished([TaskEnd(live.name, "map", index, 1, 1, "n", "e", [1])]))
                del live.held[index]
                live.left -= 1
            if not live.left and not live.over:
                self.put(JobEnded([JobEnd(live.name, "succeeded")]))
            self._forget()

    def cancel(self, which):
        """A job is over while some of it still runs."""
        if alive := [live for live in self.jobs if not live.over]:
            live = alive[which % len(alive)]
            live.over = True
            self.put(JobCancelled(live.name, "ann"))
            self.put(JobEnded([JobEnd(live.name, "cancelled")]))
            self._forget()

    def _forget(self):
        self.jobs = [live for live in self.jobs if live.held or live.waits]

    def wait(self, ms):
        self.time += ms

    def restore(self):
        self.state = load(type(self.state), dump(self.state))

    # ------------------------------------------------------------ rounds
    def look(self, *wanted):
        """A round that grants, of the job at each of these places, so many of the tasks that it waits for."""
        body = self.answer()
        self.check(body)
        self.put(body)
        self.grant(wanted)
        self.watch()

    def decide(self, *wanted):
        """The same, and nobody looks whether it was right."""
        self.put(self.answer())
        self.grant(wanted)

    def grant(self, wanted):
        grants = []
        for at, tasks in wanted:
            if waiting := [live for live in self.jobs if live.waits]:
                live = waiting[at % len(waiting)]
                tasks = min(tasks, live.waits)
                grants.append(Grant(live.name, "map", live.next, tasks, 1, "n", "e"))
                live.held |= dict.fromkeys(range(live.next, live.next + tasks), self.time)
                live.next += tasks
        self.put(RoundClosed(grants, [], [], None, []))

    def answer(self):
        if self.forgetful:
            drop_caches([self.state])
        self.round += 1
        opening = self.put(RoundOpened(1, ""))
        before = dump(self.state)
        (body,) = fairness.decide(self.state, OpenRound(opening))
        assert dump(self.state) == before
        self.published.append(body)
        return body

    def check(self, body):
        """What the round says of queues and guarantees is what there is to say."""
        values = self.values()
        said = {one.queue: (one.guaranteed, one.fair, one.allocated, one.lent, one.borrowed) for one in body.queues}
        if body.full:
            self.known = {}
        for name, now in values.items():
            known = self.known.get(name, (0,) * 5)
            moved = max(abs(new - old) for new, old in zip(now, known, strict=True))
            assert moved < STEP + ROUNDING or name in said, f"{name} is {now}, but only {known} is known"
            if name in said:
                assert body.full or moved > STEP - ROUNDING, f"{name} is said again, {now} after {known}"
                assert all(abs(a - b) <= ROUNDING for a, b in zip(now, said[name], strict=True)), (now, said[name])
        self.known |= said
        since = {name: at for name, at in self.below.items() if name not in self.broken}
        limit = self.oldest if self.oldest is not None else self.time
        again = {one.queue for one in body.breaches if one.queue in self.broken and not one.over}
        assert all(name in self.below for name in again)  # Whether what waits there finds room has changed.
        assert {(one.queue, one.since_ms) for one in body.breaches if not one.over and one.queue not in again} == {
            (name, at) for name, at in since.items() if at < limit
        }
        assert {one.queue for one in body.breaches if one.over} == {n for n in self.broken if n not in self.below}
        for one in body.breaches:
            if one.over:
                del self.broken[one.queue]
            else:
                self.broken[one.queue] = one.since_ms

    oldest = None

    def watch(self):
        running = [since for live in self.jobs for since in live.held.values()]
        self.oldest = min(running, default=None)
        now = self.low()
        self.below = {name: at for name, at in self.below.items() if name in now}
        self.below |= dict.fromkeys([name for name in now if name not in self.below], self.time)

    # ------------------------------------------------------------ everything worked out anew
    def sums(self, count):
        """By leaf, a vector: `count` tasks of each job whose leaf is still there."""
        leaves = [path for path, queue in walked(self.tree) if not queue.children]
        found = {}
        for live in [live for live in self.jobs if live.leaf in leaves]:
            vector = found.setdefault(live.leaf, {})
            for kind, amount in live.demand.items():
                vector[kind] = vector.get(kind, 0) + amount * count(live)
        return found

    @property
    def demand_by_set(self):
        """By leaf and set of kinds, what is asked for."""
        leaves = [path for path, queue in walked(self.tree) if not queue.children]
        found = {}
        for live in [live for live in self.jobs if live.leaf in leaves and live.asked]:
            key = tuple(sorted(kind for kind, amount in live.demand.items() if amount))
            vector = found.setdefault(live.leaf, {}).setdefault(key, {})
            for kind, amount in live.demand.items():
                vector[kind] = vector.get(kind, 0) + amount * live.asked
        return found

    @property
    def demand(self):
        return self.sums(lambda live: live.asked)

    def placed_by_set(self, body):
        """The same, where a unit is capped what it can place, by what this round says."""
        named = {level.queue for level in body.levels} | set(body.gone)
        capped = {unit for unit in self.state.levels.dues() if unit not in named}
        capped |= {level.queue for level in body.levels if level.due is not None}
        return self.demand_by_set | {unit: {"": self.state.caps.by_unit[unit].amounts} for unit in capped}

    def below_of(self, sums, path):
        """The sum over the leaves of a queue."""
        total = {}
        for leaf, vector in sums.items():
            if path == "" or f"{leaf}/".startswith(f"{path}/"):
                for kind, amount in vector.items():
                    total[kind] = total.get(kind, 0) + amount
        return total

    def share(self, vector):
        shares = [Fraction(vector.get(kind, 0), have) for kind, have in self.capacity.items() if have]
        return max(shares, default=Fraction(0))

    def claim(self, queue, path, asks):
        """What guarantees cover of what a queue asks for, by kind; `asks`: `demand`, worked out once."""
        vector = self.below_of(asks, path)
        here = covered(vector, self.named(queue.guaranteed), most=1) or {}
        below = {}
        for child in queue.children:
            for kind, amount in self.claim(child, f"{path}/{child.name}".lstrip("/"), asks).items():
                below[kind] = below.get(kind, 0) + amount
        return {k: max(here.get(k, 0), below.get(k, 0)) for k in {**here, **below} if self.capacity.get(k)}

    def guarantees(self):
        """Path -> share, of the queues that are in no list."""
        asks = self.demand
        found = {}

        def claim(queue, path):
            return self.claim(queue, path, asks)

        pledged = claim(self.tree, "")

        def own(queue, path):
            vector = claim(queue, path)
            cut = min(
                [Fraction(self.capacity[k]) / pledged[k] for k, n in vector.items() if n and pledged[k]], default=1
            )
            if cut < 1:
                return min(Fraction(1), self.share(vector) * cut)
            reach = covered(self.below_of(asks, path), self.named(queue.guaranteed)) or {}
            named = {kind: amount for kind, amount in reach.items() if kind in queue.guaranteed}
            return min(Fraction(1), max(self.share(vector), self.share(named)))

        def go(queue, path, got, policy):
            found[path] = got
            policy = queue.policy or policy
            if policy in LIST_POLICIES:
                return
            paths = {f"{path}/{child.name}".lstrip("/"): child for child in queue.children}
            asking = {each: child for each, child in paths.items() if self.share(self.below_of(asks, each))}
            raised = {each: own(child, each) for each, child in asking.items() if any(claim(child, each).values())}
            left, weights = got, sum(child.weight for child in asking.values())
            for each in sorted(raised, key=lambda each: (-raised[each] / asking[each].weight, each)):
                if raised[each] * weights <= left * asking[each].weight:
                    break
                left, weights = max(Fraction(0), left - raised[each]), weights - asking[each].weight
            for each, child in paths.items():
                part = Fraction(0)
                if each in asking:
                    part = left * child.weight / weights if weights else Fraction(0)
                    part = max(part, raised.get(each, 0))
                    reach = self.within(each, self.below_of(asks, each), policy)
                    part = part if reach is None else min(part, self.share(reach))
                go(child, each, part, policy)

        go(self.tree, "", Fraction(1), PRESETS[self.preset].sharing)
        return found

    def promised(self, path):
        """What a queue's own guarantee covers of what it asks for, whether or not all can have theirs."""
        each, vector = dict(walked(self.tree))[path], self.below_of(self.demand, path)
        share = self.share(covered(vector, self.named(each.guaranteed), most=1) or {})
        most = self.within(path, vector, self.policy_above(path))
        return min(Fraction(1), share if most is None else min(share, self.share(most)))

    def policy_above(self, path):
        policy = PRESETS[self.preset].sharing
        for each, queue in walked(self.tree):
            if path != each and (not each or f"{path}/".startswith(f"{each}/")):
                policy = queue.policy or policy
        return policy

    def within(self, path, vector, above):
        """What a queue that asks for a vector may have; None where nothing limits it. A maximum holds back all that is
        asked for in proportion where that is of one set of kinds or served as one list, else the kind that it names.
        """
        queue = dict(walked(self.tree))[path]
        limits = self.named(queue.max)
        if queue.children:
            one = (queue.policy or above) in LIST_POLICIES
        else:
            one = len(self.demand_by_set.get(path, ())) < 2
        if one:
            base = self.base(path) if self.is_over(path) else {}
            left = {kind: max(0, most - base.get(kind, 0)) for kind, most in limits.items()}
            rest = covered({kind: amount - base.get(kind, 0) for kind, amount in vector.items()}, left)
            if rest is None:
                return None
            return {kind: amount + base.get(kind, 0) for kind, amount in rest.items()}
        if not any(vector.get(kind, 0) > most for kind, most in limits.items()):
            return None
        return {kind: min(amount, limits.get(kind, amount)) for kind, amount in vector.items()}

    def is_over(self, path):
        """Whether a leaf asks for more than its maximum."""
        queue = dict(walked(self.tree))[path]
        asks = self.demand.get(path, {})
        return not queue.children and any(asks.get(kind, 0) > most for kind, most in self.named(queue.max).items())

    def base(self, path):
        """What a leaf holds, without the largest multiple in it of what it waits for; next to nothing is none."""
        held, waits = {}, {}
        for live in [live for live in self.jobs if live.leaf == path]:
            for kind, amount in live.demand.items():
                if self.capacity.get(kind):
                    held[kind] = held.get(kind, 0) + amount * (live.asked - live.waits)
                    waits[kind] = waits.get(kind, 0) + amount * live.waits
        times = min((Fraction(held[kind], amount) for kind, amount in waits.items() if amount), default=Fraction(0))
        found = {kind: amount - waits[kind] * times for kind, amount in held.items()}
        return found if self.share(found) >= Fraction(1, 2**20) else {}

    def named(self, limits):
        return {kind: amount for kind, amount in limits.items() if self.capacity.get(kind)}

    def values(self):
        """Path -> (guaranteed, fair, allocated, lent, borrowed) in billionths; `fair` as the core has it."""
        guarantees, asked, used = self.guarantees(), self.demand, self.sums(lambda live: len(live.held))
        found = {}
        for path, _ in walked(self.tree):
            if path:
                held = self.share(self.below_of(used, path))
                kept = max(held, self.share(self.below_of(asked, path)))
                part = guarantees.get(path)
                if part is None:
                    found[path] = (0, 0, units(held), 0, 0)
                else:
                    fair = self.fair(path)
                    found[path] = tuple(map(units, (part, fair, held, max(0, part - kept), max(0, held - part))))
        return found

    def fair(self, path):
        """The level that is in force, where the core says one; a test of levels says whether it is right. A round that
        left the levels as they are has nothing to say of them."""
        if not self.state.freshness.refills:
            return Fraction(self.known.get(path, (0, 0))[1], SHARE_UNITS)
        filled = self.state.filled
        if filled is None or filled.all_fits:
            return self.share(self.below_of(self.demand, path))
        while filled.over is not None:  # Grants here follow no claims, so that units are passed over, and capped.
            filled = filled.over
        return Fraction({**filled.nodes, **filled.levels}.get(path, 0), SHARE_UNITS)

    def low(self):
        """Queues that wait and would be below their guarantee with a task more for each leaf that waits."""
        guarantees = self.guarantees()
        waits, waiting = {}, self.sums(lambda live: live.waits)
        for live in self.jobs:  # Of those whose leaf is gone none waits.
            waits[live.leaf] = waits.get(live.leaf, 0) + live.waits
        tasks = {leaf: units(self.share(waiting[leaf]) / count) + 1 for leaf, count in waits.items() if count}
        found = []
        for path, part in sorted(guarantees.items()):
            here = [leaf for leaf in tasks if path and f"{leaf}/".startswith(f"{path}/")]
            used = units(self.share(self.below_of(self.sums(lambda live: len(live.held)), path)))
            if here and used + sum(tasks[leaf] for leaf in here) < units(max(part, self.promised(path))):
                found.append(path)
        return found


def units(share):
    return int(share * SHARE_UNITS)


def walked(queue, path=""):
    yield path, queue
    for child in queue.children:
        yield from walked(child, f"{path}/{child.name}" if path else child.name)


def covered(vector, limits, most=None):
    """The largest multiple of a vector within limits, up to `most` times; None where no limit is on what it has."""
    parts = [Fraction(limits[kind], amount) for kind, amount in vector.items() if amount and kind in limits]
    if not parts:
        return None
    part = min(parts) if most is None else min(most, *parts)
    return {kind: amount * part for kind, amount in vector.items()}
