"""Nodes over MQTT while everything between them and the cell is cut, killed and doubled: nothing runs twice at once."""

import asyncio

import pytest

from tests.live.edge_campaign import run_seed


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_nodes_over_mqtt_under_faults_of_all_kinds_run_nothing_twice_and_lose_nothing(seed, daily, tmp_path):
    outcome = asyncio.run(run_seed(seed, tmp_path, steps=5 if daily else 7, jobs=4 if daily else 5))

    assert outcome.wrong == [], "\n".join([*outcome.wrong, f"repeat: {outcome.again}"])
    assert outcome.figures["lines written"] > outcome.figures["tasks"] > 0
