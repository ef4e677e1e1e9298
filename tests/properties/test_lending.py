"""Who is lent room that is held for others: found once for all nodes until somebody is placed, against a look at every
leaf for every node."""

import pytest
from hypothesis import strategies as st

from schemas import Queue
from services.leftover.placement.backfill import lending
from services.leftover.placement.backfill.timeline import NEVER_MS, _spares, _without, fitting, lent_until
from services.leftover.placement.pending_reasons import seekers
from tests.properties.test_kept_ends import TREE, run, workloads
from tests.strategies import for_all

LIMITED = Queue("root", children=[Queue("a", max={"cpu": 6_000}), Queue("b", guaranteed={"cpu": 2_000})])

pytestmark = [
    pytest.mark.skipif(lending.__file__.endswith(".so"), reason="compiled, a module keeps its classes"),
    pytest.mark.xdist_group("lending"),  # The last test counts what the first one met.
]


def can_lend(reserved, node, task, end_ms):
    """Moment by moment, whether nothing is taken of what is due by then."""
    held = reserved.task
    for moment in reserved.moments:
        if min(moment.at_ms, reserved.promised_ms) >= end_ms:
            return True
        if moment.at_ms > reserved.promised_ms:
            if not _spares(held, moment.rooms, node, task):
                return False
            continue
        free, devices = _without(moment.free, moment.devices, node, task)
        if fitting(held, free, devices, moment.rooms) < moment.rooms:
            return False
    return True


class Plain(lending._Seekers):
    """Nothing is kept, and nobody is passed over."""

    asked = lent = 0

    def first(self, node, reserved, classes, is_owed):
        board, best, found = self._board, None, None
        Plain.asked += 1
        for task in classes:
            for leaf, bucket_id in seekers(board, task):
                job, span = board.buckets.first_in(leaf, bucket_id)
                turn = board.turn_of(leaf, bucket_id)
                end_ms = self._now_ms + self._lasting(job.name, span.stage)
                until_ms = lent_until(reserved, node, task)
                for end in (end_ms, until_ms, until_ms + 1, reserved.first_ms, reserved.promised_ms):
                    assert can_lend(reserved, node, task, end) == (end <= until_ms) or end > NEVER_MS
                if is_owed and end_ms > reserved.first_ms and not board.stays_within(leaf):
                    continue
                if can_lend(reserved, node, task, end_ms) and (best is None or turn < best):
                    best, found = turn, lending._Seeker(turn, end_ms, leaf, job, span)
        Plain.lent += found is not None
        return found


@for_all(workloads(), st.sampled_from([TREE, LIMITED, None]), st.sampled_from(["largesse", "hdrf", "capacity"]))
def test_the_same_is_lent_as_by_a_look_at_every_leaf_for_every_node(jobs, tree, preset):
    kept = run(jobs, tree=tree, preset=preset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lending, "_Seekers", Plain)
        assert run(jobs, tree=tree, preset=preset) == kept


def test_room_is_lent_in_such_cells_and_refused():
    assert Plain.asked > Plain.lent > 0
