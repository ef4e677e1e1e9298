"""What leftover keeps between rounds of ends, in the cell and in the shadow, against all of it worked out each time."""

import pytest
from hypothesis import strategies as st

from schemas import Queue
from schemas.edge.read import Cluster, ClusterNode
from schemas.estimates import end_ms
from services.leftover.core import gather, order, serving
from services.leftover.core.board import estimate_of, leaf_at, stage_of
from services.leftover.core.running import OVERRUN_MOST, Running
from services.simulator.run import Options, simulate
from tests.builders import job, stage
from tests.strategies import for_all

NODES = [ClusterNode(f"n{i}", {"cpu": 4_000}) for i in range(3)]
TREE = Queue("root", children=[Queue("a"), Queue("b")])


@st.composite
def workloads(draw):
    """Jobs of one or two stages that ask for more than there is, with estimates that are right, wrong or missing."""
    found, at_ms = [], 0
    for number in range(draw(st.integers(8, 24))):
        at_ms += draw(st.sampled_from([0, 300, 2_000]))
        stages = []
        for at in range(draw(st.integers(1, 2))):
            lasts = 1_000 * draw(st.integers(1, 9))
            estimate = draw(st.sampled_from([0, lasts, lasts // 3, 3 * lasts]))
            demand = {"cpu": 1_000 * draw(st.sampled_from([1, 1, 2, 4]))}
            after = ("s0",) if at else ()
            spec = stage(f"s{at}", draw(st.integers(1, 3)), after=after, estimate_ms=estimate, demand=demand)
            spec.durations_ms = [lasts]
            stages.append(spec)
        found.append((at_ms, job(f"j{number}", *stages, queue=draw(st.sampled_from("ab")))))
    return found


def run(jobs, before_round=None, *, tree=TREE):
    jobs = jobs if tree is not None else [(at_ms, job(spec.job, *spec.stages)) for at_ms, spec in jobs]
    values = {"preset": "largesse", "round_gap_ms": 500, "headroom": "always"}
    return simulate(jobs, Cluster(NODES, tree), Options(values, before_round=before_round))["digest"]


class Plain(Running):
    """Nothing of a task is kept from one round to the next."""

    def _held_on(self, number):
        known = list(self._state.held.get(self._board.room.nodes[number].name, {}).values())
        for held in known:
            held.expected = None
            self._expect(held)
            expected, live = held.expected, self._state.jobs.get(held.job)
            assert expected.path == leaf_at(self._state, held.queue)
            assert expected.end.pairs == self._board.room.pairs(held.demand)
            assert expected.end.at_ms == self._plain_end(held, live)
        return known

    def _plain_end(self, held, live):
        if live is None:
            return self.now_ms
        lasts_ms = estimate_of(live, stage_of(live, held.stage))
        ran_ms = self.now_ms - held.start_ms
        if lasts_ms < ran_ms <= OVERRUN_MOST * lasts_ms:
            return self.now_ms
        return end_ms(held.start_ms, lasts_ms, self.now_ms)


@for_all(workloads(), st.booleans())
def test_what_is_kept_of_running_tasks_gathers_the_same_room(jobs, queues):
    tree = TREE if queues else None
    kept = run(jobs, tree=tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "Running", Plain)
        assert run(jobs, tree=tree) == kept


def look_anew(shadow):
    """`serving._look_anew`, by all jobs whose end was seen."""
    shadow.moved = 0
    shadow.ahead = serving.fork(shadow.base)
    for seq in list(shadow.ranked):
        if seq in shadow.base.runs:
            del shadow.ranked[seq]
            shadow.ends[seq] |= order.STALE


def renew_lapsed(state, time, when, left):
    """`order._renew_lapsed`, with each key computed again whatever has changed."""
    shadow = state.shadow
    seqs = shadow.lapsed.pop(when)
    for at, seq in enumerate(seqs):
        if shadow.renewals and shadow.renewals[0][0] <= when:
            left = order._renew_before(state, time, when, seq, left)
        if not left:
            shadow.lapsed = {when: seqs[at:], **shadow.lapsed}
            break
        known = shadow.claims.get(seq)
        if known is not None and known.renew_ms == when:
            left -= 1
            order.claim(state, state.jobs[shadow.works[seq].name], time)
    return left


@for_all(workloads(), st.booleans(), st.integers(1, 4), st.integers(0, 4))
def test_jobs_that_wait_on_beyond_their_end_need_not_be_looked_at(jobs, queues, renewed, anew):
    tree = TREE if queues else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "RENEWED_A_ROUND", renewed)
        patch.setattr(serving, "EACH_ANEW", anew)
        kept = run(jobs, tree=tree)
        patch.setattr(serving, "_look_anew", look_anew)
        patch.setattr(order, "_renew_lapsed", renew_lapsed)
        assert run(jobs, tree=tree) == kept
