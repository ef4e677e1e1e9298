"""Log time: passes as the steady clock does, never goes back, follows the wall clock no faster than stated."""

import pytest
from hypothesis import strategies as st

from largesse.clocks import steady_ms, wall_ms
from services.admission.clock import AGREES_MS, BELIEVED_AFTER_MS, SLEW, LogClock
from tests.strategies import for_all

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
NOW_MS = 1_800_000_000_000
JUMPS = [sign * span for span in (HOUR_MS, DAY_MS, YEAR_MS) for sign in (1, -1)]


class Machine:
    """A machine with both clocks, and a sequencer's log clock on it."""

    def __init__(self):
        self.steady = 5_000_000
        self.wall = NOW_MS
        self.clock = LogClock(lambda: self.wall, lambda: self.steady)

    def leads(self, last_ms=NOW_MS):
        self.clock.lead(last_ms)
        return self

    def passes(self, span_ms, jump_ms=0):
        """Time passes, the wall clock jumps, and the clock is read. Returns by how much log time rose."""
        before = self.clock.log_ms
        self.steady += span_ms
        self.wall += span_ms + jump_ms
        self.clock.tick()
        return self.clock.log_ms - before

    def lives(self, span_ms, step_ms=1_000):
        return sum(self.passes(step_ms) for _ in range(span_ms // step_ms))


def test_without_jumps_it_is_the_wall_clock():
    machine = Machine().leads()
    for span_ms in (0, 1, 7, 1_000, 60_000):
        machine.passes(span_ms)
        assert machine.clock.log_ms == machine.wall


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_after_a_jump_of_the_wall_clock_it_goes_on_as_time_passes(jump_ms):
    machine = Machine().leads()
    rose = machine.passes(100, jump_ms)
    assert abs(rose - 100) <= 100 // SLEW
    rose = machine.lives(60_000)

    assert abs(rose - 60_000) <= 60_000 // SLEW


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_jump_that_is_taken_back_within_the_time_leaves_next_to_nothing(jump_ms):
    machine = Machine().leads()
    machine.passes(1, jump_ms)
    machine.lives(BELIEVED_AFTER_MS - 10_000)
    machine.passes(1, -jump_ms)

    assert abs(machine.clock.log_ms - machine.wall) <= BELIEVED_AFTER_MS // SLEW


@pytest.mark.parametrize("jump_ms", [HOUR_MS, DAY_MS, YEAR_MS])
def test_a_wall_clock_that_stays_ahead_is_believed_after_the_stated_time_and_not_before(jump_ms):
    machine = Machine().leads()
    machine.passes(0, jump_ms)
    machine.lives(BELIEVED_AFTER_MS - 1)
    assert machine.clock.log_ms < machine.wall - jump_ms // 2
    machine.passes(BELIEVED_AFTER_MS)

    assert machine.clock.log_ms == machine.wall


def test_a_wall_clock_that_keeps_jumping_is_never_believed():
    machine = Machine().leads()
    started = machine.steady
    for _ in range(100):
        machine.passes(BELIEVED_AFTER_MS - 1_000, DAY_MS)
    elapsed = machine.steady - started

    assert machine.clock.log_ms - NOW_MS <= elapsed + elapsed // SLEW


def test_a_wall_clock_that_runs_at_twice_the_speed_is_not_followed():
    machine = Machine().leads()
    rose = sum(machine.passes(1_000, 1_001) for _ in range(5_000))

    assert rose <= 5_000_000 + 5_000_000 // SLEW


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, DAY_MS, YEAR_MS])
def test_a_log_ahead_of_the_wall_clock_goes_on_from_its_last_record_until_the_wall_clock_has_caught_up(ahead_ms):
    machine = Machine().leads(NOW_MS + ahead_ms)
    assert machine.clock.log_ms == NOW_MS + ahead_ms
    rose = machine.lives(1_000_000)
    assert rose == 1_000_000 - 1_000_000 // SLEW
    machine.passes(SLEW * ahead_ms)

    assert machine.clock.log_ms == machine.wall


@pytest.mark.parametrize("span_ms", [1, 2, 3])
def test_small_steps_are_corrected_at_the_same_rate_as_large_ones(span_ms):
    machine = Machine().leads(NOW_MS + HOUR_MS)
    rose = machine.lives(60_000, span_ms)

    assert abs(rose - (60_000 - 60_000 // SLEW)) <= SLEW


def test_a_cell_that_was_down_for_a_week_starts_with_the_right_time():
    machine = Machine().leads(NOW_MS - 7 * DAY_MS)

    assert machine.clock.log_ms == NOW_MS


def test_a_machine_that_slept_goes_on_with_the_right_time_at_once():
    machine = Machine().leads()
    machine.passes(8 * HOUR_MS)

    assert machine.clock.log_ms == machine.wall


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_standby_that_heard_the_log_takes_over_with_its_time_whatever_its_own_wall_clock_says(jump_ms):
    machine = Machine()
    machine.passes(1_000, jump_ms)
    machine.clock.hear(NOW_MS + 1_000)
    rose = machine.passes(3_000)
    assert abs(rose - 3_000) <= 3_000 // SLEW
    machine.leads(NOW_MS + 1_000)
    rose = machine.lives(30_000)

    assert abs(machine.clock.log_ms - (NOW_MS + 34_000)) <= 33_000 // SLEW
    assert abs(rose - 30_000) <= 30_000 // SLEW


@pytest.mark.parametrize("jump_ms", [0, *JUMPS])
@pytest.mark.parametrize("written_ms", [0, 60_000])
def test_a_standby_that_was_away_goes_on_with_the_time_it_knew_before(jump_ms, written_ms):
    machine = Machine()
    machine.clock.hear(NOW_MS)
    machine.passes(1_000)
    machine.clock.hear(NOW_MS + 1_000 + written_ms)  # Read before its pause, or at the end of it.
    machine.passes(60_000, jump_ms)
    machine.clock.discard_heard()
    machine.leads(NOW_MS)

    assert abs(machine.clock.log_ms - (NOW_MS + 61_000)) <= 61_000 // SLEW


def test_a_standby_that_was_away_before_it_knew_the_time_takes_the_wall_clock():
    machine = Machine()
    machine.clock.hear(NOW_MS - 30 * 60_000)
    machine.passes(60_000)
    machine.clock.discard_heard()
    machine.leads(NOW_MS - 30 * 60_000)

    assert machine.clock.log_ms == machine.wall


def test_a_jump_is_told_once_with_its_size():
    machine = Machine().leads()
    machine.passes(100, DAY_MS)
    assert machine.clock.jumped_ms == DAY_MS
    machine.passes(100)
    assert machine.clock.jumped_ms == 0


def test_a_drift_is_no_jump_however_long_it_lasts():
    machine = Machine().leads()
    for _ in range(10_000):
        machine.passes(10_000, 1)
        assert machine.clock.jumped_ms == 0
        assert abs(machine.clock.log_ms - machine.wall) <= AGREES_MS


def test_both_clocks_of_this_machine_rise():
    before = steady_ms(), wall_ms()
    assert before[0] > 0
    assert before[1] > NOW_MS // 2
    assert steady_ms() >= before[0]


@for_all(
    first=st.sampled_from([0, *JUMPS]),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from([0, 0, 0, 1, -1, *JUMPS])), max_size=60),
)
def test_whatever_the_wall_clock_does_log_time_never_goes_back_and_runs_within_its_bounds(first, steps):
    machine = Machine().leads(NOW_MS + first)
    started = machine.clock.log_ms
    for span_ms, jump_ms in steps:
        rose = machine.passes(span_ms, jump_ms)
        # A millisecond of credit may be left from the step before.
        assert max(0, span_ms - span_ms // SLEW - 1) <= rose
        assert rose <= span_ms + span_ms // SLEW + 1
    elapsed = machine.steady - 5_000_000
    assert machine.clock.log_ms - started <= elapsed + elapsed // SLEW
    assert machine.clock.log_ms - started >= elapsed - elapsed // SLEW
