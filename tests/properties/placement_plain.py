"""The rules of placement written out plainly: every claim looked at anew for every task, no heap and no memory."""

import math
from dataclasses import dataclass, field
from typing import Any

from schemas.quantities import SHARE_UNITS, on_devices

SCALE = 1 << 60
AGEING_MS = 9
ROUNDED = 16  # Billionths that a guarantee may be off.
UNFAIR_PERMILLE = 600
PREFERRED = 1 << 100
KINDS = ("cpu", "gpu", "memory")

NODES: tuple[Any, ...] = (
    ({"cpu": 16_000, "memory": 16_384}, {"zone": "a"}, []),
    ({"cpu": 16_000, "memory": 16_384}, {"zone": "b"}, []),
    ({"cpu": 8_000, "memory": 8_192, "gpu": 2_500}, {"zone": "b", "disk": "ssd"}, [1_000, 1_000, 500]),
    ({"cpu": 3_000, "memory": 65_536}, {}, []),
)
DEMANDS = (
    {"cpu": 1_000, "memory": 1_024},
    {"cpu": 500, "memory": 4_096},
    {"cpu": 3_000, "memory": 256},
    {"cpu": 250, "gpu": 400, "memory": 256},
    {"cpu": 250, "gpu": 1_500, "memory": 256},
    {"memory": 2_048},
)
LABELS: tuple[dict[str, str], ...] = ({}, {}, {"zone": "a"}, {"zone": "b"}, {"zone": "c"})
PREFERS: tuple[dict[str, str], ...] = ({}, {}, {"zone": "a"}, {"disk": "ssd", "zone": "b"})


@dataclass
class Span:
    stage: int
    demand: dict
    labels: dict
    prefer: dict
    gang: int
    first: int
    count: int
    since_ms: int
    optional: bool = False

    def kind(self):
        return str((self.demand, self.labels, self.prefer, self.gang))


@dataclass
class PlainJob:
    name: str
    order: int
    leaf: str
    priority: int
    held: dict = field(default_factory=dict)
    spans: list = field(default_factory=list)
    tasks: int = 0
    work: int = 0


def could_run(span):
    """Whether the nodes, empty, would hold a task, of a gang all: one after the other is put on them."""
    wanted = span.gang or 1
    for capacity, labels, devices in NODES:
        if any(labels.get(key) != value for key, value in span.labels.items()):
            continue
        free, left = dict(capacity), list(devices)
        while wanted and all(free.get(kind, 0) >= amount for kind, amount in span.demand.items()):
            gpu = span.demand.get("gpu", 0)
            taken = on_devices(gpu, left) if gpu else []
            if taken is None:
                break
            for at, milli in taken:
                left[at] -= milli
            for kind, amount in span.demand.items():
                free[kind] -= amount
            wanted -= 1
    return not wanted


class Plain:
    """The rules, one by one. Nodes as [free, devices, labels]."""

    def __init__(self, discipline, orders, maxima, placing="packed", listed=None):
        """`listed`: all leaves are one list of jobs, in this order."""
        self.placing, self.listed = placing, listed
        self.discipline, self.orders, self.maxima = discipline, orders, maxima
        self.used = {}  # By leaf, also of jobs that are over.
        self.nodes = [[dict(capacity), list(devices), labels] for capacity, labels, devices in NODES]
        self.capacities = [(node, given) for node, (given, _, _) in zip(self.nodes, NODES, strict=True)]
        self.total = {kind: sum(capacity.get(kind, 0) for capacity, _, _ in NODES) for kind in KINDS}
        self.largest = {kind: max(capacity.get(kind, 0) for capacity, _, _ in NODES) for kind in KINDS}
        self.jobs = {}
        self.targets, self.served, self.guaranteed = {}, {}, {}

    def share(self, held):
        return max((amount * SHARE_UNITS // self.total[kind] for kind, amount in held.items()), default=0)

    def leaf_share(self, leaf):
        held = {}
        for job in self.jobs.values():
            if job.leaf == leaf:
                for kind, amount in job.held.items():
                    held[kind] = held.get(kind, 0) + amount
        return self.share(held)

    def claim(self, leaf):
        """Within its guarantee or target with one task more, or beyond it; held / that; when it was served last."""
        target, share, served = self.targets.get(leaf, SHARE_UNITS), self.leaf_share(leaf), self.served.get(leaf, 0)
        if target <= 0:
            return 2, 0, served
        spans = [span for job in self.jobs.values() if job.leaf == leaf for span in job.spans if span.count]
        least = min(self.share(span.demand) * (span.gang or 1) for span in spans)
        if 0 < (guaranteed := self.guaranteed.get(leaf, 0)) >= share + least - ROUNDED:
            return -1, (share << 30) // guaranteed, served
        return int(share + least > target), (share << 30) // target, served

    def claims(self, hopeless, before_ms):
        """Whoever may be served next, best claim first. `before_ms`: who holds nothing and waits since then is aged."""
        found = {}
        for job in self.jobs.values():
            order = self.orders.get(job.leaf, "drf")
            aged = job.spans and not job.tasks and min(span.since_ms for span in job.spans) <= before_ms
            by_work = dict.fromkeys(("sjf", "srtf", "giving"), job.work)
            second = {"drf": self.share(job.held), "fair": job.tasks, **by_work}.get(order, 0)
            mine = (-job.priority, 0) if order == "fifo" else (-9, 0) if aged else (-job.priority, second)
            for position, span in enumerate(job.spans):
                if not span.count:
                    continue
                if order.startswith("tetris"):
                    share = self.share(job.held) if order == "tetris-fair" and not aged else 0
                    fit = (-self.alignment(span), share, job.order)
                    rank = (*self.claim(job.leaf), job.leaf, mine[0], *fit, position)
                elif self.discipline == "fair":
                    rank = (*self.claim(job.leaf), job.leaf, span.optional, *mine, job.order, position)
                elif self.discipline == "fifo_job":
                    rank = (-job.priority, job.order, position)
                else:
                    rank = (-job.priority, span.since_ms, job.order, span.stage)
                found.setdefault(job.leaf, []).append((rank, job, span))
        able = []
        if self.listed is not None:
            return self.first_of_list(found, hopeless)
        for leaf, claims in found.items():
            strict = self.orders.get(leaf) == "fifo"
            if self.orders.get(leaf) == "tetris-fair":
                claims = self.those_who_may_pack(claims)
            if strict or self.discipline != "fair":
                claims = [claim for claim in claims if could_run(claim[2])]
            for lane in self.lanes(claims):
                lacked = set()
                for claim in sorted(lane, key=lambda claim: claim[0]):
                    _, job, span = claim
                    if strict and self.is_full(leaf, span):
                        if not lacked & set(span.demand):
                            lacked |= self.lacked(leaf, span)
                    elif strict and lacked & set(span.demand):
                        continue  # It could take what somebody before it lacks.
                    elif (
                        span.kind() not in hopeless and not self.is_full(leaf, span) and not self.stands_back(job, span)
                    ):
                        able.append(claim)
                    elif strict or self.discipline != "fair":
                        break  # Nobody goes ahead of the head.
        return sorted(able, key=lambda claim: claim[0])

    def those_who_may_pack(self, claims):
        ranks = sorted({(rank[4], rank[6], rank[7]) for rank, _, _ in claims})
        may_pack = ranks[: max(1, math.ceil((1_000 - UNFAIR_PERMILLE) * len(ranks) / 1_000))]
        return [claim for claim in claims if (claim[0][4], claim[0][6], claim[0][7]) in may_pack]

    def first_of_list(self, found, hopeless):
        """Of all leaves, each with the first of its own order that can be served: what is required within a level by
        the claims of the leaves, then whoever comes first without priorities. If the order is strict, that one alone.
        """
        ahead = {} if self.listed == "fifo" else self.places_by_priority(found)
        if self.listed == "tetris-fair":
            found = {leaf: self.those_who_may_pack(claims) for leaf, claims in found.items()}
        strict = self.listed == "fifo"
        if strict:
            found = {leaf: [claim for claim in claims if could_run(claim[2])] for leaf, claims in found.items()}
        firsts = []
        for leaf, claims in found.items():
            for claim in sorted(claims, key=lambda claim: claim[0]):
                if strict or (claim[2].kind() not in hopeless and not self.is_full(leaf, claim[2])):
                    firsts.append(claim)
                    break
        within = [claim for claim in firsts if claim[0][0] <= 0 and not claim[2].optional]
        if self.listed == "giving" and within:
            return [min(within, key=lambda claim: claim[0])]
        first = min(firsts, key=lambda claim: self.place_in_list(claim, ahead), default=None)
        return [first] if first is not None and first[2].kind() not in hopeless else []

    def places_by_priority(self, found):
        """By leaf and whether tasks are optional: (priority, place) of each job that waits."""
        places = {}
        for leaf, claims in found.items():
            for rank, _, span in claims:
                by = (rank[4], 0) if self.listed.startswith("tetris") else (rank[5], (rank[6], rank[7]))
                places.setdefault((leaf, span.optional), []).append(by)
        return places

    def place_in_list(self, claim, ahead):
        """A rank without the claim of the leaf and the priority of the job; never before one with a higher priority."""
        rank, job, span = claim
        if self.discipline != "fair":
            return rank[1:]
        if self.listed == "fifo":
            return rank[4], *rank[6:]
        before = ahead[job.leaf, span.optional]
        if self.listed.startswith("tetris"):
            last = any(priority < rank[4] for priority, _ in before) or not rank[5]
            return (0, job.leaf) if last else (rank[5], *rank[6:])
        behind = max([place for priority, place in before if priority < rank[5]], default=(0, 0))
        return rank[4], *(max((*rank[6:8], rank[8]), (*behind, 0)))

    def lanes(self, claims):
        """Those of a leaf that queue up behind one another."""
        return [claims]

    def stands_back(self, job, span):
        """Whether something but room keeps a task from being served."""
        return False

    def is_full(self, leaf, span):
        """Whether the queue, or the root, has no place for one more task, or the whole gang."""
        return bool(self.lacked(leaf, span))

    def lacked(self, leaf, span):
        """Of what one more task, or the whole gang, would take more than the maximum of the first queue that has no
        place: its own, or the root.
        """
        for path in (leaf, ""):
            most = self.maxima.get(path, {})
            used = [self.used.get(each, {}) for each in ("a", "b", "c") if path in ("", each)]
            amounts = {kind: span.demand[kind] * (span.gang or 1) for kind in most if kind in span.demand}
            held = {kind: sum(each.get(kind, 0) for each in used) for kind in amounts}
            if lacked := {kind for kind, amount in amounts.items() if held[kind] + amount > most[kind]}:
                return lacked
        return set()

    def use(self, leaf, demand, sign):
        used = self.used.setdefault(leaf, {})
        for kind, amount in demand.items():
            used[kind] = used.get(kind, 0) + sign * amount

    def place(self, before_ms=-1):
        """-> (job, stage, first, count, node, beyond), as they were handed out."""
        handed, hopeless = {}, {}
        while self.serve_one(handed, hopeless, before_ms):
            pass
        return self.collect(handed)

    def serve_one(self, handed, hopeless, before_ms):
        """Hands out the next task, or gang. Returns whether one was, or found no room."""
        claims = self.claims(hopeless, before_ms)
        if not claims:
            return False
        _, job, span = claims[0]
        beyond = self.discipline == "fair" and self.leaf_share(job.leaf) >= self.targets.get(job.leaf, SHARE_UNITS)
        beyond = span.optional if self.orders.get(job.leaf) == "giving" else beyond
        many = span.count if span.gang else 1
        taken = []
        while len(taken) < many and (node := self.best(span)) is not None:
            taken.append((node, self.take(node, span.demand)))
        if len(taken) < many:
            for node, devices in taken:
                self.give(node, span.demand, devices)
            hopeless[span.kind()] = True
            return True
        parts = handed.setdefault((job.name, span.stage, span.first), {})
        self.before(job, span)
        for node, devices in taken:
            parts.setdefault((node, beyond), []).append(devices)
            span.count -= 1
            job.tasks += 1
            self.use(job.leaf, span.demand, 1)
            for kind, amount in span.demand.items():
                job.held[kind] = job.held.get(kind, 0) + amount
        return True

    def before(self, job, span):
        """A task of a span, or its gang, is about to count."""

    def collect(self, handed):
        placed = []
        for (name, stage, first), parts in handed.items():
            span = next(s for s in self.jobs[name].spans if (s.stage, s.first) == (stage, first))
            for (node, beyond), devices in parts.items():
                placed.append((name, stage, span.first, len(devices), node, beyond, devices if any(devices) else []))
                span.first += len(devices)
        for job in self.jobs.values():
            job.spans = [span for span in job.spans if span.count]
        return placed

    def alignment(self, span):
        """How well a task of the span suits what is free on the node where it does best; 0 where it fits nowhere."""
        return max([self.score(span, self.nodes[number]) for number in self.fitting(span)], default=0)

    def score(self, span, node):
        free, _, labels = node
        score = sum(
            max(1, amount * SCALE // self.largest[kind] ** 2) * free[kind] for kind, amount in span.demand.items()
        )
        return score + PREFERRED * sum(labels.get(key) == value for key, value in span.prefer.items())

    def best(self, span):
        """The node that suits the span best: preferred labels first, then as the policy says, then the first."""
        ranked = [(self.rank(span, self.nodes[number]), number) for number in self.fitting(span)]
        return min(ranked)[1] if ranked else None

    def rank(self, span, node):
        free, devices, labels = node
        prefers = -sum(labels.get(key) == value for key, value in span.prefer.items())
        capacity = next(given for given in self.capacities if given[0] is node)[1]
        if self.placing == "aligned":
            return prefers, -self.score(span, node)
        if self.placing == "spread":
            used = [((capacity[kind] - free[kind]) << 20) // capacity[kind] for kind in span.demand]
            return prefers, max(used)
        gpu = free.get("gpu", 0)
        if "gpu" not in span.demand:
            return prefers, "gpu" in capacity, gpu, -self.score(span, node)
        part = span.demand["gpu"] % 1_000
        left = devices[on_devices(span.demand["gpu"], devices)[-1][0]] - part if part else 0
        return prefers, False, left, gpu, free["cpu"]

    def fitting(self, span):
        """The nodes with room for one task."""
        found = []
        for number, (free, devices, labels) in enumerate(self.nodes):
            if any(free.get(kind, 0) < amount for kind, amount in span.demand.items()):
                continue
            if any(labels.get(key) != value for key, value in span.labels.items()):
                continue
            if span.demand.get("gpu") and on_devices(span.demand["gpu"], devices) is None:
                continue
            found.append(number)
        return found

    def take(self, node, demand):
        free, devices, _ = self.nodes[node]
        for kind, amount in demand.items():
            free[kind] -= amount
        taken = on_devices(demand["gpu"], devices) if demand.get("gpu") else []
        for index, milli in taken:
            devices[index] -= milli
        return taken

    def give(self, node, demand, devices):
        free, left, _ = self.nodes[node]
        for kind, amount in demand.items():
            free[kind] += amount
        for index, milli in devices:
            left[index] += milli
