"""The solver on a real Kafka broker: its plans are adopted, and a planner killed while it runs loses nothing."""

import asyncio
import time

import pytest

from schemas import NodeRegistered, PlanProposed, Plans
from tests.live.kafka_cell import READY_SECONDS, KafkaCell, free_partition
from tests.unit.cli_process import largesse

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("kafka cells")]

COPIES = dict.fromkeys(("admission", "fairness", "altruism", "leftover", "estimator", "agent"), 1) | {"planner": 2}
KNOBS = {"reservation_solver_ms": 1, "reservation_solver_limit_ms": 60_000, "reservation_agent": "gree"}
HOUR_S = 3_600


def request(name):
    """A request a few hours ahead, which `gree` plans tall, and which is better planned flat."""
    begin = (int(time.time()) // HOUR_S + 3) * HOUR_S
    atom = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 4, "l": 120, "w": 1_200}
    window = {"op": "window", "s": begin, "e": begin + HOUR_S, "of": atom}
    return {"request": {"reservation": name, "user": "ann", "rdl": window}}


class Log:
    """What the log of a cell says about plans."""

    def __init__(self, cell):
        self._cell = cell

    def bodies(self, kind):
        return [each.record.body for each in self._cell.records if isinstance(each.record.body, kind)]

    def answered(self, reason):
        """Names of reservations that were accepted, or given back, for this reason."""
        found = [answer for body in self.bodies(Plans) for answer in body.answers]
        return {answer.reservation for answer in found if answer.accepted and answer.reason == reason}

    def moved(self):
        """Reservations that an adopted proposal moved."""
        adopting = [body for body in self.bodies(Plans) if any(each.adopted for each in body.proposals)]
        return {answer.reservation for body in adopting for answer in body.answers if answer.reason == "moved"}


def test_a_planner_killed_while_the_solver_runs_loses_no_promise_and_its_standby_adopts_what_is_better(
    kafka_address, tmp_path
):
    async def story():
        name = f"solver-{tmp_path.name}"
        cell = KafkaCell(kafka_address, await free_partition(kafka_address), name, tmp_path / "cell", COPIES)
        async with cell:
            log = Log(cell)
            planners = [member for member in cell.members.values() if member.service == "planner"]
            for member in planners:
                member.failpoint = "planner:before_solve:1"
            cell.start(*cell.members.values())
            await cell.ready()
            await cell.until(lambda: log.bodies(NodeRegistered), READY_SECONDS)
            await cell.tell("config", {"set": KNOBS})
            await cell.tell("reservations", request("r"))
            await cell.until(lambda: log.moved() >= {"r"}, READY_SECONDS)
            assert any(member.struck == ["planner:before_solve"] for member in planners)
            await cell.tell("reservations", request("s"))
            await cell.until(lambda: log.moved() >= {"r", "s"}, READY_SECONDS)
            assert log.answered("") == {"r", "s"}
            assert log.bodies(PlanProposed)
            await cell.tell("reservations", {"delete": {"reservation": "r", "user": "ann"}})
            await cell.until(lambda: log.answered("deleted") == {"r"}, READY_SECONDS)
            assert all(not member.own_accord for member in cell.members.values())
            assert set((await cell.drain()).values()) == {0}
        return cell.url

    assert largesse("replay", asyncio.run(story()), "--verify").code == 0
