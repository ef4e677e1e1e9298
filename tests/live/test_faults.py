"""Faults beside kills: pauses beyond leases, full disks, killed guardians, other numbers of nodes, copied folders."""

import asyncio

import pytest

from tests.live import fault_campaign_kafka
from tests.live.fault_campaign import run_seed
from tests.live.fault_jobs import overlaps


@pytest.mark.rotating(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_cell_under_faults_of_all_kinds_runs_nothing_twice_and_loses_nothing(seed, daily, tmp_path):
    outcome = run_seed(seed, tmp_path, lives=2 if daily else 4, jobs=6)

    assert outcome.wrong == [], "\n".join([*outcome.wrong, f"repeat: {outcome.again}"])
    assert outcome.figures["guardians killed"] > 0
    assert outcome.figures["attempts succeeded"] > 0


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.xdist_group("kafka cells")
def test_a_cell_on_kafka_under_faults_of_all_kinds_runs_nothing_twice_and_loses_nothing(kafka_address, tmp_path):
    outcome = asyncio.run(fault_campaign_kafka.run_seed(1, kafka_address, tmp_path))

    assert outcome.wrong == []


def lines(tmp_path, *writes):
    (tmp_path / "j~w~0").write_text("".join(f"{attempt} {at} 77\n" for attempt, at in writes))
    return tmp_path


def test_an_attempt_that_writes_beside_a_later_one_is_found(tmp_path):
    found = overlaps(lines(tmp_path, (1, 10.0), (2, 10.5), (1, 11.0), (2, 11.1)))

    assert found == ["j~w~0: attempt 1 wrote at 11.0 s beside a later one"]


@pytest.mark.parametrize(
    ("writes", "allowed"),
    [
        pytest.param([(1, 10.0), (1, 11.0), (2, 11.0), (2, 12.0)], [], id="one after the other"),
        pytest.param([(1, 10.0), (2, 10.5), (1, 11.0)], [(9.0, 11.5)], id="in a span in which it is allowed"),
    ],
)
def test_attempts_that_do_not_meet_are_none(tmp_path, writes, allowed):
    assert overlaps(lines(tmp_path, *writes), allowed) == []


@pytest.mark.parametrize(("back_s", "wrong"), [(11.0, 0), (10.9, 1)])
def test_an_attempt_that_was_lost_with_its_node_may_write_until_the_node_is_back(back_s, wrong, tmp_path):
    found = overlaps(lines(tmp_path, (1, 10.0), (2, 10.5), (1, 11.0), (2, 12.0)), lost={("j~w~0", 1): back_s})

    assert len(found) == wrong
