"""Copies of stragglers: whatever happens to the attempts of a task, it succeeds at most once, every core agrees on who
holds what, nobody who waits is served otherwise than without copies, and all of them end.

Histories as in test_cores.py, in cells where every task that runs for long becomes a straggler. What is said here of
records follows from the grants and the agents' reports alone, not from the cores' own accounts.
"""

from random import Random

from hypothesis import example

from largesse.core import OpenRound
from largesse.lifecycle import node_work as agent
from largesse.log.snapshots import dump, load
from schemas import NodeLost, NodeRegistered, RoundClosed, TaskFailed, TaskFinished
from schemas.queue_tree import upwards
from services.gateway import view
from services.leftover import core as leftover
from services.leftover.core.copies import overdue
from tests.cells import SlowCell, attempts_of
from tests.properties.histories import NODES, Play, Seeded, replay, seeded_histories
from tests.properties.user_laws import check_user_tasks, running_of_users
from tests.strategies import for_all

SHARDS = 4
TREES = ("wide", "none", "deep", "capped")
SEEDS = range(12)
"""Of histories that have copies which win, which lose, and which end otherwise."""

KNOBS = {"speculation_permille": 1_000, "speculation_finished_min": 2, "speculation_copies_max": 3}


class Watched(SlowCell):
    """Follows agents and the gateway's view beside the cores, and checks every law after every record."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.agents = {name: agent.start(name, "none yet") for name in NODES}
        self.view = view.start()
        self.running = {}  # By task, the attempts that hold room: number -> node.
        self.succeeded = {}
        self.copies = 0

    def put(self, body, cause=""):
        self._note(body)
        record = super().put(body, cause)
        for state in self.agents.values():
            agent.fold(state, record)
        if type(record.body) in view.FOLDS:
            view.fold(self.view, record)
        self._check()
        return record

    def _note(self, body):
        """Attempts by the letter of the record. `spare` are no successes, and no failures of a task."""
        spare = {(s.job, s.stage, s.index, s.attempt) for s in getattr(body, "spare", [])}
        if isinstance(body, RoundClosed):
            for grant in body.grants:
                for index in range(grant.first, grant.first + grant.count):
                    runs = self.running.setdefault((grant.job, grant.stage, index), {})
                    assert grant.node not in runs.values(), f"{grant}: two attempts of a task on one node"
                    assert (grant.why == "speculative") == bool(runs), f"{grant}: {runs}"
                    if self.succeeded.pop((grant.job, grant.stage, index), False):
                        graph = self.admission.jobs[grant.job].graph
                        assert graph.stages[graph.position[grant.stage]].gang, f"{grant}: the task has succeeded"
                    assert grant.why != "speculative" or (grant.count == 1 and grant.revocable)
                    self.copies += grant.why == "speculative"
                    runs[grant.attempt] = grant.node
        ends = []
        if isinstance(body, TaskFinished | TaskFailed):
            ends = [(item, isinstance(body, TaskFinished)) for item in body.items]
        if isinstance(body, NodeLost | NodeRegistered):
            ends = [(item, False) for item in body.lost]
        if isinstance(body, NodeRegistered):
            ends += [(known, known.state == "succeeded") for known in body.attempts if known.state != "running"]
        for item, well in ends:
            for index in range(item.first, item.first + item.count):
                task = item.job, item.stage, index
                del self.running[task][item.attempt]
                is_spare = (*task, item.attempt) in spare
                assert is_spare == (task in self.succeeded or (bool(self.running[task]) and not well))
                if well and not is_spare:
                    assert task not in self.succeeded, f"{task} succeeds twice"
                    self.succeeded[task] = True
                if not self.running[task]:
                    del self.running[task]

    def _check(self):
        """The sequencer, leftover, agents and the gateway hold what the records say; rooms add up."""
        expected = sorted(
            (node, f"{job}/{stage}/{index}", attempt)
            for (job, stage, index), runs in self.running.items()
            for attempt, node in runs.items()
        )
        here = sorted((hold.node, key, hold.attempt) for key, hold in attempts_of(self.admission))
        assert here == expected
        assert sorted((n, key) for n, held in self.leftover.held.items() for key in held) == [e[:2] for e in expected]
        by_agents = [
            (name, key.rpartition("/")[0], each.attempt)
            for name, s in self.agents.items()
            for key, each in s.nodes[name].held.items()
        ]
        assert sorted(by_agents) == expected
        seen = [(hold.node, key, hold.attempt) for key, hold in self.view.holds.items()]
        seen += [(hold.node, key, hold.attempt) for key, holds in self.view.copies.items() for hold in holds]
        assert sorted(seen) == expected
        for name, node in self.admission.nodes.items():
            for kind, amount in node.capacity.items():
                used = sum(hold.demand.get(kind, 0) for hold in node.holds.values())
                assert node.free[kind] == amount - used, f"{name}: {kind}"
        for name, job in self.admission.jobs.items():
            if not job.over:
                for other in (self.fairness, self.altruism):
                    assert other.jobs[name].progress == job.progress, name
                assert self.view.jobs[name].progress == job.progress
                assert all(count >= 0 for count in [*self.view.jobs[name].running, *self.view.jobs[name].starting])

    def _answer(self):
        super()._answer()
        restored = load(type(self.leftover), dump(self.leftover))
        for state in (self.leftover, restored):
            late, wake_ms = overdue.stragglers(state, self.opening.time)
            found = [(one.since_ms, one.job, one.at, one.index) for one in late]
            assert (found, wake_ms) == looked_through(state, self.opening.time)
        self._check_others_served_first()

    def _check_others_served_first(self):
        """Without anybody to copy, the round would have granted all others just the same; and all fits."""
        grants = self.answer("grants").grants
        bare = load(type(self.leftover), dump(self.leftover))
        bare.runs = {}
        upstream = {topic: self.answers[topic] for topic in ("shares", "asks")}
        plain = leftover.decide(bare, OpenRound(self.opening, upstream))[0]
        assert [grant for grant in grants if grant.why != "speculative"] == plain.grants
        free = {name: dict(node.free) for name, node in self.admission.nodes.items()}
        for grant in grants:
            demand = self.admission.jobs[grant.job].graph
            of = demand.stages[demand.position[grant.stage]]
            for kind, amount in of.demand.items():
                free[grant.node][kind] -= amount * grant.count
                assert free[grant.node][kind] >= 0, f"{grant} takes more than there is"
            if grant.why == "speculative":
                assert of.speculative
                assert not of.gang


def looked_through(state, now_ms):
    """Stragglers, and when the next task becomes one, by a look at every task that runs."""
    late, wake_ms = [], None
    for name, stages in state.runs.items():
        job, copied = state.jobs[name], state.copied.get(name, {})
        for at, of_stage in stages.items():
            stage, usual_ms = job.graph.stages[at], job.graph.stages[at].estimate_ms
            if len(of_stage.ran_ms) >= state.policy.speculation_finished_min:
                usual_ms = max(1, of_stage.ran_ms[(len(of_stage.ran_ms) - 1) // 2])
            if not usual_ms or not stage.speculative or stage.gang or name in state.reserving:
                continue
            for index, run in of_stage.runs.items():
                if run.alone or f"{stage.stage}/{index}" in copied:
                    continue
                since_ms = run.start_ms + usual_ms * state.policy.speculation_permille // 1_000 + 1
                if since_ms > now_ms:
                    wake_ms = min(wake_ms or since_ms, since_ms)
                    break
                late.append((since_ms, job.admitted, at, index, name))
    return [(since_ms, name, at, index) for since_ms, _, at, index, name in sorted(late)], wake_ms


def played(history, cell=None, tree=None):
    play = Play(cell or SlowCell(SHARDS), tree or TREES[history.seed % len(TREES)], **KNOBS)
    chance = Random(history.seed)
    for step in history.steps:
        play.step(*step)
        if chance.random() < 0.4:  # Time goes by, so that what runs becomes a straggler while others have gone.
            play.step("wait", chance.choice([10, 600, 1_500]))
            play.step("settle")
    play.wind_up()
    return play


def assert_same_log(cell, twin):
    for here, there in zip(cell.records, twin.records, strict=False):
        assert here == there
    assert cell.digest == twin.digest


@for_all(seeded_histories())
def test_a_task_succeeds_once_and_every_core_knows_which_of_its_attempts_hold_room(history):
    cell = played(history, Watched(SHARDS)).cell

    assert not cell.running
    assert not cell.admission.copied
    assert not cell.leftover.copied
    assert not cell.leftover.runs
    assert not cell.leftover.lent
    assert not cell.view.copies
    assert not cell.view.holds
    assert not cell.altruism.copied
    assert not any(any(node.used.values()) for node in cell.view.nodes.values())
    assert not any(cell.fairness.demands.total.values())
    assert not cell.fairness.held
    assert not cell.leftover.held


def test_the_histories_have_copies_that_win_and_copies_that_end_otherwise():
    spare, copied, won = [], {}, 0
    for seed in SEEDS:
        cell = played(Seeded.of(seed)).cell
        for closing in cell.bodies(RoundClosed):
            copied |= {(seed, g.job, g.stage, g.first, g.attempt): g for g in closing.grants if g.why == "speculative"}
        for body in cell.bodies(TaskFinished):
            named = {(s.job, s.stage, s.index, s.attempt) for s in body.spare}
            ends = [(item.job, item.stage, item.first, item.attempt) for item in body.items]
            won += sum(end not in named and (seed, *end) in copied for end in ends)
        spare += [
            each
            for kind in (TaskFinished, TaskFailed, NodeLost, NodeRegistered)
            for b in cell.bodies(kind)
            for each in b.spare
        ]
    assert len(copied) > 20
    assert won > 5
    assert len(spare) > 20


@for_all(seeded_histories())
@example(Seeded.of(9854365))  # A class waits for its pool and for room.
@example(Seeded.of(30425811553))  # A copy opens a node to a class that is spread.
def test_copies_follow_from_the_log_alone_through_restarts_and_without_caches(history):
    play, chance = played(history), Random(history.seed)

    def restart(cell, number):
        if cell.opening is None and chance.random() < 0.2:
            cell.restore()

    assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS, forgetful=True)))
    assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS), restart))


class Counted(Watched):
    """The same, with a look at what users run where only so many of their tasks may."""

    def close(self):
        opened = max(i for i, record in enumerate(self.records) if record.type == "RoundOpened")
        body = super().close()
        if not any(record.type == "ConfigChanged" for record in self.records[opened:]):
            check_user_tasks(self, [grant.job for grant in body.grants])
        seen = {}
        for leaf, users in self.view.user_tasks.items():
            for user, count in users.items():
                for path in upwards(leaf):
                    seen[path, user] = seen.get((path, user), 0) + count
        assert seen == running_of_users(self)
        return body


@for_all(seeded_histories())
def test_copies_count_as_tasks_of_their_users(history):
    play, chance = played(history, Counted(SHARDS), "users"), Random(history.seed)

    def restart(cell, number):
        if cell.opening is None and chance.random() < 0.2:
            cell.restore()

    assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS, forgetful=True)))
    assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS), restart))
