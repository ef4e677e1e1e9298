"""A job that names no cell runs in one cell at most, and once, whatever ends, comes late, or comes twice.

Real routers over real cells, stepped by a clock of the test's. Any instance may be given up at any time and come back
later; whatever any of them has sent may come again at any time; nodes go and come back, and whole cells stand still.
"""

import asyncio
from contextlib import suppress

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from schemas.routes import RouterSet
from tests.routed_cells import TAKEOVER_MS, Ended, RoutedCells, spec

NODES = {"east": {"e1": "2"}, "west": {"w1": "2"}}
KNOBS = RouterSet(lease_ms=6_000, move_after_ms=4_000, move_gap_ms=20_000, move_gain_permille=100)
NAMES = [f"j{number}" for number in range(5)]

STEPS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(NAMES), st.sampled_from([1_000, 30_000])),
    st.tuples(st.just("direct"), st.sampled_from(["east", "west"]), st.just(30_000)),
    st.tuples(st.just("cancel"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("repeat"), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("restart"), st.just(""), st.just(0)),
    st.tuples(st.just("unsent"), st.just(""), st.just(0)),
    st.tuples(st.just("zombie"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("away"), st.sampled_from(["east", "west"]), st.just(0)),
    st.tuples(st.just("back"), st.sampled_from(["east", "west"]), st.just(0)),
    st.tuples(st.just("stop"), st.sampled_from(["east", "west"]), st.just(0)),
    st.tuples(st.just("go on"), st.sampled_from(["east", "west"]), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([1, 5, 12, 40]), st.just(0)),
)


async def act(cells, stopped, numbers, step):
    what, which, value = step
    match what:
        case "submit":
            await cells.submit(which, stages=[{**spec("j")["stages"][0], "duration_ms": value, "demand": {"cpu": "2"}}])
        case "direct":
            stage = {**spec("j")["stages"][0], "duration_ms": value, "demand": {"cpu": "2"}}
            await publish_to(cells, stopped, which, {"job": f"own-{len(numbers)}", "stages": [stage]})
            numbers.append(which)
        case "cancel":
            await cells.say({"cancel": which})
        case "repeat":
            await cells.repeat(which)
        case "restart":
            cells.restart()
        case "unsent":
            await cells.fail_to_send()
        case "zombie" if cells.gone:
            with suppress(Ended):
                await cells.gone[which % len(cells.gone)].step()
        case "away" | "back":
            for agent in (cells.cells.get(which) or stopped[which]).agents.values():
                if what == "away":
                    agent.away = True
                elif agent.away:
                    await agent.come_back()
        case "stop" if which in cells.cells:
            stopped[which] = cells.cells.pop(which)
        case "go on" if which in stopped:
            cells.cells[which] = stopped.pop(which)
        case "wait":
            await cells.run(which * 1_000)


async def publish_to(cells, stopped, name, document):
    if name in cells.cells:
        await cells.say_to(name, "jobs", document)


async def tell(steps):
    cells = await RoutedCells(NODES, KNOBS).begin()
    stopped, numbers = {}, []
    for step in steps:
        await act(cells, stopped, numbers, step)
        await cells.step()
    cells.cells = {name: cells.cells.get(name) or stopped[name] for name in NODES}
    for cell in cells.cells.values():
        for agent in cell.agents.values():
            if agent.away:
                await agent.come_back()
    await cells.run(TAKEOVER_MS + 250_000)

    await cells.assert_lawful()
    assert cells.router.state.jobs == {}, "every job has come to an end"
    done = await cells.succeeded()
    ended = {name: over.outcome for name, over in cells.router.state.over.items()}
    assert {name: done[name] for name, outcome in ended.items() if outcome == "succeeded"} == {
        name: 1 for name, outcome in ended.items() if outcome == "succeeded"
    }
    cancelled = {name for what, name, _ in steps if what == "cancel"}
    asked = {name for what, name, _ in steps if what == "submit"}
    assert {name for name in asked if ended.get(name) != "succeeded"} <= cancelled


@settings(max_examples=12)
@for_all(st.lists(STEPS, min_size=3, max_size=25))
def test_a_job_runs_in_one_cell_at_most_and_comes_to_an_end(steps):
    asyncio.run(tell(steps))
