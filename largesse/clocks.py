"""What a log's writer reads of the outside world: this machine's clocks, and chance. Tests hand others in."""

import secrets
import time


def wall_ms() -> int:
    """The wall clock: Unix milliseconds, UTC."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """The steady clock: milliseconds since the machine was started, those it slept through included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def fresh_token() -> str:
    """A token that no claim has carried before."""
    return secrets.token_hex(16)
