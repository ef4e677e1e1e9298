"""The laws of pre-emption, kept from the records of a simulated cell alone, with a slow search as reference.

`Drawn` is a small cell with queues and jobs; `Laws` listens to its log and says what a round has broken.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from largesse.log.codec import decode
from schemas import (
    JobSpec,
    Stage,
)
from schemas.edge.read import read_cluster
from schemas.queue_tree import upwards
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule

Choose = Callable[[Sequence[Any]], Any]
UNITS = 1_000_000_000
ROUNDED = Fraction(16, UNITS)
PRESETS = ("hdrf", "hdrf", "drf", "capacity", "largesse", "dress", "carbyne")
TREES = (
    {"a": 1, "b": 1},
    {"a": 1, "b": 3},
    {"a": 1, "b": 2, "c": 1},
    {"p": {"a": 1, "b": 1}, "c": 1},
    {"p": {"a": 2, "b": 1}, "q": {"c": 1, "d": 1}},
)


def queues_of(tree, name="root"):
    children = [
        queues_of(below, child) if isinstance(below, dict) else {"name": child, "weight": below}
        for child, below in tree.items()
    ]
    return {"name": name, "children": children}


def leaves_of(tree, path=""):
    for name, below in tree.items():
        here = f"{path}/{name}" if path else name
        if isinstance(below, dict):
            yield from leaves_of(below, here)
        else:
            yield here


class Drawn:
    """A cell, its knobs and its jobs."""

    def __init__(self, choose: Choose) -> None:
        self.preset = choose(PRESETS)
        tree = choose(TREES)
        self.leaves = list(leaves_of(tree))
        self.cores = choose((2, 3, 4))
        gib = choose((4, 64))
        nodes = [{"name": "n", "count": choose((1, 2, 3)), "capacity": {"cpu": str(self.cores), "memory": f"{gib}Gi"}}]
        self.labelled = choose((False, False, True))
        if self.labelled:
            nodes.append({"name": "x", "capacity": {"cpu": "2", "memory": f"{gib}Gi"}, "labels": {"zone": "x"}})
        self.cluster = read_cluster({"nodes": nodes, "queues": queues_of(tree)})
        self.knobs = {
            "preset": self.preset,
            "preemption": "on",
            "preempt_after_ms": choose((0, 2_000, 5_000)),
            "preempt_min_run_ms": choose((0, 0, 3_000, 10_000)),
            "preempt_rate_permille": choose((1_000, 1_000, 600, 300)),
            "preempt_window_ms": choose((4_000, 15_000)),
            "revoke_grace_ms": choose((0, 1_000, 3_000)),
            "headroom": choose(("off", "aged")),
            "headroom_after_ms": 5_000,
        }
        self.lines = [(at_ms, self.job(choose, number, at_ms)) for number, at_ms in self.times(choose)]

    def times(self, choose):
        at_ms = 0
        for number in range(choose((3, 5, 7, 9))):
            yield number, at_ms
            at_ms += choose((0, 500, 3_000, 8_000))

    def job(self, choose, number, at_ms):
        tasks, cores = choose((1, 2, 4, 8)), choose((1, 1, 2, self.cores))
        lasts_ms = choose((1_000, 6_000, 20_000, 60_000))
        if number == 0:
            tasks, cores, lasts_ms = choose((4, 6, 8, 12)), choose((1, 1, 2)), choose((20_000, 60_000))
        gang = tasks in (2, 4) and choose((False, False, True))
        labels = {"zone": "x"} if self.labelled and cores <= 2 and choose((False, False, True)) else {}
        demand = {"cpu": cores * 1_000, "memory": choose((256, 256, 1_024))}
        stage = Stage("s", tasks, demand, [], lasts_ms, [lasts_ms], gang)
        stage.labels = labels
        # The first job comes alone, and often has the whole cell.
        return JobSpec(f"j{number}", self.leaves[0] if number == 0 else choose(self.leaves), [stage])

    def run(self):
        """Simulates it under its laws; what was taken back, by how many attempts."""
        laws = Laws(self)
        schedule = ShortSchedule(100_000)
        simulate(self.lines, self.cluster, Options(self.knobs, schedule, laws.listen))
        laws.end(schedule)
        return laws


class Room:
    """Room on a node that is held for `tasks` tasks of a class of a leaf."""

    def __init__(self, claim, room, tasks):
        self.claim, self.tasks, self.of = claim, tasks, room
        self.labels, self.complete_ms = room.labels, room.complete_ms
        self.group = (claim, repr((room.task, room.labels, room.gang)))

    @property
    def demand(self):
        return {kind: amount * self.tasks for kind, amount in self.of.task.items()}


class Laws:
    """The cell as its records tell of it. `running`: by (job, index), as (node, since ms, attempt); `ending`: those
    that are being taken back; `rooms`: by node, what was said of room that is held for a claim.
    """

    def __init__(self, drawn):
        self.knobs, self.flat = drawn.knobs, drawn.preset == "drf"
        self.preset = drawn.preset
        self.nodes, self.labels, self.jobs = {}, {}, {}
        self.running, self.ending, self.done, self.spared = {}, {}, {}, {}
        self.guaranteed, self.rooms, self.held, self.losers = {}, {}, {}, {}
        self.takings, self.times, self.owed = {}, [], {}
        self.opened_ms, self.grants = 0, None
        self.taken = self.rounds = self.judged = 0
        self.ripe = set()
        self.new = {}

    def listen(self, topic, header, content):
        record = decode(content)
        react = getattr(self, f"on_{type(record.body).__name__}", None)
        if react is not None:
            react(record.body, record)

    # ------------------------------------------------------------ the cell
    def on_ConfigChanged(self, body, record):
        self.takings = {}

    def on_NodeRegistered(self, body, record):
        self.nodes[body.node], self.labels[body.node] = dict(body.capacity), body.labels
        self.takings = {}

    def on_JobAdmitted(self, body, record):
        self.jobs[body.spec.job] = (record.seq, body.spec)
        self.takings = {}

    def on_Shares(self, body, record):
        for name in body.gone:
            self.guaranteed.pop(name, None)
        for level in body.levels:
            if self.guaranteed.get(level.queue) != level.guaranteed:
                self.takings = {}
            self.guaranteed[level.queue] = level.guaranteed

    def on_RoundOpened(self, body, record):
        self.opened_ms = record.time
        ends = {}
        for node, room in self.rooms.items():
            ending = any(self.running[key][0] == node for key in self.ending)
            ends[room.group] = ending or ends.get(room.group, False)
        self.ripe = {node for node, room in self.rooms.items() if not ends[room.group]}

    def on_Grants(self, body, record):
        self.grants = body

    def on_TaskFinished(self, body, record):
        for end in body.items:
            for index in range(end.first, end.first + end.count):
                self.over(end.job, index)
                self.done[end.job, index] = True

    def on_TaskFailed(self, body, record):
        for end in body.items:
            for index in range(end.first, end.first + end.count):
                assert end.reason in ("revoked", "gang"), end
                self.over(end.job, index)

    def over(self, job, index):
        self.running.pop((job, index), None)
        self.ending.pop((job, index), None)
        self.spared.pop((job, index), None)

    # ------------------------------------------------------------ arithmetic
    def stage(self, job):
        return self.jobs[job][1].stages[0]

    def leaf(self, job):
        return self.jobs[job][1].queue

    def total(self):
        total = {}
        for capacity in self.nodes.values():
            for kind, amount in capacity.items():
                total[kind] = total.get(kind, 0) + amount
        return total

    def share(self, tasks):
        """The dominant share of tasks of jobs, as (job, count)."""
        held = {}
        for job, count in tasks:
            for kind, amount in self.stage(job).demand.items():
                held[kind] = held.get(kind, 0) + amount * count
        total = self.total()
        return max((Fraction(amount, total[kind]) for kind, amount in held.items()), default=Fraction(0))

    def paths(self, leaf):
        return [leaf] if self.flat else list(upwards(leaf))

    def holds(self, path, without=(), claimed=True):
        """What a queue holds, and will hold in room that was taken back for it, without what is ending."""
        tasks = [
            (job, 1) for job, index in self.running if (job, index) not in self.ending and (job, index) not in without
        ]
        tasks = [(job, count) for job, count in tasks if path in self.paths(self.leaf(job))]
        return self.share(
            tasks + [(job, n) for job, n, leaf in self.waits_for_rooms() if claimed and path in self.paths(leaf)]
        )

    def waits_for_rooms(self):
        for room in self.rooms.values():
            job = next(job for job in self.jobs if self.is_of(job, room))
            yield job, room.tasks, room.claim

    def is_of(self, job, room):
        stage = self.stage(job)
        gang = stage.tasks if stage.gang else 0
        like = (stage.demand, stage.labels, gang) == (room.of.task, room.of.labels, room.of.gang)
        return like and self.leaf(job) == room.claim

    def due(self, path):
        return Fraction(sum(amount for leaf, amount in self.guaranteed.items() if path in self.paths(leaf)), UNITS)

    def between(self, leaf, other):
        """The queues from a leaf up to where its path and another's meet, without that."""
        above = dict.fromkeys(upwards(other))
        return [path for path in self.paths(leaf) if path not in above] or [leaf]

    # ------------------------------------------------------------ a round is closed
    def on_RoundClosed(self, body, record):
        self.rounds += 1
        time = record.time
        self.start(body, time)
        for held in self.grants.held:
            self.held.pop(held.node, None)
            if held.demand:
                self.held[held.node] = held
        for node in [node for node, room in self.rooms.items() if node in self.ripe or room.tasks <= 0]:
            del self.rooms[node]
        for room in [room for item in body.revoked for room in item.claim.rooms]:
            before = self.rooms.get(room.node)
            claim = next(item.claim.queue for item in body.revoked if room in item.claim.rooms)
            found = self.rooms[room.node] = Room(claim, room, room.tasks)
            if before is not None and before.group == found.group:  # Else its queue may claim less by now.
                found.tasks += before.tasks
        claims = [item for item in body.revoked if item.claim is not None]
        assert len(claims) == len(body.revoked)
        taken = {}
        for item in claims:
            for index in range(item.first, item.first + item.count):
                taken[item.job, index] = item
        if taken:
            self.judge(taken, time)
        self.ending.update(taken)
        for item in claims:
            self.losers.setdefault(item.claim.queue, {})[self.leaf(item.job)] = True
        waiting = {room.claim for room in self.rooms.values()}
        self.losers = {leaf: losers for leaf, losers in self.losers.items() if leaf in waiting}
        self.none_is_overlooked(taken, time)
        for node, room in self.rooms.items():
            assert room.complete_ms is None or room.complete_ms >= self.opened_ms, f"{node}: {room} is late at {time}"

    def start(self, body, time):
        self.new = {}
        for grant in body.grants:
            room = self.rooms.get(grant.node)
            for index in range(grant.first, grant.first + grant.count):
                self.running[grant.job, index] = (grant.node, time, grant.attempt)
                self.new[grant.job, index] = True
                if room is not None and self.is_of(grant.job, room):
                    self.spared[grant.job, index] = dict(self.losers.get(room.claim, {}))
                    room.tasks -= 1

    def judge(self, taken, time):
        """What a round takes back."""
        self.taken += len(taken)
        for (job, index), item in taken.items():
            node, since_ms, attempt = self.running[job, index]
            claimant, loser = item.claim.queue, self.leaf(job)
            assert (node, attempt) == (item.node, item.attempt)
            assert (job, index) not in self.ending, "it is taken back twice"
            assert self.opened_ms - since_ms >= self.knobs["preempt_min_run_ms"], "it is too young"
            assert claimant not in self.spared.get((job, index), {}), "it runs in room of the queue that claims it"
            assert claimant != loser
            assert item.claim.at == next(path for path in upwards(loser) if path in dict.fromkeys(upwards(claimant)))
            assert not self.reaches(loser, claimant), "queues take from each other in turn"
            if self.stage(job).gang:
                assert all((job, other) in taken for other in range(self.stage(job).tasks)), "part of a gang"
        for item in {id(item): item for item in taken.values()}.values():
            self.takings.setdefault(item.claim.queue, {})[self.leaf(item.job)] = True
            loser = self.leaf(item.job)
            for path in self.between(loser, item.claim.queue):
                assert self.holds(path, without=taken) >= self.due(path), f"{path} loses what it is guaranteed"
        for claimant in {item.claim.queue: True for item in taken.values()}:
            assert self.holds(claimant) <= self.due(claimant) + ROUNDED, f"{claimant} claims too much"
            assert any(room.claim == claimant for room in self.rooms.values()), "nobody is to use it"
        self.times.append(
            (time, self.share([(job, 1) for job, _ in taken]), sum(self.share([(job, 1)]) for job, _ in taken))
        )
        within = [sum_ for at_ms, _, sum_ in self.times if at_ms > time - self.knobs["preempt_window_ms"]]
        assert sum(within) <= Fraction(self.knobs["preempt_rate_permille"], 1_000), "more than the rate"
        self.nothing_in_vain(taken)

    def reaches(self, taker, loser):
        seen, waiting = {taker}, [taker]
        while waiting:
            for name in self.takings.get(waiting.pop(), ()):
                if name == loser:
                    return True
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return False

    def room_on(self, node, gone, kept=()):
        """What is free on a node once some attempts have ended, beside rooms that wait there."""
        free = dict(self.nodes[node])
        for (job, index), (where, *_) in self.running.items():
            if where == node and ((job, index) not in gone or (job, index) in kept):
                for kind, amount in self.stage(job).demand.items():
                    free[kind] -= amount
        room = self.rooms.get(node)
        for kind, amount in (room.demand if room is not None else {}).items():
            free[kind] -= amount
        return free

    def nothing_in_vain(self, taken):
        for node, room in self.rooms.items():
            gone = self.ending | taken
            assert min(self.room_on(node, gone).values()) >= 0, f"{node}: {room} has no room"
            assert all(self.labels[node].get(key) == value for key, value in room.labels.items())
        for loan in {(job if self.stage(job).gang else (job, index)): 0 for job, index in taken}:
            members = [key for key in taken if key == loan or key[0] == loan]
            nodes = {self.running[key][0] for key in members}
            single = [node for node in nodes if node in self.rooms and self.rooms[node].tasks == 1]
            needed = [min(self.room_on(node, self.ending | taken, members).values()) < 0 for node in single]
            assert nodes - set(single) or any(needed), f"{loan} ends in vain"

    # ------------------------------------------------------------ nobody is overlooked
    def none_is_overlooked(self, taken, time):
        """A queue that has waited below its guarantee for long enough, and whose task could have room by what may
        be taken back, has something taken back for it, or for others before it.
        """
        if self.preset == "carbyne":
            return  # Jobs say there when they need their tasks.
        waiting = {}
        for job, (seq, spec) in self.jobs.items():
            if any(self.waits(job, index) for index in range(spec.stages[0].tasks)):
                waiting.setdefault(spec.queue, []).append((seq, job))
        owed = {}
        for leaf, jobs in waiting.items():
            able = [job for _, job in sorted(jobs) if self.within(leaf, job)]
            if able:
                owed[leaf] = self.owed.get(leaf, time)
        self.owed = owed
        for leaf, since_ms in owed.items():
            if since_ms > self.opened_ms - self.knobs["preempt_after_ms"] or since_ms == time:
                continue
            if taken or any(room.claim == leaf for room in self.rooms.values()):
                continue
            jobs = [job for _, job in sorted(waiting[leaf])]
            if self.preset in ("capacity", "dress"):
                jobs = jobs[:1]  # Nobody goes ahead of the head.
            for job in jobs:
                if not self.stage(job).gang and self.within(leaf, job):
                    self.judged += 1
                    found = self.search(leaf, job)
                    assert found is None, f"{leaf} at {time}: {job} could have {found}"

    def waits(self, job, index):
        return (job, index) not in self.running and (job, index) not in self.done

    def within(self, leaf, job):
        """Whether a leaf may have a task (a gang) of a job more within its guarantee; it holds what is ending still."""
        stage = self.stage(job)
        ours = [(name, 1) for name, _ in self.running if self.leaf(name) == leaf]
        return self.share([*ours, (job, stage.tasks if stage.gang else 1)]) <= self.due(leaf) + ROUNDED / 2

    def search(self, leaf, job):
        """What could be taken back for one task, by trying everything."""
        stage, spent = (
            self.stage(job),
            sum(sum_ for at_ms, _, sum_ in self.times if at_ms > self.opened_ms - self.knobs["preempt_window_ms"]),
        )
        loans = {}
        for name, index in self.running:
            if (name, index) not in self.ending:
                loans.setdefault(name if self.stage(name).gang else (name, index), []).append((name, index))
        for node in self.nodes:
            if node in self.rooms or node in self.held:
                continue
            if any(self.labels[node].get(key) != value for key, value in stage.labels.items()):
                continue
            here = [
                loan
                for loan in loans.values()
                if any(self.running[key][0] == node for key in loan) and self.may(leaf, job, loan)
            ]
            for count in range(1, len(here) + 1):
                for chosen in combinations(here, count):
                    members = [key for loan in chosen for key in loan]
                    free = self.room_on(node, self.ending | dict.fromkeys(members))
                    share = sum(self.share([(name, 1)]) for name, _ in members) + spent
                    fits = all(free[kind] >= amount for kind, amount in stage.demand.items())
                    slow = share > Fraction(self.knobs["preempt_rate_permille"], 1_000) - Fraction(
                        len(members) + 64, UNITS
                    )
                    if fits and not slow and self.all_keep(leaf, members):
                        return members
        return None

    def may(self, leaf, job, loan):
        name = loan[0][0]
        if self.leaf(name) == leaf or self.leaf(name) not in self.guaranteed or self.reaches(self.leaf(name), leaf):
            return False
        if self.stage(name).gang and len(loan) < self.stage(name).tasks:
            return False
        young = any(key in self.new for key in loan) or any(
            self.opened_ms - self.running[key][1] < self.knobs["preempt_min_run_ms"] for key in loan
        )
        if young or any(leaf in self.spared.get(key, {}) for key in loan):
            return False
        above = self.between(leaf, self.leaf(name))[1:]
        return all(self.holds(path) + self.share([(job, 1)]) <= self.due(path) for path in above)

    def all_keep(self, leaf, members):
        losers = {self.leaf(name) for name, _ in members}
        paths = {path for loser in losers for path in self.between(loser, leaf)}
        return all(self.holds(path, without=members) >= self.due(path) for path in paths)

    def end(self, schedule):
        """All tasks have ended once, and nothing else was revoked."""
        tasks = sum(spec.stages[0].tasks for _, spec in self.jobs.values())
        assert sum(span.outcome == "succeeded" for span in schedule.spans) == tasks
        revoked = sum(span.outcome == "revoked" for span in schedule.spans)
        assert revoked <= self.taken
