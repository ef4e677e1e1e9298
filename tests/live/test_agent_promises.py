"""A promise is kept on a real node: a real task gives way to a reserved one, and is run again."""

from schemas import Plans, RoundClosed, TaskFailed, TaskStarted
from tests.live.agent_cell import ScriptedCell, agent_on, eventually, outcome_of, settings
from tests.printed import read_output

GIVES_WAY = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
HOUR_MS = 3_600_000


async def promised(cell: ScriptedCell, name: str) -> None:
    """One unit of 100 millicores is promised for half an hour, from the next second on."""
    await cell.tell("config", {"set": {"preset": "hdrf", "reservation_agent": "early", "reservation_step_ms": 1_000}})
    atom = {"op": "atom", "b": {"cpu": "100m"}, "g": 1, "h": 1, "l": 1_800, "w": 1_800}
    window = {"op": "window", "s": 0, "e": 4 * 3_600, "of": atom}
    await cell.tell("reservations", {"request": {"reservation": name, "user": "ann", "rdl": window}})
    plans = await cell.until(lambda: [body for body in cell.bodies(Plans) if body.answers])
    assert plans[0].answers[0].accepted, plans[0].answers[0]


def test_a_task_on_promised_room_is_taken_back_for_a_reserved_one_and_run_again(tell, tmp_path):
    async def story(cell):
        node = settings(tmp_path / "data", capacity={"cpu": 200}, revoke_grace_ms=0)
        async with agent_on(cell, node):
            await cell.until(lambda: cell.cell.admission.nodes)
            await promised(cell, "r")
            await cell.submit("long", {"command": ["sh", "-c", GIVES_WAY], "tasks": 2, "estimate_ms": HOUR_MS})
            await cell.until(lambda: len(cell.items(TaskStarted, "long")) == 2)
            lent = [g for body in cell.bodies(RoundClosed) for g in body.grants if g.revocable]
            assert sum(grant.count for grant in lent) == 1
            (taken,) = [index for grant in lent for index in range(grant.first, grant.first + grant.count)]
            await eventually(lambda: read_output(tmp_path / "data", "long", "s", taken) == b"ready\n")

            await cell.submit("mine", {"command": ["true"], "estimate_ms": 1_000}, user="ann", reservation="r")

            assert await outcome_of(cell, "mine") == "succeeded"
            (failed,) = cell.items(TaskFailed)
            assert (failed.job, failed.first, failed.reason) == ("long", taken, "revoked")
            assert read_output(tmp_path / "data", "long", "s", taken, 1) == b"ready\nasked\n"
            (given,) = [g for body in cell.bodies(RoundClosed) for g in body.grants if g.job == "mine"]
            assert given.why == "reserved"
            await cell.until(lambda: [item for item in cell.items(TaskStarted, "long") if item.attempt == 2])
            await cell.tell("jobs", {"cancel": "long"})
            assert await outcome_of(cell, "long") == "cancelled"

    tell(story)
