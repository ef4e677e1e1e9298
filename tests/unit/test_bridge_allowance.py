"""How much of a bridge's time a node may take."""

from services.bridge import allowance as allowances
from services.bridge.allowance import MS_A_SECOND, MS_MAX, Allowance


def test_a_node_has_all_of_it_until_it_has_used_it_up_and_gets_it_back_with_time():
    allowance = Allowance()
    assert allowance.left("n", 0) == MS_MAX

    allowance.charge("n", MS_MAX / 2, 0)
    assert allowance.left("n", 0) == MS_MAX / 2
    allowance.charge("n", MS_MAX, 0)
    assert allowance.left("n", 0) == -MS_MAX / 2
    assert allowance.left("n", 1_000) == MS_A_SECOND - MS_MAX / 2
    assert allowance.left("n", 10**9) == MS_MAX, "and no more than that"


def test_what_one_takes_is_nobody_elses():
    allowance = Allowance()
    allowance.charge("n", 10 * MS_MAX, 0)

    assert allowance.left("n", 0) < 0
    assert allowance.left("m", 0) == MS_MAX


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(allowances, "NODES_MAX", 3)
    allowance = Allowance()
    for number in range(9):
        allowance.charge(f"n{number}", MS_MAX, 0)

    assert len(allowance._left) == 3
    assert allowance.left("n8", 0) == 0
