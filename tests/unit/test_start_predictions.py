"""Predictions of starts are kept, scored once jobs start, corrected by what came of others, and shown."""

import asyncio

import pytest

from schemas import JobCancelled, JobChanged
from services.gateway.documents.metrics import CellMetrics
from services.gateway.view.predictions import SCORED_MAX, Accuracy, Score, Start, accuracy_of, corrected, ratios_of
from services.gateway.view.scoring import EARNED_MAX
from services.gateway.why.find import why_document
from tests.gateway_watch import Watched, stage


def score(said_ms, waited_ms, plain_ms=1_000, inside=True):
    return Score("default", said_ms, plain_ms, waited_ms, inside)


def waiting(*names):
    """Jobs that wait behind one that fills the cell."""
    cell = Watched(cpu=4).submit("fills", stage(cpu=4, estimate_ms=60_000)).start("fills", "s")
    cell.view.predictions.earned = EARNED_MAX
    for name in names:
        cell.submit(name, stage(cpu=4, estimate_ms=1_000))
    return cell


def test_a_prediction_is_kept_until_the_job_starts_and_scored_then():
    cell = waiting("j")
    (said,) = cell.view.predictions.said.values()
    assert (said.at_ms, said.likely_ms) == (0, 60_000)

    cell.settle(90_000).finish("fills", "s").start("j", "s")
    assert not cell.view.predictions.said
    (found,) = cell.view.predictions.scores
    assert (found.said_ms, found.waited_ms, found.inside) == (60_000, 90_000, False)


def test_a_job_that_starts_at_once_is_no_prediction():
    cell = Watched().submit("j", stage()).start("j", "s")
    assert not cell.view.predictions.said
    assert not cell.view.predictions.new
    assert not cell.view.predictions.scores


@pytest.mark.parametrize(
    "change",
    [
        JobCancelled("j", "ann"),
        JobChanged("j", priority=3, author="ann"),
        JobChanged("j", hold=True, author="ann"),
    ],
)
def test_what_was_said_of_a_job_that_is_changed_since_is_forgotten(change):
    cell = waiting("j")
    assert set(cell.view.predictions.said) == {"j"}
    cell.take(change).settle()
    assert not cell.view.predictions.said


def test_no_more_is_predicted_than_records_earn():
    cell = Watched(cpu=4).submit("fills", stage(cpu=4, estimate_ms=60_000)).start("fills", "s")
    cell.view.predictions.earned = -EARNED_MAX
    cell.submit("early", stage(cpu=4))
    assert not cell.view.predictions.said
    assert not cell.view.predictions.new
    cell.view.predictions.earned = EARNED_MAX
    cell.submit("later", stage(cpu=4))
    assert set(cell.view.predictions.said) == {"later"}


def test_the_last_hundred_are_kept():
    cell = waiting("j")
    cell.view.predictions.scores = [score(i, i) for i in range(1, SCORED_MAX + 1)]
    cell.settle(1_000).finish("fills", "s").start("j", "s")
    scores = cell.view.predictions.scores
    assert len(scores) == SCORED_MAX
    assert (scores[0].said_ms, scores[-1].waited_ms) == (2, 1_000)


def test_half_of_them_were_off_by_so_much_at_the_most():
    assert accuracy_of([]) is None
    scores = [score(100, 100), score(90, 100, inside=False), score(300, 100)]
    assert accuracy_of(scores) == Accuracy(jobs=3, error_ms=10, error_permille=100, inside=2)


def test_a_prediction_is_corrected_by_the_ratios_of_the_last_ones():
    plain = Start(11_000, 14_000, 20_000)
    assert corrected(plain, 10_000, ratios_of([score(0, 500)] * 4)) == plain
    assert corrected(plain, 10_000, ratios_of([score(0, 500)] * 5)) == Start(11_000, 12_000, 20_000)
    mixed = ratios_of([score(0, ms) for ms in (100, 500, 500, 2_000, 9_000)])
    assert mixed == [100, 500, 500, 2_000, 9_000]
    assert corrected(plain, 10_000, mixed) == Start(10_400, 12_000, 46_000)
    assert ratios_of([score(0, 500, plain_ms=0)]) == []


def test_how_wrong_they_were_stands_beside_a_prediction_and_among_the_metrics():
    cell = waiting("j")
    assert why_document(cell.view, "j")["start"]["accuracy"] is None
    cell.view.predictions.scores = [score(100, 100), score(90, 100, inside=False), score(300, 100)]
    accuracy = why_document(cell.view, "j")["start"]["accuracy"]
    assert accuracy == {"jobs": 3, "error_ms": 10, "error_permille": 100, "inside": 2}

    text = asyncio.run(CellMetrics().exposition(cell.view)).decode()
    assert "largesse_start_predictions 3.0" in text
    assert "largesse_start_prediction_error_ratio 0.1" in text
