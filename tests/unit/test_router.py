"""The router in stories: real cells, the real shell, a clock of the test's."""

import asyncio
from collections import Counter

import pytest

from largesse.known_cells import Cell, add_cell, remove_cell
from largesse.log.inputs import InputStopped
from largesse.log.snapshots import dump
from schemas import InputRefused, InputRepeated, JobCancelled, JobRejected
from schemas.routes import (
    CellsHeard,
    CellsJudged,
    JobRouted,
    MoveAnswered,
    MoveAsked,
    RouteDeclined,
    RouteEnded,
    RouteLapsed,
    RouterSet,
    RouteTaken,
)
from schemas.topics import ROUTER_JOBS
from services.router import intake, shell
from services.router.checking import check
from tests.routed_cells import TAKEOVER_MS, RoutedCells, spec

TWO = {"east": {"e1": "4"}, "west": {"w1": "4"}}


def tell(story, nodes=TWO, knobs=None, **config):
    """Tells a story to routed cells, and holds the router's log against its law."""

    async def whole():
        cells = await RoutedCells(nodes, knobs).begin(**config)
        await story(cells)
        await cells.assert_lawful()

    asyncio.run(whole())


# ---------------------------------------------------------------- a cell
def test_jobs_that_name_no_cell_are_spread_and_run_once():
    async def story(cells):
        for number in range(8):
            await cells.submit(f"j{number}")
        await cells.run(12_000)
        assert await cells.succeeded() == Counter({f"j{number}": 1 for number in range(8)})
        assert Counter((await cells.where()).values()) == {"east": 4, "west": 4}

    tell(story)


def test_a_larger_cell_gets_more():
    async def story(cells):
        for number in range(12):
            await cells.submit(f"j{number}")
        await cells.step()
        assert Counter((await cells.where()).values()) == {"east": 3, "west": 9}

    tell(story, {"east": {"e1": "4"}, "west": {"w1": "4", "w2": "4", "w3": "4"}})


def test_the_log_says_which_cells_were_judged_and_by_what():
    async def story(cells):
        await cells.submit("j")
        await cells.step()
        (judged,) = await cells.bodies(CellsJudged)
        (routed,) = await cells.bodies(JobRouted)
        assert [bid.cell for bid in judged.bids] == ["east", "west"]
        assert all(bid.is_able and bid.capacity == {"cpu": 4_000} for bid in judged.bids)
        assert {(load.cell, load.cell_ppm) for load in routed.loads} == {("east", 250_000), ("west", 250_000)}
        assert routed.why == "drawn"
        assert (routed.number, routed.before_ms) == (1, judged.bids[0].time_ms + 30_000)

    tell(story)


def test_a_job_goes_where_it_fits():
    async def story(cells):
        await cells.submit("wide", stages=[{**spec("j")["stages"][0], "demand": {"cpu": "6"}}])
        await cells.run(10_000)
        assert await cells.where() == {"wide": "west"}
        assert await cells.succeeded() == {"wide": 1}

    tell(story, {"east": {"e1": "4"}, "west": {"w1": "8"}})


def test_a_job_that_no_cell_could_ever_run_is_declined_with_the_reason_of_each():
    async def story(cells):
        await cells.submit("huge", stages=[{**spec("j")["stages"][0], "demand": {"cpu": "99"}}])
        await cells.step()
        (declined,) = await cells.bodies(RouteDeclined)
        assert [(each.cell, each.reason) for each in declined.problems] == [
            ("east", "exceeds_capacity"),
            ("west", "exceeds_capacity"),
        ]
        await cells.submit("huge")  # Its name is free again.
        await cells.run(8_000)
        assert await cells.succeeded() == {"huge": 1}

    tell(story)


def test_a_job_goes_only_to_cells_that_have_its_queue():
    async def story(cells):
        tree = {"name": "root", "children": [{"name": "ads", "weight": 1}]}
        await cells.say_to("west", "config", {"queues": tree})
        await cells.say_to("east", "config", {"queues": {"name": "root", "children": [{"name": "web"}]}})
        await cells.step()
        for number in range(3):
            await cells.submit(f"j{number}", queue="ads")
        await cells.submit("nowhere", queue="none")
        await cells.step()
        assert set((await cells.where()).values()) == {"west"}
        (declined,) = await cells.bodies(RouteDeclined)
        assert {each.reason for each in declined.problems} == {"unknown_queue"}

    tell(story)


def test_a_job_that_fits_nowhere_now_waits_until_it_does():
    async def story(cells):
        await cells.submit("gpu", stages=[{**spec("j")["stages"][0], "demand": {"cpu": "1"}}])
        await cells.run(5_000)
        assert await cells.where() == {}
        assert await cells.bodies(RouteDeclined) == []
        for cell in cells.cells.values():
            for agent in cell.agents.values():
                agent.away = False
        await cells.run(12_000)
        assert await cells.succeeded() == {"gpu": 1}

    async def whole():
        cells = RoutedCells(TWO)
        for cell in cells.cells.values():
            for agent in cell.agents.values():
                agent.away = True
        await cells.begin()
        await story(cells)
        await cells.assert_lawful()

    asyncio.run(whole())


def test_a_job_may_say_which_cells_it_may_go_to():
    async def story(cells):
        for number in range(4):
            await cells.submit(f"j{number}", cells=["west"])
        await cells.submit("lost", cells=["north"])
        await cells.step()
        assert await cells.where() == {f"j{number}": "west" for number in range(4)}
        (declined,) = await cells.bodies(RouteDeclined)
        assert [each.reason for each in declined.problems] == ["unknown_cell"]

    tell(story)


def test_the_same_job_again_is_one_job_and_another_of_its_name_is_rejected():
    async def story(cells):
        await cells.submit("j")
        await cells.submit("j")
        await cells.submit("j", priority=7)
        await cells.run(8_000)
        await cells.submit("j")
        await cells.step()
        assert [(body.job, body.outcome) for body in await cells.bodies(InputRepeated)] == [
            ("j", None),
            ("j", "succeeded"),
        ]
        (rejected,) = await cells.bodies(JobRejected)
        assert rejected.reason == "name_taken"
        assert await cells.succeeded() == {"j": 1}

    tell(story)


def test_a_job_that_a_cell_has_already_goes_nowhere_else():
    async def story(cells):
        await cells.say_to("west", "jobs", spec("j"))
        await cells.step()
        await cells.submit("j")
        await cells.run(8_000)
        (routed,) = await cells.bodies(JobRouted)
        assert (routed.cell, routed.why) == ("west", "there_already")
        assert await cells.succeeded() == {"j": 1}

    tell(story)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param({"change": "j", "hold": True}, "change", id="a change"),
        pytest.param({"route": {}, "before_ms": 1}, "route", id="a routed job"),
        pytest.param({**spec("j"), "rerun": True}, "rerun", id="a rerun"),
        pytest.param({"cancel": "nobody"}, "cancel", id="a cancellation of what is not known"),
        pytest.param({"cancel": "j", "if_unstarted": True}, "if_unstarted", id="a cancellation for a cell"),
        pytest.param({**spec("j"), "cell": "west"}, "cell", id="a field that is not there"),
    ],
)
def test_what_it_cannot_do_is_refused_by_field(document, field):
    async def story(cells):
        await cells.say(document)
        await cells.step()
        (refused,) = await cells.bodies(InputRefused)
        assert (refused.topic, refused.field) == ("router.jobs", field)

    tell(story)


@pytest.mark.parametrize("broken", ["parse", "judge"])
def test_a_message_over_which_the_router_fails_is_refused_and_others_go_on(monkeypatch, broken):
    works = getattr(intake, broken)

    def fails(*given):
        if getattr(given[0], "offset", 1) == 1 and (broken == "parse" or given[1].spec.job == "odd"):
            try:
                raise ZeroDivisionError
            except ZeroDivisionError as error:
                if broken == "judge":
                    raise
                raise InputStopped("reading", ROUTER_JOBS, 0, 1) from error
        return works(*given)

    monkeypatch.setattr(intake, broken, fails)

    async def story(cells):
        for name in ("before", "odd", "after"):
            await cells.submit(name)
        await cells.run(8_000)
        (refused,) = await cells.bodies(InputRefused)
        assert refused.reason == intake.FAILED.format(error="ZeroDivisionError")
        assert (refused.topic, refused.field, refused.author) == (ROUTER_JOBS, "", "ann")
        assert refused.size > 0
        assert await cells.succeeded() == {"before": 1, "after": 1}
        cells.restart()
        await cells.run(TAKEOVER_MS)
        assert len(await cells.bodies(InputRefused)) == 1

    tell(story)


# ---------------------------------------------------------------- which cells it hears
def test_its_log_says_which_cells_it_hears_whenever_that_changes(monkeypatch):
    async def story(cells):
        await cells.run(3_000)
        west = cells.cells.pop("west")
        await cells.run(15_000)
        cells.cells["west"] = west
        await cells.run(3_000)

        async def breaks():
            raise AssertionError("a record contradicts those before it")

        monkeypatch.setattr(cells.router.cells._views["west"], "read", breaks)
        await cells.step()
        monkeypatch.undo()
        await cells.run(15_000)
        said = [{each.cell: each.state for each in body.cells} for body in await cells.bodies(CellsHeard)]
        states = [each["west"] for each in said if each]
        assert states[-5:] == ["heard", "silent", "heard", "unread", "heard"]
        assert all(each["east"] == "heard" for each in said[-4:])

    tell(story)


# ---------------------------------------------------------------- a cell that is removed
def test_nothing_is_sent_to_a_cell_that_is_removed_until_it_is_added_again():
    async def story(cells):
        west = Cell("west", 1)
        await remove_cell(cells.bus, west)
        await cells.run(2_000)
        for number in range(4):
            await cells.submit(f"j{number}")
        await cells.submit("there", cells=["west"])
        await cells.run(2_000)
        assert set((await cells.where()).values()) == {"east"}
        (declined,) = await cells.bodies(RouteDeclined)
        assert [(each.cell, each.reason) for each in declined.problems] == [("west", "unknown_cell")]
        await add_cell(cells.bus, west)
        await cells.run(2_000)
        await cells.submit("back", cells=["west"])
        await cells.run(8_000)
        assert (await cells.where())["back"] == "west"
        assert await cells.succeeded() == Counter({f"j{number}": 1 for number in range(4)} | {"back": 1})

    tell(story)


def test_a_job_stays_with_the_cell_that_is_removed_over_it():
    async def story(cells):
        cells.cells["west"].agents["w1"].away = True
        await cells.submit("j", cells=["west"], stages=[{**spec("j")["stages"][0], "demand": {"cpu": "3"}}])
        await cells.submit("k", cells=["west"], stages=[{**spec("j")["stages"][0], "demand": {"cpu": "3"}}])
        await cells.step()
        await remove_cell(cells.bus, Cell("west", 1))
        await cells.run(100_000)
        assert set((await cells.where()).values()) == {"west"}
        assert await cells.bodies(RouteLapsed) == await cells.bodies(MoveAsked) == []
        await add_cell(cells.bus, Cell("west", 1))
        await cells.cells["west"].agents["w1"].come_back()
        await cells.run(30_000)
        assert await cells.succeeded() == {"j": 1, "k": 1}

    tell(story, knobs=RouterSet(move_after_ms=2_000))


# ---------------------------------------------------------------- cancelled
def test_a_job_is_cancelled_where_it_is():
    async def story(cells):
        await cells.submit("j", stages=[{**spec("j")["stages"][0], "duration_ms": 60_000}])
        await cells.step()
        await cells.say({"cancel": "j"})
        await cells.run(3_000)
        (ended,) = await cells.bodies(RouteEnded)
        assert (ended.cell, ended.outcome) == ((await cells.where())["j"], "cancelled")

    tell(story)


def test_a_job_that_no_cell_has_is_cancelled_at_once():
    async def story(cells):
        for cell in cells.cells.values():
            for agent in cell.agents.values():
                agent.away = True
        await cells.run(60_000)
        await cells.submit("j")
        await cells.step()
        await cells.say({"cancel": "j"})
        await cells.step()
        assert await cells.bodies(RouteEnded) == [RouteEnded("j", "", "cancelled")]
        assert await cells.where() == {}

    tell(story)


# ---------------------------------------------------------------- moved
async def filled(cells, name):
    """A cell in which nothing starts any more for a while, and one job that waits there."""
    for number in range(4):
        stage = {**spec("j")["stages"][0], "duration_ms": 400_000}
        await cells.say_to(name, "jobs", {"job": f"long-{number}", "stages": [stage]})
    await cells.step()


QUICK = RouterSet(move_after_ms=10_000)


def test_a_job_that_waits_and_holds_nothing_moves_to_a_cell_that_has_room():
    async def story(cells):
        await filled(cells, "west")
        stage = {**spec("j")["stages"][0], "duration_ms": 400_000}
        for number in range(4):
            await cells.submit(f"east-{number}", stages=[stage])
        await cells.step()
        await cells.submit("j")
        await cells.step()
        first = (await cells.where())["j"]
        other = {"east": "west", "west": "east"}[first]
        await cells.run(15_000)
        assert await cells.bodies(MoveAsked) == []  # Nowhere would it start at once.
        for job in [f"long-{number}" for number in range(4)] if other == "west" else [f"east-{n}" for n in range(4)]:
            await cells.say_to(other, "jobs", {"cancel": job})
        await cells.run(20_000)
        (asked,) = await cells.bodies(MoveAsked)
        assert (asked.job, asked.cell, asked.to) == ("j", first, other)
        assert await cells.succeeded() == {"j": 1}
        (routed,) = [body for body in await cells.bodies(JobRouted) if body.number == 2]
        assert (routed.cell, routed.why) == (other, "moved")

    tell(story, knobs=QUICK)


def test_a_job_does_not_move_to_a_cell_that_it_may_not_go_to():
    async def story(cells):
        await filled(cells, "east")
        await cells.submit("j", cells=["east"])
        await cells.run(20_000)
        assert await cells.where() == {"j": "east"}
        assert await cells.bodies(MoveAsked) == []

    tell(story, knobs=QUICK)


def test_nodes_that_go_lose_their_waiting_jobs_to_others():
    async def story(cells):
        await filled(cells, "west")
        for number in range(6):
            await cells.submit(f"j{number}")
        await cells.step()
        assert Counter((await cells.where()).values())["east"] >= 5
        cells.cells["east"].agents["e1"].away = True
        for number in range(4):
            await cells.say_to("west", "jobs", {"cancel": f"long-{number}"})
        await cells.run(120_000)
        moves = await cells.bodies(MoveAsked)
        assert {move.cell for move in moves} == {"east"}
        moved = [answer.job for answer in await cells.bodies(MoveAnswered) if answer.is_free]
        assert moved
        done = await cells.succeeded()
        assert {job: done[job] for job in moved} == dict.fromkeys(moved, 1)

    tell(story, knobs=QUICK)


def test_nothing_moves_that_has_begun():
    async def story(cells):
        await cells.submit("j", stages=[{**spec("j")["stages"][0], "duration_ms": 400_000}])
        await cells.run(60_000)
        assert await cells.bodies(MoveAsked) == []

    tell(story, knobs=QUICK)


def test_a_setting_is_a_record_and_none_moves_with_zero():
    async def story(cells):
        await filled(cells, "east")
        await cells.submit("j", cells=["east", "west"])
        await cells.run(30_000)
        assert await cells.bodies(RouterSet) == [RouterSet(move_after_ms=0)]
        assert await cells.bodies(MoveAsked) == []

    tell(story, knobs=RouterSet(move_after_ms=0))


# ---------------------------------------------------------------- failures
def test_another_router_goes_on_from_the_log():
    async def story(cells):
        for number in range(4):
            await cells.submit(f"j{number}")
        await cells.step()
        cells.restart()
        for number in range(4, 8):
            await cells.submit(f"j{number}")
        await cells.run(TAKEOVER_MS + 12_000)
        assert await cells.succeeded() == Counter({f"j{number}": 1 for number in range(8)})
        old = cells.gone[0]
        await old.step()
        assert not old.is_leading

    tell(story)


def test_what_a_router_has_decided_and_not_sent_the_next_one_sends():
    async def story(cells):
        await cells.fail_to_send()
        await cells.submit("j")
        await cells.step()
        assert list(await cells.where()) == ["j"]
        assert await cells.sent() == []
        await cells.run(TAKEOVER_MS + 8_000)
        assert len(await cells.bodies(JobRouted)) == 1
        assert await cells.succeeded() == {"j": 1}

    tell(story)


def test_a_message_that_comes_too_late_is_no_second_job():
    async def story(cells):
        await cells.submit("j")
        await cells.run(8_000)
        for at in range(4):
            await cells.repeat(at)
        await cells.run(40_000)
        await cells.repeat(0)
        await cells.run(8_000)
        assert await cells.succeeded() == {"j": 1}

    tell(story)


def test_a_cell_that_does_not_take_a_job_in_time_gets_it_no_more():
    async def story(cells):
        stopped = cells.cells.pop("west")
        await cells.submit("j", cells=["west"])
        await cells.step()
        assert (await cells.where()) == {"j": "west"}
        await cells.run(5_000)
        assert await cells.bodies(RouteTaken) == []
        await cells.run(60_000)
        assert await cells.bodies(RouteLapsed) == []  # As long as its log says nothing, it may still take it.
        cells.cells["west"] = stopped
        await cells.run(60_000)
        assert len(await cells.bodies(RouteLapsed)) == 1
        assert await cells.succeeded() == {"j": 1}

    tell(story)


def test_cells_that_have_nothing_to_write_get_jobs_and_take_them_at_once():
    async def story(cells):
        await cells.run(50_000)
        last_ms = max([record.time for cell in cells.cells for record in await cells.records(cell)])
        assert cells.now_ms - last_ms > 30_000  # Of a lease counted from there nothing would be left.
        await cells.submit("j")
        await cells.run(12_000)
        assert await cells.succeeded() == {"j": 1}
        (routed,) = await cells.bodies(JobRouted)
        assert routed.before_ms > last_ms + 30_000

    tell(story)


def test_a_cell_that_is_silent_gets_no_jobs():
    async def story(cells):
        stopped = cells.cells.pop("west")
        await cells.run(15_000)
        for number in range(4):
            await cells.submit(f"j{number}")
        await cells.step()
        cells.cells["west"] = stopped
        assert set((await cells.where()).values()) == {"east"}

    tell(story)


def test_a_cancellation_is_a_fact_of_the_log():
    async def story(cells):
        await cells.submit("j")
        await cells.say({"cancel": "j"})
        await cells.run(5_000)
        assert await cells.bodies(JobCancelled) == [JobCancelled("j", "ann")]
        (ended,) = await cells.bodies(RouteEnded)
        assert ended.outcome == "cancelled"
        assert await cells.begun() == {}

    tell(story)


def test_a_router_begins_at_a_snapshot_of_the_state(monkeypatch):
    monkeypatch.setattr(shell, "KEPT_RECORDS", 10)

    async def story(cells):
        for number in range(6):
            await cells.submit(f"j{number}")
        await cells.run(3_000)
        await cells.submit("huge", stages=[{**spec("j")["stages"][0], "demand": {"cpu": "99"}}])
        await cells.run(1_000)
        cells.restart()
        await cells.router.step()
        assert cells.router._reader.order.seq >= 10
        await cells.run(TAKEOVER_MS)
        assert cells.router.is_leading
        assert dump(cells.router.state) == dump(check(await cells.records()).state)
        await cells.submit("late")
        await cells.run(12_000)
        assert await cells.succeeded() == Counter({**{f"j{number}": 1 for number in range(6)}, "late": 1})

    tell(story)
