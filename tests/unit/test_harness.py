"""The harness tells the story of one core, and catches a core that breaks the rules of cores."""

import pytest

from schemas import Asks, JobAsk, RoundClosed, StageAsk
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.leftover import core as leftover
from tests.builders import Fact, admitted, cancelled, configured, finished, grant, job, registered, stage, started
from tests.harness import given
from tests.toy import Toy


def asks(*stages):
    return [Asks(0, 1, [JobAsk("j", [StageAsk(name, 0, count, 1, 0) for name, count in stages])])]


def test_a_story_goes_on_from_what_was_granted():
    story = given(leftover, registered("n1", cpu=4_000), admitted(job("j", stage("map", 6))))
    first = story.round(at=1_000, asks=asks(("map", 6)))[0]
    story.close().then(finished("j/map", count=4, at=2_000))
    second = story.round(at=2_000)[0]

    assert [(each.first, each.count) for each in first.grants] == [(0, 4)]
    assert [(each.first, each.count) for each in second.grants] == [(4, 2)]


def test_a_restart_changes_no_answer():
    def answers(restarts):
        story = given(leftover, registered("n1", cpu=4_000), admitted(job("j", stage("map", 6))))
        story.round(asks=asks(("map", 6)))
        story.close()
        return (story.restarted() if restarts else story).then(finished("j/map", count=3)).round()

    assert answers(restarts=True) == answers(restarts=False)


def test_facts_come_in_while_a_round_is_open():
    story = given(altruism, admitted("j"))
    story.round()
    story.then(cancelled("j")).close(grant("j/s"))

    assert story.round() == [Asks(0, 1, [])]


def test_an_abandoned_round_is_asked_again():
    story = given(altruism, admitted("j"))
    first = story.round()
    story.abandon()

    assert story.round()[0].jobs == first[0].jobs


def test_what_was_said_and_is_in_force_is_not_said_again():
    pools, spec = configured(classes="on"), job("j", stage("s", 2, duration_ms=5_000))
    story = given(estimator, pools, registered("n1"), admitted(spec), started("j/s", count=2, at=0))

    (forecast,) = story.round(at=1_000)
    assert [curve.points for curve in forecast.curves] == [[[4_000, 2_000]]]
    story.then(Fact(forecast))

    assert story.round(at=2_500) == []


class Mutable(Toy):
    def decide(self, state, opened):
        state.jobs.append("noted")
        return super().decide(state, opened)


class Forgetful(Toy):
    def decide(self, state, opened):
        answers = super().decide(state, opened)
        answers[0].wake_ms = opened.time + 1 + state.decided
        return answers

    def start(self, shard, of):
        state = super().start(shard, of)
        state.decided = 7
        return state


def test_a_decide_that_changes_the_state_is_caught():
    with pytest.raises(AssertionError, match="deciding changed its state"):
        given(Mutable(), cancelled("a")).round()


def test_an_answer_that_depends_on_a_cache_is_caught():
    with pytest.raises(AssertionError, match="depends on a cache"):
        given(Forgetful(), cancelled("a")).round()


def test_a_closing_is_fed_what_was_said_first():
    core = Toy(reads=("shares",))
    story = given(core, cancelled("a"))
    story.round()
    story.close()

    assert story.state.fed == ["shares/0-1/default/2/r1"]
    assert RoundClosed in core.FOLDS
