"""Names of jobs that are free at once: a job is never taken for an earlier one of its name, not in an open round.

With `name_kept_ms` 0 a job may end, and another one of its name be admitted, between an opening and its closing. What
was asked, granted and struck in that round speaks of the first.
"""

from random import Random

import pytest

from largesse.lifecycle import node_work as agent
from largesse.log.codec import decode
from schemas import JobAdmitted, JobSpec, RoundClosed
from services.admission import core as admission
from services.gateway import view
from services.leftover.core.asks import asks_of
from tests.builders import config, job, node, stage
from tests.cells import SlowCell, holds_of
from tests.properties.histories import NODES, QUEUES_IN, Play, Seeded, replay, seeded_histories
from tests.properties.test_agent_follows import held_on
from tests.properties.test_cores import (
    SHARDS,
    TREES,
    Watched,
    a_board_that_is_built_anew_after_every_round_changes_no_byte,
    a_restart_at_any_point_changes_no_byte,
    assert_same_log,
    caches_change_cost_and_never_bytes,
)
from tests.strategies import for_all

NAMES = 3


class Again(Play):
    """Submits jobs under a few names again and again. A job that is cancelled ends at once, also in an open round."""

    def __init__(self, cell, tree_name):
        super().__init__(cell, tree_name, name_kept_ms=0)

    def _submit(self, stages, at, priority):
        paths = QUEUES_IN.get(self.tree, ("default", "x", "y"))
        self.submitted += 1
        self.call("take", JobSpec(f"j{at % NAMES}", paths[at % len(paths)], stages, priority))

    def _cancel(self, which, again):
        super()._cancel(which, again)
        if self.cell.opening is not None:
            self.call("open")  # Puts what is due: the job's end.


def played(history):
    seed = history.seed
    play = Again(SlowCell(SHARDS), TREES[seed % len(TREES)])
    for step in history.steps:
        play.step(*step)
        if step[0] == "open" and play.cell.opening is not None and step_chance(seed, play):
            play.step("cancel", seed + play.submitted, 0)
            play.step("submit", [stage("other", 1 + seed % 3)], seed + play.submitted, 0)
    play.wind_up()
    return play


def step_chance(seed, play):
    return Random(seed + len(play.calls)).random() < 0.5


def within_a_round(cell):
    """How many closings had grants struck for a job whose name another one had by then."""
    opened, admitted, found = 0, {}, 0
    for record in cell.records:
        if record.type == "RoundOpened":
            opened = record.seq
        elif isinstance(record.body, JobAdmitted):
            admitted[record.body.spec.job] = record.seq
        elif isinstance(record.body, RoundClosed):
            found += any(admitted.get(struck.grant.job, 0) > opened for struck in record.body.struck)
    return found


def test_the_histories_have_names_that_change_hands_in_an_open_round():
    assert sum(within_a_round(played(Seeded.of(seed)).cell) for seed in range(30)) >= 5


@for_all(seeded_histories())
def test_every_law_holds_where_names_come_again(history):
    play = played(history)
    caches_change_cost_and_never_bytes(play)
    a_restart_at_any_point_changes_no_byte(play, history.seed)
    a_board_that_is_built_anew_after_every_round_changes_no_byte(play)
    assert_same_log(play.cell, replay(play.calls, WatchedAgain(SHARDS)))
    agents_and_the_view_follow(play.cell)


class WatchedAgain(Watched):
    """Checks every law after every call; attempts count anew for a new job of an old name."""

    def put(self, body, cause=""):
        if isinstance(body, JobAdmitted):
            self.attempts.last = {key: n for key, n in self.attempts.last.items() if key[0] != body.spec.job}
        return super().put(body, cause)


def agents_and_the_view_follow(cell):
    sequencer, shown = admission.start(), view.start()
    agents = {name: agent.start(name, "none yet") for name in NODES}
    decided = {}
    for content in cell.decisions:
        record = decode(content)
        decided.setdefault(record.round, []).append(record)
    for record in cell.records:
        for each in decided.get(record.round, ()) if isinstance(record.body, RoundClosed) else ():
            if type(each.body).__name__ in ("Shares", "Asks", "Grants"):
                view.fold(shown, each)
        for state, core in ((sequencer, admission), (shown, view)):
            if type(record.body) in core.FOLDS:
                core.fold(state, record)
        for name, state in agents.items():
            agent.fold(state, record)
            holds = state.nodes[name].held.items()
            assert {key: (held.epoch, held.begun) for key, held in holds} == held_on(sequencer, name)
        assert set(shown.holds) == set(holds_of(sequencer))


# ---------------------------------------------------------------- the case itself
def change_hands(*stages):
    """Job j is asked for in an open round, ends, and another j of these stages is admitted; then the round closes."""
    story = SlowCell()
    story.take(config(name_kept_ms=0), node("n1"), job("j", stage("map", 2)))
    assert story.open()
    story.cancel("j")
    story.open()
    assert isinstance(story.take(job("j", *stages)), JobAdmitted)
    return story, story.close()


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param([stage("map", 2, cpu=2_000)], id="the same stage, larger"),
        pytest.param([stage("map", 1)], id="the same stage with fewer tasks"),
        pytest.param([stage("other", 1)], id="no such stage"),
        pytest.param([stage("map", 2, gang=True)], id="a gang"),
    ],
)
def test_a_grant_asked_for_by_an_earlier_job_of_the_name_is_struck(stages):
    story, closing = change_hands(*stages)

    assert closing.grants == []
    assert {struck.reason for struck in closing.struck} == {"job_over"}
    granted = story.settle()
    assert [(grant.stage, grant.count, grant.attempt) for grant in granted] == [(stages[0].stage, stages[0].tasks, 1)]
    assert story.finish(*granted)
    story.settle()
    assert story.ended() == {"j": "succeeded"}


def test_what_an_earlier_job_asked_for_is_not_asked_for_by_a_later_one_of_its_name():
    story = SlowCell()
    story.take(config(name_kept_ms=0, retry_backoff_ms=0), node("n1"), job("j", stage("map", 2, retries=1)))
    story.settle()
    story.fail(story.granted[0])
    assert story.open(), "altruism names what is asked for again"
    story.cancel("j")
    story.open()
    story.take(job("j", stage("other", 3)))
    story.close()
    asks = asks_of(story.leftover.jobs["j"])
    assert [(ask.stage, ask.first, ask.count) for ask in asks] == [("other", 0, 3)]
    assert [(grant.stage, grant.count) for grant in story.settle()] == [("other", 3)]
