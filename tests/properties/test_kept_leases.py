"""What leftover keeps of leases from round to round, against all of them looked at each time."""

import pytest
from hypothesis import strategies as st

from largesse.lifecycle.promises import active
from schemas import PlanProfile
from services.leftover.core.reservations import foresight, revocable
from services.leftover.core.reservations.leases import Leases
from services.leftover.core.reservations.peaks import most_of_each
from tests.builders import job, node, stage
from tests.promised_cell import advance, cell, lasting, promise, reserved, step, unestimated
from tests.strategies import for_all

SECOND = 1_000
DRAWN = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=3),
    min_size=1,
    max_size=30,
)


def leases(drawn, unit_ms=1):
    """By reservation, its leases in order of time."""
    return {
        f"r{i}": [step(unit_ms * begin, unit_ms * (begin + lasts), units) for begin, lasts, units in sorted(each)]
        for i, each in enumerate(drawn)
    }


@for_all(DRAWN, st.lists(st.tuples(st.integers(0, 15), st.integers(0, 30)), min_size=1, max_size=6))
def test_who_holds_at_a_time_is_found_among_those_near(drawn, moves):
    profiles = {name: PlanProfile(name, "a", steps, []) for name, steps in leases(drawn).items()}
    kept, now, last = Leases([], profiles), 0, 0
    for later, ahead in moves:
        now += later
        last = max(last, now + ahead)
        near = kept.near(now, last)
        for at in range(now, last + 1):
            held = {name: list(active(profile.steps, at)) for name, profile in profiles.items()}
            found = {name: list(active(steps, at)) for name, steps in near.items()}
            assert [each for each in found.items() if each[1]] == [each for each in held.items() if each[1]]
        behind = {name: most_of_each(profile.steps, now) for name, profile in profiles.items()}
        assert list(kept.behind_of(now).steps.items()) == [each for each in behind.items() if each[1]]


class Plain(revocable.Moments):
    """Every reservation is looked at for each moment."""

    def need(self, at):
        state, board = self._state, self._board
        while len(self._needs) <= at:
            at_ms, is_tail = self.times[len(self._needs)], len(self._needs) == revocable.MOMENTS_MAX + 1
            of, times, inside = {}, {}, {}
            for name, profile in state.promises.profiles.items():
                steps = most_of_each(profile.steps, at_ms) if is_tail else list(active(profile.steps, at_ms))
                left = revocable._units_left(board, self._reserved, name, steps, at_ms, inside) if steps else []
                if left:
                    of[name] = left
            if is_tail:
                of, times = revocable._at_a_time(state, board, of, at_ms)
            self._needs.append(revocable._need(self._table, self._reserved, self._lasting, at_ms, inside, of, times))
        return self._needs[at]


WORK = st.lists(
    st.tuples(st.sampled_from(["known", "unknown", "reserved", "lasting"]), st.integers(1, 4), st.integers(1, 60)),
    min_size=1,
    max_size=12,
)


def told(drawn, work):
    """All that a cell decides beside these leases, once work comes."""
    story = cell(nodes=[node("n1"), node("n2")])
    for name, steps in leases(drawn, SECOND).items():
        promise(story, *steps, name=name)
    done = 0
    for i, (kind, tasks, lasts) in enumerate(work):
        given = {"tasks": tasks, "duration_ms": lasts * SECOND}
        if kind == "unknown":
            story.take(unestimated(f"j{i}", **given))
        elif kind == "reserved":
            story.take(reserved(f"j{i}", stage(**given), reservation="r0"))
        else:
            story.take((lasting if kind == "lasting" else job)(f"j{i}", stage(**given)))
        advance(story, story.time + 3 * SECOND)
        lasting_on = [grant for grant in story.granted if not grant.revocable]
        if i % 2 and len(lasting_on) > done:
            story.finish(lasting_on[done])
            done += 1
    return [record.body for record in story.records]


@pytest.mark.skipif(revocable.__file__.endswith(".so"), reason="compiled, the core calls what it was compiled with")
@for_all(DRAWN, WORK, st.integers(1, 4))
def test_what_is_kept_of_leases_calls_the_same_tasks_revocable(drawn, work, near):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revocable, "MOMENTS_MAX", near)
        kept = told(drawn, work)
        patch.setattr(revocable, "Moments", Plain)
        patch.setattr(foresight, "Moments", Plain)
        assert told(drawn, work) == kept
