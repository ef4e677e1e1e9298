"""Class pools against themselves written out plainly: four stages, every claim looked at anew for every task.

The histories are those of test_placement.py; every third job is of each of three classes.
"""

from random import Random

import pytest
from hypothesis import strategies as st

from schemas.quantities import SHARE_UNITS
from services.leftover.placement.board import LeafLevel
from services.leftover.placement.class_pools import PPM, Pools
from services.leftover.placement.fits import ClassIndex
from tests.properties.placement_plain import ROUNDED, Plain
from tests.properties.test_placement import Both, step
from tests.strategies import for_all

CLASSES = 3
SIZES = (0, 1_000, 50_000, 100_000, 300_000, 500_000, PPM)
GUARANTEES = (0, 1, SHARE_UNITS // 10, SHARE_UNITS // 3, SHARE_UNITS)


class Pooled(Plain):
    """The rules with pools. `beyond`: (leaf, class) pairs whose guarantee won over the pools in the last round."""

    def __init__(self, *rules):
        super().__init__(*rules)
        self.pools = []
        self.within = self.owed = False
        self.beyond = set()

    def class_of(self, job):
        return job.order % CLASSES

    def lanes(self, claims):
        return [[claim for claim in claims if self.class_of(claim[1]) == at] for at in range(CLASSES)]

    def rest(self, at):
        held = dict.fromkeys(self.total, 0)
        for job in self.jobs.values():
            if self.class_of(job) == at:
                for kind, amount in job.held.items():
                    held[kind] += amount
        return {kind: have * self.pools[at] // PPM - held[kind] for kind, have in self.total.items()}

    def has_room(self, job, span):
        rest = self.rest(self.class_of(job))
        return all(amount * (span.gang or 1) <= rest[kind] for kind, amount in span.demand.items())

    def is_owed(self, leaf):
        spans = [span for job in self.jobs.values() if job.leaf == leaf for span in job.spans if span.count]
        least = min(self.share(span.demand) * (span.gang or 1) for span in spans)
        return bool(self.guaranteed.get(leaf)) and self.leaf_share(leaf) + least <= self.guaranteed[leaf] + ROUNDED

    def stands_back(self, job, span):
        return (self.owed and not self.is_owed(job.leaf)) or (self.within and not self.has_room(job, span))

    def before(self, job, span):
        if self.owed and not self.within and not self.has_room(job, span):
            self.pushing = job, span

    def place(self, before_ms=-1):
        self.beyond, self.pushing = set(), None
        waiting = {self.class_of(job) for job in self.jobs.values() if any(span.count for span in job.spans)}
        stages = [(True, True), (False, True), (True, False), (False, False)] if len(waiting) > 1 else [(False, False)]
        handed, hopeless = {}, {}
        for self.within, self.owed in stages:
            while self.serve_one(handed, hopeless, before_ms):
                if self.pushing is not None:
                    job, self.pushing = self.pushing[0], None
                    if min(self.rest(self.class_of(job)).values()) < 0 and self.is_awaited():
                        self.beyond.add((job.leaf, self.class_of(job)))
        self.within = self.owed = False
        return self.collect(handed)

    def is_awaited(self):
        """Whether somebody who is no gang could start a task within its pool now."""
        self.within, self.owed = True, False
        heads, able = set(), False
        for _, job, span in self.claims({}, -1):
            lane = job.leaf, self.class_of(job)
            if self.orders.get(job.leaf) != "fifo" or lane not in heads:
                able = able or (not span.gang and self.best(span) is not None)
            heads.add(lane)
        self.within, self.owed = False, True
        return able


class Kept(Pooled):
    """The rules with pools that do not lend."""

    def has_room(self, job, span):
        pool = {kind: have * self.pools[self.class_of(job)] // PPM for kind, have in self.total.items()}
        is_outsize = any(amount * (span.gang or 1) > pool[kind] for kind, amount in span.demand.items())
        return is_outsize or super().has_room(job, span)

    def place(self, before_ms=-1):
        handed, hopeless = {}, {}
        for self.within, self.owed in [(True, True), (True, False)]:
            while self.serve_one(handed, hopeless, before_ms):
                pass
        self.within = self.owed = False
        return self.collect(handed)


def drawn_pools(chance):
    first = chance.choice(SIZES)
    second = min(PPM - first, chance.choice(SIZES))
    return [first, second, PPM - first - second]


RULES = {
    "fair": ("fair", {}, {}),
    "fifo by job": ("fifo_job", {}, {}),
    "many orders": ("fair", {"a": "fifo", "b": "srtf", "c": "fair"}, {}),
    "maxima": ("fair", {"a": "fifo"}, {"a": {"cpu": 6_000}, "": {"cpu": 25_000}}),
}


@pytest.mark.parametrize("lends", [True, False])
@pytest.mark.parametrize("rules", RULES)
@for_all(st.integers(0, 2**64 - 1))
def test_lanes_are_served_as_the_plain_rules_of_pools_serve_them(rules, lends, seed):
    """Drawn from the seed alone, as in test_placement.py."""
    chance = Random(seed)
    both = Both(*RULES[rules], Pooled if lends else Kept, drawn_pools(chance), pools_lend=lends)
    both.orders = both.orders or {"": "pools"}  # What is said of reasons is looked at elsewhere.
    for _ in range(60):
        both.plain.pools = drawn_pools(chance) if chance.random() < 0.1 or not both.plain.pools else both.plain.pools
        both.board.pools.set(both.plain.pools)
        if chance.random() < 0.15:
            leaf, units = chance.choice(["a", "b", "c"]), chance.choice(GUARANTEES)
            both.plain.guaranteed[leaf] = units
            both.board.set_levels([LeafLevel(leaf, both.board.leaf(leaf).level, guaranteed=units)])
        both.board.pools.beyond, both.plain.beyond = {}, set()
        step(both, chance)
        assert set(both.board.pools.beyond) == both.plain.beyond


@for_all(st.lists(st.integers(0, PPM), min_size=2, max_size=8), st.lists(st.integers(0, 10**9), min_size=1, max_size=4))
def test_pools_never_sum_above_the_capacity(parts, total):
    whole = sum(parts) or 1
    ppm = [part * PPM // whole for part in parts[1:]]
    pools = Pools([PPM - sum(ppm), *ppm], total, ClassIndex(len(total)))

    for have, column in zip(total, zip(*pools.most, strict=True), strict=True):
        assert 0 <= sum(column) <= have
