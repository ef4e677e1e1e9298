"""Nodes over MQTT while everything between them and the cell is cut, killed and doubled: nothing runs twice at once."""

import asyncio

import pytest

from services.agent.documents import claim
from tests.live import agent_cell
from tests.live.agent_cell import end_tasks
from tests.live.edge_campaign import run_seed
from tests.result_folders import left


def test_what_is_put_away_while_the_tasks_of_a_seed_are_ended_is_left_alone(tmp_path, monkeypatch):
    """Seed 46: an agent was killed, and its process that puts away what ended jobs left went on for a moment."""
    first, other = (left(tmp_path, {}, index=index).parent for index in range(2))

    def put_away_meanwhile(folder, document):
        if folder == first:
            folder.rename(tmp_path / "ended")
        return claim(folder, document)

    monkeypatch.setattr(agent_cell, "claim", put_away_meanwhile)
    end_tasks(tmp_path)

    assert (other / "claim.json").exists()
    assert not (tmp_path / "ended" / "claim.json").exists()


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_nodes_over_mqtt_under_faults_of_all_kinds_run_nothing_twice_and_lose_nothing(seed, daily, tmp_path):
    outcome = asyncio.run(run_seed(seed, tmp_path, steps=5 if daily else 7, jobs=4 if daily else 5))

    assert outcome.wrong == [], "\n".join([*outcome.wrong, f"repeat: {outcome.again}"])
    assert outcome.figures["lines written"] > outcome.figures["tasks"] > 0
