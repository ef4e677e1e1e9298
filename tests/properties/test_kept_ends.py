"""What leftover keeps of ends and of leaves, in the cell and in the shadow, against all of it worked out each time."""

import pytest
from hypothesis import strategies as st

from schemas import Queue
from schemas.edge.read import Cluster, ClusterNode
from schemas.estimates import end_ms
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import below
from services.leftover.core.backfill import gather, running
from services.leftover.core.backfill.running import OVERRUN_MOST, Running
from services.leftover.core.board import estimate_of, leaf_at, leaf_of, stage_of
from services.leftover.core.shadow import cell as shadow_cell
from services.leftover.core.shadow import cluster as moving
from services.leftover.core.shadow import keys as shadow_keys
from services.leftover.placement.backfill.timeline import End
from services.simulator.run import Options, simulate
from tests.builders import job, stage
from tests.strategies import for_all

NODES = [ClusterNode(f"n{i}", {"cpu": 4_000, "memory": 4_000}) for i in range(3)]
TREE = Queue("root", children=[Queue("a"), Queue("b")])
PATHS = {"a": "a/c", "b": "b", "c": "a/d", "d": "e"}
INNER = Queue("a", weight=3, children=[Queue("c"), Queue("d", weight=2)])
DEEP = Queue("root", children=[INNER, Queue("b", weight=2), Queue("e")])


@st.composite
def workloads(draw, queues="ab", lone=False):
    """Jobs of one or two stages that ask for more than there is, with estimates that are right, wrong or missing. Those
    that are `lone` have one task.
    """
    found, at_ms = [], 0
    for number in range(draw(st.integers(8, 24))):
        at_ms += draw(st.sampled_from([0, 300, 2_000]))
        stages = []
        for at in range(1 if lone else draw(st.integers(1, 2))):
            lasts = 1_000 * draw(st.integers(1, 9))
            estimate = draw(st.sampled_from([0, lasts, lasts // 3, 3 * lasts]))
            demand = {"cpu": 1_000 * draw(st.sampled_from([1, 1, 2, 4]))}
            if memory := draw(st.sampled_from([0, 0, 1, 3])):
                demand["memory"] = 1_000 * memory
            after = ("s0",) if at else ()
            tasks = 1 if lone else draw(st.integers(1, 3))
            spec = stage(f"s{at}", tasks, after=after, estimate_ms=estimate, demand=demand)
            spec.durations_ms = [lasts]
            stages.append(spec)
        found.append((at_ms, job(f"j{number}", *stages, queue=draw(st.sampled_from(queues)))))
    return found


def run(jobs, *, tree=TREE, **knobs):
    jobs = jobs if tree is not None else [(at_ms, job(spec.job, *spec.stages)) for at_ms, spec in jobs]
    values = {"preset": "largesse", "round_gap_ms": 500, "headroom": "always", **knobs}
    return simulate(jobs, Cluster(NODES, tree), Options(values))["digest"]


class Plain(Running):
    """Nothing of a task is kept from one round to the next, and all ends on a node are looked at."""

    def ends(self, number, wanted):
        found = [held.expected.end for held in self._held_on(number) if self._counts(held, wanted, number)]
        for placed in self._placed.get(number, []):
            live = self._state.jobs[placed.job]
            own = placed.task is wanted.task if wanted.task.gang else placed.task.demand == wanted.task.demand
            of_leaves = leaf_of(self._state, live) in wanted.leaves
            if (wanted.of_own and of_leaves) or (not own and (wanted.starves or not of_leaves)):
                at_ms = self.now_ms + estimate_of(live, stage_of(live, placed.stage))
                found += [
                    End(at_ms, placed.task.pairs, placed.devices[i] if placed.devices else [])
                    for i in range(placed.count)
                ]
        return sorted(found, key=lambda end: end.at_ms)

    def _counts(self, held, wanted, number):
        return self._gives_room(held, held.expected.path, wanted, number)

    def _held_on(self, number):
        known = list(self._state.held.get(self._board.node_table.nodes[number].name, {}).values())
        for held in known:
            held.expected = None
            self._expect(held)
            expected, live = held.expected, self._state.jobs.get(held.job)
            assert expected.path == leaf_at(self._state, held.queue)
            assert expected.end.pairs == self._board.node_table.pairs(held.demand)
            assert expected.end.at_ms == self._plain_end(held, live)
        return sorted(known, key=lambda held: held.expected.end.at_ms)

    def _plain_end(self, held, live):
        if live is None:
            return self.now_ms
        lasts_ms = estimate_of(live, stage_of(live, held.stage))
        ran_ms = self.now_ms - held.start_ms
        if lasts_ms < ran_ms <= OVERRUN_MOST * lasts_ms:
            return self.now_ms
        return end_ms(held.start_ms, lasts_ms, self.now_ms)


@for_all(st.booleans().flatmap(lambda lone: workloads(lone=lone)), st.booleans())
def test_what_is_kept_of_running_tasks_gathers_the_same_room(jobs, queues):
    tree = TREE if queues else None
    kept = run(jobs, tree=tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "Running", Plain)
        assert run(jobs, tree=tree) == kept


@pytest.mark.skipif(running.__file__.endswith(".so"), reason="compiled, a class keeps its methods")
def test_nodes_where_lone_tasks_start_and_end_are_followed(monkeypatch):
    kept, follow = [], Running._follow

    def follows(self, ending):
        changed = ending.has_ended and bool(ending.started)
        is_kept = follow(self, ending)
        if changed and is_kept:
            kept.append([held.expected.end.at_ms for held in ending.order])
        return is_kept

    monkeypatch.setattr(Running, "_follow", follows)
    lone = [stage("s0", 1, estimate_ms=4_000 + 700 * (i % 7), demand={"cpu": 1_000 * (1 + i % 3)}) for i in range(60)]
    for each in lone:
        each.durations_ms = [each.estimate_ms]
    run([(400 * i, job(f"j{i}", lone[i], queue="ab"[i % 2])) for i in range(len(lone))])

    assert len([ends_ms for ends_ms in kept if len(ends_ms) > 1]) > 10
    assert all(ends_ms == sorted(ends_ms) for ends_ms in kept)


class LooksTwice(Running):
    """Every task that does not count might count where the ends of all leaves do."""

    def _gives_room(self, held, path, wanted, number):
        if not wanted.of_all:
            wanted.spared[number] = True
        return super()._gives_room(held, path, wanted, number)


@for_all(workloads(), st.booleans())
def test_nodes_on_which_no_task_is_spared_need_no_second_look(jobs, queues):
    tree = TREE if queues else None
    once = run(jobs, tree=tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "Running", LooksTwice)
        assert run(jobs, tree=tree) == once


def parts(lines, queue, path="", part=SHARE_UNITS):
    """What each leaf with jobs is guaranteed: by weights, among the queues below which there are jobs."""
    if path in lines:
        return {path: part}
    live = [child for child in queue.children if has_jobs(lines, child, below(path, child.name))]
    weights, found = sum(child.weight for child in live), {}
    for child in live:
        found |= parts(lines, child, below(path, child.name), part * child.weight // weights)
    return found


def has_jobs(lines, queue, path):
    if path in lines:
        return lines[path].live > 0
    return any(has_jobs(lines, child, below(path, child.name)) for child in queue.children)


def serve(moved, cluster, tree, steps, seen):
    """`cluster._serve`, by a look at all leaves for each start."""
    price = 1 + (len(cluster.lines) // moving.LEAVES_A_STEP if len(cluster.lines) > 1 else 0)
    most = SHARE_UNITS // (moving.CHUNKS * max(1, sum(line.live for line in cluster.lines.values())))
    due = parts(cluster.lines, tree) if len(cluster.lines) > 1 else {}
    while steps > 0:
        live = [(leaf, line) for leaf, line in cluster.lines.items() if line.live]
        live.sort(key=lambda item: item[1].share * SHARE_UNITS // max(1, due.get(item[0], SHARE_UNITS)))
        for _, line in live:
            job = moving._take_first(moved, cluster, line)
            if job != moving.NOBODY:
                break
        else:
            cluster.open = False
            break
        moving._start(moved, cluster, line, job, most, seen)
        steps -= price
    return steps


@for_all(workloads("abcd"), st.integers(5, 200))
def test_leaves_of_the_shadow_are_served_as_if_each_were_looked_at(jobs, steps):
    jobs = [(at_ms, job(each.job, *each.stages, queue=PATHS[each.queue])) for at_ms, each in jobs]
    kept = run(jobs, tree=DEEP, shadow_steps=steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "_serve", serve)
        assert run(jobs, tree=DEEP, shadow_steps=steps) == kept


def look_anew(shadow):
    """`cell._look_anew`, by all jobs whose end was seen."""
    shadow.moved = 0
    shadow.ahead = shadow_cell.fork(shadow.base)
    for seq in list(shadow.ranked):
        if seq in shadow.base.waits:
            del shadow.ranked[seq]
            shadow.ends[seq] |= shadow_keys.STALE


@for_all(workloads(), st.booleans(), st.integers(1, 4), st.integers(0, 4))
def test_a_look_that_begins_anew_concerns_what_waits_alone(jobs, queues, renewed, anew):
    tree = TREE if queues else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shadow_keys, "RENEWED_A_ROUND", renewed)
        patch.setattr(shadow_cell, "EACH_ANEW", anew)
        kept = run(jobs, tree=tree)
        patch.setattr(shadow_cell, "_look_anew", look_anew)
        assert run(jobs, tree=tree) == kept
