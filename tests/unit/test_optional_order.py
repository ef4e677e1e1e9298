"""In which order a job offers the tasks that could wait to what is left over."""

import pytest
from hypothesis import strategies as st

from tests.builders import job, single, stage
from tests.strategies import for_all
from tests.unit.test_altruism_plans import asked, cell

LONG = stage("long", 1, duration_ms=100_000)
FIRST = stage("first", 1, duration_ms=10_000)
BEHIND = stage("behind", 2, after=["first"], duration_ms=30_000)
WIDE = stage("wide", 6, duration_ms=10_000)


def optional(story, name):
    return [of for of, _, kind in asked(story).get(name, []) if kind == "optional"]


def after_the_first(*stages, **knobs):
    """Which of `behind` and `wide` goes first once `first` has ended, on four cores, while tasks of `wide` run."""
    story = cell(job("j", *stages), cpu=4_000, **knobs)
    story.open()
    grants = {grant.stage: grant for grant in story.close().grants}
    for grant in grants.values():
        story.start(grant)
    story.at(10_000).finish(single(grants["first"], 0))
    story.open()
    return [of for of in optional(story, "j") if of != "long"]


@pytest.mark.parametrize(
    ("knobs", "order"),
    [
        pytest.param({}, ["wide", "behind"], id="nearest to the start, whatever the order of the file"),
        pytest.param({"job_order": "breadth_first"}, ["wide", "behind"], id="so by name"),
        pytest.param({"job_order": "critical_path"}, ["behind", "wide"], id="the longest way to the end"),
        pytest.param({"job_order": "dagps"}, ["behind", "wide"], id="as in the file"),
        pytest.param({"preset": "carbyne-dag"}, ["behind", "wide"], id="as in the file by preset"),
    ],
)
def test_tasks_that_could_wait_go_by_the_order_of_the_job(knobs, order):
    assert after_the_first(FIRST, BEHIND, WIDE, LONG, **knobs) == order


def test_the_longest_way_to_the_end_goes_before_the_order_of_the_file():
    assert after_the_first(FIRST, WIDE, BEHIND, LONG, job_order="critical_path") == ["behind", "wide"]
    assert after_the_first(FIRST, WIDE, BEHIND, LONG, job_order="dagps") == ["wide", "behind"]


@st.composite
def graphs(draw):
    """Stages in the order of the file: by each those that it comes after, how long it runs, and its tasks."""
    return [
        (
            draw(st.sets(st.integers(0, at - 1), max_size=2)) if at else set(),
            draw(st.integers(1, 9)) * 1_000,
            draw(st.integers(1, 3)),
        )
        for at in range(draw(st.integers(2, 7)))
    ]


@for_all(graphs(), st.integers(1, 4))
def test_in_any_graph_depth_decides_and_then_the_file(graph, cores):
    depths = []
    for after, _, _ in graph:
        depths.append(1 + max((depths[each] for each in after), default=-1))
    stages = [
        stage(f"s{at}", tasks, after=[f"s{each}" for each in sorted(after)], duration_ms=lasts_ms)
        for at, (after, lasts_ms, tasks) in enumerate(graph)
    ]
    story = cell(job("j", *stages), cpu=1_000 * cores)
    running = []
    for time in range(0, 1_000_000, 1_000):
        story.at(time)
        while story.open():
            found = [int(each[1:]) for each in optional(story, "j")]
            assert found == sorted(found, key=lambda at: (depths[at], at))
            for grant in story.close().grants:
                story.start(grant)
                ends_ms = time + graph[int(grant.stage[1:])][1]
                running += [(ends_ms, single(grant, grant.first + each)) for each in range(grant.count)]
        for ends_ms, task in list(running):
            if ends_ms <= time + 1_000:
                story.at(ends_ms).finish(task)
                running.remove((ends_ms, task))
        if not running:
            break
    assert not running
