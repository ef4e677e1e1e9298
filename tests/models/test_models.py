"""The small protocols, every state of them: fencing of the log, a node's lease and its loss, what an agent reports.

Each model steps through the real code where that decides. With all rules no state breaks the law; without any one of
them the search finds a way that does, unless another rule keeps the same promise.
"""

import pytest

from largesse.log.fencing import advance
from tests.faults import planted
from tests.models import fencing, leases, reports
from tests.models.search import explore, without_a_way

ONE_CLAIM_LEFT = fencing.Cell(sides=(fencing.Side(), fencing.Side(claims=1)))


def search(model, start):
    """All states of a model, counted."""
    found = explore(start, model.steps, model.law)
    print(f"{type(model).__name__}: {found.states} states, {found.transitions} transitions")
    return found


# ---------------------------------------------------------------- fencing
@pytest.mark.parametrize(
    ("rules", "start", "states"),
    [
        pytest.param({"claims": 1, "records": 2}, fencing.Cell(), 4_000, id="two writers, two records each"),
        pytest.param({"claims": 2, "records": 1}, ONE_CLAIM_LEFT, 15_000, id="one of them claims twice"),
        pytest.param({"claims": 1, "records": 1, "repeats": 1}, fencing.Cell(), 4_000, id="a message comes twice"),
        pytest.param({"claims": 1, "records": 1, "waits": False}, fencing.Cell(), 1_000, id="claims not waited for"),
        pytest.param(
            {"claims": 2, "records": 1}, fencing.Cell(), 250_000, id="both claim twice", marks=pytest.mark.whole
        ),
    ],
)
def test_whatever_comes_late_or_never_what_a_writer_read_back_stays_in_the_log(rules, start, states):
    found = search(fencing.Fencing(fencing.Rules(**rules)), start)

    assert (found.wrong, found.trace) == ("", [])
    assert found.states >= states


def test_without_reading_back_what_was_sent_may_be_void():
    found = search(fencing.Fencing(fencing.Rules(reads_back=False)), fencing.Cell())

    assert "is not in the log" in found.wrong


def test_without_the_check_of_seq_a_record_counts_twice():
    with planted.PLANTED["seq_unchecked"]():
        found = search(fencing.Fencing(fencing.Rules(claims=1, records=1, repeats=1)), fencing.Cell())

    assert found.wrong == "seq 1, but 2 records"


def test_without_the_check_of_tokens_seq_and_reading_back_still_keep_the_log_whole():
    """Who leads is then decided by who writes first; what was read back stays all the same."""

    def any_token(order, offset, message):
        token = order.token
        if token and b'"token":"' in message[:80]:
            order.token = message.split(b'"token":"', 1)[1].split(b'"', 1)[0].decode()
        accepted = advance(order, offset, message)
        if accepted is None:
            order.token = token
        return accepted

    found = search(fencing.Fencing(fencing.Rules(advance=any_token, claims=2, records=1)), ONE_CLAIM_LEFT)

    assert found.wrong == ""


# ---------------------------------------------------------------- leases and adoption
def test_however_long_words_take_no_task_runs_on_two_nodes():
    found = search(leases.NodeLease(leases.Rules()), leases.Node())

    assert (found.wrong, found.trace) == ("", [])
    assert found.states >= 30_000


@pytest.mark.parametrize("rule", ["from_sending", "whole", "takeover", "drops", "renews"])
def test_without_any_one_rule_of_the_lease_a_task_runs_twice(rule):
    found = search(leases.NodeLease(leases.Rules(**{rule: False})), leases.Node())

    assert found.wrong == "two attempts of a task run at a time"


# ---------------------------------------------------------------- reports
def test_the_log_has_every_end_once_and_from_every_state_there_is_a_way_to_it():
    model = reports.Reports(reports.Rules())
    found = search(model, reports.Attempt())

    assert (found.wrong, found.trace) == ("", [])
    assert without_a_way(found, model.is_done) == []
    assert found.states >= 1_500


@pytest.mark.parametrize("rule", ["keeps", "repeats", "finds"])
def test_without_any_one_rule_of_the_outbox_an_end_is_never_known(rule):
    model = reports.Reports(reports.Rules(**{rule: False}))
    found = search(model, reports.Attempt())

    assert found.wrong == ""
    assert without_a_way(found, model.is_done)
