"""The core law: what a core answers follows from the log alone, whatever it remembers and wherever it was restarted.

Random histories of jobs, failures, losses, restarts, drains and changed knobs, with facts between opening and closing;
twins meet the very same facts without any cache, or from snapshots, or with another count of shards. Steps are drawn
from a seed, because Hypothesis by itself draws too few unlike ones in a row; what fails still shrinks, step by step.
"""

from random import Random

import pytest

from schemas import JobCancelled, NodeDrained, RoundClosed
from schemas.edge.read import ConfigPatch
from services.admission.core.judge import lose
from services.leftover.placement import task_classes
from services.simulator.engine import Cell
from tests.builders import config
from tests.cells import AUTHOR, SlowCell, by_leaf, holds_of, targets
from tests.properties.cell_laws import (
    Attempts,
    check_asks,
    check_conserved,
    check_could_start,
    check_grants_fit,
    check_levels,
    check_maxima,
    check_room,
    check_rules,
    check_running_max,
    check_tasks,
)
from tests.properties.histories import Play, replay, seeded_histories
from tests.properties.user_laws import check_counted_anew, check_user_tasks
from tests.strategies import for_all

SHARDS = 4
TREES = ("wide", "deep", "uneven", "limited", "capped", "users", "none")


def played(history, cell=None, without=()):
    """A history on a cell, wound up so that every job may end."""
    play = Play(cell or SlowCell(SHARDS), TREES[history.seed % len(TREES)])
    for step in history.steps:
        if step[0] not in without:
            play.step(*step)
    play.wind_up()
    return play


def assert_same_log(cell, twin):
    for here, there in zip(cell.records, twin.records, strict=False):
        assert here == there
    assert cell.decisions == twin.decisions
    assert cell.digest == twin.digest


@for_all(seeded_histories())
def test_every_law_holds_over_a_history(history):
    """It is played once, and every law is asked about that; a failure's traceback names the law."""
    play = played(history)
    every_job_ends_and_leaves_nothing_behind(play.cell)
    caches_change_cost_and_never_bytes(play)
    a_restart_at_any_point_changes_no_byte(play, history.seed)
    a_board_that_is_built_anew_after_every_round_changes_no_byte(play)
    room_is_never_given_twice_and_work_never_waits_beside_it(play)
    the_count_of_shards_changes_no_grant(play)


def every_job_ends_and_leaves_nothing_behind(cell):
    ended = [end.job for record in cell.records if record.type == "JobEnded" for end in record.body.jobs]
    assert sorted(ended) == sorted(record.body.spec.job for record in cell.records if record.type == "JobAdmitted")
    assert not holds_of(cell.admission)
    assert not cell.leftover.held
    assert not cell.leftover.reasons
    assert not cell.leftover.levels
    assert not any(cell.fairness.demands.total.values())
    assert not by_leaf(cell.fairness, "asked")
    for name, state in cell.states.items():
        assert not getattr(state, "jobs", {}), name


def caches_change_cost_and_never_bytes(play):
    assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS, forgetful=True)))


def a_restart_at_any_point_changes_no_byte(play, seed):
    chance = Random(seed)

    def restart(cell, number):
        if cell.opening is None and chance.random() < 0.2:
            cell.restore()

    assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS), restart))


def a_board_that_is_built_anew_after_every_round_changes_no_byte(play):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_classes, "CLASSES_MAX", 0)
        assert_same_log(play.cell, replay(play.calls, SlowCell(SHARDS)))


class Watched(SlowCell):
    """Checks every law after every call."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.attempts = Attempts()
        self.opened_at = 0

    def put(self, body, cause=""):
        record = super().put(body, cause)
        if record.type not in ("RoundOpened", "RoundClosed"):
            check_room(self)
            check_tasks(self)
            check_running_max(self)
        return record

    def _answer(self):
        levels = dict(targets(self.fairness))
        super()._answer()
        self.opened_at = len(self.records)
        check_grants_fit(self)
        check_rules(self)
        check_levels(self, levels)
        check_could_start(self)

    def close(self):
        undisturbed = self.opened_at == len(self.records)
        of = {grant.job: grant for grant in self.answer("grants").grants}
        live = [name for name in of if name in self.admission.jobs]
        body = super().close()
        assert undisturbed <= (not body.struck)
        assert all(struck.grant.job in live or struck.reason == "job_over" for struck in body.struck)
        self.attempts.check(self, body)
        check_maxima(self, [grant.job for grant in body.grants if grant.job in self.leftover.jobs])
        check_room(self)
        check_running_max(self)
        check_tasks(self)
        check_counted_anew(self)
        if undisturbed:
            check_user_tasks(self, [grant.job for grant in body.grants])
            check_asks(self)
            if self.admission.policy.preset != "fifo":
                check_conserved(self)
        return body


def room_is_never_given_twice_and_work_never_waits_beside_it(play):
    assert_same_log(play.cell, replay(play.calls, Watched(SHARDS)))


def the_count_of_shards_changes_no_grant(play):
    calls = without_shards(play.calls)
    answers = []
    for shards in (1, 2, 4):
        twin = SlowCell(shards)
        twin.take(config(altruism_shards=shards))
        replay(calls, twin)
        answers.append([(body.grants, body.struck, body.wake_ms) for body in twin.bodies(RoundClosed)])

    assert answers[0] == answers[1] == answers[2]


def without_shards(calls):
    """The same calls, each of which sets another knob that nothing depends on where it set the count of shards."""
    kept = []
    for number, (name, given) in enumerate(calls):
        if name == "take" and isinstance(given[0], ConfigPatch) and "altruism_shards" in given[0].values:
            given = (ConfigPatch({"seed": number + 1}, given[0].queues),)
        kept.append((name, given))
    return kept


@for_all(seeded_histories())
def test_the_engine_of_simulations_writes_the_very_same_log(history):
    """It has no rounds that stay open, so these histories are played without them."""
    slow = played(history, without=("open", "abandon"))
    quick = replay(slow.calls, Quick())

    assert quick.cell.digest == slow.cell.digest


class Quick:
    """The simulator's cell, called as a SlowCell is."""

    def __init__(self):
        self.cell = Cell(shards=SHARDS)

    def take(self, body):
        self.cell.take(body, AUTHOR)

    def cancel(self, name):
        self.take(JobCancelled(name, AUTHOR))

    def drain(self, name):
        self.take(NodeDrained(name, True, AUTHOR))

    def resume(self, name):
        self.take(NodeDrained(name, False, AUTHOR))

    def lose(self, name):
        if (body := lose(self.cell.admission, name)) is not None:
            self.cell.put(body)

    def at(self, time):
        self.cell.advance(time)

    def round(self):
        self.cell.settle()

    def settle(self):
        while self.cell.settle() is not None:
            pass
