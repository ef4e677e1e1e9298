"""The evaluation of the H-DRF paper (SoCC 2013, section 5), small enough for every day. `benchmarks/hdrf_paper.py` has
the whole of it and prints it beside the paper's figures.
"""

from functools import cache

import pytest

from benchmarks import hdrf_paper as paper

SERVERS = 20
DIVIDE, DIVIDE_DAILY = 3, 5


# ---------------------------------------------------------------- figures 8 and 9
@cache
def figure_9():
    return paper.figure_9()


@pytest.mark.parametrize("phase", list(paper.FIGURE_9))
def test_figure_9_has_the_shares_of_the_paper(phase):
    """Four to one between the parents, though n1,2 has all GPUs; what ends is taken over by siblings first."""
    at_s, shares = paper.FIGURE_9[phase]
    for leaf, share in shares.items():
        held = figure_9().running([leaf], at_s * 1_000)
        assert abs(held - share * paper.FIGURE_9_CORES) <= 1, leaf


def test_jobs_of_figure_9_end_when_the_paper_says_within_one_of_their_tasks():
    """A job of 2,000 tasks ends with whole waves of them."""
    for leaf, end_s in paper.FIGURE_9_ENDS_S.items():
        lasts_ms = next(span.end_ms - span.start_ms for span in figure_9().spans if span.job == leaf)
        assert abs(figure_9().rows[leaf]["end_ms"] - end_s * 1_000) <= lasts_ms


# ---------------------------------------------------------------- figures 10 and 11
@cache
def figure_11(scheduler, daily):
    """Median tasks at once by leaf, while n1,1, n1,2 and n3,1 all have work."""
    lines = paper.figure_10_jobs(divide=DIVIDE_DAILY if daily else DIVIDE)
    found = paper.figure_11(lines, scheduler, SERVERS)
    moments = paper.contended(found, lines)
    assert len(moments) > 100
    return dict(zip(paper.LEAVES, paper.throughput(found, lines, moments), strict=True))


def test_hdrf_starves_nobody_and_leaves_no_gpu_idle(daily):
    found = figure_11("hdrf", daily)
    assert found["n1/n1,2"] == SERVERS
    assert found["n1/n1,1"] >= SERVERS * 4 // 3
    assert found["n3/n3,1"] >= SERVERS * 4 // 3


def test_naive_hierarchical_drf_starves_n1_1(daily):
    """All GPUs go to n1,2, which counts as n1's share, so that n1,1 gets nothing that anybody else can use."""
    found, ours = figure_11("naive-hdrf", daily), figure_11("hdrf", daily)
    assert found["n1/n1,2"] == SERVERS
    assert found["n1/n1,1"] <= ours["n1/n1,1"] // 10
    assert found["n3/n3,1"] > 5 * ours["n3/n3,1"] // 4


def test_a_scheduler_that_stops_at_whoever_does_not_fit_pins_n1_2_down(daily):
    """To the dominant share of n1,1, though half of the GPUs are free and nobody else wants them."""
    found = figure_11("capacity, current", daily)
    assert found["n1/n1,2"] <= SERVERS * 6 // 10
    assert abs(found["n1/n1,2"] / SERVERS - found["n1/n1,1"] / (4 * SERVERS)) <= 0.1


# ---------------------------------------------------------------- figures 12 and 13
@cache
def figure_12(slots):
    return paper.figure_12(paper.figure_10_jobs(divide=8), slots, 7)


@pytest.mark.whole
@pytest.mark.parametrize("slots", [4, 5, 6])
def test_slots_are_slower_than_hdrf_whether_too_few_or_too_many(slots):
    ours, other = figure_12(None), figure_12(slots)

    assert other.makespan_s > ours.makespan_s
    gains = paper.by_bin(ours, other)
    assert gains[0] > 0
    assert sum(gain for gain in gains if gain is not None) > 0


@pytest.mark.whole
def test_slots_on_the_facebook_trace_make_small_jobs_wait_and_more_slots_help():
    """As figure 13: H-DRF is better at any size of job, the more so the fewer slots there are."""
    if not paper.TRACE.is_file():
        pytest.skip(f"no {paper.TRACE.name} beside the project")
    lines = paper.figure_13_jobs(paper.TRACE, (0, 1), 40)[:400]
    ours = paper.figure_13(lines, None, 6)
    few, many = (paper.by_bin(ours, paper.figure_13(lines, slots, 6)) for slots in (10, 14))
    assert few[0] > many[0] > 0
