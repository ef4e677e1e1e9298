"""Answers that many clients ask for at a time."""

import asyncio

import pytest

from services.gateway.http.change_streams import _until_next
from services.gateway.http.shared_answers import KEPT_MAX, SharedAnswers
from tests.gateway_cell import GUARD_S, JOB, run_in_memory


def asked(*asks):
    """What is answered to asks (name, behind, seq), each after the one before it; and how many answers were made."""

    async def story():
        shared, count = SharedAnswers(), 0

        async def make():
            nonlocal count
            count += 1
            return b"%d" % count

        return [int(await shared.of(*ask, make)) for ask in asks], shared.made

    return asyncio.run(story())


def test_an_answer_serves_all_that_are_behind_it_and_nobody_who_knows_more():
    assert asked(("a", 5, 7), ("a", 7, 9), ("a", 8, 9), ("b", 8, 9), ("a", 9, 9)) == ([1, 1, 2, 3, 2], 3)


def test_who_says_nothing_gets_an_answer_of_where_the_view_stands():
    assert asked(("a", 5, 7), ("a", None, 9), ("a", None, 9)) == ([1, 2, 2], 2)


def test_who_claims_to_know_more_than_the_view_gets_what_there_is():
    assert asked(("a", 99, 7), ("a", 99, 7)) == ([1, 1], 1)


def test_no_more_answers_are_kept_than_there_are_names():
    names = [(f"n{number}", 1, 1) for number in range(KEPT_MAX + 1)]

    assert asked(*names, names[0])[1] == KEPT_MAX + 2


def test_all_who_ask_at_once_wait_for_one_and_a_failure_is_not_kept():
    async def story():
        shared, go = SharedAnswers(), asyncio.Event()

        async def fail():
            await go.wait()
            raise KeyError("no")

        async def make():
            return b"yes"

        waiting = [asyncio.ensure_future(shared.of("a", 1, 1, fail)) for _ in range(3)]
        gone = asyncio.ensure_future(shared.of("a", 1, 1, fail))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        go.set()
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0)
        return failed, await shared.of("a", 1, 1, make), shared.made

    failed, then, made = asyncio.run(story())
    assert [type(each) for each in failed] == [KeyError] * 3
    assert (then, made) == (b"yes", 2)


@pytest.mark.parametrize(
    ("now_s", "left_s"),
    [
        pytest.param(10.0, 0.5, id="at such a moment, until the next"),
        pytest.param(10.01, 0.49, id="a little behind one, until the next"),
        pytest.param(10.3, 0.7, id="beyond half of it, until the one after"),
    ],
)
def test_streams_tell_of_changes_at_the_same_moments(now_s, left_s):
    assert _until_next(now_s, 0.5) == pytest.approx(left_s)


def test_pages_that_are_behind_a_record_share_its_summary():
    async def story(cell):
        await cell.post(JOB)
        seq = cell.follower.state.seq
        await cell.follower.until(lambda view: not view.open, GUARD_S)
        await cell.stop_sequencer()
        answers = [await cell.get(path, behind=seq) for path in ("/v1/summary", "/v1/queues", "/v1/room") for _ in "ab"]
        return seq, answers, cell.http._transport.app.state.api.shared.made

    seq, answers, made = run_in_memory(story)
    assert {each.status_code for each in answers} == {200}
    assert answers[0].json()["seq"] >= seq
    assert made == 3
