"""Phases of jobs, from streams of starts and ends as in figures 2 to 5 of the DRESS paper (algorithms 1 and 2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.estimator.phases import JobPhases, Windows, begin, finish, is_trailing, leave, ramps, variation_ms
from services.estimator.ramp import come_by, increments

PAPER = Windows(window_ms=10_000, start_tasks=5, end_tasks=5)  # Section V-A.
ONE = {"cpu": 1_000}


class Stream:
    """A job whose tasks start and end at the times given; stages by name, each with how many tasks it has."""

    def __init__(self, windows=PAPER, **stages):
        self.windows = windows
        self.stages = list(stages)
        self.left = dict(stages)
        self.job = JobPhases()
        self.running = []
        self.events = []

    def tasks(self, stage, *tasks, demand=None):
        """Tasks of a stage as (start, run time) in milliseconds."""
        for start_ms, lasts_ms in tasks:
            task = {"stage": stage, "demand": demand or ONE}
            self.events += [(start_ms, 1, len(self.events), task), (start_ms + lasts_ms, 0, len(self.events), task)]
        return self

    def until(self, now_ms):
        """Everything up to and with this moment; ends go before starts. Returns the job's phases."""
        self.events.sort(key=lambda event: event[:3])
        while self.events and self.events[0][0] <= now_ms:
            at_ms, starts, _, task = self.events.pop(0)
            if starts:
                stage, left = task["stage"], self.left[task["stage"]]
                number = self.stages.index(stage)
                task["phase"] = begin(self.job, at_ms, number, left, task["demand"], self.windows)
                self.left[stage] -= 1
            else:
                finish(self.job, task["phase"], at_ms, task["demand"], self.windows)
        return self.job.phases

    def coming(self, now_ms, at_ms, kind="cpu"):
        """What is to come by `at_ms`, as it is seen at `now_ms`."""
        self.until(now_ms)
        return sum(
            come_by(ramp.total[kind], ramp.given_back.get(kind, 0), ramp.release_ms, ramp.spread_ms, at_ms)
            for ramp in ramps(self.job, now_ms, self.windows)
        )


def word_count():
    """Figure 2: 20 map tasks whose starts are spread over 3.8 s, then 4 reduce tasks over 0.9 s."""
    maps = [(200 * i, 18_000) for i in range(20)]
    return Stream(map=20, reduce=4).tasks("map", *maps).tasks("reduce", *((22_000 + 300 * i, 7_000) for i in range(4)))


def test_map_and_reduce_tasks_are_two_phases_with_their_starting_variations():
    stream = word_count()
    (maps,) = stream.until(21_000)
    assert (maps.tasks, variation_ms(maps), maps.started) == (20, 3_800, True)

    maps, reduces = [*stream.until(21_800), *stream.until(24_000)][-2:]
    assert (maps.finished, reduces.tasks, variation_ms(reduces)) == (20, 4, 900)


def test_a_phase_gives_back_from_its_first_finish_on_over_its_starting_variation():
    stream = word_count()
    assert stream.coming(18_900, 30_000) == 0  # Five finishes are no more than the threshold.

    (maps,) = stream.until(19_000)
    assert (maps.release_ms, maps.finished) == (18_000, 6)
    assert stream.coming(19_000, 19_900) == 20_000 * 1_900 // 3_800 - 6_000
    assert stream.coming(19_000, 21_800) == 14_000
    assert stream.coming(19_000, 60_000) == 14_000


def test_fewer_tasks_than_the_threshold_are_a_phase_too():
    stream = word_count()
    stream.until(29_600)
    (reduces,) = stream.job.phases

    assert (reduces.number, reduces.release_ms, reduces.started) == (2, 29_000, True)
    assert stream.coming(29_600, 29_900) == 4_000 * 900 // 900 - 3_000


def test_a_task_alone_is_a_phase_that_has_nothing_to_give_back_but_itself():
    stream = Stream(only=1).tasks("only", (0, 5_000))

    assert stream.coming(4_000, 60_000) == 0
    assert stream.coming(5_000, 60_000) == 0
    assert stream.job.phases[0].release_ms == 5_000


def page_rank():
    """Figure 3: of 9 reduce tasks 8 take 18.25 s on average (variance 1.45 s), the last one takes 1.26 s."""
    lengths = [16_700, 17_100, 17_600, 18_100, 18_400, 18_900, 19_400, 19_800]
    assert sum(lengths) == 8 * 18_250
    mean = sum(lengths) / 8
    assert 1.0 < sum((length - mean) ** 2 for length in lengths) / 8 / 1_000**2 < 1.45
    tasks = [(100 * i, length) for i, length in enumerate(lengths)]
    return Stream(reduce=9).tasks("reduce", *tasks, (800, 1_260))


def test_a_heading_task_does_not_bring_forward_when_a_phase_gives_back():
    stream = page_rank()
    (reduces,) = stream.until(2_060)
    assert (reduces.finished, reduces.release_ms) == (1, None)

    (reduces,) = stream.until(18_800)
    assert reduces.release_ms == 16_700  # Not at 2,060.
    assert stream.coming(18_800, 60_000) == (9 - reduces.finished) * 1_000


def test_last_blocks_of_two_data_sets_are_heading_tasks():
    """Figure 5: 1,664 MB and 1,280 MB in blocks of 512 MB are 4 and 3 blocks, the last ones of 128 and 256 MB. A task
    takes 3 s for 64 MB."""
    blocks = [512, 512, 512, 128, 512, 512, 256]
    assert (sum(blocks[:4]), sum(blocks[4:])) == (1_664, 1_280)
    stream = Stream(map=7).tasks("map", *((0, size // 64 * 3_000) for size in blocks))

    (maps,) = stream.until(12_000)
    assert (maps.finished, maps.release_ms) == (2, None)
    (maps,) = stream.until(24_000)
    assert (maps.finished, maps.release_ms) == (7, 24_000)


def test_no_starting_variation_gives_all_back_at_once():
    stream = Stream(map=7).tasks("map", *((0, 20_000) for _ in range(4)), *((0, 20_500) for _ in range(3)))

    assert stream.coming(20_000, 20_000) == 3_000


def skewed(windows):
    """Figure 4: one task takes 17.6 s, 38 % more than the second longest; a next phase follows."""
    assert round(12_753 * 1.38, -2) == 17_600
    lengths = [11_000, 11_400, 11_800, 12_200, 12_500, 12_753, 17_600]
    return Stream(windows, map=7, next=3).tasks("map", *((0, length) for length in lengths))


def test_a_trailing_task_counts_to_the_next_phase():
    windows = Windows(4_000, 5, 5)
    stream = skewed(windows)
    (maps,) = stream.until(16_752)
    assert not is_trailing(maps, 16_752, 4_000)
    assert stream.coming(16_752, 60_000) == 1_000
    assert is_trailing(maps, 16_753, 4_000)
    assert stream.coming(16_753, 60_000) == 0

    stream.tasks("next", *((17_000, 9_000) for _ in range(3)))
    (following,) = stream.until(17_000)
    assert (following.number, following.tasks, following.finished) == (2, 4, 0)
    (following,) = stream.until(17_600)
    assert following.finished == 1


def test_within_the_papers_window_such_a_task_is_no_trailing_one():
    """It ends 4.8 s behind the others, inside a window of 10 s."""
    stream = skewed(PAPER)

    assert stream.coming(17_599, 60_000) == 1_000
    (maps,) = stream.until(17_600)
    assert maps.finished == 7


def test_trailing_tasks_wait_for_a_phase_that_has_not_come_yet():
    stream = skewed(Windows(2_000, 5, 5))
    stream.until(17_600)

    assert (stream.job.trailing, stream.job.phases) == (0, [])


def test_a_task_that_failed_belongs_to_no_phase_any_more():
    job = JobPhases()
    numbers = [begin(job, 0, 0, 4 - i, ONE, PAPER) for i in range(4)]
    leave(job, numbers[0], ONE)

    assert (job.phases[0].tasks, job.phases[0].total) == (3, {"cpu": 3_000})


def test_kinds_are_followed_one_by_one():
    stream = Stream(map=4).tasks("map", *((0, 5_000) for _ in range(3)), demand={"cpu": 1_000})
    stream.tasks("map", (0, 6_000), demand={"gpu": 500})

    assert (stream.coming(5_000, 9_000, "cpu"), stream.coming(5_000, 9_000, "gpu")) == (0, 500)


@pytest.mark.parametrize(
    ("at_ms", "amount"),
    [
        pytest.param(4_999, 0, id="nothing before"),
        pytest.param(5_000, 0, id="at that moment what has come covers it"),
        pytest.param(5_500, 300, id="half the time gives half, less what has come"),
        pytest.param(6_000, 800, id="in the end all the rest"),
        pytest.param(99_000, 800, id="and no more"),
    ],
)
def test_the_line_of_a_phase(at_ms, amount):
    assert come_by(1_000, 200, 5_000, 1_000, at_ms) == amount


TASKS = st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 40_000)), min_size=1, max_size=30)


@given(TASKS, st.integers(0, 12_000), st.integers(0, 6), st.integers(0, 100_000))
def test_no_more_is_to_come_than_runs_and_it_comes_in_order(tasks, window_ms, threshold, now_ms):
    stream = Stream(Windows(1 + window_ms, threshold, threshold), map=len(tasks)).tasks("map", *tasks)
    stream.until(now_ms)
    runs = sum(start <= now_ms < start + lasts for start, lasts in tasks)
    moments = range(now_ms, now_ms + 60_000, 5_000)

    coming = [stream.coming(now_ms, at_ms) for at_ms in moments]

    assert coming == sorted(coming)
    assert coming[-1] <= runs * 1_000


@given(TASKS, st.integers(0, 6))
def test_whatever_has_ended_leaves_nothing_behind(tasks, threshold):
    stream = Stream(Windows(10_000, threshold, threshold), map=len(tasks)).tasks("map", *tasks)
    stream.until(200_000)

    assert stream.coming(200_000, 300_000) == 0
    assert (stream.job.trailing, {kind: amount for kind, amount in stream.job.total.items() if amount}) == (0, {})
    assert all(phase.finished == phase.tasks for phase in stream.job.phases)
    assert len(stream.job.phases) <= 1


@given(TASKS, st.integers(0, 6), st.integers(0, 100_000))
def test_increments_by_second_are_the_line(tasks, threshold, now_ms):
    stream = Stream(Windows(10_000, threshold, threshold), map=len(tasks)).tasks("map", *tasks)
    stream.until(now_ms)
    for ramp in ramps(stream.job, now_ms, stream.windows):
        parts = increments(ramp, 400_000)
        for second in range(now_ms // 1_000 + 1, 200, 7):
            line = come_by(
                ramp.total["cpu"], ramp.given_back.get("cpu", 0), ramp.release_ms, ramp.spread_ms, second * 1_000
            )
            assert sum(amount for _, at, amount in parts if at <= second) == line
